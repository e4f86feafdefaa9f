"""Streams, events and graphs of an NPU: torch_npu's, behind `hal.stream` and `hal.graph`.

torch_npu has the names of torch.cuda under torch.npu. None of this has run on a device.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from ...hal.device import Device
from ...hal.errors import DeepInferError
from ...hal.graph import Body, Graph, GraphError, Graphs, GraphsUnavailable, NoGraphReason
from ...hal.stream import Event, HostSyncError, Stream, Streams


def _npu() -> Any:
    return torch.npu  # type: ignore[attr-defined]


class NpuStreams(Streams):
    """Streams of one NPU."""

    def new(self, *, urgent: bool = False) -> Stream:
        return _Stream(_npu().Stream(self.device.torch, priority=-1 if urgent else 0))

    def record(self) -> Event:
        event = _npu().Event()
        event.record(_npu().current_stream(self.device.torch))
        return _Event(event)

    def wait(self, event: Event) -> None:
        if not isinstance(event, _Event):
            return event.synchronize()  # of another device, whose queue this one cannot look into
        _npu().current_stream(self.device.torch).wait_event(event.event)

    def synchronize(self) -> None:
        _npu().synchronize(self.device.torch)

    def pinned(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        return torch.empty(tuple(shape), dtype=dtype).pin_memory()

    @contextmanager
    def no_host_sync(self) -> Iterator[None]:
        set_mode = getattr(_npu(), "set_sync_debug_mode", None)
        if set_mode is None:  # a torch_npu without the guard: nothing is seen, and nothing is claimed
            yield
            return
        set_mode("error")
        try:
            yield
        except RuntimeError as error:
            if "synchroniz" in str(error):
                raise HostSyncError(f"the host waits for {self.device} where that is forbidden: {error}") from error
            raise
        finally:
            set_mode("default")


class _Stream(Stream):
    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self._entered: list[Any] = []

    def __enter__(self) -> Stream:
        context = _npu().stream(self.stream)
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
    def __init__(self, event: Any) -> None:
        self.event = event

    def done(self) -> bool:
        return bool(self.event.query())

    def synchronize(self) -> None:
        self.event.synchronize()


def npu_graphs(device: Device) -> Graphs | GraphsUnavailable:
    """Graph capture where torch_npu has it."""
    if all(hasattr(_npu(), name) for name in ("NPUGraph", "graph")):
        return NpuGraphs(device)
    return GraphsUnavailable(device, NoGraphReason.NOT_BUILT, "this torch_npu captures no graphs")


class NpuGraphs(Graphs):
    """Captures torch_npu's graphs."""

    def _capture(self, body: Body) -> Graph:
        graph = _npu().NPUGraph()
        try:
            with _npu().device(self.device.torch), _npu().graph(graph):
                result = body()
        except DeepInferError:
            raise
        except RuntimeError as error:
            raise GraphError(f"{self.device} refused to record: {error}") from error
        return _Graph(graph, result)


class _Graph(Graph):
    def __init__(self, graph: Any, result: Any) -> None:
        super().__init__(result)
        self._graph = graph

    def _replay(self) -> None:
        self._graph.replay()

    def _release(self) -> None:
        self._graph.reset()
