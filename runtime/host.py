"""Which CPUs, memory nodes and devices this process may use, and how an engine on one device should be bound.

Everything is read from the process's affinity mask, its cgroup (v1 or v2) and /sys; `root` stands before every path, so
that other machines can be described by a folder. Nothing here waits, and what cannot be read counts as not there.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..hal.errors import InvalidArgumentError

CUDA, ASCEND = "CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES"


def parse_list(text: str) -> tuple[int, ...]:
    """Numbers of a list as Linux writes it: `0-3,8,10-11`; rising, without repeats. An empty text is no number.

    Raises:
        ValueError: it is none.
    """
    found: set[int] = set()
    for part in text.strip().split(","):
        if not part.strip():
            continue
        first, dash, last = part.strip().partition("-")
        begin, end = int(first), int(last if dash else first)
        if begin < 0 or end < begin:
            raise ValueError(f"{part!r} is no range of numbers")
        found.update(range(begin, end + 1))
    return tuple(sorted(found))


@dataclass(frozen=True)
class Cpus:
    """What a process may use.

    Attributes:
        allowed: CPUs of the affinity mask that its cgroup allows as well, rising.
        quota: CPUs' worth of time that its cgroup allows it; None is no limit.
        nodes: memory nodes that its cgroup allows, rising; empty where the machine does not say.
    """

    allowed: tuple[int, ...]
    quota: float | None = None
    nodes: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        """Threads that can run at a time: as many as CPUs, and no more than the quota pays for. At least 1."""
        most = len(self.allowed) if self.quota is None else min(len(self.allowed), math.ceil(self.quota))
        return max(1, most)


def cpus(root: str | Path = "/", affinity: Iterable[int] | None = None) -> Cpus:
    """CPUs of this process.

    Args:
        root: before every path. affinity: the mask; None asks the system.
    """
    root = Path(root)
    if affinity is None:
        affinity = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    mask = set(affinity)
    allowed, nodes, quota = set(mask), None, None
    for folder in _cgroups(root, "cpuset"):
        if nodes is None:
            listed = _list(folder / "cpuset.cpus.effective") or _list(folder / "cpuset.cpus")
            if listed:
                allowed &= set(listed)
            nodes = _list(folder / "cpuset.mems.effective") or _list(folder / "cpuset.mems") or None
    for folder in _cgroups(root, "cpu"):  # every level above has a say
        found = _quota(folder)
        if found is not None:
            quota = found if quota is None else min(quota, found)
    if nodes is None:
        nodes = _list(root / "sys/devices/system/node/online")
    # A mask and a cpuset that do not meet: the kernel has the last word, and it gave the mask.
    return Cpus(tuple(sorted(allowed or mask)), quota, tuple(nodes))


def node_of_device(address: str, root: str | Path = "/") -> int | None:
    """Memory node that a PCI device is next to; None where the machine does not say.

    Args:
        address: as in /sys/bus/pci/devices, in any case; domains of eight digits are cut to four.
    """
    text = _text(Path(root) / "sys/bus/pci/devices" / _bus_name(address) / "numa_node")
    try:
        node = int(text)
    except ValueError:
        return None
    return node if node >= 0 else None


def cpus_of_node(node: int, root: str | Path = "/") -> tuple[int, ...]:
    """CPUs of a memory node, rising; empty where the machine does not say."""
    return _list(Path(root) / f"sys/devices/system/node/node{node}/cpulist")


def cores(allowed: Sequence[int], root: str | Path = "/") -> list[tuple[int, ...]]:
    """The CPUs grouped by physical core, in the order of their first one."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for cpu in sorted(allowed):
        folder = Path(root) / f"sys/devices/system/cpu/cpu{cpu}/topology"
        siblings = _list(folder / "thread_siblings_list") or _list(folder / "core_cpus_list") or (cpu,)
        groups.setdefault(siblings, []).append(cpu)
    return [tuple(group) for group in groups.values()]


@dataclass(frozen=True)
class Binding:
    """Where an engine should run.

    Attributes:
        cpus: its CPUs, rising. node: memory node to allocate from; None is any.
        reason: how it was chosen, for the log.
    """

    cpus: tuple[int, ...]
    node: int | None
    reason: str


