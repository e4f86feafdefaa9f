"""An executor without a model: exact, device-free simulation of a schedule.

It keeps its own page and slot memory and answers only from what it reads there through each request's leases. So a
schedule that mixes pages up, reuses a state slot too early or skips a row gives other tokens than the request run
alone, and most such faults are reported outright.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .execute import Drawn, Result, Work, wants_drafts
from .moves import Pairs
from .plan import pages_for
from .pool import PoolError
from .request import Proposal, Request

_MASK = 2**64 - 1


def _mix(state: int, value: int) -> int:
    """One SplitMix64 round over a running state."""
    state = (state + 0x9E3779B97F4A7C15 + value) & _MASK
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
    return state ^ (state >> 31)


class SimulatedExecutor:
    """Draws tokens by hashing the history it finds in its own memory.

    Args:
        vocab_size: tokens drawn are 0..vocab_size - 1.
        num_pages, num_slots: as the engine's pools; id 0 of each is reserved.
        page_tokens: tokens per page.
        slack: positions before the last one written at which a slot still holds the state.

    Where requests take drafts it proposes what they will say, up to a place that changes from step to step, and then
    something else; so every number of accepted drafts occurs. It draws the same tokens with drafts and without.
    """

    def __init__(self, vocab_size: int, num_pages: int, num_slots: int, page_tokens: int, slack: int = 0) -> None:
        self.vocab_size = vocab_size
        self.page_tokens = page_tokens
        self._pages = np.full((num_pages + 1, page_tokens), -1, np.int64)
        self._slack = slack
        self._slots: list[dict[int, int]] = [{} for _ in range(num_slots + 1)]  # states by position
        self._host: dict[str, dict[int, Any]] = {"page": {}, "slot": {}}
        self.steps = 0
        self.rows = 0

    def run(self, work: Sequence[Work]) -> list[Result]:
        """See `Executor.run`. Raises PoolError when the leases of the step contradict each other or the memory."""
        self.steps += 1
        self.rows += sum(item.end - item.start for item in work)
        self._check_leases(work)
        return [self._one(item) for item in work]

    def copy_pages(self, pairs: Pairs) -> None:
        """See `Moves.copy_pages`."""
        _check_pairs("page", pairs)
        for source, target in pairs:
            self._pages[target] = self._pages[source]

    def copy_states(self, pairs: Pairs) -> None:
        """See `Moves.copy_states`."""
        _check_pairs("slot", pairs)
        for source, target in pairs:
            self._slots[target] = dict(self._slots[source])

    def save(self, pages: Pairs, slots: Pairs) -> None:
        """See `Moves.save`."""
        for source, target in pages:
            self._host["page"][target] = self._pages[source].copy()
        for source, target in slots:
            self._host["slot"][target] = dict(self._slots[source])

    def restore(self, pages: Pairs, slots: Pairs) -> None:
        """See `Moves.restore`. Host memory serves once."""
        for source, target in pages:
            self._pages[target] = self._host["page"].pop(source)
        for source, target in slots:
            self._slots[target] = self._host["slot"].pop(source)

    def _check_leases(self, work: Sequence[Work]) -> None:
        pages = [page for item in work if item.request.pages is not None for page in item.request.pages.ids]
        slots = [slot for item in work if item.request.slot is not None for slot in item.request.slot.ids]
        written = [page for item in work for page in self._written(item)]
        twice = [page for page in written if pages.count(page) > 1]
        if 0 in pages or twice:
            raise PoolError(f"a page is reserved, or written and has two owners in one step: {sorted(pages)}")
        if 0 in slots or len(set(slots)) != len(slots):
            raise PoolError(f"a slot is reserved or has two owners in one step: {sorted(slots)}")
        if len(slots) != len(work):
            raise PoolError(f"{len(work)} requests hold {len(slots)} slots")

    def _written(self, item: Work) -> list[int]:
        ids = [] if item.request.pages is None else item.request.pages.ids
        return ids[item.start // self.page_tokens : pages_for(item.end, self.page_tokens)]

    def _one(self, item: Work) -> Result:
        request = item.request
        assert request.pages is not None and request.slot is not None
        ids, slot = request.pages.ids, request.slot.ids[0]
        if len(ids) < pages_for(item.end, self.page_tokens):
            raise PoolError(f"{len(ids)} pages for {item.end} tokens")
        state = 0
        for position in range(item.start):
            state = _mix(state, self._read(ids, position))
        if item.start != request.valid_start and self._slots[slot].get(item.start) != state:
            raise PoolError(f"slot {slot} holds another state than the pages say")
        states = {p: kept for p, kept in self._slots[slot].items() if p < item.start} | {item.start: state}
        result = Result()
        tokens = item.tokens()
        for position in range(item.start, item.end):
            self._pages[ids[position // self.page_tokens], position % self.page_tokens] = tokens[position]
        for position in range(item.start, item.known_end):
            state = states[position + 1] = _mix(state, self._read(ids, position))
            if position in item.prompt_rows:
                result.prompt_logprobs.append(_logprob(_mix(state, int(tokens[position + 1]))))
        for position in item.sampled_rows:
            if position >= item.known_end:
                state = states[position + 1] = _mix(state, self._read(ids, position))
            result.tokens.append(self._draw(request, state, position + 1))
            if position + 1 == item.end or result.tokens[-1].token != tokens[position + 1]:
                break  # what was written behind a draft that is rejected stays behind the end
        end = item.known_end + result.accepted  # rows behind are written as well, and reach into what is kept
        self._slots[slot] = {p: kept for p, kept in states.items() if min(end, item.end - self._slack) <= p <= end}
        if wants_drafts(item, result):
            result.proposal = self._propose(item, result, state)
        return result

    def _propose(self, item: Work, result: Result, state: int) -> Proposal:
        request, count = item.request, item.request.max_drafts
        first = item.known_end + result.accepted
        last = int(request.tokens[first]) if result.drawn is None else result.drawn.token
        right = _mix(state, count) % (count + 1)
        tokens: list[int] = []
        for place in range(count):
            state = _mix(state, last)
            last = self._draw(request, state, first + 1 + place).token
            tokens.append(last if place < right else (last + 1) % self.vocab_size)
        return Proposal(tokens, [1 / (2 + place) for place in range(count)])

    def _read(self, ids: Sequence[int], position: int) -> int:
        return int(self._pages[ids[position // self.page_tokens], position % self.page_tokens])

    def _draw(self, request: Request, state: int, position: int) -> Drawn:
        noise = 0 if request.params.temperature == 0 else _mix(request.seed, position)
        mixed = _mix(state, noise)
        golden = request.params.golden_token_ids or []
        index = position - request.prompt_len
        token = golden[index] if index < len(golden) else mixed % self.vocab_size
        return Drawn(token, _logprob(_mix(mixed, token)))


def _logprob(state: int) -> float:
    return -(state >> 44) / 2**16


def _check_pairs(what: str, pairs: Pairs) -> None:
    """Raises PoolError where the order of the copies would matter."""
    targets = [target for _, target in pairs]
    if len(set(targets)) < len(targets) or set(targets) & {source for source, _ in pairs}:
        raise PoolError(f"a {what} is copied and copied to, or copied to twice: {pairs}")
