"""One sample of one request, from admission to release."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from .images import PromptImage
from .outputs import FinishReason
from .params import SamplingParams
from .plan import RequestView
from .pool import Lease, Pool
from .prefix import Chain, Match
from .stop import StopStrings

if TYPE_CHECKING:
    from .execute import Work
    from .forks import Anchor
    from .offload import HostLease
    from .structured.constraint import Constraint


class TextDecoder(Protocol):
    """Incremental detokenizer of one sample."""

    def push(self, token: int) -> str:
        """Text that the token completes: whole characters only."""
        ...

    def finish(self) -> str:
        """Text of bytes still held back."""
        ...


@dataclass(slots=True)
class Proposal:
    """Drafts for the next step: tokens, and how sure the drafter is of each.

    `drawn` is False for drafts that nobody drew: whoever proposed them was certain of them.
    """

    tokens: list[int]
    confidences: list[float] = field(default_factory=list)
    drawn: bool = True


@dataclass(slots=True, eq=False)
class Request:
    """State of one sample. The engine is its only writer.

    Attributes:
        key: the engine's number; rises in submission order.
        params: checked copy of the parameters.
        seed: seed of this sample.
        eos_id: token that ends it.
        max_output_tokens: output tokens after which it ends.
        tokens: int32 buffer that begins with the prompt and the output so far; `length` entries are valid.
        computed: tokens whose cache entries are valid.
        pages, slot: leases; None while waiting.
        max_drafts: most drafts that a step verifies; 0 is plain decoding.
        proposal: drafts behind the known tokens.
        images: of the prompt, in order.
        written: end of the rows that were written to its state slot, rejected drafts among them.
        chain: names of its blocks for the prefix cache; made by it.
        stored: blocks that the prefix cache has seen since the request got its pages.
        checkpoint: block border at which a step ends, so that the prefix cache can keep the state there; 0 is none.
        cached_tokens: prompt tokens that were not computed because the prefix cache had them; of its first admission.
        flights: steps that were launched with it and have not landed. flying: its rows in the last of them, or None.
        generation: rises whenever it gives its resources back.
        tainted: nothing of it may be kept.
        anchor: what another sample has computed of its text, while it waits to go on from there.
        valid_start: first position whose window keys its rows see; above 0 where they are computed by bounded replay.
        matched: what the prefix cache had of it, and the cache's version then.
        host: where its caches are while it is preempted by offload; then `computed` stays as it was.
        constraint: what it may say next; None is anything.
    """

    key: int
    request_id: Any
    user_id: Any
    sample_index: int
    params: SamplingParams
    seed: int
    eos_id: int
    prompt_len: int
    max_output_tokens: int
    tokens: np.ndarray[Any, np.dtype[np.int32]]
    arrival_time: float
    length: int = 0
    computed: int = 0
    pages: Lease | None = None
    slot: Lease | None = None
    decoder: TextDecoder | None = None
    stops: StopStrings = field(default_factory=lambda: StopStrings(()))
    prompt_logprobs: list[float] = field(default_factory=list)
    prompt_reported: bool = False
    aborted: bool = False
    finish_reason: FinishReason | None = None
    preemptions: int = 0
    max_drafts: int = 0
    proposal: Proposal = field(default_factory=lambda: Proposal([]))
    images: Sequence[PromptImage] = ()
    written: int = 0
    chain: Chain | None = None
    stored: int = 0
    checkpoint: int = 0
    cached_tokens: int | None = None
    flights: int = 0
    flying: Work | None = None
    generation: int = 0
    tainted: bool = False
    anchor: Anchor | None = None
    valid_start: int = 0
    host: HostLease | None = None
    matched: tuple[tuple[int, int], Match] | None = None
    constraint: Constraint | None = None

    def __post_init__(self) -> None:
        self.length = self.prompt_len
        for image in self.images:
            image.waiting.add(self.key)

    @property
    def num_output_tokens(self) -> int:
        return self.length - self.prompt_len

    @property
    def output_tokens(self) -> np.ndarray[Any, np.dtype[np.int32]]:
        return self.tokens[self.prompt_len : self.length]

    @property
    def finished(self) -> bool:
        return self.finish_reason is not None

    @property
    def valid(self) -> int:
        """Known tokens that are computed: no more than these may outlive the request."""
        return min(self.computed, self.length)

    def most_cached(self) -> int:
        """Tokens that the prefix cache may spare it: the row behind them is computed, and so are rows asked about."""
        if self.params.prompt_logprobs and len(self.prompt_logprobs) < self.prompt_len - 1:
            return 0
        return (self.length - 1 if self.redrafts else self.length) - 1

    def view(self) -> RequestView:
        """What the planner knows of it: of one in flight, what will be true when it lands, or bounds of that."""
        if self.flying is not None:
            return self._view_ahead(self.flying)
        return RequestView(
            self.key,
            self.length,
            self.computed,
            0 if self.pages is None else len(self.pages),
            min(len(self.proposal.tokens), self.draft_count()),
            self.redrafts,
            cut=self.checkpoint,
            priority=self.params.priority,
        )

    def _view_ahead(self, flying: Work) -> RequestView:
        pages, priority = 0 if self.pages is None else len(self.pages), self.params.priority
        if flying.sample and not self.max_drafts:  # what most are, in most steps
            end, said = flying.end, self.length - self.prompt_len
            most = self.prompt_len + self.max_output_tokens - 1
            ends = said + 1 >= self.max_output_tokens
            return RequestView(self.key, end + 1, end, pages, 0, False, 0, 0, 0, most, ends, 0, priority)
        if flying.redraft:
            drafts = self.draft_count()
            return RequestView(self.key, self.length, flying.end, pages, drafts, cut=self.checkpoint, priority=priority)
        if not flying.sample:
            redraft = self.num_output_tokens > 0 and self.draft_count() > 0 and flying.end < self.length - 1
            paused = flying.end == self.checkpoint  # a copy of its state is queued before the step behind it
            return RequestView(
                self.key, self.length, flying.end, pages, 0, redraft, cut=self.checkpoint, paused=paused,
                priority=priority,
            )  # fmt: skip
        return RequestView(
            self.key,
            flying.end + 1,
            flying.end,
            pages,
            self.draft_count(1),
            most=self.prompt_len + self.max_output_tokens - 1,
            paused=self.num_output_tokens + 1 >= self.max_output_tokens,
            priority=priority,
        )

    def drafts(self) -> list[int]:
        """Those that its next step verifies."""
        return self.proposal.tokens[: self.draft_count()] if self.proposal.tokens else []

    def draft_count(self, new_tokens: int = 0) -> int:
        """Drafts to verify in the step after the next `new_tokens` tokens; no more than could still be said.

        The token behind them comes for nothing, so there is one draft less than tokens that are left.
        """
        if not self.max_drafts:
            return 0
        return max(0, min(self.max_drafts, self.max_output_tokens - self.num_output_tokens - new_tokens - 1))

    @property
    def redrafts(self) -> bool:
        """Whether it lost drafts together with its caches, so that they must be made again before it decodes."""
        return self.num_output_tokens > 0 and self.draft_count() > 0 and self.computed < self.length - 1

    def ends_with(self, token: int) -> bool:
        """Whether the token, as the last one, ends the request whatever its text is."""
        at_eos = token == self.eos_id and not self.params.ignore_eos
        return at_eos or token in (self.params.stop_token_ids or ())

    def append(self, token: int) -> None:
        if self.length == len(self.tokens):
            limit = self.prompt_len + self.max_output_tokens
            grown = np.empty(min(limit, max(2 * self.length, 64)), np.int32)
            grown[: self.length] = self.tokens
            self.tokens = grown
        self.tokens[self.length] = token
        self.length += 1

    def take(self, pages: Pool, new_pages: int) -> None:
        """Take pages."""
        if self.pages is None:
            self.pages = pages.lease()
        self.pages.extend(new_pages)

    def release(self) -> None:
        """Give every resource back and forget what was computed. The only such path; calling it again does nothing."""
        for lease in (self.pages, self.slot, self.host):
            if lease is not None:
                lease.release()
        self.pages = self.slot = self.host = None
        self.valid_start = 0
        self.computed = self.written = self.stored = self.checkpoint = 0
        self.generation += 1
        self.matched = None
        self.proposal = Proposal([])

    def suspend(self, held: HostLease) -> None:
        """Give the pages and the slot of the device back while `held` keeps what is in them."""
        computed, written, proposal, start = self.computed, self.written, self.proposal, self.valid_start
        self.release()
        self.host, self.computed, self.written = held, computed, written
        self.proposal, self.valid_start = proposal, start

    def leases(self) -> tuple[list[Lease], list[Lease]]:
        """Page leases and slot leases, for the conservation check."""
        return (
            [] if self.pages is None else [self.pages],
            [] if self.slot is None else [self.slot],
        )