def bind(process: Cpus, index: int = 0, devices: int = 1, node: int | None = None, root: str | Path = "/") -> Binding:
    """The share of one of several devices of this process: whole physical cores, next to the device where that can be.

    Args:
        process: what the process may use.
        index, devices: which of how many engines that share the machine, or the node of their devices.
        node: memory node of the device; None if nobody knows.
        root: before every path.

    Raises:
        InvalidArgumentError: no such index.
    """
    if not 0 <= index < devices:
        raise InvalidArgumentError("index", index, f"0 to {devices - 1}")
    near = _near(process, node, root)
    pool = cores(near or process.allowed, root)
    if len(pool) < devices:
        chosen, what = tuple(sorted(cpu for core in pool for cpu in core)), "shared: fewer cores than engines"
    else:
        begin, end = index * len(pool) // devices, (index + 1) * len(pool) // devices
        chosen = tuple(sorted(cpu for core in pool[begin:end] for cpu in core))
        what = f"cores {begin} to {end - 1} of {len(pool)}"
    where = f"node {node}" if near else "any node"
    return Binding(chosen, node if near else None, f"{what} of {where}")


def _near(process: Cpus, node: int | None, root: Path | str) -> tuple[int, ...]:
    """CPUs of a memory node that the process may use, rising; none where it may not use the node's memory."""
    if node is None or (process.nodes and node not in process.nodes):
        return ()
    return tuple(sorted(set(process.allowed) & set(cpus_of_node(node, root))))


def apply_binding(binding: Binding) -> Callable[[], None] | None:
    """Binds all threads of this process, those that it starts from now on, and its children.

    Memory follows: a page lies in the node of the CPU that touches it first.

    Returns:
        What undoes it: threads that were there get the CPUs that each of them had, later ones those of the thread that
        called. None, and nothing changes, where the system does not let it.
    """
    if not hasattr(os, "sched_setaffinity"):
        return None
    own = os.sched_getaffinity(0)
    before: dict[int, set[int]] = {}
    for thread in _threads():
        with suppress(OSError):  # it has ended
            before[thread] = os.sched_getaffinity(thread)
    try:
        os.sched_setaffinity(0, binding.cpus)
    except OSError:
        return None
    _bind_threads(lambda thread: binding.cpus)

    return lambda: _bind_threads(lambda thread: before.get(thread, own))


def _threads() -> list[int]:
    """Threads of this process; the calling one alone where the system does not tell."""
    try:
        return [int(name) for name in os.listdir("/proc/self/task")]
    except (OSError, ValueError):
        return [threading.get_native_id()]


def _bind_threads(cpus_of: Callable[[int], Iterable[int]]) -> None:
    for thread in _threads():
        with suppress(OSError):  # it has ended
            os.sched_setaffinity(thread, cpus_of(thread))


def binding_for(
    device: str, index: int, address: str | None, root: str | Path = "/", environ: Mapping[str, str] | None = None
) -> Binding | str:
    """Where an engine on a device should run, or why there is nothing to bind.

    The devices next to the same memory node share its cores evenly, whichever of them this process sees: so engines
    that know nothing of each other get shares that do not overlap. Where a device has no CPUs next to it, or none that
    are allowed, all devices share all allowed cores by their number instead, for the same reason.

    Args:
        device, index: type, and number among those that the process sees. address: on the PCI bus; None where nobody
            knows.
        root: before every path. environ: of the process; None is that.

    Raises:
        InvalidArgumentError: the variable that says which devices are visible makes no sense.
    """
    root, environ = Path(root), os.environ if environ is None else environ
    if device == "cpu":
        return "the model computes on CPUs, and takes all that the process may use"
    process = cpus(root)
    if len(process.allowed) < 2:
        return "the process may use one CPU"
    place, peers, node = _among_peers(process, device, index, address, root, environ)
    found = bind(process, place, peers, node, root)
    if found.cpus == process.allowed:
        return f"its share are all CPUs that the process may use ({found.reason})"
    return found


