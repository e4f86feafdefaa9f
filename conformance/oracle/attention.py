"""Rotary embedding, attention, index scores and top-k by the definitions, in float64 or by brute force."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from .formats import Floats


def rotate(x: torch.Tensor, positions: Sequence[int], table: torch.Tensor) -> Floats:
    """Rotary embedding of bf16 [n, ..., d] at positions [n], fp32 steps, one bf16 rounding."""
    wide = x.float().numpy().copy()
    dim = 2 * table.shape[1]
    for row, position in zip(wide, positions, strict=True):
        cosine, sine = table.numpy()[position].T
        even, odd = row[..., -dim::2].copy(), row[..., -dim + 1 :: 2].copy()
        row[..., -dim::2] = even * cosine - odd * sine
        row[..., -dim + 1 :: 2] = even * sine + odd * cosine
    return torch.from_numpy(wide).bfloat16().double().numpy()


def attention(q: Floats, keys: Floats, sink: Floats, scale: float) -> tuple[Floats, Floats]:
    """One row: output [h, d] and a bound on the error of a right implementation.

    q [h, d], keys [n, d], sink [h]. The bound: bf16 rounding of the result and of every P (2**-8 each), and what fp32
    accumulation of a score of size a = scale * sum |q k| moves an exponential, (d + 2) * 2**-23 * a relative.
    """
    score = scale * q @ keys.T
    weight = np.exp(score - score.max(axis=1, keepdims=True))
    total = weight.sum(axis=1, keepdims=True) + np.exp(sink[:, None] - score.max(axis=1, keepdims=True))
    value = weight @ keys / total
    size = scale * np.abs(q) @ np.abs(keys).T
    moved = 2 * (q.shape[1] + 2) * 2.0**-23 * size.max(axis=1, keepdims=True) + len(keys) * 2.0**-23
    spread = weight @ np.abs(keys) / total
    return value, 2.0**-8 * np.abs(value) + (2.0**-8 + moved) * spread * 1.01 + 1e-37


def index_scores(query: Floats, weight: Floats, keys: Floats) -> tuple[Floats, Floats]:
    """One row: scores [n] and a bound; query [H, di], weight [H], keys [n, di]."""
    terms = weight[:, None] * np.maximum(query @ keys.T, 0)
    size = (np.abs(weight)[:, None] * (np.abs(query) @ np.abs(keys).T)).sum(axis=0)
    score = terms.sum(axis=0)
    return score, 2.0**-8 * np.abs(score) + (query.size + 1) * 2.0**-23 * size


def best(scores: Floats, k: int) -> list[int]:
    """Brute-force top-k: numbers before NaN, larger before smaller, ties to the lower index; ascending ids."""
    order = sorted(
        range(len(scores)), key=lambda i: (bool(np.isnan(scores[i])), -scores[i] if scores[i] == scores[i] else 0, i)
    )
    return sorted(order[:k])
