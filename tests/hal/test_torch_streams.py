"""Streams, events and graphs over a fake of what torch has of a device, as the backends use them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch

from deepinfer.backends.ascend.streams import NpuGraphs, NpuStreams
from deepinfer.backends.cuda.streams import CudaGraphs, CudaStreams
from deepinfer.hal.device import Device
from deepinfer.hal.errors import DeviceFaultError, InvalidArgumentError
from deepinfer.hal.graph import GraphError
from deepinfer.hal.stream import HostSyncError, InlineStreams
from deepinfer.hal.torch_streams import TorchGraphs, TorchStreams
from fake_streams import FakeLibrary


@dataclass
class Kind:
    """Streams and graphs of a device, and the fake that is under them."""

    device: Device
    fake: FakeLibrary
    streams: TorchStreams
    graphs: TorchGraphs


@pytest.fixture(params=[("npu", NpuStreams, NpuGraphs), ("cuda", CudaStreams, CudaGraphs)], ids=["npu", "cuda"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Kind:
    name, streams, graphs = request.param
    fake, device = FakeLibrary(), Device(name)
    for one in (streams, graphs):
        monkeypatch.setattr(one, "library", property(lambda self: fake))
    monkeypatch.setattr(Device, "torch", property(lambda self: torch.device("meta", 0)))
    return Kind(device, fake, streams(device), graphs(device))


class Other(TorchStreams):
    """Streams of a third device."""

    fake: FakeLibrary

    @property
    def library(self) -> Any:
        return self.fake


def test_work_is_queued_on_a_stream_and_waited_for(kind: Kind) -> None:
    streams = kind.streams
    with streams.new(urgent=True) as stream:
        event = streams.record()
    streams.wait(event)
    assert kind.fake.log[0] == ("enter", -1) and kind.fake.log[2:] == ["leave", "ordered"]
    assert event.done()
    event.synchronize()
    stream.synchronize()
    streams.synchronize()
    assert kind.fake.log[-4:] == ["wait"] * 4


@pytest.mark.parametrize("what", ["device", "stream", "event", "query"])
def test_a_fault_where_the_host_waits_is_typed(kind: Kind, what: str) -> None:
    streams = kind.streams
    stream, event = streams.new(), streams.record()
    wait = {
        "device": streams.synchronize,
        "stream": stream.synchronize,
        "event": event.synchronize,
        "query": event.done,
    }
    kind.fake.fault = RuntimeError("the aicore execution is abnormal, 507015")
    with pytest.raises(DeviceFaultError, match=f"{kind.device}: .*507015"):
        wait[what]()
    kind.fake.fault = torch.OutOfMemoryError("NPU out of memory")
    with pytest.raises(torch.OutOfMemoryError):
        wait[what]()


FAULTS = [
    "synchronize:build/streams/NpuStream.cpp:41 NPU function error: AclrtSynchronizeStreamWithTimeout(stream, -1), "
    "error code is 507011\n[ERROR] the task of the model stopped; synchronizing the stream failed",
    "CUDA error: an illegal memory access was encountered, noticed by cudaStreamSynchronize",
]
"""What devices say where they broke while somebody waited. No words of the guard, though they synchronize."""


@pytest.mark.parametrize("text", FAULTS)
def test_a_fault_that_speaks_of_synchronizing_is_no_refused_wait(kind: Kind, text: str) -> None:
    kind.fake.fault = RuntimeError(text)
    event = kind.streams.record()
    for wait in (kind.streams.synchronize, kind.streams.new().synchronize, event.synchronize, event.done):
        with pytest.raises(DeviceFaultError, match=str(kind.device)):
            wait()
        with pytest.raises(DeviceFaultError), kind.streams.no_host_sync():
            wait()
    with pytest.raises(RuntimeError) as caught, kind.streams.no_host_sync():
        raise RuntimeError(text)  # as an operation of torch has it
    assert str(caught.value) == text


def test_what_the_guard_refuses_is_no_fault(kind: Kind) -> None:
    for device in ("NPU", "CUDA"):
        kind.fake.fault = RuntimeError(f"called a synchronizing {device} operation")
        with pytest.raises(HostSyncError), kind.streams.no_host_sync():
            kind.streams.synchronize()


def test_the_host_is_told_that_it_waits_where_it_must_not(kind: Kind) -> None:
    streams = kind.streams
    with pytest.raises(HostSyncError, match=str(kind.device)), streams.no_host_sync():
        assert kind.fake.mode == "error"
        raise RuntimeError("called a synchronizing NPU operation")
    assert kind.fake.mode == "warn", "as it was"
    with pytest.raises(RuntimeError, match="other"), streams.no_host_sync():
        raise RuntimeError("other")
    assert kind.fake.mode == "warn"


def test_without_the_guard_nothing_is_claimed(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(FakeLibrary, "set_sync_debug_mode")
    with kind.streams.no_host_sync():
        pass
    assert kind.fake.mode == "warn"


def test_an_event_of_another_device_is_waited_for_by_the_host(kind: Kind) -> None:
    kind.streams.wait(InlineStreams(Device("cpu")).record())
    other = Other(Device("xpu"))
    other.fake = FakeLibrary()
    kind.streams.wait(other.record())
    assert "ordered" not in kind.fake.log and other.fake.log[-1] == "wait"


def test_graphs_share_a_pool_which_a_failed_capture_ends(kind: Kind) -> None:
    graphs = kind.graphs
    first = graphs.capture(lambda: 1)
    graphs.capture(lambda: 2)
    assert kind.fake.log[:2] == [("capture", 1, "thread_local")] * 2

    def fails(error: Exception) -> Any:
        """A body that works as the warm-up, and not when it is recorded."""
        errors = iter((None, error))

        def body() -> None:
            if found := next(errors):
                raise found

        return body

    with pytest.raises(GraphError, match=f"{kind.device} refused to record: cannot be captured"):
        graphs.capture(fails(RuntimeError("cannot be captured")))
    with pytest.raises(InvalidArgumentError):
        graphs.capture(fails(InvalidArgumentError("n", 1, "2")))
    graphs.capture(lambda: 3)
    assert kind.fake.log[-1] == ("capture", 2, "thread_local")
    with pytest.raises(torch.OutOfMemoryError):  # memory that is short stays torch's own error
        graphs.capture(fails(torch.OutOfMemoryError("short")))
    graphs.capture(lambda: 4)
    assert kind.fake.log[-1] == ("capture", 3, "thread_local")
    first.replay()
    assert kind.fake.log[-1] == "wait"
    kind.fake.fault = RuntimeError("507015")
    with pytest.raises(DeviceFaultError, match=str(kind.device)):
        first.replay()
