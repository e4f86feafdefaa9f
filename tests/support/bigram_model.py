"""A model of one table: logits follow from the last token alone, and so do those of its drafter, from another table.

Small enough that the probability of every text can be written down, so that an engine over it is held against float64.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from deepinfer import ops
from deepinfer.model.batch import Batch
from deepinfer.model.draft import DraftPool, DraftRequest, Drafts, DraftSampling
from deepinfer.ops import sampling
from distributions import probabilities


class BigramModel:
    """What `ModelExecutor` and `ModelDrafter` need of a model.

    Args:
        target, drafter: fp32 [V, V], logits behind each token.
    """

    device = torch.device("cpu")

    def __init__(self, target: np.ndarray, drafter: np.ndarray) -> None:
        self.target, self.drafter = torch.from_numpy(target), torch.from_numpy(drafter)
        text = SimpleNamespace(vocab_size=len(target), engram_layer_ids=(), compress_ratios=(), sliding_window=8)
        self.config = SimpleNamespace(text=text)

    @classmethod
    def random(cls, vocab: int, seed: int, likeness: float = 0.6) -> BigramModel:
        """A target, and a drafter that resembles it."""
        rng = np.random.default_rng(seed)
        target = (rng.standard_normal((vocab, vocab)) * 1.5).astype(np.float32)
        other = (rng.standard_normal((vocab, vocab)) * 1.5).astype(np.float32)
        return cls(target, np.float32(likeness) * target + np.float32(1 - likeness) * other)

    def new_caches(self, pages: int, slots: int) -> None:
        """It remembers nothing."""

    def forward(self, batch: Batch, caches: Any) -> torch.Tensor:
        return self.target[batch.tokens[batch.logit_rows].long()]

    def draft(
        self, request: DraftRequest, how: DraftSampling, caches: Any, block: int, pool: DraftPool | None = None
    ) -> Drafts:
        """As `Model.draft`."""
        token, found = request.tokens, []
        purpose = sampling.Purpose.TARGET if how.shared else sampling.Purpose.DRAFT
        for place in range(block):
            z = self.drafter[token.long()]
            kept = sampling.sample_filter(
                z, how.inv_temperature, how.top_k, how.top_p, how.min_p, force_top_k=how.force_top_k
            )
            index = (request.base + request.accepted + 2 + place).long()
            token = sampling.sample_draw(z, how.inv_temperature, kept, how.seeds, index, purpose)
            if pool is not None and pool.log2q is not None:
                ops.draft_distribution(z, how.inv_temperature, kept, token, request.pool_slot, pool.log2q, place)
            found.append(token)
        tokens = torch.stack(found, 1)
        confidence = torch.full(tokens.shape, 0.5)
        if pool is not None:
            ops.draft_store(tokens, confidence, request.stop, request.pool_slot, pool.tokens, pool.confidence)
        return Drafts(tokens, confidence, None)


def text_probabilities(
    model: BigramModel,
    prompt: list[int],
    length: int,
    filters: tuple[float, int, float, float],
    penalties: tuple[float, float, float] = (1.0, 0.0, 0.0),
) -> np.ndarray:
    """Probability of every text of `length` tokens behind a prompt, float64 [V**length]; its tokens are the digits.

    Args:
        filters: temperature, top_k (0 off), top_p, min_p. penalties: repetition, frequency, presence.
    """
    vocab = model.config.text.vocab_size
    found = np.ones(1)
    texts: list[list[int]] = [[]]
    for _ in range(length):
        rows = [_behind(model, prompt, text, filters, penalties) if p > 0 else np.zeros(vocab)
                for text, p in zip(texts, found, strict=True)]  # fmt: skip
        found = np.concatenate([p * row for p, row in zip(found, rows, strict=True)])
        texts = [[*text, token] for text in texts for token in range(vocab)]
    return found


def _behind(
    model: BigramModel,
    prompt: list[int],
    text: list[int],
    filters: tuple[float, int, float, float],
    penalties: tuple[float, float, float],
) -> np.ndarray:
    repetition, frequency, presence = penalties
    z = model.target[[*prompt, *text][-1]].double().numpy().copy()
    for token in {*prompt, *text}:
        z[token] = z[token] / repetition if z[token] > 0 else z[token] * repetition
        z[token] -= frequency * text.count(token) + (presence if token in text else 0)
    return probabilities(z, *filters)
