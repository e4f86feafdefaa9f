"""CUDA C++ sources: building without a GPU, the cache, and launching with one."""

import ctypes
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import fake_cuda
from deepinfer.backends.cuda import binaries, driver, nvrtc, source
from deepinfer.hal.errors import InvalidArgumentError, KernelError

SCALE = str(Path(__file__).parent / "source" / "scale.cu")
SHARED = str(Path(__file__).parent / "source" / "shared.cu")
SPEC = importlib.util.find_spec("nvidia")
needs_nvrtc = pytest.mark.skipif(SPEC is None, reason="nvidia-cuda-nvrtc is not installed")


def scale_kernel(factor=3, options=()):
    return source.SourceKernel(SCALE, "scale", "PPfi", threads=64, defines={"FACTOR": factor}, options=options)


@needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_90", "sm_100"])
def test_builds_without_a_gpu(tmp_path, arch):
    built = scale_kernel().build(arch, tmp_path)
    assert built.path.read_bytes()[:4] == b"\x7fELF"
    report = built.resources["scale"]
    assert 0 < report.registers < 64 and report.spills == report.stack == report.shared == 0


@needs_nvrtc
def test_every_compilation_reports_what_a_kernel_needs(monkeypatch):
    """NVRTC from 12.9 on keeps what it compiled, and gives it again without a report."""
    given = []

    class Library:
        def __getattr__(self, name):
            def call(*args):
                if name == "nvrtcCompileProgram":
                    given.extend(flag.decode() for flag in args[2])
                return getattr(real, name)(*args)

            return call

    real = nvrtc.library()
    monkeypatch.setattr(nvrtc, "library", Library)
    for _ in range(2):
        _, log = nvrtc.compile_text(Path(SCALE).read_text(), "scale.cu", "sm_90a", ("-DFACTOR=3",))
        assert nvrtc.resources(log)["scale"].registers > 0
    assert given.count("--no-cache") == (2 if tuple(map(int, nvrtc.version().split("."))) >= (12, 9) else 0)


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


