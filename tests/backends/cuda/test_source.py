"""CUDA C++ sources: building without a GPU, the cache, and launching with one."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from deepinfer.backends.cuda import binaries, nvrtc, source
from deepinfer.hal.errors import InvalidArgumentError, KernelError

SCALE = str(Path(__file__).parent / "source" / "scale.cu")
SPEC = importlib.util.find_spec("nvidia")
needs_nvrtc = pytest.mark.skipif(SPEC is None, reason="nvidia-cuda-nvrtc is not installed")


def scale_kernel(factor=3):
    return source.SourceKernel(SCALE, "scale", "PPfi", threads=64, defines={"FACTOR": factor})


@needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_90", "sm_100"])
def test_builds_without_a_gpu(tmp_path, arch):
    built = scale_kernel().build(arch, tmp_path)
    assert built.path.read_bytes()[:4] == b"\x7fELF"
    report = built.resources["scale"]
    assert 0 < report.registers < 64 and report.spills == report.stack == report.shared == 0


@needs_nvrtc
def test_the_cache_goes_by_content(tmp_path, monkeypatch):
    first = scale_kernel().build("sm_90", tmp_path)
    assert scale_kernel(2).build("sm_90", tmp_path).path != first.path
    assert scale_kernel().build("sm_100", tmp_path).path != first.path
    assert len(list(tmp_path.iterdir())) == 6, "a cubin and a report each, nothing half-written left"

    def refuse(*_args):
        raise AssertionError("compiled again")

    monkeypatch.setattr(nvrtc, "compile_text", refuse)
    assert scale_kernel().build("sm_90", tmp_path) == first
    changed = tmp_path / "scale.cu"
    changed.write_text(Path(SCALE).read_text().replace("+ shift", "- shift"))
    with pytest.raises(AssertionError, match="compiled again"):
        source.build(str(changed), "sm_90a", ("-DFACTOR=3",), tmp_path)


@needs_nvrtc
def test_a_cubin_made_elsewhere_serves_without_the_compiler(tmp_path, monkeypatch):
    made = scale_kernel().build("sm_90", tmp_path)

    def missing():
        raise source.BackendError("NVRTC is not installed")

    monkeypatch.setattr(nvrtc, "version", missing)
    assert scale_kernel().build("sm_90", tmp_path) == made
    with pytest.raises(source.BackendError, match="not installed"):
        scale_kernel(5).build("sm_90", tmp_path)


@needs_nvrtc
def test_a_faulty_source_is_named_with_the_compilers_words(tmp_path):
    with pytest.raises(KernelError, match=r"scale\.cu does not compile for sm_90a:[\s\S]*FACTOR"):
        source.build(SCALE, "sm_90a", (), tmp_path)
    assert not list(tmp_path.iterdir())


@needs_nvrtc
def test_nothing_compiles_when_it_is_forbidden(tmp_path):
    with binaries.no_compile("the warm-up is over"), pytest.raises(KernelError, match="not compiled, and the warm-up"):
        scale_kernel(11).build("sm_90", tmp_path)


def test_resources_are_read_from_the_report():
    log = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'a' for 'sm_90a'
ptxas info    : Function properties for a
    8 bytes stack frame, 12 bytes spill stores, 20 bytes spill loads
ptxas info    : Used 168 registers, used 2 barriers, 1024 bytes smem
ptxas info    : Compiling entry function 'b' for 'sm_90a'
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 0 barriers"""
    assert nvrtc.resources(log) == {"a": nvrtc.Resources(168, 32, 8, 1024), "b": nvrtc.Resources(10, 0, 0, 0)}


def test_wrong_uses_are_named():
    with pytest.raises(InvalidArgumentError, match="signature"):
        source.SourceKernel(SCALE, "scale", "Px", threads=64)
    with pytest.raises(InvalidArgumentError, match="arch: got 'sm_80'"):
        scale_kernel().build("sm_80")


def test_nothing_is_loaded_by_the_import():
    code = (
        "import deepinfer.backends.cuda.source as s; from deepinfer.backends.cuda import nvrtc;"
        "assert not nvrtc.library.cache_info().currsize and not s.driver.cache_info().currsize;"
        "import sys; assert 'triton' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@pytest.mark.gpu
def test_launches_on_the_current_stream_and_in_a_graph():
    kernel = scale_kernel()
    x = torch.randn(1000, device="cuda")
    out = torch.full_like(x, torch.nan)
    with pytest.raises(InvalidArgumentError, match="scale: arguments"):
        kernel.launch((16, 1, 1), 0, x.data_ptr(), out.data_ptr(), 1.0)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        kernel.launch((16, 1, 1), 0, x.data_ptr(), out.data_ptr(), 1.0, 999)
    side.synchronize()
    assert torch.equal(out[:999], x[:999] * 3 + 1) and out[999].isnan()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel.launch((16, 1, 1), 0, x.data_ptr(), out.data_ptr(), 2.0, 1000)
    x += 1
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out, x * 3 + 2)
    with pytest.raises(KernelError, match="not launched"):
        kernel.launch((16, 1 << 20, 1), 0, x.data_ptr(), out.data_ptr(), 2.0, 1000)
