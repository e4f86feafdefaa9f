"""Drafting does not change what is sampled: tokens behind verification against float64 probabilities.

Drafts are drawn by the sampling ops from a distribution of their own, verified, and the resulting tokens held against
the target's distribution, over every combination of filters. Seeds and positions are fixed, so a failure is a change of
the algorithm and never bad luck.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch

from deepinfer import ops
from deepinfer.backends import reference
from deepinfer.ops import sampling
from distributions import assert_distribution, probabilities

DRAWS, WIDTH = 30_000, 37
FILTERS = tuple(product((0.7, 1.3), (0, 6), (1.0, 0.8), (0.0, 0.1)))
reference.backend.load()


def logits(seed: int) -> np.ndarray:
    z = (np.random.default_rng(seed).standard_normal(WIDTH) * 2).astype(np.float32)
    z[[4, 9]] = z[2]
    z[7] = -np.inf
    return z


class Stage:
    """DRAWS rows of one distribution at consecutive positions."""

    def __init__(self, z: np.ndarray, temperature: float, top_k: int, top_p: float, min_p: float) -> None:
        self.z = torch.from_numpy(z).expand(DRAWS, WIDTH).contiguous()
        self.inverse = torch.full((DRAWS,), sampling.inverse_temperature(temperature))
        k = torch.full((DRAWS,), top_k, dtype=torch.int32) if top_k else None
        p = torch.full((DRAWS,), sampling.fixed31(top_p)) if top_p < 1 else None
        m = torch.full((DRAWS,), sampling.fixed31(min_p)) if min_p else None
        self.kept = sampling.sample_filter(self.z, self.inverse, k, p, m)
        self.seeds, self.positions = torch.full((DRAWS,), 4321), torch.arange(DRAWS)

    def draw(self, purpose: int) -> torch.Tensor:
        return sampling.sample_draw(self.z, self.inverse, self.kept, self.seeds, self.positions, purpose)

    def verify(self, drafts: torch.Tensor, log2q: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        row = None if log2q is None else torch.zeros(DRAWS, dtype=torch.int32)
        return ops.verify_drafts(self.z, self.inverse, self.kept, drafts, self.seeds, self.positions, log2q, row)

    def log2q(self, drafts: torch.Tensor) -> torch.Tensor:
        """[1, V]: what the drafts were drawn from; all rows are the same."""
        pool = torch.zeros(1, 1, WIDTH)
        one = sampling.Filter(*(t[:1] for t in self.kept))
        slot = torch.zeros(1, dtype=torch.int32)
        ops.draft_distribution(self.z[:1], self.inverse[:1], one, drafts[:1], slot, pool, 0)
        return pool[0]


@pytest.mark.parametrize("filters", FILTERS, ids=str)
def test_tokens_have_the_targets_distribution(filters: tuple[float, int, float, float]) -> None:
    z, other = logits(11), logits(11) * np.float32(0.6) + logits(12) * np.float32(0.5)
    target, drafter = Stage(z, *filters), Stage(other, *filters)
    p, q = probabilities(z, *filters), probabilities(other, *filters)
    drafts = drafter.draw(sampling.Purpose.DRAFT)
    log2q = drafter.log2q(drafts)
    assert np.abs(np.exp2(log2q[0].double().numpy()) - q).max() < 1e-6
    tokens, accepted = target.verify(drafts, log2q)
    assert_distribution(tokens, p)
    rate = np.minimum(p, q).sum()
    assert abs(accepted.double().mean() - rate) < 5 * np.sqrt(rate * (1 - rate) / DRAWS) + 1e-4
    assert tokens[accepted].equal(drafts[accepted])


@pytest.mark.parametrize("filters", [(1.0, 0, 1.0, 0.0), (0.7, 6, 0.8, 0.1)], ids=str)
def test_drafts_that_were_certain(filters: tuple[float, int, float, float]) -> None:
    """One fixed draft at a time, likely or not: a deterministic drafter."""
    z = logits(11)
    target, p = Stage(z, *filters), probabilities(z, *filters)
    for draft in (int(p.argmax()), int(np.argsort(p)[-3]), 7):
        tokens, accepted = target.verify(torch.full((DRAWS,), draft, dtype=torch.int32), None)
        assert_distribution(tokens, p)
        assert abs(accepted.double().mean() - p[draft]) < 5 * np.sqrt(p[draft] * (1 - p[draft]) / DRAWS) + 1e-4


def test_a_greedy_drafter() -> None:
    """A pool row of a greedy drafter is certain of its token."""
    z = logits(13)
    target, p = Stage(z, 1.0, 0, 1.0, 0.0), probabilities(z, 1.0, 0, 1.0, 0.0)
    drafter = Stage(z, 0.0, 0, 1.0, 0.0)
    drafts = drafter.draw(sampling.Purpose.DRAFT)
    log2q = drafter.log2q(drafts)
    assert log2q[0, int(p.argmax())] == 0 and (log2q > -torch.inf).sum() == 1
    tokens, accepted = target.verify(drafts, log2q)
    assert_distribution(tokens, p)
    assert abs(accepted.double().mean() - p.max()) < 0.02


def test_the_four_purposes_do_not_correlate() -> None:
    """Rejected rows: the residual draw is independent of the number that rejected them and of the draft."""
    z, other = logits(14), logits(15)
    target, drafter = Stage(z, 1.0, 0, 1.0, 0.0), Stage(other, 1.0, 0, 1.0, 0.0)
    p, q = probabilities(z, 1.0, 0, 1.0, 0.0), probabilities(other, 1.0, 0, 1.0, 0.0)
    drafts = drafter.draw(sampling.Purpose.DRAFT)
    tokens, accepted = target.verify(drafts, drafter.log2q(drafts))
    residual = np.maximum(p - q, 0)
    for draft in np.argsort(q - np.minimum(p, q))[-3:]:
        rows = (drafts == int(draft)) & ~accepted
        assert int(rows.sum()) > 300
        assert_distribution(tokens[rows], residual / residual.sum())
