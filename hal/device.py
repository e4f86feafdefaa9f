"""Devices: how they are spelled, what is present, and what each can do.

`detect` looks at device nodes and `/proc` alone: it starts no driver and creates no context. `capability` asks the
device itself and is called for a device somebody wants to use.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from .errors import DeviceFaultError, InvalidArgumentError

# Spelling -> torch device type. The accelerator names are accepted wherever a device type is.
DEVICE_ALIASES: Mapping[str, str] = {
    "cpu": "cpu",
    "cuda": "cuda",
    "nvidia": "cuda",
    "gpu": "cuda",
    "npu": "npu",
    "ascend": "npu",
    "meta": "meta",
}

_SPELLING = re.compile(r"([A-Za-z][A-Za-z0-9_]*)(?::([0-9]{1,4}))?")


@dataclass(frozen=True, order=True)
class Device:
    """One device: a torch device type and an index among the visible ones."""

    type: str
    index: int = 0

    @classmethod
    def parse(cls, spelling: str | torch.device | Device) -> Device:
        """Parse 'cpu', 'cuda', 'cuda:1', 'npu:0', and the accelerator names 'nvidia', 'ascend' in place of a type.

        Raises:
            InvalidArgumentError: an unknown type, an index that is not a number, or a second CPU.
        """
        if isinstance(spelling, Device):
            return spelling
        text = str(spelling)
        match = _SPELLING.fullmatch(text)
        kind = DEVICE_ALIASES.get(match[1]) if match else None
        if match is None or kind is None:
            types = ", ".join(DEVICE_ALIASES)
            raise InvalidArgumentError("device", text, f"TYPE or TYPE:INDEX, where TYPE is one of {types}")
        index = int(match[2] or 0)
        if kind == "cpu" and index:
            raise InvalidArgumentError("device", text, "cpu has the index 0 only")
        return cls(kind, index)

    @property
    def torch(self) -> torch.device:
        """The torch device. The CPU and meta devices have no index there, so that tensors compare equal."""
        return torch.device(self.type) if self.type in ("cpu", "meta") else torch.device(self.type, self.index)

    def __str__(self) -> str:
        return self.type if self.type in ("cpu", "meta") else f"{self.type}:{self.index}"


@dataclass(frozen=True)
class Capability:
    """What a device can do, as its backend states it.

    Attributes:
        backend: name of the backend that made the record.
        device: the device.
        arch: chip as kernels name it: 'sm_90', 'ascend950', or the machine type ('x86_64') of a CPU.
        name: product name.
        memory_total, memory_free: bytes a process may use; None where the system does not say.
        cores: processors, streaming multiprocessors or AI cores; None where unknown.
        dtypes: dtypes of contract tensors it can hold and compute with.
        graphs: whether steps can be captured and replayed.
        page_alignment: a cache page must be a multiple of this many bytes, and begin on such a boundary.
        communicator: torch.distributed's name of what moves tensors between devices of this type; see `hal.transport`.
        host_pinning: whether pinned host memory makes copies asynchronous.
    """

    backend: str
    device: Device
    arch: str
    name: str
    memory_total: int | None
    memory_free: int | None
    cores: int | None
    dtypes: frozenset[torch.dtype]
    graphs: bool
    page_alignment: int
    communicator: str
    host_pinning: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Plain values for reports."""
        return {
            "backend": self.backend,
            "device": str(self.device),
            "arch": self.arch,
            "name": self.name,
            "memory_total": self.memory_total,
            "memory_free": self.memory_free,
            "cores": self.cores,
            "dtypes": sorted(str(dtype).removeprefix("torch.") for dtype in self.dtypes),
            "graphs": self.graphs,
            "page_alignment": self.page_alignment,
            "communicator": self.communicator,
            "host_pinning": self.host_pinning,
        }


# Every dtype a contract tensor may have; E8M0 scales and packed FP4 travel as uint8.
CONTRACT_DTYPES: frozenset[torch.dtype] = frozenset(
    {
        torch.bool,
        torch.uint8,
        torch.int32,
        torch.int64,
        torch.bfloat16,
        torch.float32,
        torch.float64,
        torch.float8_e4m3fn,
    }
)


@dataclass(frozen=True)
class Detected:
    """An accelerator the system shows: torch device type, how many, and what was seen."""

    type: str
    count: int
    evidence: str


