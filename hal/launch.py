"""Who this process is among those of a launch, as torchrun and its like say in the environment.

    group, device = launch.join(backend)            # of one process, or of the world that was launched

A launcher gives every process RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT. None of the first three set
means one process, whatever the other two say; one of the three without all the rest is a mistake, and the error names
what is missing. Process LOCAL_RANK of a host takes the device of that number.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from . import comm, world
from .backend import Backend
from .device import Device
from .errors import InvalidArgumentError

VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class Launch:
    """One process of a launch.

    Attributes:
        rank, world_size: in the world, over all hosts.
        local_rank: on this host.
        address: 'tcp://HOST:PORT' of the store through which processes find one another.
        served: whether the launcher holds that store; else rank 0 does.
        attempt: how often the launcher has started the processes anew.
    """

    rank: int
    world_size: int
    local_rank: int
    address: str
    served: bool = False
    attempt: int = 0

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> Launch | None:
        """What the launcher said; None where nothing was launched.

        Raises:
            InvalidArgumentError: variables are missing, or no numbers, or do not fit together; names the first.
        """
        environ = os.environ if environ is None else environ
        absent = [name for name in VARIABLES if not environ.get(name)]
        # MASTER_ADDR and MASTER_PORT alone are left over from a shell; who counts ranks means a launch.
        if not any(environ.get(name) for name in VARIABLES[:3]):
            return None
        if absent:
            allowed = f"set with {', '.join(VARIABLES)}, as torchrun does; {', '.join(absent)} missing"
            raise InvalidArgumentError(absent[0], None, allowed)
        size = _number(environ, "WORLD_SIZE", 1, None)
        rank = _number(environ, "RANK", 0, size - 1)
        local = _number(environ, "LOCAL_RANK", 0, rank)  # ranks of a host are consecutive
        port = _number(environ, "MASTER_PORT", 1, 65535)
        served = environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        attempt = _number(environ, "TORCHELASTIC_RESTART_COUNT", 0, None) if served else 0
        return cls(rank, size, local, f"tcp://{environ['MASTER_ADDR']}:{port}", served, attempt)


def device_of(local_rank: int, devices: Sequence[Device]) -> Device:
    """The device of a process of this host: one for each, but the CPU, which they share.

    Raises:
        InvalidArgumentError: there are fewer devices.
    """
    if [device.type for device in devices] == ["cpu"]:
        return devices[0]
    if local_rank >= len(devices):
        raise InvalidArgumentError(
            "LOCAL_RANK",
            local_rank,
            f"below {len(devices)}, the devices that this process sees; 0 where each process sees its own only",
        )
    return devices[local_rank]


def join(
    backend: Backend, launched: Launch | None = None, *, deadline: float | None = None
) -> tuple[comm.Group, Device]:
    """The group of all processes of a launch, over what the backend provides, and the device of this one.

    Args:
        backend: one that is available here.
        launched: `Launch.from_environment()` by default.
        deadline: seconds for joining and for every collective; DEEPINFER_GLOO_TIMEOUT by default.

    Raises:
        BackendError: the backend has no way to move tensors between its devices here.
        CommunicatorError: not everybody joined in time; names the missing ranks.
        InvalidArgumentError: of the launch, see above.
    """
    launched = Launch.from_environment() if launched is None else launched
    if launched is None:
        return comm.single_process(deadline=deadline), backend.devices()[0]
    device = device_of(launched.local_rank, backend.devices())
    group = world.connect(
        launched.rank,
        launched.world_size,
        launched.address,
        deadline=deadline,
        transport=backend.transport(device),
        served=f"attempt {launched.attempt}" if launched.served else None,
    )
    return group, device


def _number(environ: Mapping[str, str], name: str, least: int, most: int | None) -> int:
    text = environ.get(name, "")
    if not text.isdecimal() or int(text) < least or (most is not None and int(text) > most):
        raise InvalidArgumentError(name, text, f"a number from {least} on" if most is None else f"{least} to {most}")
    return int(text)
