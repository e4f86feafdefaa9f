"""What the next step computes: a pure function of a snapshot and the limits.

No torch, no device, no clock, no request objects: the same snapshot always gives the same plan, so a schedule can be
simulated and replayed. The snapshot also holds what steps have cost so far (`cost.py`). The engine takes the snapshot,
carries the plan out and commits the results.

Policy
------
* Mixed steps: every step carries decode rows and prefill chunks together. Decoding requests come first, so a long
  prompt never stalls them; what is left of the token budget goes to prompts: by priority, and among equals first to
  those that are under way, then to new ones in the order of turns.
* Nobody is stuck behind a long prompt. Where prompts may be cut, one that does not fit leaves up to half of what there
  is, rows and time, to those behind it of no lower priority that this step could hold and that want at most half as
  much as it does; to others it leaves nothing, so long prompts follow one another and do not all begin at once. A
  prompt begins with `least_chunk` rows, or whole. Where prompts may not be cut, those behind go first as far as the
  next step still holds the long one.
* Nobody is stuck behind higher priorities once it holds memory: of the prompts under way the one that was submitted
  first gets `least_chunk` rows of every step, at most a quarter of it.
* Where the summed lengths of prompts are capped, one that is too long for what is left is passed by those that end in
  this step, so they do not stand in its way in the next.
* A new request gets the pages of its whole known text and a state slot when it is admitted, so it never needs pages in
  the middle of its prompt. A decoding request takes a page when it, or a draft that is to be verified, crosses a page
  border; it keeps the page when the draft is rejected.
* Drafts are never cut to what happens to be free. Which of them are verified depends on their request alone, and so do
  the tokens that are drawn.
* Memory pressure: when a running request needs a page and none is free, one of those behind it is preempted; a request
  that is itself the last preempts itself. The first one therefore always moves, which rules out livelock. Nothing is
  preempted unless a page is needed.
* Who gives way: of the lowest priority, and of these the one whose return costs the least time, by the cost model and
  the rate of copies to the host; without them, and among equals, the youngest.
* How: a preempted request gives its pages and slot back and waits at the front of the queue. Either its caches wait in
  host memory, where there is room and copying takes less time than computing; or its whole text is a prompt again
  (results are the same bit for bit since rows do not depend on how they are batched); or it ends, if the engine was
  told to stop preempted requests. No request is admitted in a step that preempts.
* Admission is in the order of turns (`waiting.py`), and the plan says what the first one lacks that has to wait. Who
  lacks pages is passed by those behind it of the same priority while it is patient (`RequestView.patient`), then they
  wait as well; so do they behind one that lacks a slot.
* A request that is admitted begins behind what the prefix cache has of it. A step ends where the cache wants the state
  of a request (`RequestView.cut`).
"""

from __future__ import annotations

from .cost import span
from .plan import Held, Limits, PlanItem, RequestView, Snapshot, StepPlan, is_decoding, pages_for, pages_to_begin
from .prompt_rows import give_rows, in_turn


def plan_step(state: Snapshot, limits: Limits) -> StepPlan:
    """The plan of the next step. Empty only when there is nothing to do."""
    plan = StepPlan()
    running, free_pages = _decode(state, limits, plan)
    begin: list[tuple[RequestView, int]] = []
    if plan.preempted:
        held = [Held(view.key, "a step that preempts nobody") for view in state.waiting[:1]]
    else:
        begin, held = _who_may_begin(state, limits, len(running), free_pages)
    under_way = [(view, -1) for view in running if not (view.paused or is_decoding(view))]
    late = give_rows(in_turn(under_way, begin), limits, state.cost, plan, running)
    plan.held = late or next(iter(held), None)
    return plan


def _who_may_begin(
    state: Snapshot, limits: Limits, running: int, free_pages: int
) -> tuple[list[tuple[RequestView, int]], list[Held]]:
    """Waiting requests for which there is memory, each with the pages that it takes; and who lacks what."""
    begin: list[tuple[RequestView, int]] = []
    held: list[Held] = []
    slots = min(state.free_slots, limits.max_requests - running)
    floor: int | None = None  # highest priority of those who lack pages: lower ones do not take what these wait for
    for view in state.waiting:
        if floor is not None and view.priority < floor:
            continue
        pages = pages_to_begin(view, limits.page_tokens)
        lack = _lack(pages + view.reclaimed, free_pages, slots, state.free_slots)
        if lack:
            held.append(Held(view.key, lack))
            if slots <= 0 or not view.patient:
                break
            floor = view.priority
            continue
        begin.append((view, pages))
        slots -= 1
        free_pages -= pages + view.reclaimed
    return begin, held


def _lack(pages: int, free_pages: int, slots: int, free_slots: int) -> str:
    """What a request that begins lacks of memory; '' for nothing."""
    if slots <= 0:
        return "a request that runs to end" if free_slots else "a state slot"
    return f"{pages} pages, {free_pages} are free" if pages > free_pages else ""


def _decode(state: Snapshot, limits: Limits, plan: StepPlan) -> tuple[list[RequestView], int]:
    """Schedules the rows of every decoding request, preempting those behind it where pages are short.

    Returns the requests that stay and the pages still free.
    """
    running = list(state.running)
    free_pages = state.free_pages
    ways = _Ways(state, limits)
    index = 0
    while index < len(running):
        view = running[index]
        index += 1
        if view.paused or not is_decoding(view):
            continue
        end = view.length + view.drafts
        need = view.lacks(limits.page_tokens)
        while need > free_pages and len(running) > index:
            free_pages += ways.preempt(running, index, plan)
        if need > free_pages:
            free_pages += ways.preempt(running, index - 1, plan)
            continue
        free_pages -= need
        plan.items.append(PlanItem(view.key, view.computed, end, need, False))
    return running, free_pages


class _Ways:
    """Who gives way, and how."""

    def __init__(self, state: Snapshot, limits: Limits) -> None:
        self._cost = state.cost
        self._host = state.host
        self._block = limits.page_tokens
        self._pages = 0 if state.host is None else state.host.pages
        self._slots = 0 if state.host is None else state.host.slots

    def preempt(self, running: list[RequestView], first: int, plan: StepPlan) -> int:
        """Takes one of running[first:] out. Returns the pages that are free for it."""
        place = self._choose(running, first)
        last = place == len(running) - 1
        victim = running.pop(place)
        plan.preempted.append(victim.key)
        if self._seconds(victim)[1]:
            plan.offloaded.append(victim.key)
            self._pages -= pages_for(victim.computed, self._block)
            self._slots -= 1
        return victim.pages - (victim.kept if last else 0)

    def _choose(self, running: list[RequestView], first: int) -> int:
        last = len(running) - 1
        if self._cost is None:
            return last
        least = running[last].priority
        places = [
            place
            for place in range(last, first - 1, -1)
            # What becomes free is known of the last one, and of those that share nothing.
            if running[place].priority == least and (place == last or 0 == running[place].shared < running[place].pages)
        ]
        return min(places, key=lambda place: self._seconds(running[place])[0])

    def _seconds(self, view: RequestView) -> tuple[float, bool]:
        """What the return of a request costs, and whether by way of the host."""
        again = 0.0 if self._cost is None else self._cost.of(span(0, view.computed, self._cost.near))
        pages = pages_for(view.computed, self._block)
        if self._host is None or not 0 < pages <= self._pages or not self._slots:
            return again, False
        copied = self._host.seconds(pages)
        return (copied, True) if self._cost is None or copied < again else (again, False)
