"""Filtered distributions in float64, and drawn tokens held against them."""

from __future__ import annotations

import numpy as np
import torch


def probabilities(z: np.ndarray, temperature: float, top_k: int, top_p: float, min_p: float) -> np.ndarray:
    """The filtered distribution in float64: softmax, stable sort, three cuts, renormalised."""
    x = z.astype(np.float64) / temperature
    p = np.exp(x - x.max())
    p /= p.sum()
    order = np.argsort(-p, kind="stable")
    sorted_p = p[order]
    keep = (np.cumsum(sorted_p) - sorted_p <= top_p) & (sorted_p >= min_p * sorted_p[0]) & (sorted_p > 0)
    if top_k:
        keep[top_k:] = False
    p[order[~keep]] = 0
    return p / p.sum()


def assert_distribution(tokens: torch.Tensor, p: np.ndarray) -> None:
    n = len(tokens)
    counts = np.bincount(tokens.numpy(), minlength=len(p))
    assert counts[p == 0].sum() == 0, "a token outside the support was drawn"
    sigma = np.sqrt(n * p * (1 - p))
    assert (np.abs(counts - n * p) <= 5 * sigma + 1).all()
    common = n * p >= 5
    rest = n * p[~common].sum()
    chi = ((counts - n * p) ** 2 / np.where(common, n * p, 1))[common].sum()
    if rest > 0:
        chi += (counts[~common].sum() - rest) ** 2 / max(rest, 1)
    freedom = common.sum()
    assert chi <= freedom + 5 * np.sqrt(2 * freedom), (chi, freedom)
