"""Streams, events, pinned memory and graphs of an NVIDIA GPU: torch's, behind `hal.stream` and `hal.graph`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from ...hal.device import Device
from ...hal.errors import DeepInferError
from ...hal.graph import Body, Graph, GraphError, Graphs
from ...hal.stream import Event, HostSyncError, Stream, Streams

_SYNC_MESSAGE = "called a synchronizing CUDA operation"


class CudaStreams(Streams):
    """Streams of one GPU."""

    def new(self, *, urgent: bool = False) -> Stream:
        return _Stream(torch.cuda.Stream(self.device.torch, priority=-1 if urgent else 0))

    def record(self) -> Event:
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(self.device.torch))
        return _Event(event)

    def wait(self, event: Event) -> None:
        if not isinstance(event, _Event):
            return event.synchronize()  # of another device, whose queue this one cannot look into
        torch.cuda.current_stream(self.device.torch).wait_event(event.event)

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.device.torch)

    def pinned(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        return torch.empty(tuple(shape), dtype=dtype, pin_memory=True)

    @contextmanager
    def no_host_sync(self) -> Iterator[None]:
        before = torch.cuda.get_sync_debug_mode()
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        except RuntimeError as error:
            if _SYNC_MESSAGE in str(error):
                raise HostSyncError.at(self.device, error) from error
            raise
        finally:
            torch.cuda.set_sync_debug_mode(before)


class _Stream(Stream):
    def __init__(self, stream: torch.cuda.Stream) -> None:
        self.stream = stream
        self._entered: list[Any] = []

    def __enter__(self) -> Stream:
        context = torch.cuda.stream(self.stream)
        context.__enter__()
        self._entered.append(context)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entered.pop().__exit__(kind, error, trace)

    def synchronize(self) -> None:
        self.stream.synchronize()


class _Event(Event):
    def __init__(self, event: torch.cuda.Event) -> None:
        self.event = event

    def done(self) -> bool:
        return bool(self.event.query())

    def synchronize(self) -> None:
        self.event.synchronize()


class CudaGraphs(Graphs):
    """Captures CUDA graphs.

    The graphs of one object share a pool of memory: what one uses between its launches the next may use again. Replay
    them one after the other, never two at once.
    """

    def __init__(self, device: Device) -> None:
        super().__init__(device)
        self._pool: Any = None

    def _capture(self, body: Body) -> Graph:
        with torch.cuda.device(self.device.torch):
            if self._pool is None:
                self._pool = torch.cuda.graph_pool_handle()
            graph = torch.cuda.CUDAGraph()
            try:
                # Only calls of this thread that cannot be recorded break the capture, not those of a loader's.
                with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                    result = body()
            except DeepInferError:
                raise
            except RuntimeError as error:
                self._pool = None  # a pool whose capture failed may not be captured into again
                raise GraphError(f"{self.device} refused to record: {error}") from error
        return _Graph(graph, result)


class _Graph(Graph):
    def __init__(self, graph: torch.cuda.CUDAGraph, result: Any) -> None:
        super().__init__(result)
        self._graph = graph

    def _replay(self) -> None:
        self._graph.replay()

    def _release(self) -> None:
        self._graph.reset()
