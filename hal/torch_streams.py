"""Streams, events and graphs of a device whose part of torch has the names of torch.cuda, as torch.npu has.

A backend says where those names are, and in what its device differs.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from .device import Device
from .errors import DeepInferError, DeviceFaultError
from .graph import Body, Graph, GraphError, Graphs
from .stream import Event, HostSyncError, Stream, Streams

_GUARD = "called a synchronizing "
"""Words of the guard behind `Streams.no_host_sync`, the same for CUDA and for NPU. No less will do: faults of a device
tell of synchronizing calls too."""


@contextmanager
def faults(device: Device) -> Iterator[None]:
    """An error of the driver is a fault of the device; memory that is short stays torch's own error."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        if _GUARD in str(error):  # refused by the guard of `no_host_sync`, which tells it
            raise
        raise DeviceFaultError(f"{device}: {error}") from error


class TorchStreams(Streams):
    """Streams of one device. Waiting for it raises DeviceFaultError where the device reports a fault."""

    @property
    @abstractmethod
    def library(self) -> Any:
        """torch.cuda, or what has its names."""

    def new(self, *, urgent: bool = False) -> Stream:
        stream = self.library.Stream(self.device.torch, priority=-1 if urgent else 0)
        return _Stream(stream, self.library, self.device)

    def record(self) -> Event:
        event = self.library.Event()
        event.record(self.library.current_stream(self.device.torch))
        return _Event(event, self.device)

    def wait(self, event: Event) -> None:
        if not isinstance(event, _Event) or event.device.type != self.device.type:
            return event.synchronize()  # of another device, whose queue this one cannot look into
        self.library.current_stream(self.device.torch).wait_event(event.event)

    def synchronize(self) -> None:
        with faults(self.device):
            self.library.synchronize(self.device.torch)

    def pinned(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        return torch.empty(tuple(shape), dtype=dtype, pin_memory=True)

    @contextmanager
    def no_host_sync(self) -> Iterator[None]:
        set_mode = getattr(self.library, "set_sync_debug_mode", None)
        if set_mode is None:  # without the guard nothing is seen, and nothing is claimed
            yield
            return
        get_mode = getattr(self.library, "get_sync_debug_mode", None)
        before = "default" if get_mode is None else get_mode()
        set_mode("error")
        try:
            yield
        except RuntimeError as error:
            if _GUARD in str(error):
                raise HostSyncError.at(self.device, error) from error
            raise
        finally:
            set_mode(before)


class _Stream(Stream):
    def __init__(self, stream: Any, library: Any, device: Device) -> None:
        self.stream, self.library, self.device = stream, library, device
        self._entered: list[Any] = []

    def __enter__(self) -> Stream:
        context = self.library.stream(self.stream)
        context.__enter__()
        self._entered.append(context)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entered.pop().__exit__(kind, error, trace)

    def synchronize(self) -> None:
        with faults(self.device):
            self.stream.synchronize()


class _Event(Event):
    def __init__(self, event: Any, device: Device) -> None:
        self.event, self.device = event, device

    def done(self) -> bool:
        with faults(self.device):
            return bool(self.event.query())

    def synchronize(self) -> None:
        with faults(self.device):
            self.event.synchronize()


class TorchGraphs(Graphs):
    """Captures graphs of one device.

    The graphs of one object share a pool of memory: what one uses between its launches the next may use again. Replay
    them one after the other, never two at once.
    """

    def __init__(self, device: Device) -> None:
        super().__init__(device)
        self._pool: Any = None

    @property
    @abstractmethod
    def library(self) -> Any:
        """torch.cuda, or what has its names."""

    @abstractmethod
    def new_graph(self) -> Any:
        """An empty graph of the library."""

    def options(self) -> dict[str, Any]:
        """How a capture is made: from the pool, and broken only by calls of this thread, not by those of a loader's."""
        return {"pool": self.pool(), "capture_error_mode": "thread_local"}

    def pool(self) -> Any:
        """The pool of memory, made for the first capture and after one that failed."""
        if self._pool is None:
            self._pool = self.library.graph_pool_handle()
        return self._pool

    def _capture(self, body: Body) -> Graph:
        with self.library.device(self.device.torch):
            graph, options = self.new_graph(), self.options()
            try:
                with self.library.graph(graph, **options):
                    result = body()
            except DeepInferError:
                raise
            except RuntimeError as error:
                self._pool = None  # a pool whose capture failed may not be captured into again
                if isinstance(error, torch.OutOfMemoryError):  # memory that is short stays torch's own error
                    raise
                raise GraphError(f"{self.device} refused to record: {error}") from error
        return _Graph(graph, result, self.device)


class _Graph(Graph):
    def __init__(self, graph: Any, result: Any, device: Device) -> None:
        super().__init__(result)
        self._graph, self.device = graph, device

    def _replay(self) -> None:
        with faults(self.device):
            self._graph.replay()

    def _release(self) -> None:
        self._graph.reset()