def spoil(what: str, cubin: Path) -> None:
    """A cubin and its report, damaged."""
    report, data = cubin.with_suffix(".json"), cubin.read_bytes()
    if what == "another byte":
        cubin.write_bytes(data[:900] + bytes([data[900] ^ 1]) + data[901:])
    elif what == "cut":
        cubin.write_bytes(data[: len(data) // 2])
    elif what == "empty":
        cubin.write_bytes(b"")
    elif what == "another cubin":
        cubin.write_bytes(scale_kernel(2).build("sm_90", cubin.parent).cubin)
    elif what == "other resources":
        report.write_text(report.read_text().replace('"spills": 0', '"spills": 4'))
    elif what == "no digest":
        report.write_text("{}")
    else:
        report.write_text(report.read_text()[:-9])


@needs_nvrtc
@pytest.mark.parametrize(
    "what", ["another byte", "cut", "empty", "another cubin", "other resources", "no digest", "half a report"]
)
def test_a_damaged_cubin_is_made_anew_with_a_warning(tmp_path, what):
    made = scale_kernel().build("sm_90", tmp_path)
    spoil(what, made.path)
    with pytest.warns(binaries.CacheWarning, match=rf"{made.path.name} is damaged .* is made anew"):
        assert scale_kernel().build("sm_90", tmp_path) == made
    assert scale_kernel().build("sm_90", tmp_path) == made, "and kept: there is no second warning"


@needs_nvrtc
def test_a_damaged_cubin_made_elsewhere_is_not_loaded(tmp_path, monkeypatch):
    spoil("another byte", scale_kernel().build("sm_90", tmp_path).path)

    def missing():
        raise source.BackendError("NVRTC is not installed")

    monkeypatch.setattr(nvrtc, "version", missing)
    with pytest.warns(binaries.CacheWarning, match="damaged"), pytest.raises(source.BackendError):
        scale_kernel().build("sm_90", tmp_path)


@needs_nvrtc
def test_half_an_entry_is_made_anew(tmp_path):
    made = scale_kernel().build("sm_90", tmp_path)
    for part in (made.path, made.path.with_suffix(".json")):
        part.unlink()
        assert scale_kernel().build("sm_90", tmp_path) == made


@needs_nvrtc
def test_a_cache_that_cannot_be_written_is_warned_of(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.warns(binaries.CacheWarning, match="set DEEPINFER_JIT_CACHE_DIR"):
        assert scale_kernel().build("sm_90", blocked).cubin[:4] == b"\x7fELF"


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


@pytest.mark.parametrize("static", [0, 4656])
@pytest.mark.parametrize("dynamic", [0, 1, (48 << 10) - 4656, 48 << 10, (48 << 10) + 1, 200 << 10])
def test_shared_memory_is_asked_for_whatever_the_static_is(monkeypatch, static, dynamic):
    """48 KiB, as top-k wants for k = 2,048, beside static memory were refused: 'invalid argument'."""
    library = fake_cuda.Library(static)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    functions = driver.Functions()
    handle = functions.load(b"cubin", "kernel", dynamic)
    assert functions.launch(handle, 1, 1, 1, 32, 1, 1, dynamic, None, None, None) == 0


def test_more_shared_memory_than_there_is_is_refused(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: fake_cuda.Library(4656))
    with pytest.raises(KernelError, match="kernel cannot have 230000 bytes of dynamic shared memory per block"):
        driver.Functions().load(b"cubin", "kernel", 230000)


@pytest.mark.parametrize("cluster", [None, (1, 1, 5)])
@pytest.mark.parametrize("early", [False, True])
def test_a_launch_in_clusters_and_an_early_one_say_so_to_the_driver(monkeypatch, cluster, early):
    seen = []

    class Launches(fake_cuda.Library):
        def cuLaunchKernelEx(self, config, function, parameters, extra):
            c = config._obj
            listed = [(c.attributes[i].id, *c.attributes[i].value[:3]) for i in range(c.count)]
            seen.append((function.value, *c.grid, *c.block, c.shared, c.stream, listed, parameters, extra))
            return 0

    monkeypatch.setattr(ctypes, "CDLL", lambda name: Launches(0))
    assert driver.Functions().launch_with(1 << 40, (6, 2, 5), 128, 99, 1 << 41, "extra", cluster, early) == 0
    # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    want = ([(4, 1, 1, 5)] if cluster else []) + ([(6, 1, 0, 0)] if early else [])
    assert seen == [(1 << 40, 6, 2, 5, 128, 1, 1, 99, 1 << 41, want, None, "extra")]


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
    kernel = scale_kernel(options=("-fmad=false",))  # torch rounds the product
    x = torch.randn(1000, device="cuda")
    out = torch.full_like(x, torch.nan)
    with pytest.raises(InvalidArgumentError, match="scale: arguments"):
        kernel.launch((16, 1, 1), 0, x.data_ptr(), out.data_ptr(), 1.0)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
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


@pytest.mark.gpu
@pytest.mark.parametrize("shared", [8, (48 << 10) - 1024, (48 << 10) - 1016, 48 << 10, (48 << 10) + 8, 200 << 10])
def test_static_and_dynamic_shared_memory_together(shared):
    kernel = source.SourceKernel(SHARED, "last_word", "Pi", threads=64, shared=shared)
    out = torch.zeros(2, dtype=torch.int32, device="cuda")
    kernel.launch((1, 1, 1), 0, out.data_ptr(), shared // 4)
    assert out.tolist() == [255 + 7, shared // 4 - 1 + 7]


@pytest.mark.gpu
def test_too_much_shared_memory_is_named():
    kernel = source.SourceKernel(SHARED, "last_word", "Pi", threads=64, shared=227 << 10)
    with pytest.raises(KernelError, match="last_word cannot have 232448 bytes of dynamic shared memory"):
        kernel.launch((1, 1, 1), 0, 0, 4)