def _among_peers(
    process: Cpus, device: str, index: int, address: str | None, root: Path, environ: Mapping[str, str]
) -> tuple[int, int, int | None]:
    """Number of a device among those with the same node, how many these are, and the node; where one of the devices has
    no CPUs next to it, its number among all of them, and no node.
    """
    listed = sorted(one.name for one in _entries(root / "proc/driver/nvidia/gpus"))
    if device == "cuda" and address is not None and listed:
        own = _bus_name(address)
        nodes = {one: node_of_device(one, root) for one in listed}
        if own in nodes:
            node = nodes[own] if all(_near(process, one, root) for one in set(nodes.values())) else None
            peers = listed if node is None else [one for one in listed if nodes[one] == node]
            return peers.index(own), len(peers), node
    variable, pattern = (CUDA, "nvidia[0-9]*") if device == "cuda" else (ASCEND, "davinci[0-9]*")
    present = max(len(_entries(root / "dev", pattern)), index + 1)
    seen = visible_devices(environ, present, (variable,))
    number = seen[index] if index < len(seen) else index
    return (
        number if isinstance(number, int) else index,
        present,
        None if address is None else node_of_device(address, root),
    )


def _entries(folder: Path, pattern: str = "*") -> list[Path]:
    return list(folder.glob(pattern)) if folder.is_dir() else []


def _bus_name(address: str) -> str:
    """A PCI address as /sys and /proc write it."""
    domain, colon, rest = address.strip().lower().partition(":")
    return f"{domain[-4:]}{colon}{rest}"


def visible_devices(environ: Mapping[str, str], present: int, names: Sequence[str] = (CUDA,)) -> tuple[int | str, ...]:
    """Devices that the environment leaves to this process, in its order: numbers below `present`, or names as they are.

    As the drivers read it: an empty value is no device, and a number that is none ends the list. Names (`GPU-…`,
    `MIG-…`) are passed on.

    Args:
        environ: of the process. present: devices of the machine.
        names: variables; those that are set must agree.

    Raises:
        InvalidArgumentError: a part that is neither a number nor a name, a repeat, or variables that disagree.
    """
    found: tuple[int | str, ...] | None = None
    first = ""
    for name in names:
        text = environ.get(name)
        if text is None:
            continue
        devices = _devices(name, text, present)
        if found is not None and devices != found:
            raise InvalidArgumentError(name, text, f"the devices of {first}, {environ[first]!r}")
        found, first = devices, name
    return tuple(range(present)) if found is None else found


def _devices(name: str, text: str, present: int) -> tuple[int | str, ...]:
    devices: list[int | str] = []
    for part in (part.strip() for part in text.split(",")) if text.strip() else ():
        if part.lstrip("-").isdecimal():
            number = int(part)
            if not 0 <= number < present:
                break
            device: int | str = number
        elif part[:1].isalpha():
            device = part
        else:
            raise InvalidArgumentError(name, text, "numbers or names of devices, separated by commas")
        if device in devices:
            raise InvalidArgumentError(name, text, f"every device once; {device} is there twice")
        devices.append(device)
    return tuple(devices)


def _cgroups(root: Path, controller: str) -> list[Path]:
    """Folders of this process's cgroup for a controller, the innermost first; version 1 where it is mounted."""
    unified, own = None, None
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, controllers, path = (line.split(":", 2) + ["", ""])[:3]
        if number == "0" and not controllers:
            unified = path
        elif controller in controllers.split(","):
            own = path
    base = root / "sys/fs/cgroup"
    if own is not None:
        mounted = next(
            (base / name for name in (controller, "cpu,cpuacct") if (base / name).is_dir()), base / controller
        )
        return _up(mounted, own)
    return _up(base, unified or "/")


def _up(base: Path, path: str) -> list[Path]:
    """The folder of a cgroup and those above it. In a container the path may be the host's: then only the base is."""
    parts = [part for part in path.split("/") if part and part != ".."]
    folders = [base.joinpath(*parts[:count]) for count in range(len(parts), -1, -1)]
    return [folder for folder in folders if folder.is_dir()]


def _quota(folder: Path) -> float | None:
    """CPUs' worth of time of one cgroup."""
    parts = _text(folder / "cpu.max").split()
    if len(parts) != 2:
        parts = [_text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us")]
    try:
        quota, period = (float(part) for part in parts)
    except ValueError:  # "max", or nothing
        return None
    return quota / period if quota > 0 and period > 0 else None


def _list(path: Path) -> tuple[int, ...]:
    try:
        return parse_list(_text(path))
    except ValueError:
        return ()


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
