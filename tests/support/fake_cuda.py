"""A GPU that is none: what `backends.cuda.launch` needs of torch and of the driver, so that launches run without one.

It runs in a child process, since kernels are compiled there and not interpreted. Launches are noted, not executed.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch


class Tensor:
    """What a launcher looks at: a dtype, an address and a device."""

    def __init__(self, dtype: torch.dtype, address: int = 4096, device: int = 0) -> None:
        self.dtype, self.address, self.index = dtype, address, device
        self.device = f"cuda:{device}" if device >= 0 else "cpu"

    def data_ptr(self) -> int:
        return self.address

    def get_device(self) -> int:
        return self.index


class Driver:
    """Notes what is loaded and launched."""

    def __init__(self) -> None:
        self.loaded: list[tuple[str, int]] = []
        self.launched: list[tuple[tuple[int, ...], int, int, bytes]] = []
        self.status = 0

    def load(self, cubin: bytes, name: str, shared: int) -> int:
        self.loaded.append((name, len(cubin)))
        return len(self.loaded)

    def launch(self, function: int, *rest: Any) -> int:
        x, y, z, threads, _, _, shared, stream, _, extra = rest
        words = ctypes.cast(extra, ctypes.POINTER(ctypes.c_void_p))
        size = ctypes.cast(words[3], ctypes.POINTER(ctypes.c_size_t))[0]
        self.launched.append(((x, y, z), threads, stream, ctypes.string_at(words[1], size)))
        return self.status

    def message(self, status: int) -> str:
        return f"status {status}"


class Library:
    """libcuda.so.1 for one kernel with some static shared memory: loads it, and launches it by the driver's own rules.

    A block has 48 KiB of shared memory, static and dynamic together; more dynamic memory than what is left of these
    has to be asked for, up to 227 KiB with the static.
    """

    MOST, FREE = 227 << 10, 48 << 10

    class _Entry:
        """What ctypes makes of an exported name."""

        def __init__(self, run: Any) -> None:
            self.run = run

        def __call__(self, *args: Any) -> int:
            return int(self.run(*args))

    def __init__(self, static: int) -> None:
        self.static, self.limit = static, self.FREE - static
        for name in ("cuModuleLoadData", "cuModuleGetFunction", "cuFuncSetAttribute", "cuLaunchKernel"):
            setattr(self, name, self._Entry(getattr(self, f"_{name}")))

    def _cuModuleLoadData(self, module: Any, cubin: bytes) -> int:
        return 0 if cubin else 200

    def _cuModuleGetFunction(self, function: Any, module: Any, name: bytes) -> int:
        function._obj.value = 1
        return 0

    def _cuFuncSetAttribute(self, function: Any, which: int, value: int) -> int:
        if which != 8 or value + self.static > self.MOST:
            return 1
        self.limit = value
        return 0

    def _cuLaunchKernel(self, function: Any, *rest: Any) -> int:
        return int(rest[6] > self.limit)

    def cuGetErrorString(self, status: int, text: Any) -> int:
        text._obj.value = b"invalid argument"
        return 0


def install(capability: tuple[int, int] = (9, 0)) -> Driver:
    """Put the fake in the place of the driver and of torch's functions."""
    from deepinfer.backends.cuda import launch

    made = Driver()
    launch.driver = lambda: made
    torch.cuda.get_device_capability = lambda device=None: capability
    torch.cuda.current_stream = lambda device=None: None

    class _Device:
        def __init__(self, index: int) -> None: ...
        def __enter__(self) -> None: ...
        def __exit__(self, *_: object) -> None: ...

    torch.cuda.device = _Device
    torch._C._cuda_getDevice = lambda: 0
    torch._C._cuda_setDevice = lambda index: None
    torch._C._cuda_getCurrentRawStream = lambda index: 77 + index
    return made
