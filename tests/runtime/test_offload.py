"""Preemption by way of the host: what comes back is what went, and the cheaper way is taken."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from deepinfer.hal.device import Device
from deepinfer.hal.stream import InlineStreams
from deepinfer.runtime.cost import Cost
from deepinfer.runtime.offload import HostMemory, HostRoom, HostSettings, divide
from deepinfer.runtime.params import SamplingParams
from deepinfer.runtime.plan import Limits, RequestView, Snapshot, StepPlan
from deepinfer.runtime.planner import plan_step
from deepinfer.runtime.prefix import PrefixSettings
from delayed import Delayed, poison_freed
from engines import FREE, alone, bits, build_engine, drain

PAGE = 4
HOST = HostSettings(pages=64, slots=8)


@pytest.fixture(autouse=True)
def no_step_fails(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    assert "failed, each is tried again" not in caplog.text


def text(seed: int, count: int) -> list[int]:
    return [random.Random(seed).randrange(2, 90) for _ in range(count)]


def crowd(engine: Any, requests: int = 4, length: int = 10, **params: Any) -> dict[Any, list[Any]]:
    for key in range(requests):
        engine.add_request(
            None, key, SamplingParams(**(FREE | {"max_tokens": 14, "seq_seed": key} | params)), text(key, length)
        )
    return drain(engine)


def check(found: dict[Any, list[Any]], length: int = 10, drafts: int = 0, **params: Any) -> None:
    for key in {key for key, _ in found}:
        one = SamplingParams(**(FREE | {"max_tokens": 14, "seq_seed": key} | params))
        assert bits(found[key, 0]) == bits(alone(text(key, length), one, max_drafts=drafts, max_tokens=32)), key


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("drafts", [0, 2])
def test_who_comes_back_goes_on_where_it_was(drafts: int, asynchronous: bool) -> None:
    options: dict[str, Any] = {
        "num_pages": 13, "num_slots": 5, "max_requests": 4, "max_drafts": drafts, "max_tokens": 32, "host": HOST,
        "max_model_len": 40,
    }  # fmt: skip
    if asynchronous:
        executor = Delayed(97, 13, 5, PAGE, slack=drafts + 1)
        engine = build_engine(executor=executor, async_scheduling=True, **options)
        poison_freed(engine)
    else:
        engine = build_engine(**options)
    found = crowd(engine)
    assert engine.stats.preemptions == engine.stats.offloads > 0
    assert engine._queues.host.restored == engine._queues.host.saved == engine.stats.offloads
    assert engine.stats.prompt_tokens == 4 * 10, "nothing is computed again"
    check(found, drafts=drafts)
    assert engine._queues.host.pages.used == engine._queues.host.slots.used == 0


def test_full_host_memory_has_others_computed_again() -> None:
    for pages, slots in ((4, 8), (64, 1)):
        engine = build_engine(num_pages=13, num_slots=5, max_requests=4, host=HostSettings(pages, slots), max_tokens=32)
        found = crowd(engine)
        assert 0 < engine.stats.offloads < engine.stats.preemptions
        check(found)


def test_a_request_that_ends_while_it_is_away_leaves_nothing() -> None:
    engine = build_engine(num_pages=13, num_slots=5, max_requests=4, host=HOST, max_tokens=32)
    for key in range(4):
        engine.add_request(None, key, SamplingParams(**FREE, max_tokens=14), text(key, 10))
    while not engine._queues.host.pages.used:
        engine.step()
    away = next(request for request in engine._queues.waiting if request.host is not None)
    engine.abort_request(away.request_id)
    assert engine._queues.host.pages.used == engine._queues.host.slots.used == 0
    engine.check_conservation()
    drain(engine)


def test_with_the_prefix_cache_and_forks() -> None:
    engine = build_engine(
        num_pages=16, num_slots=6, max_requests=4, host=HOST, max_tokens=32, prefix=PrefixSettings(slack=PAGE + 1)
    )
    params = SamplingParams(**FREE, max_tokens=14, n=2)
    for key in range(3):
        engine.add_request(None, key, params, text(0, 13))
    found = drain(engine)
    assert engine.stats.offloads > 0 and engine.stats.forked_tokens > 0
    for (_, index), outputs in found.items():
        one = SamplingParams(**(FREE | {"seq_seed": 3 + index}), max_tokens=14)
        assert [o.token_id for o in outputs] == [o.token_id for o in alone(text(0, 13), one)]


def test_a_copy_that_fails_has_the_request_computed_again() -> None:
    engine = build_engine(num_pages=13, num_slots=5, max_requests=4, host=HOST, max_tokens=32)
    engine.executor.save = Mock(side_effect=MemoryError("no pinned memory"))
    found = crowd(engine)
    assert engine.stats.offloads == 0 < engine.stats.preemptions and engine.executor.save.called
    check(found)
    assert engine._queues.host.pages.used == 0


def test_what_comes_back_spoiled_shows() -> None:
    """The executor notices a page that is not the one that went."""
    engine = build_engine(num_pages=13, num_slots=5, max_requests=4, host=HOST, max_tokens=32)
    restore = engine.executor.restore
    engine.executor.restore = lambda pages, slots: restore(
        [(s, t) for (s, _), (_, t) in zip(pages, pages[::-1])], slots
    )
    engine._start_search = Mock(side_effect=lambda work, error: (_ for _ in ()).throw(error))
    with pytest.raises(Exception, match="another state"):
        crowd(engine, length=11)


# ---- the choice

LIMITS = Limits(max_tokens=64, max_requests=8, page_tokens=4)
COST = Cost(base=0.0, row=1.0, key=0.0, far=0.0, near=1 << 30)


def short(host: HostRoom | None, cost: Cost | None = COST, **changes: Any) -> StepPlan:
    """Nothing is free; the first needs a page, behind it are requests of 6, 30 and 14 computed tokens."""
    views = [
        RequestView(0, 9, 8, 2), RequestView(1, 7, 6, 2), RequestView(2, 31, 30, 8), RequestView(3, 15, 14, 4)
    ]  # fmt: skip
    views = [
        RequestView(**({f: getattr(v, f) for f in v.__dataclass_fields__} | changes.get(f"r{v.key}", {})))
        for v in views
    ]
    return plan_step(Snapshot(views, [], 0, 0, cost, host), LIMITS)


def test_the_cheapest_gives_way_in_the_cheaper_way() -> None:
    assert short(None).preempted == [1]
    assert short(None, cost=None).preempted == [3], "without a model the youngest"
    fast, slow = HostRoom(99, 9, page_seconds=0.1, slot_seconds=0.5), HostRoom(99, 9, page_seconds=9.0)
    assert (short(fast).preempted, short(fast).offloaded) == ([1], [1])
    assert (short(slow).preempted, short(slow).offloaded) == ([1], [])
    # Six rows are less than copying two pages, 30 rows more than copying eight.
    mixed = HostRoom(99, 9, page_seconds=1.0, slot_seconds=1.5)
    assert short(mixed).offloaded == [] and short(mixed, r1={"priority": 1}).preempted == [3]
    assert short(HostRoom(3, 9, 0.1), r1={"priority": 1}).offloaded == [], "four pages do not fit in three"
    assert short(HostRoom(9, 0, 0.1)).offloaded == [] and short(HostRoom(9, 9), cost=None).offloaded == [3]


def test_priority_comes_before_cost_and_what_is_shared_frees_nothing() -> None:
    assert short(None, r2={"priority": -1}, r3={"priority": -1}).preempted == [3], "fewer rows than the other of them"
    assert short(None, r1={"shared": 1}).preempted == [3]
    assert short(None, r1={"pages": 0}).preempted == [3]


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_crowd_in_any_memory_says_the_same(data: st.DataObject) -> None:
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    drafts = rng.choice([0, 2])
    engine = build_engine(
        num_pages=rng.choice([8, 11, 14]), num_slots=5, max_requests=4, max_drafts=drafts, max_model_len=28,
        max_tokens=32, step_seconds=rng.choice([None, 1.0]),
        host=HostSettings(rng.choice([1, 6, 64]), rng.choice([1, 4]), rng.choice([0.0, 1e-5, 1.0])),
    )  # fmt: skip
    if engine._costs is not None and rng.random() < 0.7:
        engine._costs.cost = Cost(1e-6, rng.choice([1e-7, 1e-4]), 0.0, 0.0, 99)
    length, params = rng.randrange(1, 12), {"temperature": rng.choice([0.0, 1.0])}
    found = crowd(engine, requests=7, length=length, **params)
    for key in range(7):
        one = SamplingParams(**(FREE | {"seq_seed": key, "max_tokens": 14} | params))
        want = bits(alone(text(key, length), one, max_drafts=drafts, max_model_len=28, max_tokens=32))
        assert bits(found[key, 0]) == want, key
    engine.close()


# ---- the bytes


def test_bytes_go_and_come_back_exactly() -> None:
    generator = torch.Generator().manual_seed(0)
    pages = torch.randint(0, 256, (7, 96), dtype=torch.uint8, generator=generator)
    whole = torch.randint(0, 256, (5, 160), dtype=torch.uint8, generator=generator)
    drafts = torch.randn(5, 2, 3, generator=generator)
    state = whole[:, 16:144]
    before = [one.clone() for one in (pages, whole, drafts)]
    memory = HostMemory(InlineStreams(Device.parse("cpu")), [pages], [state, drafts], 4, 2)
    assert memory.nbytes == 5 * 96 + 3 * (128 + 24)
    memory.save([(2, 4), (6, 1)], [(3, 2)])
    pages[[2, 6]], state[3], drafts[3] = 0x7F, 0x7F, float("nan")
    memory.restore([(4, 5), (1, 1)], [(2, 1)])
    for slot, source in ((5, 2), (1, 6)):
        assert torch.equal(pages[slot], before[0][source])
    assert torch.equal(state[1], before[1][3, 16:144]) and torch.equal(drafts[1], before[2][3])
    for tensor, old, touched in (
        (pages, before[0], {2, 6, 5, 1}),
        (whole, before[1], {3, 1}),
        (drafts, before[2], {3, 1}),
    ):
        for row in set(range(len(tensor))) - touched:
            assert torch.equal(tensor[row], old[row])
    assert torch.equal(whole[:, :16], before[1][:, :16]) and torch.equal(whole[:, 144:], before[1][:, 144:])
    page_seconds, slot_seconds = memory.measure()
    assert 0 < page_seconds < 1 and 0 < slot_seconds < 1


def test_host_memory_is_divided() -> None:
    assert divide(0, 10, 5, 8) == (0, 0) == divide(14, 10, 5, 8)
    assert divide(15, 10, 5, 8) == (1, 1)
    pages, slots = divide(10_000, 10, 100, 8)
    assert (pages, slots) == (920, 8) and pages * 10 + slots * 100 <= 10_000
    assert divide(1000, 10, 100, 8) == (30, 7)
