"""Dense layers, routing and Engram by their definitions, in numpy float64 or plain Python integers.

Where rounding matters, functions return the value and the sum of the magnitudes of its terms, from which a limit says
how far an fp32 sum may be off. Shares no code with the ops or the backends.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .formats import Floats

GATE_FLOOR = 1e-6


def product(x: Floats, w: Floats) -> tuple[Floats, Floats]:
    """x @ w.T and the sums of magnitudes."""
    with np.errstate(invalid="ignore"):
        return x @ w.T, np.abs(x) @ np.abs(w).T


def rms_norm(x: Floats, w: Floats, eps: float) -> Floats:
    return np.asarray(x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w)


def sigmoid(x: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-x)))


def rope(x: Floats, positions: Sequence[int], table: Floats, inverse: bool) -> Floats:
    """Element by element, [T, h, d]."""
    y = x.copy()
    first = x.shape[-1] - 2 * table.shape[1]
    for t, position in enumerate(positions):
        for i, (c, s) in enumerate(table[position]):
            s = -s if inverse else s
            a, b = x[t, :, first + 2 * i], x[t, :, first + 2 * i + 1]
            y[t, :, first + 2 * i], y[t, :, first + 2 * i + 1] = a * c - b * s, a * s + b * c
    return y


def sinkhorn(logits: Floats, eps: float, iterations: int) -> Floats:
    """One matrix [m, m]."""
    c = np.exp(logits - logits.max(1, keepdims=True))
    c = c / c.sum(1, keepdims=True) + eps
    c = c / (c.sum(0, keepdims=True) + eps)
    for _ in range(iterations - 1):
        c = c / (c.sum(1, keepdims=True) + eps)
        c = c / (c.sum(0, keepdims=True) + eps)
    return np.asarray(c)


def hc_coefficients(
    x: Floats, fn: Floats, base: Floats, scale: Floats, norm_eps: float, hc_eps: float, iterations: int
) -> tuple[Floats, Floats, Floats]:
    rows, m, _ = x.shape
    flat = x.reshape(rows, m * x.shape[2])
    mix = flat @ fn.T / np.sqrt((flat * flat).mean(1, keepdims=True) + norm_eps)
    pre = sigmoid(mix[:, :m] * scale[0] + base[:m]) + hc_eps
    post = 2 * sigmoid(mix[:, m : 2 * m] * scale[1] + base[m : 2 * m])
    raw = (mix[:, 2 * m :] * scale[2] + base[2 * m :]).reshape(rows, m, m)
    return pre, post, np.array([sinkhorn(c, hc_eps, iterations) for c in raw]).reshape(rows, m, m)


def route(logits: Floats, bias: Floats, k: int, scaling: float) -> tuple[list[int], Floats]:
    """Experts and weights of one row, in descending key, ties to the lower id; NaN keys last."""
    s = np.sqrt(np.where(logits > 20, logits, np.log1p(np.exp(np.minimum(logits, 20)))))
    key = s + bias
    order = sorted(range(len(key)), key=lambda e: (np.isnan(key[e]), -np.inf if np.isnan(key[e]) else -key[e], e))[:k]
    chosen = s[order]
    return order, chosen / (chosen.sum() + 1e-20) * scaling


def swiglu(gate_up: Floats, weight: Floats | None, limit: float) -> Floats:
    g, u = np.split(gate_up, 2, axis=1)
    g, u = np.minimum(g, limit), np.clip(u, -limit, limit)
    return g * sigmoid(g) * u * (1 if weight is None else weight[:, None])


def engram_rows(
    ngram: Sequence[int],
    lookup: Sequence[int],
    multipliers: Sequence[int],
    primes: Sequence[int],
    offsets: Sequence[int],
    pad: int,
) -> list[int]:
    """Table rows of one token, in Python integers."""
    ids, broken = [], False
    for raw in ngram:
        broken = broken or not 0 <= raw < len(lookup)
        ids.append(pad if broken else lookup[raw])
    heads = len(primes) // (len(ids) - 1)
    state, rows = ids[0] * multipliers[0], []
    for i in range(1, len(ids)):
        state ^= ids[i] * multipliers[i]
        for j in range((i - 1) * heads, i * heads):
            rows.append(state % primes[j] + offsets[j])
    return rows


def engram_gate(x: Floats, kv: Floats, qw: Floats, kw: Floats, eps: float) -> Floats:
    rows, m, width = x.shape
    kv = kv.reshape(rows, m + 1, width)
    key, value = kv[:, :m], kv[:, m:]
    dot = (x * (qw * kw) * key).sum(-1, keepdims=True) * width**-0.5
    dot = dot / np.sqrt((x * x).mean(-1, keepdims=True) + eps) / np.sqrt((key * key).mean(-1, keepdims=True) + eps)
    return x + sigmoid(np.copysign(np.sqrt(np.maximum(np.abs(dot), GATE_FLOOR)), dot)) * value
