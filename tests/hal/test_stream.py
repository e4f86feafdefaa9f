"""Streams where there are none: what a runtime queues through `hal.stream` is right on a CPU too."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from deepinfer import ops  # noqa: F401  (defines the specs)
from deepinfer.hal.backend import Backend
from deepinfer.hal.device import Device
from deepinfer.hal.stream import HostSyncError, InlineStreams
from deepinfer.ops.spec import SPECS

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


def test_a_wait_is_told_with_the_op_that_waited() -> None:
    """The message must come from the file name that generated dispatch functions really have."""
    run = SPECS["rms_norm"].run
    scope: dict[str, Any] = {}
    exec(compile("def call(f):\n    f()", run.__code__.co_filename, "exec"), scope)

    def waits() -> None:
        raise RuntimeError("called a synchronizing operation")

    for call, place in ((scope["call"], r"the op rms_norm \("), (lambda f: f(), r".*test_stream\.py:\d+, where")):
        try:
            call(waits)
        except RuntimeError as error:
            with pytest.raises(HostSyncError, match=f"the host waits for cpu, in {place}"):
                raise HostSyncError.at(CPU, error) from error
