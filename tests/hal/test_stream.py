"""Streams where there are none: what a runtime queues through `hal.stream` is right on a CPU too."""

from __future__ import annotations

import torch

from deepinfer.hal.backend import Backend
from deepinfer.hal.device import Device
from deepinfer.hal.stream import InlineStreams

CPU = Device("cpu")


def test_work_is_done_as_it_is_called() -> None:
    streams = Backend().streams(CPU)
    assert isinstance(streams, InlineStreams) and streams.device == CPU
    host, there = streams.pinned((2, 3), torch.int32), torch.zeros(2, 3, dtype=torch.int32)
    assert host.shape == (2, 3) and host.dtype == torch.int32
    host.fill_(7)
    copies = streams.new(urgent=True)
    with copies as outer, streams.new() as inner, streams.no_host_sync():
        assert outer is copies and inner is not copies
        there.copy_(host, non_blocking=True)
        event = streams.record()
    streams.wait(event)
    assert event.done() and bool((there == 7).all())
    event.synchronize()
    copies.synchronize()
    streams.synchronize()
