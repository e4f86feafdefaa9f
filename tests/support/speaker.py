"""One sequence decoded at the level of model and ops, with or without drafts verified along."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from deepinfer import ops
from deepinfer.model.batch import Batch, SequenceSlice
from deepinfer.model.draft import DraftPool, DraftRequest, DraftSampling
from deepinfer.model.transformer import Model
from deepinfer.ops import sampling
from deepinfer.ops.verify import NO_DRAFT, Emitted

CPU = torch.device("cpu")
SLOT = 1
Inject = Callable[[list[int]], list[int]]
"""From the tokens so far to drafts that are verified instead of the model's, as drafts that were certain."""


class Speaker:
    """One sequence in state slot 1 and pages 1, 2, …

    Attributes:
        tokens: prompt and output. accepted: drafts accepted in each step.
    """

    def __init__(
        self, model: Model, prompt: Sequence[int], how: DraftSampling, n: int, inject: Inject | None = None
    ) -> None:
        self.model, self.how, self.n, self.inject = model, how, n, inject
        self.caches = model.new_caches(8, 2)
        self.tokens, self.prompt = list(prompt), len(prompt)
        self.accepted: list[int] = []
        vocab = model.config.text.vocab_size
        self.pool = DraftPool.new(2, max(n, 1), vocab, CPU, distributions=not how.shared)

    def say(self, length: int) -> list[int]:
        """Decode `length` tokens and return them."""
        base = self.prompt - 1
        out = self._decide(self._forward(self.tokens, 0, [base]), self.prompt, [])
        while True:
            self.tokens = self.tokens[: base + 1] + out.tokens[0, : int(out.accepted) + 1].tolist()
            if len(self.tokens) >= self.prompt + length:
                return self.tokens[self.prompt : self.prompt + length]
            drafts = self._drafts(base, out)
            start = len(self.tokens) - 1
            rows = [*self.tokens, *drafts]
            out = self._decide(self._forward(rows, start, range(start, len(rows))), start + 1, drafts)
            self.accepted.append(int(out.accepted))
            base = start

    def _drafts(self, base: int, out: Emitted) -> list[int]:
        if self.inject is not None:
            return self.inject(self.tokens)
        if not self.n:
            return []
        first, none, slot = (torch.tensor([x], dtype=torch.int32) for x in (base, 0, SLOT))
        request = DraftRequest(out.last, first, out.accepted, none, slot, slot)
        found: list[int] = self.model.draft(request, self.how, self.caches, self.n, self.pool).tokens[0].tolist()
        return found

    def _forward(self, tokens: Sequence[int], start: int, wanted: Sequence[int]) -> torch.Tensor:
        pages = range(1, 1 + self.model.cache_layout.pages_for(len(tokens)))
        part = SequenceSlice(np.array(tokens, np.int32), start, len(tokens), SLOT, list(pages), list(wanted))
        return self.model.forward(Batch.build([part], self.model.config.text, CPU), self.caches)

    def _decide(self, logits: torch.Tensor, first: int, drafts: Sequence[int]) -> Emitted:
        """Verify rows that decide the tokens of indices first, first + 1, …"""
        count, how = len(logits), self.how

        def every(value: torch.Tensor | None) -> torch.Tensor | None:
            return None if value is None else value.expand(count).contiguous()

        inverse, seeds = every(how.inv_temperature), every(how.seeds)
        assert inverse is not None and seeds is not None
        kept = sampling.sample_filter(logits, inverse, every(how.top_k), every(how.top_p), every(how.min_p))
        drafted = torch.tensor([*drafts, NO_DRAFT], dtype=torch.int32)
        log2q = row = None
        if self.pool.log2q is not None and self.inject is None:
            log2q = self.pool.log2q.flatten(0, 1)
            row = SLOT * self.pool.tokens.shape[1] + torch.arange(count, dtype=torch.int32)
            row[-1] = -1
        index = torch.arange(first, first + count)
        tokens, accepted = ops.verify_drafts(logits, inverse, kept, drafted, seeds, index, log2q, row, how.shared)
        begin, rows = (torch.tensor([x], dtype=torch.int32) for x in (0, count))
        return ops.accept_prefix(tokens, accepted, begin, rows, count)
