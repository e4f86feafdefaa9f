"""Whose turn it is: priorities that age, and even shares for tenants."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepinfer.runtime.params import SamplingParams
from deepinfer.runtime.request import Request
from deepinfer.runtime.waiting import AGEING, Service, Waiting
from engines import FREE, alone, bits, build_engine, drain


def request(key: int, priority: int = 0, tenant: str | None = None, arrived: float = 0.0, length: int = 3) -> Request:
    return Request(
        key=key, request_id=key, user_id=None, sample_index=0,
        params=SamplingParams(priority=priority, tenant=tenant), seed=0, eos_id=1, prompt_len=length,
        max_output_tokens=4, tokens=np.zeros(length, np.int32), arrival_time=arrived,
    )  # fmt: skip


def queue(*requests: Request) -> Waiting:
    service = Service()
    for one in requests:
        service.join(one.params.tenant)
    made = Waiting(service)
    made.extend(requests)
    return made


def turns(made: Waiting, now: float = 0.0, count: int = 100) -> list[int]:
    return [one.key for one in made.first(count, now)]


def test_equals_come_in_the_order_of_submission() -> None:
    made = queue(*(request(key, arrived=float(key)) for key in range(5)))
    for now in (0.0, 1e3, 1e6):
        assert turns(made, now) == [0, 1, 2, 3, 4]
    taken = made.find(1)
    made.remove(taken)
    assert turns(made) == [0, 2, 3, 4]
    made.insert(taken)  # preempted: its place is where it was
    assert turns(made) == [0, 1, 2, 3, 4] == [one.key for one in made] and len(made) == 5
    assert turns(made, count=2) == [0, 1] and turns(made, count=0) == []
    for missing in (lambda: made.find(9), lambda: made.remove(request(9)), lambda: made.remove(request(1))):
        with pytest.raises((KeyError, ValueError)):
            missing()


def test_long_waiting_makes_up_for_a_low_priority() -> None:
    low = request(0, priority=-2)
    made = queue(low, *(request(key, arrived=AGEING * key) for key in range(1, 9)))
    assert turns(made, 0.0)[0] == 1 and turns(made, 0.0)[-1] == 0
    assert turns(made, 2 * AGEING - 0.1)[0] == 1
    assert turns(made, 2 * AGEING)[0] == 0
    # It never counts for more than the highest that waits: a newcomer of that priority is not behind all the old ones
    # of another tenant.
    made = queue(*(request(key) for key in range(5)), request(9, tenant="b", arrived=1e6))
    assert turns(made, 1e6)[1] == 9


def test_tenants_get_even_shares_however_many_requests_they_bring() -> None:
    made = queue(
        *(request(key, tenant="many") for key in range(50)), *(request(50 + n, tenant="few") for n in range(3))
    )
    assert turns(made, count=6) == [0, 50, 1, 51, 2, 52]
    # By rows, not by requests: two prompts of 30 tokens weigh as much as twenty of three.
    made = queue(
        *(request(key, tenant="short") for key in range(40)),
        *(request(99 + n, tenant="long", length=30) for n in range(9)),
    )
    shares = Counter(made.find(key).params.tenant for key in turns(made, count=33))
    assert shares == {"short": 30, "long": 3}
    # Over steps: a tenant that was alone and took much owes the others nothing for it, but gets no more either.
    engine = build_engine(max_requests=1, num_slots=1)
    for key in range(6):
        engine.add_request(None, key, SamplingParams(**FREE, max_tokens=4, tenant="old"), [5, 6])
    for _ in range(9):
        engine.step()
    for key in range(6, 9):
        engine.add_request(None, key, SamplingParams(**FREE, max_tokens=4, tenant="new"), [5, 6])
    ended = [output.request_id for _ in range(60) for output in engine.step() if output.finished]
    assert ended[:1] == [2] and ended[1:7] == [6, 3, 7, 4, 8, 5]


def come(service: Service, *tenants: str) -> None:
    for tenant in tenants:
        service.join(tenant)
        service.wait(tenant)


def test_a_pause_saves_nothing_up() -> None:
    service = Service()
    come(service, "a", "a")
    service.begin("a")
    service.charge("a", 1000)
    come(service, "b")
    assert service["b"] == 1000
    service.begin("b")
    service.charge("b", 10)
    service.leave("b")
    service.charge("a", 5)
    come(service, "b")
    assert service["b"] == 1010, "nor is what it was ahead forgotten"
    service.begin("b")
    service.leave("b")
    service.charge("a", 500)
    service.begin("a")
    come(service, "c")
    assert service["c"] == 1505, "nobody waits: what the last one had that did"


def test_who_takes_little_for_long_saves_nothing_up_either() -> None:
    """Nor does it for others: whoever comes begins beside those who wait, so a stream of newcomers holds up nobody."""
    service = Service()
    come(service, "slow", "many", "many")
    service.begin("slow")
    service.begin("many")
    service.charge("slow", 10)
    service.charge("many", 1000)
    come(service, "new", "slow")
    assert service["new"] == service["slow"] == service["many"] == 1000
    engine = build_engine(max_requests=3, num_slots=3, max_tokens=6)
    engine.add_request(None, "slow", SamplingParams(**FREE, max_tokens=60, tenant="slow"), [5])
    for key in range(8):
        engine.add_request(None, key, SamplingParams(**FREE, max_tokens=4, tenant="many"), [5, 6])
    ended: list[Any] = []
    for step in range(40):
        if step >= 12 and step % 2 == 0:  # as many as there is room for
            engine.add_request(None, f"new {step}", SamplingParams(**FREE, max_tokens=4, tenant=f"new {step}"), [5, 6])
        ended += [output.request_id for output in engine.step() if output.finished]
    assert set(range(8)) < set(ended), "newcomers took every turn"


def test_when_nobody_is_left_all_are_even_and_take_no_memory() -> None:
    service = Service()
    come(service, "a")
    service.begin("a")
    service.charge("a", 10**9)
    service.leave("a")
    come(service, "b", "a")
    assert service["a"] == service["b"] == 0 and service._rows.keys() == {"a", "b"}
    for key in range(1000):  # while somebody is there, those who left and are behind go in time
        name = f"t{key}"
        come(service, name)
        service.begin(name)
        service.charge(name, 1)
        service.charge("a", 2)
        service.charge("b", 2)
        service.leave(name)
    assert len(service._rows) < 200 and len(service._order) <= 1003 and len(service._waiting) == 2


def test_higher_priorities_begin_first_and_give_way_last() -> None:
    engine = build_engine(max_requests=2, num_slots=2, num_pages=6)
    for key, priority in enumerate([0, 0, 5, 1]):
        engine.add_request(None, key, SamplingParams(**FREE, max_tokens=12, priority=priority), [9, 8, 7, 6])
    began: list[int] = []
    preempted: dict[int, int] = {}
    outputs: dict[int, list[Any]] = {}
    while engine.has_unfinished_requests():
        for output in engine.step():
            outputs.setdefault(output.request_id, []).append(output)
        for one in engine._queues.running:
            if one.request_id not in began:
                began.append(one.request_id)
        preempted |= {one.request_id: one.preemptions for one in engine._queues}
    assert began == [2, 3, 0, 1]
    assert preempted[2] == 0 and sum(preempted.values()) > 0
    want = bits(alone([9, 8, 7, 6], SamplingParams(**FREE, max_tokens=12)))
    assert all(bits(found) == want for found in outputs.values())


def test_who_waits_is_told_what_for() -> None:
    engine = build_engine(num_pages=16, num_slots=8, max_requests=2, max_tokens=16)
    assert engine.waiting_for() is None
    params = SamplingParams(**FREE, max_tokens=2)
    engine.add_request(None, "long", params, [5] * 60)
    engine.add_request(None, "next", params, [5] * 8)
    engine.step()
    assert engine.waiting_for() == "request 'next' waits for 2 pages, 1 are free"
    drain(engine)
    assert engine.waiting_for() is None
    for key in range(3):
        engine.add_request(None, key, params, [5])
    engine.step()
    assert engine.waiting_for() == "request 2 waits for a request that runs to end"
    drain(engine)
    engine = build_engine(max_requests=2, max_tokens=16, max_model_len=16, chunked_prefill=False)
    engine.add_request(None, "a", params, [5] * 14)
    engine.add_request(None, "b", params, [5] * 3)
    engine.step()
    assert engine.waiting_for() == "request 'b' waits for rows, 2 of the step are left"


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_everybody_gets_a_turn_and_no_lane_is_out_of_order(data: st.DataObject) -> None:
    made = queue()
    waiting: dict[int, Request] = {}
    out: list[Request] = []
    now = 0.0
    for key in range(data.draw(st.integers(1, 40))):
        now += data.draw(st.floats(0, 20))
        one = request(key, data.draw(st.integers(-2, 2)), data.draw(st.sampled_from([None, "a", "b"])), now)
        made._service.join(one.params.tenant)
        made.insert(one)
        waiting[key] = one
        if data.draw(st.booleans()):
            chosen = made.first(data.draw(st.integers(0, 5)), now)
            assert len({c.key for c in chosen}) == len(chosen)
            for c in chosen:
                made.remove(waiting.pop(c.key))
                out.append(c)
        if out and data.draw(st.booleans()):
            back = out.pop(data.draw(st.integers(0, len(out) - 1)))
            made.insert(back)
            waiting[back.key] = back
    order = made.first(1000, now)
    assert {one.key for one in order} == set(waiting) == {one.key for one in made}
    for lane in {(one.params.priority, one.params.tenant) for one in order}:
        keys = [one.key for one in order if (one.params.priority, one.params.tenant) == lane]
        assert keys == sorted(keys)
    late = made.first(1000, now + 1e6)  # all are of one priority by now
    assert {one.key for one in late} == set(waiting)


def slowly(made: Waiting, most: int, now: float) -> list[int]:
    """What `first` gives, looking at everybody at every turn."""
    left = {lane: list(line.requests) for lane, line in made._lanes.items()}
    extra: Counter[str | None] = Counter()
    top = max((priority for priority, _ in left), default=0)
    chosen: list[int] = []
    while any(left.values()) and len(chosen) < most:
        heads = []
        for (priority, tenant), lane in left.items():
            if lane:
                level = min(top, priority + int(max(0.0, now - lane[0].arrival_time) / AGEING))
                heads.append((-level, made._service[tenant] + extra[tenant], lane[0].key, priority, tenant))
        _, _, key, priority, tenant = min(heads)
        extra[tenant] += left[priority, tenant].pop(0).length
        chosen.append(key)
    return chosen


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_the_turns_are_those_of_looking_at_everybody(data: st.DataObject) -> None:
    """Whatever comes, goes, is charged and ages between two looks; the clock may even go back."""
    made, here, away, now = queue(), {}, [], 0.0
    for key in range(data.draw(st.integers(1, 50))):
        now = max(0.0, now + data.draw(st.sampled_from([0.0, 0.0, 1.0, 9.5, 10.0, 33.0, -15.0])))
        tenant = data.draw(st.sampled_from([None, "a", "b", "c"]))
        one = request(key, data.draw(st.integers(-2, 3)), tenant, now, data.draw(st.integers(1, 9)))
        made._service.join(tenant)
        made.insert(one)
        here[key] = one
        for _ in range(data.draw(st.integers(0, 2))):
            if here and data.draw(st.booleans()):
                gone = here.pop(data.draw(st.sampled_from(sorted(here))))
                made.remove(gone)
                made._service.charge(gone.params.tenant, data.draw(st.integers(0, 40)))
                away.append(gone)
            elif away:
                back = away.pop(data.draw(st.integers(0, len(away) - 1)))
                made.insert(back)
                here[back.key] = back
        most = data.draw(st.integers(0, 6))
        assert [one.key for one in made.first(most, now)] == slowly(made, most, now)
    assert [one.key for one in made.first(99, now)] == slowly(made, 99, now)


def test_ten_thousand_tenants_are_not_all_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    made = queue(*(request(key, priority=key % 2, tenant=f"t{key}") for key in range(10_000)))
    made.first(1, 0.0)
    looks = 0
    original = Service.__getitem__

    def counted(self: Service, tenant: str | None) -> int:
        nonlocal looks
        looks += 1
        return original(self, tenant)

    monkeypatch.setattr(Service, "__getitem__", counted)
    for now in range(9):  # before anybody's level rises
        first = made.first(2, float(now))
        made.remove(first[0])
        made._service.charge(first[0].params.tenant, 3)
    assert looks < 200
