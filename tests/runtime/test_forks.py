"""Samples that go on where another one is: the prompt is computed once, and every sample says what it says alone."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from deepinfer.hal.errors import InvalidArgumentError
from deepinfer.runtime import moves
from deepinfer.runtime.flight import Flight
from deepinfer.runtime.params import SamplingParams
from deepinfer.runtime.pool import PoolError
from deepinfer.runtime.prefix import PrefixSettings
from delayed import Delayed, poison_freed
from engines import FREE, Faulty, alone, bits, build_engine, drain

PAGE = 4


@pytest.fixture(autouse=True)
def no_step_fails(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """The executor checks what it reads; the engine would try a step that failed again, to the same tokens."""
    yield
    if "expects_failed_steps" not in request.fixturenames:
        assert "failed, each is tried again" not in caplog.text


@pytest.fixture
def expects_failed_steps() -> None:
    """For tests of faults."""


def text(seed: int, count: int) -> list[int]:
    return [random.Random(seed).randrange(2, 90) for _ in range(count)]


def delayed(slack: int, **options: Any) -> Any:
    executor = Delayed(97, options.get("num_pages", 64), options.get("num_slots", 8), PAGE, slack=slack)
    engine = build_engine(executor=executor, async_scheduling=True, slack=slack, **options)
    poison_freed(engine)
    return engine


def want(prompt: list[int], params: SamplingParams, index: int, **options: Any) -> list[Any]:
    one = params.copy()
    one.n, one.seq_seed = 1, (params.seq_seed or 0) + index
    return bits(alone(prompt, one, **options))


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("drafts", [0, 2])
@pytest.mark.parametrize("length", [1, 2, 4, 5, 11, 12, 13])
def test_samples_compute_the_prompt_once_and_say_what_they_say_alone(
    length: int, drafts: int, asynchronous: bool
) -> None:
    options = {"max_drafts": drafts, "max_tokens": 32}
    engine = delayed(drafts + 1, **options) if asynchronous else build_engine(**options)
    params = SamplingParams(**FREE, max_tokens=7, n=4)
    engine.add_request(None, 0, params, text(length, length))
    found = drain(engine)
    for index in range(4):
        assert bits(found[0, index]) == want(text(length, length), params, index, **options)
    # Each of the others computes the last row again, to draw from it.
    assert engine.stats.prompt_tokens == (length + 3 if length > 1 else 4)
    assert engine.stats.forked_tokens == 3 * (length - 1)
    assert all(outputs[0].cached_tokens == 0 for outputs in found.values())
    assert engine._queues.pages.used == engine._queues.slots.used == 0


def test_full_pages_are_shared_and_the_last_one_is_copied() -> None:
    engine = build_engine()
    engine.add_request(None, 0, SamplingParams(**FREE, max_tokens=9, n=4), text(0, 15))
    engine.step()
    engine.step()
    leader, *others = [request.pages.ids for request in engine._queues.running]
    assert len(others) == 3 and all(one[:3] == leader[:3] for one in others)
    assert len({leader[3], *(one[3] for one in others)}) == 4
    assert engine._queues.forks.slots_kept == 0, "the anchor goes with its last heir"
    drain(engine)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_leader_that_ends_with_its_prompt_leaves_it_to_the_others(asynchronous: bool) -> None:
    engine = delayed(1) if asynchronous else build_engine()
    params = SamplingParams(**FREE, max_tokens=1, n=3)
    engine.add_request(None, 0, params, text(1, 10))
    found = drain(engine)
    assert [bits(found[0, index]) for index in range(3)] == [want(text(1, 10), params, index) for index in range(3)]
    assert engine.stats.prompt_tokens == 12


def test_who_waits_for_the_leader_holds_nobody_up() -> None:
    engine = build_engine(max_requests=2, num_slots=2)
    engine.add_request(None, "family", SamplingParams(**FREE, max_tokens=3, n=3), text(0, 40))
    engine.add_request(None, "next", SamplingParams(**FREE, max_tokens=2), text(1, 3))
    ended: list[Any] = []
    while engine.has_unfinished_requests():
        ended += [(o.request_id, o.sample_index) for o in engine.step() if o.finished]
    assert ended[0] == ("next", 0), "it begins while the leader is at its prompt, and the others rest"


def test_samples_that_begin_late_still_find_what_the_leader_left() -> None:
    engine = build_engine(max_requests=1, num_slots=3)
    params = SamplingParams(**FREE, max_tokens=5, n=4)
    engine.add_request(None, 0, params, text(0, 21))
    found = drain(engine)
    assert engine.stats.prompt_tokens == 21 + 3
    assert [bits(found[0, index]) for index in range(4)] == [want(text(0, 21), params, index) for index in range(4)]


def test_whoever_needs_the_memory_of_an_anchor_takes_it() -> None:
    engine = build_engine(num_pages=16, num_slots=3, max_requests=1, max_model_len=64)
    family = SamplingParams(**FREE, max_tokens=1, n=3)
    engine.add_request(None, "family", family, text(0, 21))
    engine.step()
    engine.step()
    assert engine._queues.forks.slots_kept == 1 and engine.pages_in_use == 0
    engine.add_request(None, "large", SamplingParams(**FREE, max_tokens=3, priority=1), text(1, 61))
    found = drain(engine)
    assert bits(found["large", 0]) == bits(alone(text(1, 61), SamplingParams(**FREE, max_tokens=3)))
    for index in (1, 2):
        assert bits(found["family", index]) == want(text(0, 21), family, index)
    assert engine.stats.prompt_tokens > 21 + 61 + 2, "the anchor was given up"


@pytest.mark.parametrize("pages", [6, 7, 8])
def test_the_tightest_pool_forks_or_computes_but_never_waits_for_ever(pages: int) -> None:
    engine = build_engine(num_pages=pages, num_slots=2, max_requests=2, max_model_len=24)
    params = SamplingParams(**FREE, max_tokens=3, n=4)
    engine.add_request(None, 0, params, text(0, 21))
    found = drain(engine, limit=300)
    for index in range(4):
        assert bits(found[0, index]) == want(text(0, 21), params, index, max_model_len=24)


def test_prompt_logprobs_are_those_of_the_leader() -> None:
    for engine in (build_engine(), delayed(1)):
        params = SamplingParams(**FREE, max_tokens=3, n=3, prompt_logprobs=True)
        engine.add_request(None, 0, params, text(0, 10))
        found = drain(engine)
        for index in range(3):
            assert bits(found[0, index]) == want(text(0, 10), params, index)
            assert len(found[0, index][0].prompt_logprobs) == 9


def test_with_the_prefix_cache_too() -> None:
    engine = build_engine(prefix=PrefixSettings(slack=PAGE + 1))
    params = SamplingParams(**FREE, max_tokens=6, n=3)
    for turn in range(2):
        engine.add_request(None, turn, params, text(0, 18))
        found = drain(engine)
        for index in range(3):
            assert bits(found[turn, index])[1:] == want(text(0, 18), params, index)[1:]
    assert found[1, 0][0].cached_tokens == 16


def test_aborting_the_request_ends_those_that_rest() -> None:
    engine = build_engine()
    engine.add_request(None, 0, SamplingParams(**FREE, max_tokens=3, n=3), text(0, 40))
    engine.step()
    engine.abort_request(0)
    found = drain(engine)
    assert {outputs[-1].finish_reason for outputs in found.values()} == {"abort"} and len(found) == 3
    engine.close()


@pytest.mark.usefixtures("expects_failed_steps")
def test_a_leader_that_fails_takes_nobody_with_it() -> None:
    """Its last row raises for it alone; the next one leads."""
    executor = Faulty(97, 64, 8, PAGE, slack=1)

    def fault(work: Any) -> Exception | None:
        bad = [item for item in work if item.request.sample_index == 0 and item.sample]
        return RuntimeError("its seed") if bad else None

    executor.fault = fault
    engine = build_engine(executor=executor)
    engine.add_request(None, "beside", SamplingParams(**FREE, max_tokens=4), text(1, 6))
    params = SamplingParams(**FREE, max_tokens=4, n=3)
    engine.add_request(None, 0, params, text(0, 10))
    executor.fault = lambda work: fault([item for item in work if item.request.request_id == 0])
    found = drain(engine)
    assert found[0, 0][-1].finish_reason == "error" and found["beside", 0][-1].finish_reason == "length"
    for index in (1, 2):
        assert bits(found[0, index]) == want(text(0, 10), params, index)


def test_a_preempted_sample_says_the_same() -> None:
    engine = build_engine(num_pages=9, num_slots=5, max_requests=4)
    params = SamplingParams(**FREE, max_tokens=14, n=4)
    engine.add_request(None, 0, params, text(0, 10))
    found = drain(engine)
    assert engine.stats.preemptions > 0
    for index in range(4):
        assert bits(found[0, index]) == want(text(0, 10), params, index)


# ---- the call


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("drafts", [0, 2])
def test_a_fork_says_what_the_whole_text_as_a_prompt_says(drafts: int, asynchronous: bool) -> None:
    options = {"max_drafts": drafts, "max_tokens": 32}
    engine = delayed(drafts + 1, **options) if asynchronous else build_engine(**options)
    engine.add_request(None, "trunk", SamplingParams(**FREE, max_tokens=30), text(0, 9))
    said: list[int] = []
    branches: dict[Any, tuple[list[int], SamplingParams]] = {}
    outputs: dict[Any, list[Any]] = {}
    while engine.has_unfinished_requests():
        for output in engine.step():
            outputs.setdefault((output.request_id, output.sample_index), []).append(output)
            if output.request_id == "trunk":
                said.append(output.token_id)
        if said and len(branches) < 4 and len(said) % 3 == 0 and len(said) < 30:
            name = f"branch {len(branches)}"
            params = SamplingParams(max_tokens=5, ignore_eos=True, seq_seed=40 + len(branches), n=1 + len(branches) % 2)
            last = None if len(branches) % 2 else 7
            engine.fork_request("trunk", name, params, last_token=last)
            branches[name] = (
                [*text(0, 9), *said[: None if last is None else -1], *([] if last is None else [7])],
                params,
            )
    assert len(branches) == 4 and engine.stats.forked_tokens > 0
    for name, (prompt, params) in branches.items():
        for index in range(params.n):
            assert bits(outputs[name, index]) == want(prompt, params, index, **options), name
    assert bits(outputs["trunk", 0]) == bits(alone(text(0, 9), SamplingParams(**FREE, max_tokens=30), **options))


def test_bad_forks_are_refused() -> None:
    engine = build_engine()
    engine.add_request(None, 0, SamplingParams(**FREE, n=2), text(0, 9))
    for arguments, name in (
        ((5, 1), "request_id"),
        ((0, 0), "new_request_id"),
        ((0, 1, "x"), "sampling_params"),
        ((0, 1, None, 97), "last_token"),
        ((0, 1, None, None, 2), "sample_index"),
    ):
        with pytest.raises(InvalidArgumentError, match=name):
            engine.fork_request(*arguments)
    drain(engine)


# ---- faults that these tests must see


@pytest.mark.usefixtures("expects_failed_steps")
def test_a_page_that_is_shared_in_its_middle_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the copy, two samples would write to one page."""

    def without_pages(self: moves.MoveList, executor: Any) -> None:
        executor.copy_states(self.anchors)
        executor.copy_states(self.states)

    monkeypatch.setattr(moves.MoveList, "carry_out", without_pages)
    assert_seen(build_engine())


@pytest.mark.usefixtures("expects_failed_steps")
def test_an_anchor_made_too_late_shows() -> None:
    engine = build_engine(slack=5)
    engine.executor._slack = 1
    grant, calls = engine._queues.forks.grant, []

    def late() -> Any:
        calls.append(0)
        return grant() if len(calls) > 4 else []

    engine._queues.forks.grant = late
    assert_seen(engine)


@pytest.mark.usefixtures("expects_failed_steps")
def test_memory_that_returns_before_its_copy_is_made_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Flight, "take_off", lambda self, off=Flight.take_off: (off(self), release(self.pins)))
    assert_seen(delayed(1), max_tokens=1)


def release(pins: Any) -> None:
    for pin in pins:
        pin.release()


def assert_seen(engine: Any, max_tokens: int = 9) -> None:
    engine.add_request(None, 0, SamplingParams(**FREE, max_tokens=max_tokens, n=2), text(0, 10))
    with pytest.raises(PoolError, match="another state"):
        drain(engine)
