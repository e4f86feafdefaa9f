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
  is, rows and time, to those behind it. Where they may not, those behind it go first as far as the next step still
  holds it.
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
  lacks pages is passed by those behind it while it is patient (`RequestView.patient`), then they wait as well; so do
  they behind one that lacks a slot.
* A request that is admitted begins behind what the prefix cache has of it. A step ends where the cache wants the state
  of a request (`RequestView.cut`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .cost import Cost, span, step_features
from .offload import HostRoom


@dataclass(frozen=True, slots=True)
class Limits:
    """What a step may use.

    Attributes:
        max_tokens: rows of one step.
        max_requests: requests that hold a state slot at a time.
        page_tokens: tokens per page.
        chunked_prefill: whether a prompt may be cut into several steps.
        max_sum_context: cap on the summed text lengths of the requests that prefill in one step; None is no cap.
        max_drafts: most drafts that a request verifies in one step.
        step_seconds: time that a step is to take: prompts are cut so that it is not predicted to take longer; None is
            no such limit.
        least_chunk: rows that a step gives to prompts all the same, so that these get on whatever the others take.
    """

    max_tokens: int
    max_requests: int
    page_tokens: int
    chunked_prefill: bool = True
    max_sum_context: int | None = None
    max_drafts: int = 0
    step_seconds: float | None = None
    least_chunk: int = 128

    def __post_init__(self) -> None:
        if self.page_tokens < 1 or self.least_chunk < 1:
            raise ValueError(f"pages of {self.page_tokens} tokens, chunks of {self.least_chunk} rows")
        if self.step_seconds is not None and not self.chunked_prefill:
            raise ValueError("a step of given time needs prompts that may be cut")
        if not 1 <= self.max_requests * (1 + self.max_drafts) <= self.max_tokens:
            each = 1 + self.max_drafts
            raise ValueError(
                f"{self.max_requests} requests cannot share a step of {self.max_tokens} rows if each has {each}"
            )


@dataclass(slots=True)  # not frozen: one is made per request and step, and a frozen one takes twice as long
class RequestView:
    """What the planner knows of a request.

    Attributes:
        key: the engine's number of the request.
        length: tokens known: prompt and output.
        computed: tokens whose cache entries exist; at most length - 1 between steps.
        pages: pages held.
        drafts: tokens proposed behind the known ones, verified when it decodes.
        redraft: its known text was computed before and drafts stood behind it: its last token is not computed with the
            others but decodes, with these drafts, once they have been made again.
        reclaimed: of a request that waits: pages that it would share and that count as free until it does.
        cut: position at which a step ends that passes it; 0 is none.
        kept: of a request that runs: pages that stay taken when it and all behind it give way, since those before it
            share them. Only said where the step might be short of pages.
        shared: of these requests: pages that anybody else has, too.
        priority: as the request says.
        most: tokens that it computes at most, so that bounds of a step that is planned ahead take no page that it can
            never use; 0 is no such bound.
        paused: it runs and takes no part in this step: it ends with the step before, or its state is copied behind it.
        patient: it waits, and not for so long that others may not begin before it where pages are short for it.

    Of a request whose last step still runs, `length`, `computed` and `drafts` are bounds: as if all of its drafts were
    accepted, and none of those that could be said.

    Of a request that waits, `computed` and `pages` are what the prefix cache holds of it. One that waits in host memory
    has computed tokens and no pages.
    """

    key: int
    length: int
    computed: int = 0
    pages: int = 0
    drafts: int = 0
    redraft: bool = False
    reclaimed: int = 0
    cut: int = 0
    kept: int = 0
    most: int = 0
    paused: bool = False
    shared: int = 0
    priority: int = 0
    patient: bool = False

    def lacks(self, page_tokens: int) -> int:
        """Pages that it takes when it decodes in this step."""
        if self.paused:
            return 0
        end = self.length + self.drafts
        return max(0, pages_for(min(end, self.most) if self.most else end, page_tokens) - self.pages)

    @property
    def prefill(self) -> int:
        """Tokens that are computed before it decodes."""
        return self.length - 1 if self.redraft else self.length


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state a plan is made from: `running` with those last that give way first, `waiting` in the order of turns.

    Free pages and slots are those that a request can have, what only the prefix cache holds among them. `cost` predicts
    the time of a step; None where that is not known yet, and then nothing is cut for it. `host` is room for requests
    that are preempted; None where they are always computed again.
    """

    running: Sequence[RequestView]
    waiting: Sequence[RequestView]
    free_pages: int
    free_slots: int
    cost: Cost | None = None
    host: HostRoom | None = None


@dataclass(slots=True)
class PlanItem:
    """Rows start..end-1 of one request.

    Before the step it takes `new_pages` pages, and, if `admitted`, a slot and what the prefix cache, another sample or
    host memory has of the tokens before `start`.
    """

    key: int
    start: int
    end: int
    new_pages: int
    admitted: bool


@dataclass(frozen=True, slots=True)
class Held:
    """The first request that has to wait, and what it lacks."""

    key: int
    reason: str


@dataclass(slots=True)
class StepPlan:
    """Carried out in this order: release `preempted` (last one first), let those who are admitted share what the prefix
    cache has of them, then take pages and slots item by item. `offloaded`: those of `preempted` that go to the host.
    """

    items: list[PlanItem] = field(default_factory=list)
    preempted: list[int] = field(default_factory=list)
    offloaded: list[int] = field(default_factory=list)
    held: Held | None = None

    @property
    def tokens(self) -> int:
        return sum(item.end - item.start for item in self.items)


def pages_for(tokens: int, page_tokens: int) -> int:
    return -(-tokens // page_tokens)


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
    late = _give_rows(_in_turn(under_way, begin), limits, state.cost, plan, len(running))
    plan.held = next(iter([*late, *held]), None)
    return plan


def _who_may_begin(
    state: Snapshot, limits: Limits, running: int, free_pages: int
) -> tuple[list[tuple[RequestView, int]], list[Held]]:
    """Waiting requests for which there is memory, each with the pages that it takes; and who lacks what."""
    begin: list[tuple[RequestView, int]] = []
    held: list[Held] = []
    slots = min(state.free_slots, limits.max_requests - running)
    for view in state.waiting:
        pages = pages_to_begin(view, limits.page_tokens)
        lack = _lack(pages + view.reclaimed, free_pages, slots, state.free_slots)
        if lack:
            held.append(Held(view.key, lack))
            if slots <= 0 or not view.patient:
                break
            continue
        begin.append((view, pages))
        slots -= 1
        free_pages -= pages + view.reclaimed
    return begin, held


def _in_turn(
    under_way: Sequence[tuple[RequestView, int]], begin: Sequence[tuple[RequestView, int]]
) -> list[tuple[RequestView, int]]:
    """Both lists in one, each in its order: whoever waits goes before prompts of a lower priority."""
    merged: list[tuple[RequestView, int]] = []
    place = 0
    for entry in under_way:
        while place < len(begin) and begin[place][0].priority > entry[0].priority:
            merged.append(begin[place])
            place += 1
        merged.append(entry)
    return [*merged, *begin[place:]]


def _give_rows(
    prompts: Sequence[tuple[RequestView, int]], limits: Limits, cost: Cost | None, plan: StepPlan, running: int
) -> list[Held]:
    """Rows of the prompts, each with the pages that it takes to begin, -1 where it runs. Returns who got none."""
    room = _Room(limits, plan, cost)
    behind = sum(room.wanted(view) for view, _ in prompts)
    held: list[Held] = []
    longest = 0  # of those who got nothing
    for view, pages in prompts:
        behind -= room.wanted(view)
        waits = pages >= 0
        # Whoever begins has rows in the next step as well, which must still hold the longest that was passed.
        if longest and waits and longest > limits.max_tokens - (1 + limits.max_drafts) * (running + 1):
            break
        count = room.take(view, behind)
        if count:
            plan.items.append(PlanItem(view.key, view.computed, view.computed + count, max(pages, 0), waits))
            running += waits
            continue
        held.append(Held(view.key, room.lack(view)))
        if limits.chunked_prefill:
            break  # there is nothing left
        longest = max(longest, room.wanted(view))
    return held


def pages_to_begin(view: RequestView, page_tokens: int) -> int:
    """Pages that a request takes when it begins, or comes back."""
    return pages_for(view.length + (view.drafts if is_decoding(view) else 0), page_tokens) - view.pages


def _lack(pages: int, free_pages: int, slots: int, free_slots: int) -> str:
    """What a request that begins lacks of memory; '' for nothing."""
    if slots <= 0:
        return "a request that runs to end" if free_slots else "a state slot"
    return f"{pages} pages, {free_pages} are free" if pages > free_pages else ""


def is_decoding(view: RequestView) -> bool:
    """Whether its next step draws: no more than its last token is left to compute."""
    return view.computed > 0 and view.length - view.computed <= 1


class _Room:
    """What is left of a step for prefill."""

    def __init__(self, limits: Limits, plan: StepPlan, cost: Cost | None) -> None:
        self._tokens = limits.max_tokens - plan.tokens
        self._context = limits.max_sum_context
        self._chunked = limits.chunked_prefill
        self._cost = None if limits.step_seconds is None else cost
        self._least = limits.least_chunk
        if self._cost is not None and limits.step_seconds is not None:
            spans = ((item.start, item.end) for item in plan.items)
            self._seconds = limits.step_seconds - self._cost.of(step_features(spans, self._cost.near))

    def wanted(self, view: RequestView) -> int:
        """Rows that the request takes where there is room for them."""
        if is_decoding(view):
            return view.length + view.drafts - view.computed
        return (view.cut if view.computed < view.cut < view.prefill else view.prefill) - view.computed

    def take(self, view: RequestView, behind: int = 0) -> int:
        """Rows given to the request: 0 when it has to wait for another step.

        Args:
            behind: rows that are wanted by those behind it.
        """
        if is_decoding(view) and view.drafts:  # back from the host: its drafts are verified as if it had not been there
            count = self.wanted(view)
            if count > self._tokens:
                return 0
            self._tokens -= count
            return count
        wanted = self.wanted(view)
        left = self._tokens - min(behind, self._tokens // 2) if self._chunked else self._tokens
        count = wanted if wanted <= left else left if self._chunked else 0
        if self._cost is not None:
            count = self._in_time(view.computed, count, behind, self._cost)
        if self._context is not None:
            if view.length > self._context:
                return 0
            if count:
                self._context -= view.length
        self._tokens -= count
        return count

    def _in_time(self, start: int, count: int, behind: int, cost: Cost) -> int:
        """Of so many rows, those that the step has time for. The first prompts get `least_chunk` rows in any case."""
        share = min(self._seconds / 2, cost.of(span(0, behind, cost.near)))
        least = self._least - min(behind, self._least // 2)
        count = max(cost.rows_within(self._seconds - max(share, 0.0), start, count), min(count, least))
        self._least = max(0, self._least - count)
        self._seconds -= cost.of(span(start, start + count, cost.near))
        return count

    def lack(self, view: RequestView) -> str:
        """What a request that `take` gave nothing lacks."""
        if self._context is not None and view.length > self._context:
            return f"a step with room for a text of {view.length} tokens, {self._context} are left"
        late = self._cost is not None and self._tokens > 0
        return "a step with time left" if late else f"rows, {self._tokens} of the step are left"


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
