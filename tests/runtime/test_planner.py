"""The planner is a pure function; its policy in single cases and its guarantees in random ones."""

from __future__ import annotations

import copy
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepinfer.runtime import prompt_rows
from deepinfer.runtime.cost import Cost
from deepinfer.runtime.plan import Held, Limits, PlanItem, RequestView, Snapshot, is_decoding, pages_for
from deepinfer.runtime.planner import plan_step

LIMITS = Limits(max_tokens=8, max_requests=4, page_tokens=4)


def snapshot(running: list[RequestView], waiting: list[RequestView], pages: int = 100, slots: int = 4) -> Snapshot:
    return Snapshot(running=running, waiting=waiting, free_pages=pages, free_slots=slots)


def test_the_module_needs_no_torch() -> None:
    import subprocess

    code = "import deepinfer.runtime.planner, deepinfer.runtime.engine, sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_decode_rows_and_prefill_chunks_share_a_step() -> None:
    plan = plan_step(snapshot([RequestView(0, 6, 5, 2)], [RequestView(1, 20), RequestView(2, 3)]), LIMITS)
    assert plan.items == [PlanItem(0, 5, 6, 0, False), PlanItem(1, 0, 4, 5, True), PlanItem(2, 0, 3, 1, True)]
    assert plan.tokens == 8 and plan.preempted == []


def test_a_long_prompt_holds_no_short_one_up_and_gets_half_at_least() -> None:
    limits = Limits(max_tokens=64, max_requests=9, page_tokens=4)

    def rows(*waiting: int, under_way: int = 1000) -> list[int]:
        running = [RequestView(0, under_way, 100, 250)] if under_way else []
        state = snapshot(running, [RequestView(1 + n, count) for n, count in enumerate(waiting)], pages=10_000, slots=8)
        plan = plan_step(state, limits)
        assert plan.tokens == min(64, sum(waiting) + max(0, under_way - 100))
        return [item.end - item.start for item in plan.items]

    assert rows(5) == [59, 5]
    assert rows(5, 7) == [52, 5, 7]
    assert rows(40) == [32, 32] and rows(40, 5) == [32, 27, 5]
    assert rows(500, 3, under_way=0) == [61, 3]
    assert rows(40, under_way=110) == [10, 40]
    plan = plan_step(snapshot([RequestView(0, 1000, 100, 250)], [RequestView(1, 500)], pages=3), limits)
    assert plan.tokens == 64 and len(plan.items) == 1, "nothing is left to one that cannot begin"


LONG = Limits(max_tokens=8192, max_requests=64, page_tokens=128)


def rows_of(running: list[RequestView], waiting: list[RequestView], limits: Limits = LONG) -> list[tuple[int, int]]:
    plan = plan_step(snapshot(running, waiting, pages=100_000, slots=64), limits)
    return [(item.key, item.end - item.start) for item in plan.items]


def test_long_prompts_do_not_all_begin_at_once() -> None:
    """Each would hold a slot and the pages of its whole text for as long as all of them take."""
    assert rows_of([], [RequestView(key, 8192) for key in range(64)]) == [(0, 8192)]
    assert rows_of([], [RequestView(key, 8000) for key in range(64)]) == [(0, 8000), (1, 192)]
    assert rows_of([], [RequestView(key, 20_000) for key in range(64)]) == [(0, 8192)]
    # The least with which one begins; who ends with less passes.
    waiting = [RequestView(0, 8100), RequestView(1, 8100), RequestView(2, 50)]
    assert rows_of([], waiting) == [(0, 8100), (2, 50)]
    plan = plan_step(snapshot([], waiting, pages=1000), Limits(max_tokens=8192, max_requests=4, page_tokens=4096))
    assert plan.held is not None and (plan.held.key, plan.held.reason) == (1, "rows, 42 of the step are left")
    # Halves of what there is, to many that the step could hold, are no chain of ever smaller ones.
    long = RequestView(99, 100_000, 10_000, 800)
    assert rows_of([long], [RequestView(key, 8000) for key in range(60)]) == [(99, 4096), (0, 4096)]


