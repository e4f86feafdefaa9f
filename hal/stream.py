"""Streams, events and pinned memory, so that a runtime can queue work without knowing the device.

A backend returns a `Streams` for a device. Where the device runs work as it is called, that is `InlineStreams`: its
events are done once they are recorded, its streams have nothing to wait for, and its pinned memory is plain.

    streams = backend.streams(device)
    copies = streams.new()
    with copies:
        slots.copy_(host, non_blocking=True)        # host comes from streams.pinned(...)
        uploaded = streams.record()
    streams.wait(uploaded)                          # work queued from here on comes after the copy; the host goes on
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType

import torch
from torch import Tensor

from .device import Device
from .errors import DeepInferError


class HostSyncError(DeepInferError):
    """The host waited for the device where that is forbidden; see `Streams.no_host_sync`."""

    @classmethod
    def at(cls, device: Device, error: BaseException) -> HostSyncError:
        """The error of a wait that a device library reported: names the op in which it happened, else the line."""
        return cls(f"the host waits for {device}, in {place_of(error)}, where that is forbidden: {error}")


DISPATCH = "<dispatch of "
"""File name, up to the op's, of the code that calls an op's kernel; see `ops.dispatch`."""


def place_of(error: BaseException) -> str:
    """Where an exception comes from: the innermost op that was being run, else file and line."""
    op, line, trace = "", "an unknown place", error.__traceback__
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if name.startswith(DISPATCH):
            op = name[len(DISPATCH) : -1]
        line = f"{name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return f"the op {op} ({line})" if op else line


class Event(ABC):
    """A point in a stream: everything that was queued on it before `Streams.record`."""

    @abstractmethod
    def done(self) -> bool:
        """Whether the device is past it. Does not wait."""

    @abstractmethod
    def synchronize(self) -> None:
        """Make the host wait until the device is past it."""


class Stream(ABC):
    """A queue of device work. In a with block it is the current one of the thread. Blocks may be nested."""

    @abstractmethod
    def __enter__(self) -> Stream: ...

    @abstractmethod
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    @abstractmethod
    def synchronize(self) -> None:
        """Make the host wait until all work of the stream is done."""


class Streams(ABC):
    """The streams of one device. `record` and `wait` act on the current stream of the thread."""

    def __init__(self, device: Device) -> None:
        self.device = device

    @abstractmethod
    def new(self, *, urgent: bool = False) -> Stream:
        """A stream of its own. `urgent` asks that its work be started before that of other streams."""

    @abstractmethod
    def record(self) -> Event:
        """An event after what is queued on the current stream."""

    @abstractmethod
    def wait(self, event: Event) -> None:
        """Let work that is queued on the current stream from now on start after the event. The host goes on."""

    @abstractmethod
    def synchronize(self) -> None:
        """Make the host wait until all work of the device is done."""

    @abstractmethod
    def pinned(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Host memory with undefined contents, which `copy_(…, non_blocking=True)` reads or writes asynchronously.

        It must not be changed, or freed by the last reference, before an event after the copy is done.
        """

    @abstractmethod
    def no_host_sync(self) -> AbstractContextManager[None]:
        """In a with block, an operation of torch that makes the host wait for the device raises HostSyncError.

        The error names the op that waited, or the line where no op did.

        Process-wide while it lasts, for debugging and tests; libraries that call the driver themselves are not seen.
        """


class InlineStreams(Streams):
    """Streams of a device that runs work as it is called, such as a CPU."""

    def new(self, *, urgent: bool = False) -> Stream:
        return _InlineStream()

    def record(self) -> Event:
        return _Done()

    def wait(self, event: Event) -> None:
        event.synchronize()

    def synchronize(self) -> None:
        pass

    def pinned(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        return torch.empty(tuple(shape), dtype=dtype)

    @contextmanager
    def no_host_sync(self) -> Iterator[None]:
        yield


class _InlineStream(Stream):
    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def synchronize(self) -> None:
        pass


class _Done(Event):
    def done(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass
