"""What a queued collective that fails does to the groups of its world, over a fake device library."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from deepinfer.hal import comm, heartbeat, world
from deepinfer.hal.device import Device
from deepinfer.hal.stream import Event, InlineStreams
from deepinfer.hal.transport import DeviceTransport
from deepinfer.hal.watch import Watch

META = torch.empty(1, device="meta")
WAITS_SECONDS = 20.0


class Place(Event):
    def __init__(self) -> None:
        self.reached = False

    def done(self) -> bool:
        return self.reached

    def synchronize(self) -> None:
        raise AssertionError("nobody may wait")


class Handle:
    """torch's group."""

    def __init__(self, name: str) -> None:
        self.group_name = name

    def wait(self) -> None:
        """A collective of it, which the current stream waits for."""


class Library(DeviceTransport):
    """A device's library. `tell` is what it has noticed; `aborted` are the groups whose queue it ended."""

    name = "fast"

    def __init__(self) -> None:
        device = Device("meta")
        super().__init__(device, InlineStreams(device), {})
        self.tell: Callable[[], str] = lambda: ""
        self.aborted: list[str] = []
        self.abort_fails = ""
        self.on_abort: Callable[[], None] = lambda: None
        self.places: list[Place] = []

    def missing(self) -> str | None:
        return None

    def select(self) -> None:
        pass

    def capturing(self) -> bool:
        return False

    def queued(self, work: Any) -> Event:
        self.places.append(Place())
        return self.places[-1]

    def error(self, handle: Any) -> str:
        return self.tell()

    def abort(self, handle: Any) -> None:
        self.on_abort()
        self.aborted.append(handle.group_name)
        if self.abort_fails:
            raise RuntimeError(self.abort_fails)


class Worlds:
    """A world of three ranks, of which only this one shows life, and a part of it with rank 2."""

    def __init__(self, store: Any) -> None:
        self.store = store  # the server lives as long as this
        self.library = Library()
        self.progress = heartbeat.Heartbeat(store, 1)
        self.watch = Watch(lambda: None)
        given = (self.progress, self.library, self.watch)
        self.whole = world.ProcessGroup("world", Handle("w"), 1, (0, 1, 2), 60.0, *given)
        self.part = world.ProcessGroup("pair", Handle("p"), 0, (1, 2), 60.0, *given, self.whole)

    def queue(self, group: world.ProcessGroup) -> Place:
        group._finish("all_reduce", lambda: Handle("work"), META)
        return self.library.places[-1]


@pytest.fixture
def worlds(monkeypatch: pytest.MonkeyPatch) -> Iterator[Worlds]:
    monkeypatch.setattr(heartbeat, "INTERVAL_SECONDS", 0.02)
    monkeypatch.setattr(heartbeat, "WATCH_SECONDS", 0.5)
    monkeypatch.setattr(heartbeat, "LINGER_SECONDS", 0.1)
    made = Worlds(torch.distributed.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False))
    yield made
    made.whole.close()


