"""The race draws from the right distribution: chi-square and 5-sigma tests against float64 probabilities.

Seeds and positions are fixed, so a failure is a change of the algorithm and never bad luck.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

import deepinfer.backends.reference.sampling  # noqa: F401
from deepinfer.ops import sampling as ops
from distributions import assert_distribution, probabilities

DRAWS = 40_000
WIDTH = 37


def row(seed: int = 11) -> np.ndarray:
    z = (np.random.default_rng(seed).standard_normal(WIDTH) * 2).astype(np.float32)
    z[[4, 9]] = z[2]
    z[7] = -np.inf
    return z


def draws(z: np.ndarray, temperature: float, top_k: int, top_p: float, min_p: float, **stream: object) -> torch.Tensor:
    """DRAWS tokens of one row at consecutive positions, unless the stream says otherwise."""
    logits = torch.from_numpy(z).expand(DRAWS, WIDTH).contiguous()
    inverse = torch.full((DRAWS,), ops.inverse_temperature(temperature))
    k = torch.full((DRAWS,), top_k, dtype=torch.int32) if top_k else None
    p = torch.full((DRAWS,), ops.fixed31(top_p)) if top_p < 1 else None
    m = torch.full((DRAWS,), ops.fixed31(min_p)) if min_p else None
    seeds = stream.get("seeds", torch.full((DRAWS,), 1234))
    positions = stream.get("positions", torch.arange(DRAWS))
    kept = ops.sample_filter(logits, inverse, k, p, m)
    return ops.sample_draw(logits, inverse, kept, seeds, positions, stream.get("purpose", 0))  # type: ignore[arg-type]


CASES = [
    (1.0, 0, 1.0, 0.0), (0.6, 0, 1.0, 0.0), (2.5, 0, 1.0, 0.0), (1.0, 5, 1.0, 0.0), (1.0, 0, 0.8, 0.0),
    (1.0, 0, 1.0, 0.1), (1.5, 12, 0.9, 0.05), (0.3, 20, 0.95, 0.0), (1.0, 1, 1.0, 0.0), (1.0, 0, 1e-7, 0.0),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda c: "T{} k{} p{} min{}".format(*c))
def test_draws_over_positions_follow_the_filtered_distribution(case: tuple) -> None:
    z = row()
    assert_distribution(draws(z, *case), probabilities(z, *case))


@pytest.mark.parametrize("purpose", list(ops.Purpose), ids=lambda p: p.name)
def test_draws_over_seeds_follow_the_distribution_for_every_purpose(purpose: ops.Purpose) -> None:
    z, case = row(3), (1.0, 0, 1.0, 0.0)
    seeds = torch.arange(DRAWS) - DRAWS // 2
    tokens = draws(z, *case, seeds=seeds, positions=torch.full((DRAWS,), 77), purpose=purpose)
    assert_distribution(tokens, probabilities(z, *case))


def agreement(a: torch.Tensor, b: torch.Tensor, p: np.ndarray) -> float:
    """How far the share of equal draws is from that of independent ones, in sigma."""
    chance = (p**2).sum()
    return float((a == b).sum().item() - len(a) * chance) / np.sqrt(len(a) * chance * (1 - chance))


def test_streams_are_independent_across_positions_seeds_and_purposes() -> None:
    z, case = row(5), (1.0, 0, 1.0, 0.0)
    p = probabilities(z, *case)
    base = draws(z, *case)
    assert abs(agreement(base[1:], base[:-1], p)) < 5
    assert abs(agreement(base, draws(z, *case, purpose=1), p)) < 5
    assert abs(agreement(base, draws(z, *case, seeds=torch.full((DRAWS,), 1235)), p)) < 5
    assert abs(agreement(base, draws(z, *case, positions=torch.arange(DRAWS) + (1 << 32)), p)) < 5


def test_rare_tokens_of_a_wide_row_are_drawn_as_often_as_they_should_be() -> None:
    """129,280 equal tokens under one that has half the mass: no draw may be lost to rounding near one."""
    width, rows = 129_280, 64
    z = torch.zeros(1, width)
    z[0, 1000] = float(np.log(width - 1))
    logits = z.expand(rows, width).contiguous()
    inverse = torch.ones(rows)
    kept = ops.sample_filter(logits, inverse)
    tokens = ops.sample_draw(logits, inverse, kept, torch.full((rows,), 5), torch.arange(rows))
    assert abs((tokens == 1000).sum().item() - rows / 2) < 5 * np.sqrt(rows / 4)
    others = tokens[tokens != 1000].double() / width
    assert abs(others.mean().item() - 0.5) < 5 / np.sqrt(12 * len(others))
    assert len(others.unique()) >= len(others) - 1
