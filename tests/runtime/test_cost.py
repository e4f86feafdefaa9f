"""The model of a step's time: its sums, its fit, and prompts cut by it."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepinfer.runtime.cost import EVERY, LEAST, Cost, CostFit, non_negative_least_squares, span, step_features
from deepinfer.runtime.execute import Result, Work
from deepinfer.runtime.params import SamplingParams
from deepinfer.runtime.plan import Limits, PlanItem, RequestView, Snapshot
from deepinfer.runtime.planner import plan_step
from deepinfer.runtime.simulate import SimulatedExecutor
from engines import FREE, VOCAB, alone, bits, build_engine, drain

TRUE = Cost(base=2e-3, row=1e-5, key=3e-8, far=5e-10, near=640)


@given(st.integers(0, 3000), st.integers(0, 900), st.sampled_from([1, 7, 640, 5000]))
def test_sums_are_those_over_the_rows(start: int, count: int, near: int) -> None:
    keys = range(start + 1, start + count + 1)
    assert span(start, start + count, near) == (0.0, count, sum(min(near, c) for c in keys), sum(keys))


def steps(rng: np.random.Generator, count: int) -> list[list[tuple[int, int]]]:
    """Steps of decoding rows and chunks, at contexts up to 60,000."""
    made = []
    for _ in range(count):
        spans = [
            (c, c + int(rng.integers(1, 7))) for c in rng.integers(1, 60_000, size=int(rng.integers(0, 64))).tolist()
        ]
        start = int(rng.integers(0, 30_000))
        made.append([*spans, (start, start + int(rng.integers(1, 4096)))])
    return made


def test_a_fit_finds_what_steps_cost() -> None:
    rng = np.random.default_rng(0)
    fit = CostFit(TRUE.near)
    for spans in steps(rng, LEAST - 1):
        fit.add(spans, TRUE.of(step_features(spans, TRUE.near)))
    assert fit.cost is None, "too few to tell"
    for spans in steps(rng, 4 * EVERY):
        fit.add(spans, TRUE.of(step_features(spans, TRUE.near)))
    assert fit.cost is not None
    for spans in steps(rng, 50):
        features = step_features(spans, TRUE.near)
        assert fit.cost.of(features) == pytest.approx(TRUE.of(features), rel=1e-3)


def test_noise_is_covered_and_old_steps_are_forgotten() -> None:
    rng = np.random.default_rng(1)
    fit = CostFit(TRUE.near)
    for spans in steps(rng, 300):
        fit.add(spans, 7 * TRUE.of(step_features(spans, TRUE.near)))  # another load, long ago
    recent = steps(rng, 600)
    seconds = [TRUE.of(step_features(spans, TRUE.near)) * float(rng.uniform(0.8, 1.4)) for spans in recent]
    for spans, took in zip(recent, seconds, strict=True):
        fit.add(spans, took)
    assert fit.cost is not None
    ratio = [
        took / fit.cost.of(step_features(spans, 640)) for spans, took in zip(recent[-512:], seconds[-512:], strict=True)
    ]
    assert np.mean(np.array(ratio) <= 1) == pytest.approx(0.9, abs=0.03) and max(ratio) < 1.4


@pytest.mark.parametrize("pauses", [{0: 30.0}, {40: 1.0}, {40: 1.0, 60: 2.0, 80: 0.5}])
def test_a_step_that_a_pause_fell_into_changes_little(pauses: dict[int, float]) -> None:
    """The first step of a process, or one beside a collection of garbage: prompts must not be cut for long after."""
    rng = np.random.default_rng(2)
    fit, rows = CostFit(TRUE.near), []
    for step in range(120):
        decoding = [(c, c + 1) for c in rng.integers(100, 3000, size=16).tolist()]
        left = 20e-3 - (0.0 if fit.cost is None else fit.cost.of(step_features(decoding, TRUE.near)))
        rows.append(4096 if fit.cost is None else max(128, fit.cost.rows_within(left, 0, 4096)))
        spans = decoding if step % 4 == 3 else [*decoding, (0, rows[-1])]
        took = TRUE.of(step_features(spans, TRUE.near)) * float(rng.uniform(0.97, 1.03))
        fit.add(spans, took + pauses.get(step, 0.0))
    assert rows[-1] == pytest.approx(790, rel=0.05)


def test_steps_of_no_time_can_be_fitted() -> None:
    fit = CostFit(TRUE.near)
    for _ in range(LEAST):
        fit.add([(0, 5)], 0.0)
    assert fit.cost is not None and fit.cost.rows_within(1e-3, 0, 4096) == 4096


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**31))
def test_coefficients_are_the_best_that_are_not_negative(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = rng.uniform(0, 1, (30, 4)), rng.normal(0.5, 1.0, 30)
    x[:, 3] *= rng.integers(0, 2)  # a term that never occurred
    found = non_negative_least_squares(x, y)
    gradient = x.T @ (x @ found - y)
    assert (found >= 0).all()
    # The conditions of Karush, Kuhn and Tucker.
    assert (gradient >= -1e-6).all() and np.abs(gradient * found).max() < 1e-6


@given(st.integers(0, 50_000), st.integers(0, 5000), st.floats(-1e-3, 0.2))
def test_rows_within_a_time_are_the_most_that_fit(start: int, most: int, seconds: float) -> None:
    def took(rows: int) -> float:
        return TRUE.of(span(start, start + rows, TRUE.near))

    rows = TRUE.rows_within(seconds, start, most)
    assert 0 <= rows <= most
    assert rows == 0 or took(rows) <= seconds
    assert rows == most or took(rows + 1) > seconds


LIMITS = Limits(max_tokens=8192, max_requests=64, page_tokens=128, step_seconds=20e-3)


def planned(running: Sequence[RequestView], waiting: Sequence[RequestView], cost: Cost | None = TRUE) -> list[PlanItem]:
    return plan_step(Snapshot(running, waiting, 10_000, 64, cost), LIMITS).items


def test_a_prompt_is_cut_to_the_time_that_decoding_rows_leave() -> None:
    prompt = RequestView(9, 8000)
    (alone_,) = planned([], [prompt])
    decoding = [RequestView(key, 30_000, 29_999, 235) for key in range(20)]
    *rows, beside = planned(decoding, [prompt])
    assert len(rows) == 20 and 128 < beside.end < alone_.end < 8000
    for items in ([alone_], [*rows, beside]):
        longer = [(item.start, item.end + (item.key == 9)) for item in items]
        assert TRUE.of(step_features(((i.start, i.end) for i in items), 640)) <= 20e-3
        assert TRUE.of(step_features(longer, 640)) > 20e-3
    assert planned([], [prompt], cost=None)[0].end == 8000, "nothing is cut before the time is known"


def test_prompts_get_on_however_long_decoding_takes() -> None:
    slow = Cost(1.0, 0.0, 0.0, 0.0, 640)
    items = planned([RequestView(0, 10, 9, 1)], [RequestView(1, 100), RequestView(2, 30), RequestView(3, 100)], slow)
    assert [(item.key, item.end - item.start) for item in items] == [(0, 1), (1, 98), (2, 30)]
    # Nor do higher priorities take all of it from one that is under way.
    items = planned([RequestView(0, 300, 99, 3)], [RequestView(1, 300, priority=1)], slow)
    assert [(item.key, item.end - item.start) for item in items] == [(1, 96), (0, 32)]
    (first, *_) = planned([RequestView(0, 10, 9, 1)], [RequestView(1, 200)], slow)[1:]
    assert first.end == 128


def test_a_prompt_leaves_half_of_the_time_to_those_behind_it() -> None:
    long, short = RequestView(1, 8000), RequestView(2, 300)
    (alone_,), (beside, other) = planned([], [long]), planned([], [long, short])
    assert other.end == 300 and alone_.end / 2 < beside.end < alone_.end - 100
    first, second = planned([], [long, RequestView(2, alone_.end - 50)])
    assert alone_.end / 2 < first.end == second.end < alone_.end, "two beginnings cost less than one beginning and more"
    assert planned([], [long, RequestView(2, 8000)]) == [alone_], "nothing to one that would not end either"
    high, low = RequestView(1, 8000, priority=1), RequestView(0, 8000, 128, 63)
    (first, second) = planned([low], [high])
    assert (second.key, second.end - second.start) == (0, 128) and first.end < alone_.end


def test_a_time_needs_prompts_that_may_be_cut() -> None:
    with pytest.raises(ValueError, match="may be cut"):
        Limits(max_tokens=8, max_requests=4, page_tokens=4, chunked_prefill=False, step_seconds=1.0)


def test_the_engine_cuts_prompts_to_the_time_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    taken: list[tuple[float, int]] = []

    class Timed(SimulatedExecutor):
        def run(self, work: Sequence[Work]) -> list[Result]:
            rows = sum(item.end - item.start for item in work)
            took = 1e-3 + rows * 1e-4
            clock[0] += took
            taken.append((took, rows))
            return super().run(work)

    def build(seconds: float | None) -> list[list[object]]:
        engine = build_engine(
            executor=Timed(VOCAB, 400, 8, 4), num_pages=400, max_model_len=600, max_tokens=512, step_seconds=seconds,
            least_chunk=4,
        )  # fmt: skip
        taken.clear()
        engine.add_request(None, "talks", SamplingParams(**FREE, max_tokens=60), [5, 6])
        for _ in range(20):
            engine.step()
        engine.add_request(None, "prompt", SamplingParams(**FREE, max_tokens=4), [7] * 500)
        found = drain(engine)
        return [bits(found[key]) for key in (("talks", 0), ("prompt", 0))]

    cut, whole = build(11e-3), None
    assert max(took for took, _ in taken) <= 11e-3 + 1e-9 and 95 <= max(rows for _, rows in taken) <= 100
    whole = build(None)
    assert max(took for took, _ in taken) > 50e-3
    assert cut == whole
    assert cut[1] == bits(alone([7] * 500, SamplingParams(**FREE, max_tokens=4), max_model_len=600, num_pages=400))
