"""Which prompts get how many rows of a step, once it is known who may begin: the part of `planner.py` about rows."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .cost import Cost, span, step_features
from .plan import Held, Limits, PlanItem, RequestView, StepPlan, is_decoding

Prompt = tuple[RequestView, int]
"""Who wants rows, with the pages that it takes to begin; -1 where it runs."""


def in_turn(under_way: Sequence[Prompt], begin: Sequence[Prompt]) -> list[Prompt]:
    """Both lists in one, each in its order: whoever waits goes before prompts of a lower priority."""
    merged: list[Prompt] = []
    place = 0
    for entry in under_way:
        while place < len(begin) and begin[place][0].priority > entry[0].priority:
            merged.append(begin[place])
            place += 1
        merged.append(entry)
    return [*merged, *begin[place:]]


def give_rows(
    prompts: Sequence[Prompt], limits: Limits, cost: Cost | None, plan: StepPlan, running: Sequence[RequestView]
) -> Held | None:
    """Adds the rows of prompts to a plan that has those of decoding requests. Returns the first that gets none.

    Args:
        prompts: in turn.
        running: all who hold a slot, those of `prompts` among them.
    """
    if not prompts:
        return None
    share = _Share(prompts, limits, cost, plan)
    share.keep_for_the_oldest()
    if limits.chunked_prefill:
        share.give(share.left, range(len(prompts)))
    else:
        share.give_whole(limits, running)
    return share.carry_out(plan)


class _Left:
    """What is left of a step, or of a part of it, for prompts.

    Attributes:
        rows: of those that a step may have.
        seconds: until the step is predicted to take too long; without a cost model no rows take any.
        least: rows that prompts get whatever time is left.
    """

    __slots__ = ("cost", "least", "rows", "seconds")

    def __init__(self, rows: int, seconds: float, least: int, cost: Cost | None) -> None:
        self.rows = rows
        self.seconds = seconds
        self.least = least
        self.cost = cost

    def copy(self) -> _Left:
        return _Left(self.rows, self.seconds, self.least, self.cost)

    @property
    def late(self) -> bool:
        """Whether there is no time for anybody."""
        return self.seconds <= 0 and self.least <= 0

    def takes(self, start: int, rows: int) -> float:
        """Seconds of so many rows from position `start` on."""
        return 0.0 if self.cost is None else self.cost.of(span(start, start + rows, self.cost.near))

    def holds(self, start: int, rows: int) -> bool:
        """Whether so many rows have room."""
        return rows <= self.rows and (rows <= self.least or self.takes(start, rows) <= self.seconds)

    def half_holds(self, start: int, rows: int) -> bool:
        """Whether so many rows leave half to others."""
        return 2 * rows <= self.rows and (self.cost is None or 2 * self.takes(start, rows) <= self.seconds)

    def within(self, start: int, rows: int) -> int:
        """Of so many rows, those that have room."""
        rows = max(0, min(rows, self.rows))
        if self.cost is None or rows <= self.least:
            return rows
        return max(self.cost.rows_within(self.seconds, start, rows), min(rows, self.least))

    def spend(self, start: int, rows: int) -> None:
        self.rows -= rows
        self.least = max(0, self.least - rows)
        self.seconds -= self.takes(start, rows)

    def split(self, start: int, rows: int) -> _Left:
        """Takes half of it out, or what leaves so many rows from `start` on."""
        seconds = max(0.0, min(self.seconds / 2, self.seconds - self.takes(start, rows)))
        part = _Left(min(self.rows // 2, self.rows - rows), seconds, 0, self.cost)
        part.least = max(0, min(self.least // 2, self.least - rows))
        self.join(part, -1)
        return part

    def join(self, part: _Left, sign: int = 1) -> None:
        """Puts a part back."""
        self.rows += sign * part.rows
        self.least += sign * part.least
        if self.cost is not None:
            self.seconds += sign * part.seconds


class _Share:
    """The rows of a step among prompts, which are known by their places.

    Attributes:
        left: of the step.
        given: rows of each.
    """

    def __init__(self, prompts: Sequence[Prompt], limits: Limits, cost: Cost | None, plan: StepPlan) -> None:
        self._prompts = prompts
        self._chunked = limits.chunked_prefill
        rows, seconds = limits.max_tokens - plan.tokens, math.inf
        if limits.step_seconds is None:
            cost = None
        if cost is not None and limits.step_seconds is not None:
            spans = ((item.start, item.end) for item in plan.items)
            seconds = limits.step_seconds - cost.of(step_features(spans, cost.near))
        self.left = _Left(rows, seconds, limits.least_chunk, cost)
        self.given = [0] * len(prompts)
        self._whole = self.left.copy()
        # The least that one begins with. Where a step has few rows for prompts, a part of these.
        self._begin = min(limits.least_chunk, max(1, self._whole.within(0, rows) // 4))
        self._context = math.inf if limits.max_sum_context is None else limits.max_sum_context
        self._too_long = len(prompts)  # the first that is too long for what the summed lengths may still be
        self._oldest = -1
        self._kept = self._whole.copy()  # for the oldest, until its turn
        self._lacks: dict[int, str] = {}

    def keep_for_the_oldest(self) -> None:
        """Of those under way, the one submitted first gets some rows, whoever goes before it."""
        oldest = min(
            (place for place, (_, pages) in enumerate(self._prompts) if pages < 0),
            key=lambda place: self._prompts[place][0].key,
            default=-1,
        )
        if oldest < 0 or self._prompts[oldest][0].length > self._context:
            return
        view, rows = self._prompts[oldest][0], self._wanted(oldest)
        if self._chunked:
            rows = min(rows, self._begin)
            if self.left.cost is not None:
                half = self.left.cost.rows_within(self.left.seconds / 2, view.computed, rows)
                rows = max(half, min(rows, max(1, self.left.least // 4)))
        if not 0 < rows <= self.left.rows:
            return
        self._oldest = oldest
        self._kept = _Left(rows, self.left.takes(view.computed, rows), min(rows, self.left.least), self.left.cost)
        self.left.join(self._kept, -1)
        self._context -= view.length

    def give(self, left: _Left, places: Sequence[int]) -> None:
        """Shares what is left among prompts that may be cut."""
        for number, place in enumerate(places):
            if self.given[place]:
                continue
            if self._oldest < 0 and (left.rows <= 0 or left.late):
                self._refuse(place, left)
                return
            least = self._turn(place, left)
            if not least:
                continue
            view = self._prompts[place][0]
            if not is_decoding(view) and not left.half_holds(view.computed, self._wanted(place)):
                # Those first who are soon through, as far as half of it goes. What they leave is not lost.
                self._context -= view.length
                short = self._shorter(place, places[number + 1 :])
                if short:
                    part = left.split(view.computed, least)
                    self.give(part, short)
                    left.join(part)
                self._context += view.length
            self._take(place, left, max(least, left.within(view.computed, self._wanted(place))))

    def give_whole(self, limits: Limits, running: Sequence[RequestView]) -> None:
        """Shares the step among prompts that are not cut: whoever does not fit waits for a step that holds it."""
        each = 1 + limits.max_drafts
        # Rows of those who run in the next step. A prompt that pauses goes on then.
        busy = sum(max(each, _wanted(view)) if view.paused and not is_decoding(view) else each for view in running)
        longest = 0  # of those who get nothing
        for place, (view, pages) in enumerate(self._prompts):
            after = max(each, view.prefill - view.computed - self._wanted(place))
            # Whoever begins has rows in the next step as well, which must still hold the longest that was passed.
            if longest and pages >= 0 and longest > limits.max_tokens - busy - after:
                continue
            if self._turn(place, self.left):
                self._take(place, self.left, self._wanted(place))
                busy += after if pages >= 0 else after - each
            else:
                longest = max(longest, self._wanted(place))

    def carry_out(self, plan: StepPlan) -> Held | None:
        """Adds the rows to the plan. Returns the first who gets none."""
        first: Held | None = None
        for place, (view, pages) in enumerate(self._prompts):
            rows = self.given[place]
            if rows:
                plan.items.append(PlanItem(view.key, view.computed, view.computed + rows, max(pages, 0), pages >= 0))
            elif first is None:
                first = Held(view.key, self._lacks[place])
        return first

    def _wanted(self, place: int) -> int:
        return _wanted(self._prompts[place][0])

    def _turn(self, place: int, left: _Left) -> int:
        """The fewest rows that one gets whose turn it is; 0 where there is no room for these."""
        view, pages = self._prompts[place]
        least = wanted = self._wanted(place)
        if place == self._oldest:
            least, self._oldest = self._kept.rows, -1
            left.join(self._kept)
            self._context += view.length
        elif self._chunked:
            least = min(wanted, self._begin) if pages >= 0 else 1
        if is_decoding(view):  # back from the host: its drafts are verified as if it had not been there
            enough, least = wanted <= left.rows, wanted
        elif view.length > self._context:
            self._too_long, enough = min(self._too_long, place), False
        else:
            if pages >= 0 and place > self._too_long:
                # In the next step it must not have of the summed lengths what the one needs that it passes.
                least = view.prefill - view.computed
            enough = least <= wanted and left.holds(view.computed, least)
        if not enough:
            self._refuse(place, left)
        return least if enough else 0

    def _take(self, place: int, left: _Left, rows: int) -> None:
        view = self._prompts[place][0]
        self.given[place] = rows
        left.spend(view.computed, rows)
        if not is_decoding(view):
            self._context -= view.length

    def _shorter(self, place: int, behind: Sequence[int]) -> list[int]:
        """Of those behind it, who go first: they are soon through, and of no lower priority.

        Also those who do not fit in the summed lengths, so that it is seen who passes them.
        """
        view, most = self._prompts[place][0], self._wanted(place) // 2
        chosen = []
        for other in behind:
            one = self._prompts[other][0]
            wanted = self._wanted(other)
            # One that would take several steps of its own is not soon through. Long ones follow one another.
            short = wanted <= most and one.priority >= view.priority and self._whole.holds(one.computed, wanted)
            if short or one.length > self._context:
                chosen.append(other)
        return chosen

    def _refuse(self, place: int, left: _Left) -> None:
        view = self._prompts[place][0]
        if view.length > self._context and not is_decoding(view):
            lack = f"a step with room for a text of {view.length} tokens, {self._context} are left"
        elif left.cost is not None and left.rows > 0:
            lack = "a step with time left"
        else:
            lack = f"rows, {left.rows} of the step are left"
        self._lacks[place] = lack


def _wanted(view: RequestView) -> int:
    """Rows that a request takes where there is room for them."""
    if is_decoding(view):
        return view.length + view.drafts - view.computed
    return (view.cut if view.computed < view.cut < view.prefill else view.prefill) - view.computed
