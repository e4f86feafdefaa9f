"""Deadlines of queued collectives, over fake events. `test_world.py` has them between processes."""

from __future__ import annotations

import threading
import time
from functools import partial

import pytest

from deepinfer.hal import heartbeat
from deepinfer.hal.stream import Event
from deepinfer.hal.watch import Pending, Watch


class Place(Event):
    """An event that is done when it is told; a fault of the device where `fault` is set."""

    def __init__(self) -> None:
        self.reached = False
        self.fault = ""

    def done(self) -> bool:
        if self.fault:
            raise RuntimeError(self.fault)
        return self.reached

    def synchronize(self) -> None:
        raise AssertionError("nobody may wait")


class World:
    """Three collectives of group a and one of b, due after 10, 20, 30 and 10 s."""

    def __init__(self) -> None:
        self.watch = Watch(lambda: None)
        self.watch._thread = threading.current_thread()  # the tests look themselves
        self.failed: list[tuple[str, str]] = []
        self.noticed = ""
        self.places = {name: Place() for name in ("a1", "a2", "a3", "b1")}
        for name, place in self.places.items():
            fail = partial(lambda name, why: self.failed.append((name, why)), name)
            self.watch.add(name[0], Pending(place, lambda: self.noticed, fail, 10.0 * int(name[1])))


def test_done_ones_are_forgotten_and_late_ones_fail() -> None:
    world = World()
    world.places["a1"].reached = world.places["b1"].reached = True
    world.watch.look(15.0)
    assert not world.failed
    world.watch.look(20.0)
    assert [name for name, _ in world.failed] == ["a2"] and "still in the device's queue" in world.failed[0][1]
    world.watch.look(40.0)
    assert len(world.failed) == 1, "those behind a failed one need no error of their own"


def test_groups_do_not_wait_for_one_another() -> None:
    world = World()
    world.places["a1"].reached = True
    world.watch.look(10.0)
    assert [name for name, _ in world.failed] == ["b1"]


def test_what_the_library_notices_fails_before_the_deadline() -> None:
    world = World()
    world.places["b1"].reached, world.noticed = True, "REMOTE_ERROR"
    world.watch.look(1.0)
    assert world.failed == [("a1", "REMOTE_ERROR"), ("b1", "REMOTE_ERROR")], "a result of a broken group is none"


def test_a_fault_of_the_device_is_what_failed() -> None:
    world = World()
    world.places["a1"].fault = "the device is gone"
    world.watch.look(1.0)
    assert world.failed == [("a1", "the device is gone")]


def test_the_thread_looks_by_itself_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "INTERVAL_SECONDS", 0.01)
    begun, failed = threading.Event(), threading.Event()
    watch = Watch(begun.set)
    watch.stop()
    watch = Watch(begun.set)
    watch.add("a", Pending(Place(), lambda: "", lambda why: failed.set(), 0.0))
    assert failed.wait(10) and begun.is_set()
    watch.stop()
    assert watch._thread is not None
    watch._thread.join(10)
    assert not watch._thread.is_alive()


def broken(*given: object) -> str:
    raise ValueError("a library that broke")


@pytest.mark.parametrize("what", ["begin", "error", "fail", "both", "event"])
def test_what_breaks_in_one_group_leaves_the_others_their_deadlines(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    monkeypatch.setattr(heartbeat, "INTERVAL_SECONDS", 0.01)
    told: list[str] = []
    other = threading.Event()
    watch = Watch(broken if what == "begin" else lambda: None)  # type: ignore[arg-type]
    place = Place()
    place.fault = "gone" if what == "event" else ""
    error = broken if what in ("error", "both") else lambda: "REMOTE_ERROR"
    watch.add("a", Pending(place, error, broken if what in ("fail", "both") else told.append, 0.0))  # type: ignore[arg-type]
    watch.add("b", Pending(Place(), lambda: "", lambda why: other.set(), time.monotonic() + 0.2))
    assert other.wait(10), "the thread has died"
    watch.stop()
    want = {"begin": "REMOTE_ERROR", "error": "a library that broke", "event": "gone"}
    assert told == [want[what]] if what in want else not told


def test_nothing_fails_once_the_watch_is_stopped() -> None:
    world = World()
    world.watch.stop()
    world.watch.look(100.0)
    assert not world.failed


def test_who_stops_the_watch_waits_for_a_failure_in_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "INTERVAL_SECONDS", 0.01)
    begun, ended = threading.Event(), threading.Event()

    def fail(why: str) -> None:
        begun.set()
        time.sleep(0.3)
        ended.set()

    watch = Watch(lambda: None)
    watch.add("a", Pending(Place(), lambda: "", fail, 0.0))
    assert begun.wait(10)
    watch.stop(10.0)
    assert ended.is_set()
