"""Who waits and who runs: always in the order of submission."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from deepinfer.runtime.images import PromptImage
from deepinfer.runtime.params import SamplingParams
from deepinfer.runtime.plan import Limits
from deepinfer.runtime.planner import plan_step
from deepinfer.runtime.pool import PoolError
from deepinfer.runtime.queues import PATIENCE, Queues
from deepinfer.runtime.request import Request


def request(key: int, priority: int = 0, arrived: float = 0.0) -> Request:
    return Request(
        key=key, request_id=key, user_id=None, sample_index=0, params=SamplingParams(priority=priority), seed=0,
        eos_id=1, prompt_len=3, max_output_tokens=4, tokens=np.array([4, 5, 6], np.int32), arrival_time=arrived,
    )  # fmt: skip


def keys(requests: Any) -> list[int]:
    return [one.key for one in requests]


@pytest.fixture
def queues() -> Queues:
    made = Queues(num_pages=8, num_slots=4, max_requests=3, page_tokens=4)
    made.add([request(key) for key in range(6)])
    return made


def test_the_order_of_submission_survives_any_way_in_and_out(queues: Queues) -> None:
    for key in (1, 4, 0):
        queues.admit(key)
    assert keys(queues.running) == [0, 1, 4] and keys(queues.waiting) == [2, 3, 5]
    for one in (queues.running[0], queues.running[2]):
        queues.requeue(one)
    assert keys(queues.running) == [1] and keys(queues.waiting) == [0, 2, 3, 4, 5]
    queues.remove(queues.running[0])
    queues.remove(list(queues.waiting)[2])
    assert keys(queues) == [0, 2, 4, 5]


def test_images_are_held_for_whoever_starts_again_and_not_for_who_has_ended(queues: Queues) -> None:
    image = PromptImage(1, cast(Any, SimpleNamespace(plan=SimpleNamespace(tokens=2))))
    for one in list(queues.waiting)[:2]:
        one.images = [image]
        image.waiting.add(one.key)
    first, second = queues.admit(0), queues.admit(1)
    for one in (first, second):
        image.computed(one.key, 3)
    queues.requeue(first)
    image.embeds = "made again, half read"
    image.computed(second.key, 4)
    assert image.embeds is not None, "its neighbour decodes meanwhile"
    queues.remove(first)
    assert image.embeds is None and not image.waiting


def test_nobody_is_looked_at_behind_one_that_does_not_fit() -> None:
    """What the prefix cache has of a request takes time to find out, at every step that it waits."""
    queues = Queues(num_pages=2, num_slots=9, max_requests=9, page_tokens=4)
    queues.add([request(key) for key in range(6)])
    views = queues.snapshot([], 0.0).waiting
    assert keys(views) == [0, 1, 2, 3, 4, 5] and all(view.patient for view in views), "for a while others may pass"
    views = queues.snapshot([], PATIENCE).waiting
    assert keys(views) == [0, 1, 2] and not any(view.patient for view in views)
    queues.waiting.find(1).preemptions = 1
    assert [view.patient for view in queues.snapshot([], 0.0).waiting[:2]] == [True, False]


def test_a_snapshot_says_the_priority_of_turns() -> None:
    """Of one that waits with its waiting, so it goes before a prompt under way of what it has come to."""
    queues = Queues(num_pages=99, num_slots=9, max_requests=9, page_tokens=4)
    queues.add([request(0, priority=3), request(1), request(2, priority=5, arrived=49.0)])
    queues.admit(0)
    queues.running[0].computed = 1
    limits = Limits(max_tokens=64, max_requests=9, page_tokens=4)
    for now, levels, order in ((0.0, [5, 0], [2, 0, 1]), (50.0, [5, 5], [1, 2, 0])):
        state = queues.snapshot([], now)
        assert [view.priority for view in state.waiting] == levels
        assert keys(plan_step(state, limits).items) == order


def test_nobody_is_looked_at_who_would_take_the_pages_of_a_higher_priority() -> None:
    queues = Queues(num_pages=1, num_slots=9, max_requests=9, page_tokens=4)
    queues.add([request(0, priority=1), request(1, priority=1), request(2), request(3, priority=1, arrived=2.0)])
    assert keys(queues.snapshot([], 3.0).waiting) == [0, 1, 3], "0 takes the page that there is, 1 and 3 lack one"


def test_a_snapshot_holds_what_may_run(queues: Queues) -> None:
    queues.admit(0)
    queues.admit(1)
    state = queues.snapshot([], 0.0)
    assert keys(state.running) == [0, 1] and keys(state.waiting) == [2, 3], "no more than can be admitted, and the next"
    trial = [one for one in queues if one.key in (1, 4, 5)]
    state = queues.snapshot(trial, 0.0)
    assert keys(state.running) == [1] and keys(state.waiting) == [4, 5]


def test_counting_sees_what_idle_queues_have_lost(queues: Queues) -> None:
    queues.check_idle()
    lost = queues.pages.lease(2)
    with pytest.raises(PoolError, match="page pool: 1 leases are alive, 0"):
        queues.check_idle()
    lost.release()
    queues.check_idle()
    slot = queues.slots.lease(1)
    slot.released, queues.slots._leases = True, 0  # an owner that went without giving back
    with pytest.raises(PoolError, match="state slots: 1 ids have no owner"):
        queues.check_idle()


def test_whatever_leaves_gives_its_resources_back(queues: Queues) -> None:
    for _ in range(2):
        one = queues.admit(next(iter(queues.waiting)).key)
        one.take(queues.pages, 2)
        one.slot = queues.slots.lease(1)
    queues.check_conservation()
    assert (queues.pages.used, queues.slots.used) == (4, 2)
    queues.requeue(queues.running[0])
    queues.remove(queues.running[0])
    queues.check_conservation()
    assert (queues.pages.used, queues.slots.used) == (0, 0)
    lost = queues.admit(0)
    lost.take(queues.pages, 1)
    queues.running.remove(lost)
    with pytest.raises(PoolError, match="page pool"):
        queues.check_conservation()
