"""What the planner is asked and answers: the snapshot of a moment, the limits, and the plan of a step.

No torch and no request objects, so all of it can be written down and read again (`trace.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .cost import Cost
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
        least_chunk: rows that a step gives to prompts all the same, so that these get on whatever the others take; and
            the fewest with which one begins that takes more than one step, where a step has four times as many.
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
        priority: as the request says; of one that waits, with what its waiting counts, as in the order of turns.
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


def pages_to_begin(view: RequestView, page_tokens: int) -> int:
    """Pages that a request takes when it begins, or comes back."""
    return pages_for(view.length + (view.drafts if is_decoding(view) else 0), page_tokens) - view.pages


def is_decoding(view: RequestView) -> bool:
    """Whether its next step draws: no more than its last token is left to compute."""
    return view.computed > 0 and view.length - view.computed <= 1
