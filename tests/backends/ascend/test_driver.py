"""Launches on a device: packed arguments, the runtime's calls, typed faults; with fake libraries and tools."""

from __future__ import annotations

import ctypes
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from deepinfer.backends.ascend import acl, driver
from deepinfer.backends.ascend.build import programs
from deepinfer.backends.ascend.program import Program
from deepinfer.backends.ascend.sim.source import Parameter, Signature
from deepinfer.hal.errors import DeviceFaultError, InvalidArgumentError

X = Parameter("x", "bfloat16_t", True)
PARAMETERS = (Parameter("n", "int32_t", False), X, Parameter("eps", "float", False), Parameter("s", "int64_t", False),
              Parameter("b", "int16_t", False))  # fmt: skip


class Library:
    """libascendcl with the calls that a launch makes; `fails` names the one that answers 507899."""

    def __init__(self, fails: str = "") -> None:
        self.fails, self.calls, self.launched = fails, [], []

    def _answer(self, name: str) -> int:
        self.calls.append(name)
        return 507899 if name == self.fails else 0

    def aclrtBinaryLoadFromData(self, code: bytes, size: Any, options: None, binary: Any) -> int:
        assert len(code) == size.value and options is None
        binary._obj.value = 11
        return self._answer("aclrtBinaryLoadFromData")

    def aclrtBinaryGetFunction(self, binary: Any, name: bytes, function: Any) -> int:
        assert binary.value == 11
        function._obj.value = 22
        self.name = name
        return self._answer("aclrtBinaryGetFunction")

    def aclrtLaunchKernelWithHostArgs(
        self, function: Any, blocks: Any, stream: Any, config: Any, args: Any, size: Any, places: None, count: Any
    ) -> int:
        assert function.value == 22 and places is None and count.value == 0
        ub = config._obj.attributes[0] if config is not None else None
        known = None if ub is None else (ub.id, ub.value[0], config._obj.count)
        self.launched.append((blocks.value, stream.value, known, ctypes.string_at(args, size.value)))
        return self._answer("aclrtLaunchKernelWithHostArgs")

    def aclGetRecentErrMsg(self) -> bytes:
        return b"the vector core is stuck\n"


def test_arguments_lie_at_multiples_of_their_sizes() -> None:
    x = torch.zeros(4, dtype=torch.bfloat16)
    packed = acl.pack(PARAMETERS, {"n": -3, "x": x, "eps": 0.5, "s": 1 << 40, "b": 7, "unused": 1})
    assert packed == struct.pack("<i4xQf4xqh6x", -3, x.data_ptr(), 0.5, 1 << 40, 7)
    two_bytes = (Parameter("a", "int8_t", False), Parameter("b", "int8_t", False))
    assert acl.pack(two_bytes, {"a": 1, "b": 2}) == bytes([1, 0, 0, 0, 2, 0, 0, 0]), "4 bytes each at least"


