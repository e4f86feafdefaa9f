"""Launches on a device: packed arguments, the runtime's calls, typed faults; with fake libraries and tools."""

from __future__ import annotations

import ctypes
import struct
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from deepinfer.backends.ascend import acl, ahead, driver, versions
from deepinfer.backends.ascend.build import programs
from deepinfer.backends.ascend.program import Program
from deepinfer.backends.ascend.register import CHIP, SIMULATED
from deepinfer.backends.ascend.sim import build
from deepinfer.backends.ascend.sim.source import Parameter, Signature
from deepinfer.hal import registry
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
        get_device_properties=lambda where: properties,
        current_stream=lambda where: SimpleNamespace(npu_stream=77),
        device=lambda where: nullcontext(),
    )
    monkeypatch.setattr(torch, "npu", fake, raising=False)
    monkeypatch.setattr(build, "cache_root", lambda: tmp_path / "ascend")
    monkeypatch.setattr(driver, "_images", {})
    return torch.device("meta", 0)


def test_a_kernel_by_hand_is_compiled_once_and_launched(
    npu: torch.device, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hand = next(p for p in programs() if p.written)
    library, compiled = Library(), []

    def compile_image(text: str, image: Path, tools: Any = None) -> Path:
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


def test_an_image_is_another_with_another_text_tilelang_or_cann(monkeypatch: pytest.MonkeyPatch) -> None:
    def tools(version: str) -> Any:
        return SimpleNamespace(environ={}, read=lambda path: f"Version={version}")

    names = {driver.image_name("k", text, tools(cann)) for text in ("a", "b") for cann in ("9.2.0", "9.3.0")}
    monkeypatch.setattr(versions, "package_version", lambda name: "0.0.1")
    names.add(driver.image_name("k", "a", tools("9.2.0")))
    assert len(names) == 5 and all(name.startswith("k-") for name in names)


def test_what_a_build_wrote_ahead_is_launched(
    npu: torch.device, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = Program("norm_kernels.py", "rms_norm", most=8192)
    library = Library()

    def compile_image(text: str, image: Path, tools: Any = None) -> Path:
        image.write_bytes(b"code")
        return image

    monkeypatch.setattr(driver, "compile_image", compile_image)
    monkeypatch.setattr(driver, "runtime", lambda: acl.Runtime(library))
    monkeypatch.setattr(ahead, "compiler_paths", lambda tools: ("bisheng", "ld.lld"))
    monkeypatch.setattr(ahead, "programs", lambda: [program])
    (built,) = ahead.build_ahead(ahead.folder())
    assert not built.error and Path(built.image).parent == driver.images()
    monkeypatch.setattr(driver, "compile_image", lambda *_: pytest.fail("it is there"))
    given = {p.name: torch.zeros(1) if p.pointer else 1 for p in program.signature().parameters}
    driver.launch(program, 1000, given, npu)
    driver.launch(program, 9, given, npu)
    assert [blocks for blocks, *_ in library.launched] == [56, 9], "as many cores as there are, or as there is work"


def test_every_kernel_has_arguments_that_can_be_passed() -> None:
    """Of all texts: types that the runtime takes, and the names by which launchers give them."""
    for program in programs():
        parameters = program.signature().parameters
        acl.pack(parameters, {p.name: torch.zeros(1) if p.pointer else 1 for p in parameters})


def test_a_fault_of_the_driver_is_typed_and_memory_that_is_short_is_not(
    npu: torch.device, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = Program("self_test_kernels.py", "self_test")
    image = tmp_path / "k.aibin"
    image.write_bytes(b"code")
    monkeypatch.setattr(driver, "_image", lambda program: image)
    given = {p.name: torch.zeros(1) if p.pointer else 1 for p in program.signature().parameters}

    def fails(error: Exception) -> Any:
        def launch(*_: Any) -> None:
            raise error

        return lambda: SimpleNamespace(launch=launch)

    monkeypatch.setattr(driver, "runtime", fails(RuntimeError("error 507015")))
    with pytest.raises(DeviceFaultError, match="self_test on .*507015"):
        driver.launch(program, 1, given, npu)
    monkeypatch.setattr(driver, "runtime", fails(torch.OutOfMemoryError("NPU out of memory")))
    with pytest.raises(torch.OutOfMemoryError):
        driver.launch(program, 1, given, npu)


def test_a_number_that_is_too_large_and_a_number_for_a_tensor_are_named() -> None:
    with pytest.raises(InvalidArgumentError, match="eps"):
        acl.pack((Parameter("eps", "float", False),), {"eps": 1e39})
    with pytest.raises(InvalidArgumentError, match="x.*a tensor"):
        acl.pack((X,), {"x": 3})


def test_host_memory_is_simulated_only_where_there_is_no_chip() -> None:
    """Beside a chip, ops on tensors of the host are the reference's."""
    seen = {}
    for arch in (SIMULATED, CHIP):
        for kind in ("cpu", "npu"):
            signature = registry.Signature("rms_norm", 0, kind, arch, dims={"D": 64})
            (kernel,) = (k for k in registry.REGISTRY.kernels("rms_norm") if k.backend == "ascend")
            seen[arch, kind] = kernel.supports(signature) is None
    assert seen == {(SIMULATED, "cpu"): True, (SIMULATED, "npu"): False, (CHIP, "cpu"): False, (CHIP, "npu"): True}
