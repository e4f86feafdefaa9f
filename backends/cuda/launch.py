"""Loading binaries and launching them: through NVIDIA's driver, without Triton's, whose launcher is C that it compiles.

The launcher of a kernel is Python text made for its parameters, since a loop over them costs more than the launch. It
finds the binary by device, dtypes, alignment, constants and options; lays the arguments out as the kernel reads them;
and calls the driver on torch's current stream of the device. It may be captured in a graph.
"""

from __future__ import annotations

import ctypes
import functools
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import torch

from ...hal.errors import DeviceFaultError, InvalidArgumentError, KernelError
from .cache import Binary
from .driver import REFUSED
from .driver import functions as driver

# How arguments lie in memory, by Triton's type. Pointers have 8 bytes.
_LAYOUT = {
    "u1": "?", "i1": "?", "i8": "b", "u8": "B", "i16": "h", "u16": "H", "i32": "i", "u32": "I", "i64": "q", "u64": "Q",
    "fp32": "f", "fp64": "d",
}  # fmt: skip


@dataclass(frozen=True)
class Loaded:
    """A binary on a device, ready to launch.

    Attributes:
        function: the driver's handle. threads, shared: per block. pack: lays arguments out.
        scratch: bytes of global memory per block.
        pick: takes the arguments that are passed from all of them; None where it is all.
        binary: where it came from.
    """

    function: int
    threads: int
    shared: int
    pack: struct.Struct
    scratch: int
    pick: Callable[[tuple[Any, ...]], tuple[Any, ...]] | None
    binary: Binary


@functools.cache
def arch(device: int) -> int:
    """The chip of a device: 90 or 100."""
    major, minor = torch.cuda.get_device_capability(device)
    return major * 10 + minor


def check_device(kernel: str, name: str, tensor: torch.Tensor, device: int) -> None:
    """Refuse a tensor of another device than the launch is for.

    Raises:
        InvalidArgumentError: names the kernel, the argument and both devices.
    """
    if tensor.get_device() != device or device < 0:
        wanted = f"a tensor on cuda:{device}, as the first one is" if device >= 0 else "a tensor on a GPU"
        raise InvalidArgumentError(f"{kernel}: {name}", f"a tensor on {tensor.device}", wanted)


def load(binary: Binary, device: int, types: list[str | None]) -> Loaded:
    """Load a binary on a device.

    Args:
        binary: what to load.
        device: index.
        types: Triton's types of the arguments that are no `tl.constexpr`, in order; None for an absent tensor.

    Raises:
        KernelError: the device refuses it, or it needs what the launcher does not do.
    """
    if binary.ctas != 1:
        raise KernelError(f"{binary.name}: clusters of {binary.ctas} blocks are not launched; num_ctas must be 1")
    passed = [kind for kind in types if kind is not None]
    unknown = [kind for kind in passed if kind not in _LAYOUT and not kind.startswith("*")]
    if unknown:
        raise KernelError(f"{binary.name}: arguments of type {', '.join(unknown)} cannot be passed")
    letters = "".join("P" if kind.startswith("*") else _LAYOUT[kind] for kind in passed)
    with torch.cuda.device(device):
        torch.cuda.current_stream()  # makes torch's context current in this thread
        function = driver().load(binary.cubin, binary.name, binary.shared)
    # Two pointers end the list: memory for descriptors made on the device, and for a profiler.
    pack = struct.Struct(f"@{letters}PP")
    pick = None if len(passed) == len(types) else _picker([i for i, kind in enumerate(types) if kind is not None])
    return Loaded(function, binary.threads, binary.shared, pack, binary.scratch, pick, binary)


def _picker(places: list[int]) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    if len(places) > 1:
        return itemgetter(*places)
    return lambda given: tuple(given[i] for i in places)


class _Buffer(threading.local):
    """The memory that the driver reads a launch's arguments from, one for each thread."""

    def __init__(self) -> None:
        self.data = ctypes.create_string_buffer(4096)
        self.size = ctypes.c_size_t(0)
        # CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE, CU_LAUNCH_PARAM_END
        self.list = (ctypes.c_void_p * 5)(1, ctypes.addressof(self.data), 2, ctypes.addressof(self.size), 0)
        self.extra = ctypes.addressof(self.list)


class Bound:
    """A launcher with its grid: what `kernel[grid]` is."""

    __slots__ = ("grid", "launcher")

    def __init__(self, launcher: Callable[..., Any], grid: Any) -> None:
        self.launcher = launcher
        self.grid = grid

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        self.launcher(self.grid, *args, **kwargs)