def detect(root: Path = Path("/"), environ: Mapping[str, str] | None = None) -> list[Detected]:
    """Accelerators present, Ascend before NVIDIA, without touching one.

    A visible-devices variable that hides every device (`CUDA_VISIBLE_DEVICES=""` or `-1`) hides the type.

    Args:
        root: where `/dev` and `/proc` are looked for.
        environ: the environment; that of the process by default.
    """
    environ = os.environ if environ is None else environ
    found = []
    for kind, pattern, variable in (
        ("npu", r"davinci[0-9]+", "ASCEND_RT_VISIBLE_DEVICES"),
        ("cuda", r"nvidia[0-9]+", "CUDA_VISIBLE_DEVICES"),
    ):
        nodes = sorted(name for name in _names(root / "dev") if re.fullmatch(pattern, name))
        visible = _visible(environ.get(variable), len(nodes))
        if visible:
            found.append(Detected(kind, visible, f"/dev/{nodes[0]}"))
    return found


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _visible(setting: str | None, present: int) -> int:
    """How many of the present devices a visible-devices setting leaves. A list ends at its first invalid entry."""
    if setting is None:
        return present
    count = 0
    for entry in setting.split(","):
        entry = entry.strip()
        if not entry or entry.startswith("-"):
            break
        count += 1
    return min(count, present)


def capability(device: Device, backend: str) -> Capability:
    """What torch knows of a device. Touches the device, except for the CPU and meta devices.

    Raises:
        InvalidArgumentError: torch has no such device here.
        DeviceFaultError: the driver answers with an error.
    """
    if device.type in ("cpu", "meta"):
        return _cpu_capability(device, backend)
    module = getattr(torch, device.type, None)
    if module is None or not module.is_available():
        raise InvalidArgumentError(
            "device", str(device), f"a device torch {torch.__version__} can use here; cpu always is"
        )
    if device.index >= module.device_count():
        raise InvalidArgumentError("device", str(device), f"an index below {module.device_count()}")
    try:
        properties = module.get_device_properties(device.index)
        free, total = module.mem_get_info(device.index)
    except RuntimeError as error:
        raise DeviceFaultError(f"{device} does not answer: {error}") from error
    if device.type == "cuda":
        arch, cores = f"sm_{properties.major}{properties.minor}", int(properties.multi_processor_count)
    else:
        arch, cores = str(properties.name).lower(), None
    return Capability(
        backend=backend,
        device=device,
        arch=arch,
        name=str(properties.name),
        memory_total=int(total),
        memory_free=int(free),
        cores=cores,
        dtypes=CONTRACT_DTYPES,
        graphs=False,  # a backend with graphs states them by dataclasses.replace
        page_alignment=16,
        communicator="gloo",  # likewise for one that moves tensors between devices
        host_pinning=True,
    )


def pci_address(device: Device) -> str | None:
    """Where a device sits on the PCI bus, as `0000:3b:00.0`; None where torch does not say."""
    module = getattr(torch, device.type, None)
    if device.type == "cpu" or module is None or not hasattr(module, "get_device_properties"):
        return None
    try:
        found = module.get_device_properties(device.index)
        return f"{found.pci_domain_id:04x}:{found.pci_bus_id:02x}:{found.pci_device_id:02x}.0"
    except (AttributeError, RuntimeError, AssertionError):  # the last where torch was built without the device
        return None


def _cpu_capability(device: Device, backend: str) -> Capability:
    total, free = _host_memory(Path("/"))
    return Capability(
        backend=backend,
        device=device,
        arch=platform.machine() or "unknown",
        name=_cpu_name(Path("/")),
        memory_total=total,
        memory_free=free,
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        dtypes=CONTRACT_DTYPES,
        graphs=False,
        page_alignment=1,
        communicator="gloo",
    )


def _cpu_name(root: Path) -> str:
    match = re.search(r"^model name\s*:\s*(.+)$", _read(root / "proc/cpuinfo"), re.MULTILINE)
    return match[1].strip() if match else platform.processor() or "CPU"


def _host_memory(root: Path) -> tuple[int | None, int | None]:
    """Total and available bytes of host memory, or of the control group where that is smaller."""
    values = dict(re.findall(r"^(\w+):\s+(\d+) kB$", _read(root / "proc/meminfo"), re.MULTILINE))
    total = int(values["MemTotal"]) * 1024 if "MemTotal" in values else None
    free = int(values["MemAvailable"]) * 1024 if "MemAvailable" in values else None
    limit = _read(root / "sys/fs/cgroup/memory.max").strip()
    used = _read(root / "sys/fs/cgroup/memory.current").strip()
    if limit.isdigit() and used.isdigit() and (total is None or int(limit) < total):
        left = max(0, int(limit) - int(used))
        total, free = int(limit), left if free is None else min(free, left)
    return total, free


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
