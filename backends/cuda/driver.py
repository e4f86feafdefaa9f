"""What NVIDIA's driver says of this machine, without a device context: `cuInit` and attributes alone."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR


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
        lib = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "NVIDIA's driver is not installed (no libcuda.so.1)"
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
