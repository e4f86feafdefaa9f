"""NVIDIA's driver: what it says of this machine, and its functions that load binaries and launch them.

`query` makes no device context: `cuInit` and attributes alone.
"""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from typing import Any

from ...hal.errors import BackendError, KernelError

_LIBRARY = "libcuda.so.1"
_MISSING = f"NVIDIA's driver is not installed (no {_LIBRARY})"
_CLUSTER = 4  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
_EARLY = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
_SHARED_LIMIT = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
REFUSED = (1, 98, 701)
"""What `cuLaunchKernel` gives where a launch is at fault and not the device: an invalid value, an invalid function, and
more resources than there are."""
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute, of a cluster's size."""

    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_uint * 16))


class _Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p), ("attributes", ctypes.POINTER(_Attribute)), ("count", ctypes.c_uint),
    )  # fmt: skip


@dataclass(frozen=True)
class Driver:
    """The driver and the visible GPUs.

    Attributes:
        version: newest CUDA version that the driver can run, such as '13.0'.
        archs: 'sm_90' and the like, one for each visible device.
    """

    version: str
    archs: tuple[str, ...]


def query() -> Driver | str:
    """The driver, or what is missing, in words."""
    try:
        lib = ctypes.CDLL(_LIBRARY)
    except OSError:
        return _MISSING
    if status := lib.cuInit(0):
        return "the driver sees no GPU" if status == 100 else f"the driver does not start (cuInit gives {status})"
    version, count = ctypes.c_int(), ctypes.c_int()
    if lib.cuDriverGetVersion(ctypes.byref(version)) or lib.cuDeviceGetCount(ctypes.byref(count)):
        return "the driver does not answer"
    archs = []
    for index in range(count.value):
        device, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
        if (
            lib.cuDeviceGet(ctypes.byref(device), index)
            or lib.cuDeviceGetAttribute(ctypes.byref(major), _MAJOR, device)
            or lib.cuDeviceGetAttribute(ctypes.byref(minor), _MINOR, device)
        ):
            return f"GPU {index} does not answer"
        archs.append(f"sm_{major.value}{minor.value}")
    number = version.value
    return Driver(f"{number // 1000}.{number % 1000 // 10}", tuple(archs))


class Functions:
    """The few functions of NVIDIA's driver that are needed. Tests put another object in its place."""

    def __init__(self) -> None:
        try:
            lib = ctypes.CDLL(_LIBRARY)
        except OSError:
            raise BackendError(_MISSING) from None
        number, pointer = ctypes.c_uint, ctypes.c_void_p
        lib.cuLaunchKernel.argtypes = [pointer, *[number] * 7, pointer, pointer, pointer]
        lib.cuFuncSetAttribute.argtypes = [pointer, ctypes.c_int, ctypes.c_int]
        self._lib = lib
        self.launch = lib.cuLaunchKernel

    def launch_with(
        self,
        function: int,
        grid: tuple[int, int, int],
        threads: int,
        shared: int,
        stream: int,
        extra: Any,
        cluster: tuple[int, int, int] | None,
        early: bool,
    ) -> int:
        """`launch` of blocks in clusters of so many; `early`: blocks may start before the kernel before has ended."""
        attributes = (_Attribute * 2)()
        count = 0
        if cluster is not None:
            attributes[0].id = _CLUSTER
            attributes[0].value[0:3] = cluster
            count = 1
        if early:
            attributes[count].id = _EARLY
            attributes[count].value[0] = 1
            count += 1
        config = _Config(grid, (threads, 1, 1), shared, stream, attributes, count)
        return int(self._lib.cuLaunchKernelEx(ctypes.byref(config), ctypes.c_void_p(function), None, extra))

    def load(self, cubin: bytes, name: str, shared: int) -> int:
        """The handle of a function, on the current context.

        Args:
            shared: bytes of dynamic shared memory that it is launched with.

        Raises:
            KernelError: the device refuses the binary, or has less shared memory than this and its static memory.
        """
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.check(self._lib.cuModuleLoadData(ctypes.byref(module), cubin), f"{name} is not loaded")
        found = self._lib.cuModuleGetFunction(ctypes.byref(function), module, name.encode())
        self.check(found, f"{name} is not in its binary")
        if shared:
            # What a kernel has without asking is 48 KiB less its static shared memory, so whether it has to ask is no
            # matter of `shared` alone.
            status = self._lib.cuFuncSetAttribute(function, _SHARED_LIMIT, shared)
            self.check(status, f"{name} cannot have {shared} bytes of dynamic shared memory per block")
        return function.value or 0

    def check(self, status: int, what: str) -> None:
        """Raise KernelError unless the status is 0."""
        if status:
            raise KernelError(f"{what}: {self.message(status)}")

    def message(self, status: int) -> str:
        text = ctypes.c_char_p()
        self._lib.cuGetErrorString(status, ctypes.byref(text))
        return f"{(text.value or b'unknown error').decode()} ({status})"


@functools.cache
def functions() -> Functions:
    """Those of this process.

    Raises:
        BackendError: the driver is not installed.
    """
    return Functions()
