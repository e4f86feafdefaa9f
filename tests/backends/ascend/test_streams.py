"""Streams, events and graphs of an NPU, over a fake torch.npu."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from deepinfer.backends.ascend.streams import NpuGraphs, NpuStreams, npu_graphs
from deepinfer.hal.device import Device
from deepinfer.hal.errors import DeviceFaultError, InvalidArgumentError
from deepinfer.hal.graph import GraphError, GraphsUnavailable, NoGraphReason
from deepinfer.hal.stream import HostSyncError

NPU = Device("npu", 0)


class Fake:
    """torch.npu: what is called is in `log`; `fault` is raised where the host waits."""

    def __init__(self) -> None:
        self.log: list[Any] = []
        self.fault: Exception | None = None
        self.mode = "warn"
        self.pools = 0
        self.Stream = lambda device, priority: SimpleNamespace(priority=priority, synchronize=self.wait)
        self.Event = lambda: SimpleNamespace(record=self.log.append, query=self.wait, synchronize=self.wait)
        self.NPUGraph = lambda: SimpleNamespace(replay=self.wait, reset=lambda: self.log.append("reset"))

    def wait(self) -> bool:
        if self.fault is not None:
            raise self.fault
        self.log.append("wait")
        return True

    def synchronize(self, device: Any) -> None:
        self.wait()

    def current_stream(self, device: Any) -> Any:
        return SimpleNamespace(wait_event=lambda event: self.log.append("ordered"))

    @contextmanager
    def stream(self, stream: Any) -> Any:
        self.log.append(("enter", stream.priority))
        yield
        self.log.append("leave")

    @contextmanager
    def device(self, device: Any) -> Any:
        yield

    @contextmanager
    def graph(self, graph: Any, pool: Any = None, capture_error_mode: str = "global") -> Any:
        self.log.append(("capture", pool, capture_error_mode))
        yield

    def graph_pool_handle(self) -> int:
        self.pools += 1
        return self.pools

    def set_sync_debug_mode(self, mode: str) -> None:
        self.mode = mode

    def get_sync_debug_mode(self) -> str:
        return self.mode


@pytest.fixture
def npu(monkeypatch: pytest.MonkeyPatch) -> Fake:
    fake = Fake()
    monkeypatch.setattr(torch, "npu", fake, raising=False)
    monkeypatch.setattr(Device, "torch", property(lambda self: torch.device("meta", 0)))
    return fake


def test_work_is_queued_on_a_stream_and_waited_for(npu: Fake) -> None:
    streams = NpuStreams(NPU)
    with streams.new(urgent=True) as stream:
        event = streams.record()
    streams.wait(event)
    assert npu.log[0] == ("enter", -1) and npu.log[2:] == ["leave", "ordered"]
    assert event.done()
    event.synchronize()
    stream.synchronize()
    streams.synchronize()
    assert npu.log[-4:] == ["wait"] * 4


@pytest.mark.parametrize("what", ["device", "stream", "event", "query"])
def test_a_fault_where_the_host_waits_is_typed(npu: Fake, what: str) -> None:
    streams = NpuStreams(NPU)
    stream, event = streams.new(), streams.record()
    wait = {
        "device": streams.synchronize,
        "stream": stream.synchronize,
        "event": event.synchronize,
        "query": event.done,
    }
    npu.fault = RuntimeError("the aicore execution is abnormal, 507015")
    with pytest.raises(DeviceFaultError, match="npu:0: .*507015"):
        wait[what]()
    npu.fault = torch.OutOfMemoryError("NPU out of memory")
    with pytest.raises(torch.OutOfMemoryError):
        wait[what]()


def test_the_host_is_told_that_it_waits_where_it_must_not(npu: Fake) -> None:
    streams = NpuStreams(NPU)
    with pytest.raises(HostSyncError, match="npu:0"), streams.no_host_sync():
        assert npu.mode == "error"
        raise RuntimeError("called a synchronizing NPU operation")
    assert npu.mode == "warn", "as it was"
    with pytest.raises(RuntimeError, match="other"), streams.no_host_sync():
        raise RuntimeError("other")
    del Fake.set_sync_debug_mode
    try:
        with streams.no_host_sync():
            pass
    finally:
        Fake.set_sync_debug_mode = lambda self, mode: setattr(self, "mode", mode)  # type: ignore[method-assign]


def test_graphs_share_a_pool_which_a_failed_capture_ends(npu: Fake) -> None:
    graphs = npu_graphs(NPU)
    assert isinstance(graphs, NpuGraphs)
    first = graphs.capture(lambda: 1)
    graphs.capture(lambda: 2)
    assert npu.log[:2] == [("capture", 1, "thread_local")] * 2

    def fails(error: Exception) -> Any:
        """A body that works as the warm-up, and not when it is recorded."""
        errors = iter((None, error))

        def body() -> None:
            if found := next(errors):
                raise found

        return body

    with pytest.raises(GraphError, match="npu:0 refused to record: cannot be captured"):
        graphs.capture(fails(RuntimeError("cannot be captured")))
    with pytest.raises(InvalidArgumentError):
        graphs.capture(fails(InvalidArgumentError("n", 1, "2")))
    graphs.capture(lambda: 3)
    assert npu.log[-1] == ("capture", 2, "thread_local")
    with pytest.raises(torch.OutOfMemoryError):  # memory that is short stays torch's own error
        graphs.capture(fails(torch.OutOfMemoryError("short")))
    graphs.capture(lambda: 4)
    assert npu.log[-1] == ("capture", 3, "thread_local")
    first.replay()
    assert npu.log[-1] == "wait"
    npu.fault = RuntimeError("507015")
    with pytest.raises(DeviceFaultError, match="npu:0"):
        first.replay()


def test_a_torch_npu_without_pools_or_without_graphs(npu: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def plain(graph: Any) -> Any:
        npu.log.append("plain")
        yield

    monkeypatch.setattr(npu, "graph", plain)
    graphs = npu_graphs(NPU)
    assert isinstance(graphs, NpuGraphs)
    graphs.capture(lambda: None)
    assert npu.log == ["plain"]
    monkeypatch.delattr(npu, "NPUGraph")
    none = npu_graphs(NPU)
    assert isinstance(none, GraphsUnavailable) and none.reason is NoGraphReason.NOT_BUILT