_TEXT = """
def _launch(_grid, {parameters}, **_options):
    {addresses}
    _device = {device}
    _key = (_device, {alignment}, {key}, *_options.items())
    _found = _ready.get(_key)
    if _found is None:
        _found = _ready[_key] = _prepare(_device, {{{values}}}, _options)
    if _callable(_grid):
        _grid = _grid({{{values}}})
    _size = _len(_grid)
    _x, _y, _z = _grid[0], _grid[1] if _size > 1 else 1, _grid[2] if _size > 2 else 1
    if not (_x and _y and _z):
        return
    _scratch = 0
    if _found.scratch:
        _memory = _allocate(_found, _x * _y * _z, _device)
        _scratch = _memory.data_ptr()
    _given = ({arguments})
    if _found.pick is not None:
        _given = _found.pick(_given)
    _pack = _found.pack
    _buffer.size.value = _pack.size
    try:
        _pack.pack_into(_buffer.data, 0, *_given, _scratch, 0)
    except _struct_error:
        _refuse({{{values}}})
    _current = _get_device()
    if _current != _device:
        _set_device(_device)
    _status = _call(
        _found.function, _x, _y, _z, _found.threads, 1, 1, _found.shared, _stream(_device), None, _buffer.extra
    )
    if _current != _device:
        _set_device(_current)
    if _status:
        _failed(_status, _found, (_x, _y, _z), _device)
"""


def launcher(kernel: Any) -> Callable[..., Any]:
    """The function behind `kernel[grid]` for a `jit.CompiledKernel`.

    Every name of its own begins with an underscore, for parameters may have any other.
    """
    kinds: dict[str, str] = kernel.kinds
    space = _space(kernel)
    parameters, key, arguments = [], [], []
    pointers = [name for name in kinds if name.endswith("_ptr")]
    for param in kernel.params:
        name = param.name
        if name.startswith("_"):
            raise KernelError(
                f"{kernel.__name__}: parameter {name}: names of parameters do not begin with an underscore"
            )
        if param.has_default:
            space[f"_default_{name}"] = param.default
        parameters.append(f"{name}=_default_{name}" if param.has_default else name)
        if name in pointers:
            key.append(f"None if {name} is None else {name}.dtype")
            arguments.append(f"_at_{name}")
        elif kinds[name] == "constexpr":
            key.append(f"{name}.__class__, {name}")  # 1, 1.0 and True are equal, and not the same constant
        else:
            key.append(f"{name}.__class__")
            arguments.append(name)
    union = " | ".join(f"_at_{name}" for name in pointers) or "0"
    apart = "".join(f"_at_{name} & 15 == 0, " for name in pointers)
    text = _TEXT.format(
        parameters=", ".join(parameters),
        addresses="; ".join(f"_at_{n} = 0 if {n} is None else {n}.data_ptr()" for n in pointers) or "pass",
        device=f"_get_device() if {pointers[0]} is None else {pointers[0]}.get_device()"
        if pointers
        else "_get_device()",
        alignment=f"({union}) & 15 and ({apart})",
        key=", ".join(key) or "None",
        values=", ".join(f"'{name}': {name}" for name in kinds),
        arguments="".join(f"{a}, " for a in arguments),
    )
    exec(compile(text, f"<launcher of {kernel.__name__}>", "exec"), space)
    made: Callable[..., Any] = space["_launch"]
    return made


def _space(kernel: Any) -> dict[str, Any]:
    """What the text of a launcher refers to."""

    def call(*args: Any) -> Any:  # the driver is loaded by the first launch, not by the import
        space["_call"] = driver().launch
        return space["_call"](*args)

    space: dict[str, Any] = {
        "_ready": {},
        "_prepare": kernel.prepare,
        "_buffer": _Buffer(),
        "_allocate": _allocate,
        "_refuse": kernel.refuse,
        "_failed": _failed,
        "_struct_error": struct.error,
        "_call": call,
        "_callable": callable,
        "_len": len,
        "_get_device": getattr(torch._C, "_cuda_getDevice", None),
        "_set_device": getattr(torch._C, "_cuda_setDevice", None),
        "_stream": getattr(torch._C, "_cuda_getCurrentRawStream", None),
    }
    return space


def _allocate(found: Loaded, blocks: int, device: int) -> torch.Tensor:
    """Memory for descriptors that the kernel makes. torch's allocator keeps it until work queued before is done."""
    return torch.empty(found.scratch * blocks, dtype=torch.uint8, device=torch.device("cuda", device))


def _failed(status: int, found: Loaded, grid: tuple[int, int, int], device: int) -> None:
    """Say why a launch failed.

    Raises:
        KernelError: the launch was refused. DeviceFaultError: the device had failed before.
    """
    name, message = found.binary.name, driver().message(status)
    what = (
        f"{name} with grid {grid}, {found.threads} threads and {found.shared} bytes of shared memory on cuda:{device}"
    )
    if status in REFUSED:
        raise KernelError(f"{what} cannot be launched: {message}")
    raise DeviceFaultError(f"{what} was not launched: {message}")
