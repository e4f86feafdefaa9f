"""Streams, events and graphs of an NPU: torch_npu's, behind `hal.stream` and `hal.graph`.

torch_npu has the names of torch.cuda under torch.npu. None of this has run on a device.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from ...hal.device import Device
from ...hal.errors import DeepInferError, DeviceFaultError
from ...hal.graph import Body, Graph, GraphError, Graphs, GraphsUnavailable, NoGraphReason
from ...hal.stream import Event, HostSyncError, Stream, Streams


def _npu() -> Any:
    return torch.npu  # type: ignore[attr-defined]


@contextmanager
def faults(device: Any) -> Iterator[None]:
    """An error of the driver is a fault of the device; memory that is short stays torch's own error."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        if "synchroniz" in str(error):  # refused by the guard of `no_host_sync`, which tells it
            raise
        raise DeviceFaultError(f"{device}: {error}") from error


class NpuStreams(Streams):
    """Streams of one NPU. Waiting for one raises DeviceFaultError where the device reports a fault."""

    def new(self, *, urgent: bool = False) -> Stream:
        return _Stream(_npu().Stream(self.device.torch, priority=-1 if urgent else 0), self.device)

    def record(self) -> Event:
        event = _npu().Event()
        event.record(_npu().current_stream(self.device.torch))
        return _Event(event, self.device)

    def wait(self, event: Event) -> None:
        if not isinstance(event, _Event):
            return event.synchronize()  # of another device, whose queue this one cannot look into
        _npu().current_stream(self.device.torch).wait_event(event.event)

    def synchronize(self) -> None:
        with faults(self.device):
            _npu().synchronize(self.device.torch)

    def pinned(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        return torch.empty(tuple(shape), dtype=dtype).pin_memory()

    @contextmanager
    def no_host_sync(self) -> Iterator[None]:
        set_mode = getattr(_npu(), "set_sync_debug_mode", None)
        if set_mode is None:  # a torch_npu without the guard: nothing is seen, and nothing is claimed
            yield
            return
        get_mode = getattr(_npu(), "get_sync_debug_mode", None)
        before = "default" if get_mode is None else get_mode()
        set_mode("error")
        try:
            yield
        except RuntimeError as error:
            if "synchroniz" in str(error):
                raise HostSyncError.at(self.device, error) from error
            raise
        finally:
            set_mode(before)


class _Stream(Stream):
    def __init__(self, stream: Any, device: Device) -> None:
        self.stream, self.device = stream, device
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


def npu_graphs(device: Device) -> Graphs | GraphsUnavailable:
    """Graph capture where torch_npu has it."""
    if all(hasattr(_npu(), name) for name in ("NPUGraph", "graph")):
        return NpuGraphs(device)
    return GraphsUnavailable(device, NoGraphReason.NOT_BUILT, "this torch_npu captures no graphs")


class NpuGraphs(Graphs):
    """Captures torch_npu's graphs. Those of one object share a pool of memory: replay them one after the other."""

    def __init__(self, device: Device) -> None:
        super().__init__(device)
        self._pool: Any = None

    def _options(self) -> dict[str, Any]:
        """What this torch_npu lets be said of a capture."""
        known = inspect.signature(_npu().graph).parameters
        options: dict[str, Any] = {}
        if "pool" in known and hasattr(_npu(), "graph_pool_handle"):
            self._pool = _npu().graph_pool_handle() if self._pool is None else self._pool
            options["pool"] = self._pool
        if "capture_error_mode" in known:  # only calls of this thread break the capture, not those of a loader's
            options["capture_error_mode"] = "thread_local"
        return options

    def _capture(self, body: Body) -> Graph:
        with _npu().device(self.device.torch):
            graph, options = _npu().NPUGraph(), self._options()
            try:
                with _npu().graph(graph, **options):
                    result = body()
            except DeepInferError:
                raise
            except RuntimeError as error:
                self._pool = None  # a pool whose capture failed may not be captured into again
                if isinstance(error, torch.OutOfMemoryError):
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
