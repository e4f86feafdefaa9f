"""Runs: when requests come, what is counted, and that nothing waits for the engine that should not."""

from __future__ import annotations

import time
from typing import Any

import pytest

from deepinfer.hal.errors import InvalidArgumentError
from deepinfer.runtime.bench.drive import run, vocabulary_of
from deepinfer.runtime.bench.measure import AccountingError
from deepinfer.runtime.bench.workload import Arrivals, Job
from engines import build_engine


class World:
    """An engine whose steps take time on a clock of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, step: float = 1.0, **options: Any) -> None:
        self.now, self.slept = 100.0, 0.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        self.engine = build_engine(**options)
        self.most = 0
        compute = self.engine.executor.run

        def timed(work: Any) -> Any:
            self.now += step
            self.most = max(self.most, len(work))
            return compute(work)

        monkeypatch.setattr(self.engine.executor, "run", timed)

    def sleep(self, seconds: float) -> None:
        self.slept += seconds
        self.now += seconds

    def run(self, jobs: list[Job], arrivals: str | None = None, **more: Any) -> Any:
        how = None if arrivals is None else Arrivals.parse("a", arrivals)
        return run(self.engine, jobs, how, clock=lambda: self.now, sleep=self.sleep, **more)


def test_an_open_loop_counts_from_the_moment_a_request_was_to_come(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, step=10.0)
    # The second comes in the middle of a step of ten seconds, and is added when that is over.
    first, second = world.run([Job(0.0, [5], 3), Job(1.0, [6], 1)])
    assert first.ttft == 10.0 and second.arrival == 101.0
    assert second.ttft == 19.0, "from 101, not from 110, when the driver saw it"
    assert first.tbt == [10.0, 10.0] and first.tokens == 3 and second.reason == "length"


def test_an_idle_engine_is_slept_through(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, step=0.5)
    one, two = world.run([Job(0.0, [5], 1), Job(20.0, [6], 1)])
    assert one.ttft == 0.5 and two.ttft == pytest.approx(0.5) and world.slept == pytest.approx(19.5)


def test_a_closed_loop_keeps_so_many_and_a_burst_brings_all(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [Job(9.0 * index, [5 + index], 4) for index in range(6)]
    closed = World(monkeypatch)
    measured = closed.run(jobs, "closed:2")
    assert closed.most == 2 and [one.ttft for one in measured] == [1.0] * 6
    burst = World(monkeypatch)
    assert [one.arrival for one in burst.run(jobs, "burst")] == [100.0] * 6 and burst.most == 6
    assert [one.index for one in measured] == list(range(6))


def test_tokens_are_those_of_the_engine_with_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, max_drafts=3, max_tokens=32)
    told: list[tuple[int, int]] = []
    measured = world.run([Job(0.0, [5 + i], 12) for i in range(4)], progress=lambda *two: told.append(two))
    assert [one.tokens for one in measured] == [12] * 4
    assert sum(one.verified for one in measured) == world.engine.stats.verified > 0
    assert sum(count for _, count in told) == 48 and sum(ended for ended, _ in told) == 4


def test_a_request_that_the_engine_loses_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    step = world.engine.step
    looked = [0]

    def unfinished() -> bool:
        looked[0] += 1
        assert looked[0] < 99, "it goes on for ever"
        return bool(world.engine.get_num_unfinished_requests())

    monkeypatch.setattr(world.engine, "has_unfinished_requests", unfinished)
    monkeypatch.setattr(world.engine, "step", lambda: [one for one in step() if one.request_id != "bench-0"])
    for arrivals in (None, "closed:1"):
        with pytest.raises(AccountingError, match="has not ended 1: bench-0"):
            world.run([Job(0.0, [5], 3), Job(0.0, [6], 1)], arrivals)
        looked[0] = 0


def test_a_request_that_does_not_fit_stops_it_before_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    with pytest.raises(
        InvalidArgumentError, match="request 1: got '60 prompt tokens and 5 output tokens'.*64 together"
    ):
        world.run([Job(0.0, [5], 3), Job(0.0, [5] * 60, 5)])
    assert world.engine.stats.steps == 0 and not world.engine.has_unfinished_requests()


def test_the_vocabulary_leaves_out_what_means_something() -> None:
    engine = build_engine()
    assert vocabulary_of(engine).reserved == {engine.config.eos_id} and vocabulary_of(engine).size == 97