@pytest.mark.parametrize(
    ("parameter", "value", "words"),
    [
        (Parameter("n", "int32_t", False), 1 << 31, "n"),
        (Parameter("n", "int32_t", False), 1.5, "n"),
        (Parameter("n", "half", False), 1.0, "type half cannot be passed"),
    ],
)
def test_an_argument_that_does_not_fit_is_named(parameter: Parameter, value: Any, words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        acl.pack((parameter,), {"n": value})
    with pytest.raises(InvalidArgumentError, match="a parameter of the kernel"):
        acl.pack((parameter,), {})


@pytest.mark.parametrize(("kind", "simt", "ub"), [("vector", False, 248), ("mix", True, 216), ("cube", False, None)])
def test_an_image_is_loaded_once_for_each_device(tmp_path: Path, kind: str, simt: bool, ub: int | None) -> None:
    image, library = tmp_path / "k.aibin", Library()
    image.write_bytes(b"\x7fELF")
    runtime = acl.Runtime(library)
    signature = Signature("k_kernel", kind, PARAMETERS[:1], simt, False)
    for device in (0, 0, 1):
        runtime.launch(image, signature, 5, {"n": 9}, device, 0x1234)
    known = None if ub is None else (acl.DYNAMIC_UB, ub * 1024, 1)
    assert library.launched == [(5, 0x1234, known, struct.pack("<i4x", 9))] * 3 and library.name == b"k_kernel"
    assert library.calls.count("aclrtBinaryLoadFromData") == library.calls.count("aclrtBinaryGetFunction") == 2


@pytest.mark.parametrize("call", ["aclrtBinaryLoadFromData", "aclrtBinaryGetFunction", "aclrtLaunchKernelWithHostArgs"])
def test_what_the_runtime_refuses_is_a_fault_with_its_words(tmp_path: Path, call: str) -> None:
    image = tmp_path / "k.aibin"
    image.write_bytes(b"code")
    runtime = acl.Runtime(Library(fails=call))
    with pytest.raises(DeviceFaultError, match=f"{call} failed with error 507899.*: the vector core is stuck$"):
        runtime.launch(image, Signature("k", "vector", (), False, False), 1, {}, 0, 0)


def test_a_runtime_without_the_call_is_too_old(tmp_path: Path) -> None:
    image = tmp_path / "k.aibin"
    image.write_bytes(b"code")
    with pytest.raises(DeviceFaultError, match="no aclrtBinaryLoadFromData: it is too old"):
        acl.Runtime(SimpleNamespace()).launch(image, Signature("k", "vector", (), False, False), 1, {}, 0, 0)


@pytest.fixture
def npu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> torch.device:
    """A torch that has NPUs of 56 vector cores and 28 cube cores, and a cache of the test's own."""
    properties = SimpleNamespace(vector_core_num=56, cube_core_num=28)
    fake = SimpleNamespace(
        get_device_properties=lambda where: properties, current_stream=lambda where: SimpleNamespace(npu_stream=77)
    )
    monkeypatch.setattr(torch, "npu", fake, raising=False)
    monkeypatch.setenv("DEEPINFER_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(driver, "_images", {})
    monkeypatch.setattr(driver, "_compiled", {})
    return torch.device("meta", 0)


def test_a_kernel_by_hand_is_compiled_once_and_launched(
    npu: torch.device, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hand = next(p for p in programs() if p.written)
    library, compiled = Library(), []

    def compile_image(text: str, image: Path) -> Path:
        compiled.append(text)
        image.write_bytes(b"code")
        return image

    monkeypatch.setattr(driver, "compile_image", compile_image)
    monkeypatch.setattr(driver, "runtime", lambda: acl.Runtime(library))
    signature = hand.signature()
    given = {p.name: torch.zeros(1) if p.pointer else 1 for p in signature.parameters}
    for _ in range(2):
        driver.launch(hand, 3, given, npu)
    driver._images.clear()
    driver.launch(hand, 3, given, npu)  # as another process would: the image is in the cache
    assert compiled == [hand.text()]
    assert [(blocks, stream) for blocks, stream, *_ in library.launched] == [(3, 77)] * 3
    assert [path.suffix for path in (tmp_path / "ascend" / "dav-3510" / "images").iterdir()] == [".aibin"]


def _compiled(monkeypatch: pytest.MonkeyPatch, kernel: Any) -> Program:
    program = Program("self_test_kernels.py", "self_test")
    monkeypatch.setattr(driver, "_compile", lambda known: (kernel, ("X", "cores")))
    return program


def test_a_kernel_of_tilelang_gets_its_arguments_in_order(npu: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    program = _compiled(monkeypatch, lambda *given: seen.append(given))
    driver.launch(program, 100, {"n": 4, "X": "x"}, npu)
    driver.launch(program, 9, {"n": 4, "X": "x"}, npu)
    assert seen == [("x", 56), ("x", 9)], "as many cores as there are, or as there is work"


def test_a_fault_of_the_driver_is_typed_and_memory_that_is_short_is_not(
    npu: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    def faulty(*given: Any) -> None:
        raise RuntimeError("aclrtLaunchKernelWithHostArgs failed with ACL error 507015")

    with pytest.raises(DeviceFaultError, match="self_test on .*507015"):
        driver.launch(_compiled(monkeypatch, faulty), 1, {"X": "x"}, npu)

    def short(*given: Any) -> None:
        raise torch.OutOfMemoryError("NPU out of memory")

    driver._compiled.clear()
    with pytest.raises(torch.OutOfMemoryError):
        driver.launch(_compiled(monkeypatch, short), 1, {"X": "x"}, npu)
