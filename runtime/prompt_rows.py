"""Which prompts get how many rows of a step, once it is known who may begin: the part of `planner.py` about rows."""

from __future__ import annotations

from collections.abc import Sequence

from .cost import Cost, span, step_features
from .plan import Held, Limits, PlanItem, RequestView, StepPlan, is_decoding


def in_turn(
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


def give_rows(
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
