"""Transports: how the processes of a world reach one another's tensors, as a backend provides it.

`Backend.transport(device)` gives one, and `hal.world` forms groups over it. Tensors in host memory always go by gloo;
those of a device by the library that knows it. A backend of other devices derives from `DeviceTransport` and says what
is missing, what its library reads from the environment, and how the library is told to let go.
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, MutableMapping
from typing import Any

import torch

from .device import Device
from .errors import BackendError
from .stream import Event, Streams

CPU = Device("cpu")


class Transport:
    """For tensors in host memory: gloo. Nothing has to be set up.

    Attributes:
        name: torch.distributed's name of what moves the device's tensors.
        device: where tensors may lie, besides host memory.
        reduced: dtypes that `Group.all_reduce` takes.
    """

    name: str = "gloo"
    reduced: tuple[torch.dtype, ...] = (torch.int32, torch.int64, torch.float32, torch.float64)

    def __init__(self, device: Device = CPU) -> None:
        self.device = device

    @property
    def backends(self) -> str:
        """What torch.distributed makes a group of: one library for each kind of memory."""
        return self.name

    def prepare(self, deadline: float) -> None:
        """Called once, before the world is formed.

        Args:
            deadline: seconds that a collective may take.

        Raises:
            BackendError: the library or the device is missing; says what to do.
        """

    def takes(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor's memory can be reached."""
        return tensor.device.type == "cpu"

    def queues(self, tensor: torch.Tensor) -> bool:
        """Whether a collective of a tensor is put on the device's queue, as a kernel is, instead of awaited."""
        return False


class DeviceTransport(Transport, ABC):
    """For tensors of one device, whose collectives are queued on its current stream.

    Args:
        device: the one of this process.
        streams: of the device.
        environ: what the library reads; `os.environ`, but in tests.
    """

    def __init__(self, device: Device, streams: Streams, environ: MutableMapping[str, str] | None = None) -> None:
        super().__init__(device)
        self.streams = streams
        self.environ = os.environ if environ is None else environ

    @property
    def backends(self) -> str:
        return f"cpu:gloo,{self.device.type}:{self.name}"

    def prepare(self, deadline: float) -> None:
        problem = self.missing()
        if problem is not None:
            raise BackendError(f"no groups of {self.device} over {self.name}: {problem}")
        for name, value in self.settings(deadline).items():
            self.environ.setdefault(name, value)  # what a user has set, stays
        self.select()

    def takes(self, tensor: torch.Tensor) -> bool:
        return super().takes(tensor) or tensor.device == self.device.torch

    def queues(self, tensor: torch.Tensor) -> bool:
        return tensor.device.type != "cpu"

    def queued(self, work: Any) -> Event | None:
        """Let the current stream wait for a collective, and mark the place behind it; None while a graph is captured,
        whose collectives run when it is replayed."""
        work.wait()
        return None if self.capturing() else self.streams.record()

    # ---- what libraries differ in -----------------------------------------------------------------------------

    @abstractmethod
    def missing(self) -> str | None:
        """What the library lacks here, with the remedy; None when it can be used."""

    def settings(self, deadline: float) -> Mapping[str, str]:
        """Variables of the environment that the library reads when a group is formed, where the user set none."""
        return {}

    @abstractmethod
    def select(self) -> None:
        """Make the device the current one of this thread."""

    @abstractmethod
    def capturing(self) -> bool:
        """Whether a graph is being captured on the current stream."""

    def error(self, handle: Any) -> str:
        """What the library has noticed of a group by itself, such as a peer that is gone; "" for nothing."""
        return ""

    def abort(self, handle: Any) -> None:
        """End what a group has queued, so that nobody waits for it any more."""
        handle.abort()


def whole_seconds(seconds: float, least: int, most: int) -> str:
    """A time for a variable of whole seconds, rounded up and kept within what the variable takes."""
    return str(min(max(math.ceil(seconds), least), most))