@pytest.mark.parametrize("under_way", [0, 250])
def test_planning_looks_at_each_prompt_a_few_times(under_way: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not at all the others for each of them: that took 0.2 seconds of a step."""
    looks: list[RequestView] = []
    wanted = prompt_rows._wanted
    monkeypatch.setattr(prompt_rows, "_wanted", lambda view: looks.append(view) or wanted(view))
    running = [RequestView(key, 9000, 200, 71) for key in range(under_way)]
    waiting = [RequestView(1000 + key, 109_000 if not key else 9000) for key in range(250 - under_way)]
    limits = Limits(max_tokens=8192, max_requests=512, page_tokens=128)
    short = [RequestView(2000 + key, 50) for key in range(250)]
    plan = plan_step(snapshot(running, [*waiting, *short], pages=10**6, slots=512), limits)
    assert plan.tokens == 8192 and len(plan.items) > 80 and len(looks) < 16 * 500


def test_what_a_long_prompt_leaves_is_for_short_ones() -> None:
    long, other, short = RequestView(0, 100_000, 128, 800), RequestView(1, 50_000), RequestView(2, 5000)
    assert rows_of([long], [other]) == [(0, 8192)]
    assert rows_of([long], [other, short]) == [(0, 4096), (2, 4096)]
    assert rows_of([long, RequestView(1, 50_000, 128, 400)], [short]) == [(0, 4096), (2, 4096)]
    assert rows_of([long], [other, RequestView(2, 300)]) == [(0, 7892), (2, 300)]
    assert rows_of([], [other, RequestView(2, 300)]) == [(1, 7892), (2, 300)]


def test_a_prompt_leaves_nothing_to_lower_priorities() -> None:
    long = RequestView(0, 100_000, 128, 800, priority=3)
    assert rows_of([long], [RequestView(1, 300, priority=2)]) == [(0, 8192)]
    assert rows_of([long], [RequestView(1, 300, priority=3), RequestView(2, 300)]) == [(0, 7892), (1, 300)]
    assert rows_of([], [RequestView(1, 9000, priority=1), RequestView(2, 300)]) == [(1, 8192)]


def test_a_prompt_under_way_gets_on_whatever_higher_priorities_take() -> None:
    low = RequestView(3, 20_000, 128, 157)
    newer = RequestView(7, 50_000, 128, 391, priority=5)
    assert rows_of([low], [RequestView(9, 50_000, priority=5)]) == [(9, 8064), (3, 128)]
    assert rows_of([newer, low], [RequestView(9, 50_000, priority=5)]) == [(7, 8064), (3, 128)]
    assert rows_of([newer, RequestView(3, 200, 128, 2)], []) == [(7, 8120), (3, 72)], "no more than it wants"
    small = Limits(max_tokens=64, max_requests=9, page_tokens=4)
    assert rows_of([newer, low], [], small) == [(7, 48), (3, 16)], "no more than a quarter"
    capped = Limits(max_tokens=64, max_requests=9, page_tokens=4, max_sum_context=60_000)
    assert rows_of([low], [RequestView(9, 50_000, priority=5)], capped) == [(3, 64)], "nor do they take its context"


def test_whoever_waits_goes_before_prompts_of_a_lower_priority() -> None:
    running = [RequestView(0, 99, 98, 25), RequestView(1, 14, 8, 25, priority=1), RequestView(2, 90, 8, 25)]
    waiting = [RequestView(7, 3, priority=2), RequestView(8, 20, priority=1), RequestView(9, 4, priority=1)]
    plan = plan_step(snapshot(running, waiting, slots=9), Limits(max_tokens=41, max_requests=9, page_tokens=4))
    # A decoding row, then by priority; equals of one under way come behind it.
    assert [item.key for item in plan.items] == [0, 7, 1, 8, 9, 2]
    assert [item.end - item.start for item in plan.items] == [1, 3, 6, 20, 4, 7]


def test_lower_priorities_take_no_pages_that_a_higher_one_lacks() -> None:
    waiting = [RequestView(1, 40, priority=1, patient=True), RequestView(2, 3), RequestView(3, 3, priority=1)]
    plan = plan_step(snapshot([], waiting, pages=5), LIMITS)
    assert [item.key for item in plan.items] == [3] and plan.held is not None and plan.held.key == 1


def test_who_lacks_pages_is_passed_while_it_is_patient() -> None:
    long, short = RequestView(1, 40, patient=True), RequestView(2, 3)
    plan = plan_step(snapshot([], [long, short], pages=5), LIMITS)
    assert [item.key for item in plan.items] == [2] and plan.held is not None and plan.held.key == 1
    long.patient = False
    assert plan_step(snapshot([], [long, short], pages=5), LIMITS).items == []
    assert plan_step(snapshot([], [RequestView(1, 4, patient=True), short], slots=0), LIMITS).items == []


def test_a_prompt_under_way_comes_before_new_ones_and_after_decodes() -> None:
    running = [RequestView(1, 20, 7, 5), RequestView(0, 6, 5, 2)]
    plan = plan_step(snapshot(running, [RequestView(2, 3)]), LIMITS)
    assert [(item.key, item.end - item.start) for item in plan.items] == [(0, 1), (1, 4), (2, 3)]


def test_a_new_request_gets_the_pages_of_its_whole_prompt() -> None:
    plan = plan_step(snapshot([], [RequestView(0, 17)]), LIMITS)
    assert plan.items == [PlanItem(0, 0, 8, 5, True)]
    plan = plan_step(snapshot([RequestView(0, 17, 8, 5)], []), LIMITS)
    assert plan.items == [PlanItem(0, 8, 16, 0, False)]


def test_without_chunks_a_prompt_waits_for_a_step_that_holds_it() -> None:
    limits = Limits(max_tokens=8, max_requests=4, page_tokens=4, chunked_prefill=False)
    plan = plan_step(snapshot([RequestView(0, 6, 5, 2)], [RequestView(1, 8), RequestView(2, 1)]), limits)
    assert [item.key for item in plan.items] == [0]  # and nobody else begins, or the next step were too short as well


def test_without_chunks_others_go_before_one_that_the_next_step_holds() -> None:
    limits = Limits(max_tokens=20, max_requests=6, page_tokens=4, chunked_prefill=False)
    waiting = [RequestView(1, 12), RequestView(2, 17), RequestView(3, 3), RequestView(4, 2), RequestView(5, 1)]
    plan = plan_step(snapshot([RequestView(0, 6, 5, 2)], waiting, slots=6), limits)
    # With 0, 1 and 3 there are three rows beside the 17; with a fourth that prompt would have to wait again.
    assert [item.key for item in plan.items] == [0, 1, 3]
    assert plan.held is not None and plan.held.key == 2
    decoding = [RequestView(item.key, 20, 19, 5) for item in plan.items]
    following = plan_step(snapshot(decoding, [waiting[1], *waiting[3:]], slots=3), limits)
    assert [item.key for item in following.items] == [0, 1, 3, 2]


def test_without_chunks_the_next_step_still_holds_it_beside_prompts_that_were_cut() -> None:
    limits = Limits(max_tokens=20, max_requests=6, page_tokens=4, chunked_prefill=False)
    running, waiting = [RequestView(0, 6, 5, 2), RequestView(1, 8, 0, 2)], [RequestView(2, 17)]
    cut = RequestView(3, 12, cut=3)  # nine more rows in the next step
    assert rows_of(running, [*waiting, cut, RequestView(4, 2)], limits) == [(0, 1), (1, 8), (4, 2)]
    assert rows_of([running[0]], [cut, *waiting, RequestView(4, 2)], limits) == [(0, 1), (3, 3)]
    paused = RequestView(1, 12, 3, 3, paused=True)  # its state is copied; nine rows in the next step
    decoding = [RequestView(5 + n, 6, 5, 2) for n in range(3)]
    assert rows_of([*decoding, paused], [RequestView(2, 18), RequestView(4, 2)], limits) == [(5, 1), (6, 1), (7, 1)]


def test_without_chunks_a_prompt_that_was_cut_goes_on_before_higher_priorities_take_its_rows() -> None:
    limits = Limits(max_tokens=20, max_requests=6, page_tokens=4, chunked_prefill=False)
    high = [RequestView(2, 10, priority=1), RequestView(3, 10, priority=1)]
    assert rows_of([RequestView(1, 12, 3, 3)], high, limits) == [(2, 10), (1, 9)]


@pytest.mark.parametrize(
    ("pages", "slots", "requests", "admitted"), [(5, 4, 4, 2), (4, 4, 4, 1), (9, 1, 4, 1), (9, 4, 1, 1), (0, 4, 4, 0)]
)
def test_admission_is_bounded_by_pages_slots_and_requests(pages: int, slots: int, requests: int, admitted: int) -> None:
    limits = Limits(max_tokens=100, max_requests=requests, page_tokens=4)
    plan = plan_step(snapshot([], [RequestView(0, 12), RequestView(1, 8)], pages, slots), limits)
    assert [item.key for item in plan.items] == [0, 1][:admitted]


def test_a_step_may_cap_the_summed_lengths_of_its_prompts() -> None:
    limits = Limits(max_tokens=8, max_requests=4, page_tokens=4, max_sum_context=20)
    plan = plan_step(snapshot([RequestView(0, 15, 13, 4)], [RequestView(1, 6), RequestView(2, 6)]), limits)
    assert [item.key for item in plan.items] == [0]
    plan = plan_step(snapshot([], [RequestView(1, 6), RequestView(2, 3)]), limits)
    assert [(item.key, item.end) for item in plan.items] == [(1, 5), (2, 3)]


def test_one_that_is_too_long_for_the_cap_costs_no_rows_and_holds_up_no_short_one() -> None:
    def limits(rows: int) -> Limits:
        return Limits(max_tokens=rows, max_requests=9, page_tokens=4, max_sum_context=128)

    under_way, waits = RequestView(0, 100, 8, 25), RequestView(1, 40)
    assert rows_of([under_way], [waits], limits(64)) == [(0, 64)]
    assert rows_of([under_way], [waits, RequestView(2, 6)], limits(64)) == [(0, 58), (2, 6)]
    plan = plan_step(snapshot([under_way], [waits, RequestView(2, 6)]), limits(64))
    assert plan.held == Held(1, "a step with room for a text of 40 tokens, 22 are left")
    # Whoever passes it ends in this step, or the next one would have no room for it either.
    assert rows_of([under_way], [waits, RequestView(2, 20)], limits(24)) == [(0, 24)]
    ending = RequestView(0, 100, 90, 25)
    assert rows_of([ending], [waits, RequestView(2, 20)], limits(24)) == [(0, 10)]
    assert rows_of([ending], [waits, RequestView(2, 14)], limits(24)) == [(0, 10), (2, 14)]


def test_no_preemption_unless_a_page_is_needed() -> None:
    full = [RequestView(0, 8, 7, 2), RequestView(1, 7, 6, 2)]
    assert plan_step(snapshot(full, [], pages=0), LIMITS).preempted == []


def test_the_youngest_is_preempted_first_and_nobody_is_admitted_meanwhile() -> None:
    running = [RequestView(3, 9, 8, 2), RequestView(1, 5, 4, 1), RequestView(2, 3, 2, 1)]
    plan = plan_step(snapshot(running, [RequestView(9, 1)], pages=0), LIMITS)
    # 3 takes the page of 2; then 1 needs one too and is the youngest left
    assert plan.preempted == [2, 1]
    assert plan.items == [PlanItem(3, 8, 9, 1, False)]


@pytest.mark.parametrize("sizes", [{"page_tokens": 0}, {"page_tokens": 4, "least_chunk": 0}])
def test_pages_and_chunks_of_nothing_are_refused(sizes: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="pages of"):
        Limits(max_tokens=8, max_requests=4, **sizes)


def test_limits_must_hold_one_row_per_request() -> None:
    with pytest.raises(ValueError, match="5 requests cannot share a step of 4 rows"):
        Limits(max_tokens=4, max_requests=5, page_tokens=4)


@st.composite
def states(draw: st.DrawFn) -> tuple[Snapshot, Limits]:
    page_tokens = draw(st.sampled_from([1, 4, 128]))
    longest = 6 * page_tokens
    requests = draw(st.integers(1, 6))
    limits = Limits(
        max_tokens=draw(st.integers(max(requests, 1), 3 * longest)),
        max_requests=requests,
        page_tokens=page_tokens,
        chunked_prefill=True,
        max_sum_context=draw(st.one_of(st.none(), st.integers(longest, 3 * longest))),
        step_seconds=draw(st.sampled_from([None, None, 1.0])),
        least_chunk=draw(st.sampled_from([1, 5, 128])),
    )
    cost = Cost(0.1, draw(st.sampled_from([1e-6, 0.05, 1.0])), 1e-6, 0.0, 640)
    running = []
    for key in range(draw(st.integers(0, requests))):
        length = draw(st.integers(2, longest))
        computed = draw(st.one_of(st.just(length - 1), st.integers(1, length - 1)))
        held = pages_for(length - 1 if computed == length - 1 else length, page_tokens)
        running.append(RequestView(key, length, computed, held))
        running[-1].priority, running[-1].cut = draw(st.integers(0, 2)), draw(st.integers(0, longest))
    waiting = [RequestView(100 + i, draw(st.integers(1, longest))) for i in range(draw(st.integers(0, 4)))]
    for view in waiting:
        view.priority, view.cut = draw(st.integers(0, 2)), draw(st.integers(0, longest))
    for views in (running, waiting):
        views.sort(key=lambda view: -view.priority)
    total = 6 + sum(view.pages for view in running)
    used = sum(view.pages for view in running)
    free = draw(st.integers(max(0, 6 - used), total - used))
    return Snapshot(running, waiting, free, requests - len(running), cost), limits


@settings(max_examples=300, deadline=None)
@given(states())
def test_every_plan_keeps_the_limits_and_moves_somebody(case: tuple[Snapshot, Limits]) -> None:
    state, limits = case
    before = copy.deepcopy(state)
    plan = plan_step(state, limits)
    assert plan == plan_step(state, limits) and state == before  # pure
    views = {view.key: view for view in [*state.running, *state.waiting]}
    assert plan.tokens <= limits.max_tokens
    assert all(item.start < item.end <= views[item.key].length for item in plan.items)
    assert all(item.start == views[item.key].computed for item in plan.items)
    keys = [item.key for item in plan.items]
    assert len(set(keys)) == len(keys) and not set(keys) & set(plan.preempted)
    freed = sum(views[key].pages for key in plan.preempted)
    assert sum(item.new_pages for item in plan.items) <= state.free_pages + freed
    for item in plan.items:
        assert (views[item.key].pages + item.new_pages) * limits.page_tokens >= item.end
    admitted = [item.key for item in plan.items if item.admitted]
    turns = {view.key: place for place, view in enumerate(state.waiting)}
    assert [turns[key] for key in admitted] == sorted(turns[key] for key in admitted)
    for place, view in enumerate(state.waiting):  # whoever passes another one is not long
        if view.key in admitted and any(before.key not in admitted for before in state.waiting[:place]):
            assert view.length <= limits.max_tokens
    prompts = [view for view in state.running if not is_decoding(view) and view.key not in plan.preempted]
    if prompts:
        assert min(view.key for view in prompts) in keys, "of those who hold memory the oldest gets on"
    if plan.held and limits.step_seconds is limits.max_sum_context is None and plan.held.reason.startswith("rows"):
        assert limits.max_tokens - plan.tokens < limits.least_chunk, "rows are left, and somebody wants them"
    assert len(state.running) - len(plan.preempted) + len(admitted) <= limits.max_requests
    if state.running or state.waiting:
        assert plan.items, "a step with work to do does some"
    if state.running:
        assert state.running[0].key not in plan.preempted, "the oldest is never preempted while another one runs"


def test_the_oldest_gets_the_one_row_that_there_is_time_for() -> None:
    cost = Cost(base=0.1, row=1.0, key=1e-6, far=0.0, near=640)
    state = Snapshot([RequestView(0, 3, 1, 3)], [RequestView(100, 1, priority=1)], 3, 1, cost)
    limits = Limits(max_tokens=2, max_requests=2, page_tokens=1, step_seconds=1.0, least_chunk=1)
    assert [(item.key, item.start, item.end) for item in plan_step(state, limits).items] == [(0, 1, 2)]


def test_a_request_begins_behind_what_the_cache_has_of_it() -> None:
    waiting = [RequestView(0, 17, computed=8, pages=2, reclaimed=1)]
    # Three pages of its own, and the shared one that nobody else holds stops being free.
    assert plan_step(snapshot([], waiting, pages=3), LIMITS).items == []
    assert plan_step(snapshot([], waiting, pages=4), LIMITS).items == [PlanItem(0, 8, 16, 3, True)]
    both = [*waiting, RequestView(1, 4)]
    limits = Limits(max_tokens=20, max_requests=4, page_tokens=4)
    assert [item.key for item in plan_step(snapshot([], both, pages=4), limits).items] == [0]
    assert [item.key for item in plan_step(snapshot([], both, pages=5), limits).items] == [0, 1]


@pytest.mark.parametrize(("cut", "end"), [(0, 8), (4, 4), (8, 8), (12, 8), (2, 8)])
def test_a_step_ends_where_a_state_is_wanted(cut: int, end: int) -> None:
    start = 3 if cut == 2 else 0  # a cut that lies behind cuts nothing
    end = 11 if cut == 2 else end
    running = [RequestView(0, 20, start, 5, cut=cut)]
    assert plan_step(snapshot(running, []), LIMITS).items == [PlanItem(0, start, end, 0, False)]
