"""The backend object: what it needs and says when it is not there; what the interpreter offers."""

from __future__ import annotations

import pytest
import torch

from deepinfer.backends import cuda
from deepinfer.backends.cuda import backend, driver
from deepinfer.hal.backend import Available, Unavailable
from deepinfer.hal.catalog import CATALOG
from deepinfer.hal.device import Device
from deepinfer.hal.graph import GraphsUnavailable
from deepinfer.hal.stream import InlineStreams

H200 = driver.Driver("13.0", ("sm_90",))


def verdict(monkeypatch: pytest.MonkeyPatch, found: driver.Driver | str = H200, triton: str = "3.6.0") -> str:
    """What the probe says on a machine with a CUDA torch and this driver, without the interpreter."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(cuda, "find_spec", lambda name: None if triton == "none" else name)
    monkeypatch.setattr(cuda, "version", lambda name: triton)
    monkeypatch.setattr(driver, "query", lambda: found)
    said = backend.probe()
    return f"available: {said.detail}" if isinstance(said, Available) else str(said)


def with_torch(monkeypatch: pytest.MonkeyPatch, usable: bool = True) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: usable)


@pytest.mark.parametrize("arch", ["sm_90", "sm_100"])
def test_a_gpu_that_kernels_are_for_is_usable(monkeypatch: pytest.MonkeyPatch, arch: str) -> None:
    with_torch(monkeypatch)
    said = verdict(monkeypatch, driver.Driver("13.0", (arch, arch)))
    assert said.startswith(f"available: 2 × {arch}, torch") and "driver for CUDA 13.0, Triton 3.6.0" in said


@pytest.mark.parametrize(
    ("found", "triton", "words"),
    [
        (H200, "none", ["Triton is not installed", "pip install 'triton>=3.6'"]),
        (H200, "3.5.1", ["Triton 3.5.1 is too old", "pip install"]),
        ("NVIDIA's driver is not installed (no libcuda.so.1)", "3.9.0", ["driver is not installed", "nvidia-smi"]),
        (driver.Driver("13.0", ("sm_80",)), "3.9.0", ["the kernels are for sm_90 and sm_100", "sm_80"]),
        (driver.Driver("13.0", ("sm_120", "sm_90")), "3.9.0", ["sm_120, sm_90", "first in CUDA_VISIBLE_DEVICES"]),
        (driver.Driver("13.0", ()), "3.9.0", ["the GPUs here are none"]),
    ],
)
def test_what_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, found: driver.Driver | str, triton: str, words: list[str]
) -> None:
    with_torch(monkeypatch)
    said = verdict(monkeypatch, found, triton)
    assert not said.startswith("available") and all(word in said for word in words), said


def test_a_torch_without_cuda_or_too_new_for_the_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    assert "a build without CUDA; install it with DEEPINFER_ACCELERATOR=nvidia ./build.sh" in verdict(monkeypatch)
    with_torch(monkeypatch, usable=False)
    said = verdict(monkeypatch, driver.Driver("12.2", ("sm_90",)))
    assert "for CUDA 13.0 cannot use the driver, which runs up to CUDA 12.2; install a newer driver" in said


def test_the_interpreter_stands_in_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(cuda, "version", lambda name: "3.9.0")
    monkeypatch.setattr(cuda, "find_spec", lambda name: name)
    said = backend.probe()
    assert isinstance(said, Available) and "interpreted on the CPU" in said.detail
    assert backend.devices() == (Device("cpu"),) and backend.device_type == "cpu"
    assert "interpreted" in backend.capability(Device("cpu")).name
    graphs = backend.graphs(Device("cpu"))
    assert isinstance(graphs, GraphsUnavailable) and "interpreter" in str(graphs)
    assert isinstance(backend.streams(Device("cpu")), InlineStreams)


def test_a_missing_driver_is_not_an_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(driver.ctypes, "CDLL", absent)
    assert driver.query() == "NVIDIA's driver is not installed (no libcuda.so.1)"


@pytest.mark.parametrize(("status", "said"), [(100, "the driver sees no GPU"), (999, "cuInit gives 999")])
def test_a_driver_that_does_not_start_is_named(monkeypatch: pytest.MonkeyPatch, status: int, said: str) -> None:
    class Library:
        def cuInit(self, flags: int) -> int:
            return status

    monkeypatch.setattr(driver.ctypes, "CDLL", lambda name: Library())
    found = driver.query()
    assert isinstance(found, str) and said in found


def test_families_without_kernels_are_left_out() -> None:
    assert set(backend.kernel_modules) <= {f".{family}" for family in cuda.FAMILIES}
    reference = CATALOG.get("reference")
    assert {f".{family}" for family in cuda.FAMILIES} >= set(reference.kernel_modules)


def test_a_remedy_is_given_for_every_absence() -> None:
    assert str(Unavailable("a", "b")) == "a; b"