def until(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + WAITS_SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def failure(group: comm.Group, patience: float = 0.0) -> comm.CommunicatorError:
    with pytest.raises(comm.CommunicatorError) as caught:
        group.check(patience)
    return caught.value


def test_a_result_of_a_broken_collective_is_refused_before_it_is_explained(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "WATCH_SECONDS", 3.0)
    place = worlds.queue(worlds.whole)
    place.reached = True
    worlds.library.tell = lambda: "REMOTE_ERROR"
    assert "REMOTE_ERROR" in str(failure(worlds.whole)), "the watch may not have looked yet, nor have ended"
    until(lambda: worlds.library.aborted)  # the watch is busy with it now
    worlds.library.tell = lambda: ""
    for group in (worlds.whole, worlds.part):
        assert "REMOTE_ERROR" in str(failure(group))
        with pytest.raises(comm.CommunicatorError):
            worlds.queue(group)
        with pytest.raises(comm.CommunicatorError):
            group.all_gather(META[:0])
        with pytest.raises(comm.CommunicatorError):
            group.split([[i] for i in range(group.world_size)], "late")
    assert not worlds.whole._explained.is_set(), "nobody waits for who is missing"


def test_an_error_that_the_library_cannot_tell_is_one(worlds: Worlds) -> None:
    worlds.queue(worlds.whole).reached = True

    def broken() -> str:
        raise ValueError("no such communicator")

    worlds.library.tell = broken
    assert "no such communicator" in str(failure(worlds.part))


def test_queues_are_ended_first_and_all_groups_fail_together(worlds: Worlds) -> None:
    seen: list[tuple[bool, bool]] = []

    def aborts() -> None:
        groups = (worlds.whole, worlds.part)
        seen.append((all(g._failed for g in groups), any(g._explained.is_set() for g in groups)))

    worlds.library.on_abort = aborts
    worlds.queue(worlds.whole)
    worlds.part.deadline = 0.05
    worlds.queue(worlds.part)
    error = failure_later(worlds.part)
    assert worlds.library.aborted == ["p", "w"], "the one that failed first"
    assert seen == [(True, False)] * 2, "refused before an abort lets results seem to be there, explained behind"
    assert "still in the device's queue" not in str(error) and error.missing == (1,)
    assert "all_reduce (collective 1) failed" in str(error) and "rank 1 gives no sign of life" in str(error)
    other = failure(worlds.whole, WAITS_SECONDS)
    assert other.group == "world" and other.missing == (2,), "as ranks are numbered there"
    assert "group 'pair' of the same world failed" in str(other)


def failure_later(group: world.ProcessGroup) -> comm.CommunicatorError:
    """The error of a group once it is explained."""
    until(lambda: group._failed)
    return failure(group, WAITS_SECONDS)


def test_an_abort_that_fails_is_told(worlds: Worlds) -> None:
    worlds.library.abort_fails = "not supported"
    worlds.whole.deadline = 0.05
    worlds.queue(worlds.whole)
    text = str(failure_later(worlds.whole))
    assert "what group 'pair' has queued could not be ended: not supported" in text
    assert "rank 0, 2 gives no sign of life" in text and worlds.library.aborted == ["w", "p"]


def test_whatever_the_store_holds_the_failure_stands(worlds: Worlds, monkeypatch: pytest.MonkeyPatch) -> None:
    def garbled(rank: int, group: str) -> tuple[int, int]:
        raise ValueError("not a number")

    monkeypatch.setattr(worlds.progress, "read", garbled)
    worlds.whole.deadline = 0.05
    worlds.queue(worlds.whole)
    assert "cannot be found out (not a number)" in str(failure_later(worlds.whole))


def test_a_launch_that_fails_ends_the_queues_too(worlds: Worlds) -> None:
    def launch() -> None:
        raise RuntimeError("no memory for a channel")

    with pytest.raises(comm.CommunicatorError, match="rank 0, 2 gives no sign of life"):
        worlds.whole._finish("all_reduce", launch, META)
    assert worlds.library.aborted == ["w", "p"] and "group 'world'" in str(failure(worlds.part))


def test_who_waits_too_long_may_end_the_queues(worlds: Worlds) -> None:
    worlds.part.abort("the replay took 30 s")
    assert worlds.library.aborted == ["p", "w"]
    for group in (worlds.part, worlds.whole):
        assert "ended by this rank: the replay took 30 s" in str(failure(group))
        assert group._explained.is_set()
    comm.single_process().abort("nothing is queued")


def test_what_is_launched_while_the_world_fails_is_refused(worlds: Worlds) -> None:
    def launch() -> Handle:
        worlds.part.abort("the replay took 30 s")
        return Handle("work")

    with pytest.raises(comm.CommunicatorError, match="the replay took 30 s"):
        worlds.whole._finish("all_reduce", launch, META)


def test_closing_waits_for_an_explanation_and_begins_none(worlds: Worlds) -> None:
    worlds.whole.deadline = 0.05
    worlds.queue(worlds.whole)
    until(lambda: worlds.library.aborted)
    worlds.whole.close()
    assert worlds.whole._explained.is_set(), "others may need the store meanwhile"
    assert worlds.watch._thread is not None and not worlds.watch._thread.is_alive()


def test_what_is_closed_fails_no_more(worlds: Worlds) -> None:
    worlds.queue(worlds.part)
    worlds.whole.close()
    worlds.part._fail("all_reduce", 1, time.monotonic(), "late")
    worlds.library.tell = lambda: "REMOTE_ERROR"
    worlds.part.check()
    assert not worlds.library.aborted and worlds.part._failed is None


def test_closing_the_world_closes_its_parts(worlds: Worlds) -> None:
    worlds.whole.close()
    with pytest.raises(comm.CommunicatorError, match="group 'pair': all_reduce after close"):
        worlds.queue(worlds.part)
    with pytest.raises(comm.CommunicatorError, match="split after close"):
        worlds.part.split([[0], [1]], "late")
    late = world.ProcessGroup("late", Handle("l"), 0, (1,), 60.0, worlds.progress, worlds.library, None, worlds.whole)
    assert late._closed


def test_memory_that_is_short_ends_one_group_alone(worlds: Worlds) -> None:
    def launch() -> None:
        raise torch.OutOfMemoryError("out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        worlds.part._finish("all_reduce", launch, META)
    assert "short of memory" in str(failure(worlds.part, WAITS_SECONDS))
    worlds.whole.check()
    assert not worlds.library.aborted
