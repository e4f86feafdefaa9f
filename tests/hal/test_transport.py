"""What a transport says of tensors, and how a device's library is prepared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from deepinfer.hal import comm, transport, world
from deepinfer.hal.device import Device
from deepinfer.hal.errors import BackendError, InvalidArgumentError
from deepinfer.hal.stream import InlineStreams

META = torch.empty(1, dtype=torch.int64, device="meta")


class Fake(transport.DeviceTransport):
    """A library of the meta device."""

    name = "fast"
    reduced = (torch.int32,)
    capture = False

    def __init__(self, environ: dict[str, str] | None = None, lacks: str | None = None) -> None:
        device = Device("meta")
        super().__init__(device, InlineStreams(device), {} if environ is None else environ)
        self.lacks, self.log = lacks, []  # type: tuple[str | None, list[str]]

    def missing(self) -> str | None:
        return self.lacks

    def settings(self, deadline: float) -> Mapping[str, str]:
        return {"FAST_TIMEOUT": transport.whole_seconds(deadline, 10, 20), "FAST_BUFFER": "16"}

    def select(self) -> None:
        self.log.append("selected")

    def capturing(self) -> bool:
        return self.capture

    def wait(self) -> None:
        self.log.append("ordered")


def test_host_memory_needs_nothing() -> None:
    host = transport.Transport()
    host.prepare(1.0)
    assert host.backends == "gloo" and host.takes(torch.empty(1)) and not host.takes(META)
    assert not host.queues(torch.empty(1))


def test_a_device_has_its_library_beside_that_of_host_memory() -> None:
    fake = Fake()
    assert fake.backends == "cpu:gloo,meta:fast"
    assert fake.takes(META) and fake.takes(torch.empty(1))
    assert fake.queues(META) and not fake.queues(torch.empty(1)), "what is in host memory is waited for"
    group = world.ProcessGroup("dp", None, 1, (0, 1), 7.0, None, fake)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="allowed: int32"):
        group.all_reduce(META)
    assert group.all_gather(META[:0]).shape == (2, 0), "nothing to move, on every rank"
    group.broadcast(META[:0], 0)


def test_the_library_is_set_up_but_for_what_the_user_has_set() -> None:
    fake = Fake({"FAST_BUFFER": "200"})
    fake.prepare(10.2)
    assert fake.environ == {"FAST_BUFFER": "200", "FAST_TIMEOUT": "11"} and fake.log == ["selected"]
    assert transport.whole_seconds(1, 10, 20) == "10" and transport.whole_seconds(99, 10, 20) == "20"


def test_a_missing_library_is_an_error_before_anybody_waits() -> None:
    fake = Fake(lacks="no libfast.so")
    with pytest.raises(BackendError, match="no groups of meta over fast: no libfast.so"):
        world.connect(0, 2, "tcp://no.such.host:1", transport=fake)
    assert not fake.environ and not fake.log


def test_queued_collectives_are_ordered_and_marked_but_in_captures() -> None:
    fake = Fake()
    event = fake.queued(fake)
    assert event is not None and event.done() and fake.log == ["ordered"]
    fake.capture = True
    assert fake.queued(fake) is None and fake.log == ["ordered"] * 2


def test_one_process_has_nothing_to_check() -> None:
    comm.single_process().check()


def test_an_abort_is_told_to_torch() -> None:
    class Handle:
        aborted = False

        def abort(self) -> None:
            self.aborted = True

    handle: Any = Handle()
    fake = Fake()
    fake.abort(handle)
    assert handle.aborted and fake.error(handle) == ""
