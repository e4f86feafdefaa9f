"""Oracles of the drafting family."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...ops.numerics import FLOOR, Accumulated
from .expected import U32, Bits, Within, accumulated, bits, floats, largest_run, terms_of, torched
from .formats import Floats, f64

CLAMP = 60.0


@floats("draft_tap")
def draft_tap(x: Tensor, taps: Tensor, place: int) -> list[Within]:
    wide = f64(x)
    with np.errstate(invalid="ignore"):
        found = accumulated(x.shape[1], np.abs(wide).mean(1), wide.mean(1))
    want, limit = taps.double(), torch.zeros(taps.shape, dtype=torch.float64)
    want[:, place], limit[:, place] = found.want, found.limit
    return [Within(want, limit)]


def bigram(tokens: Tensor, embed: Tensor) -> Floats:
    """Embeddings of the tokens, zeros for tokens outside."""
    found = np.zeros((tokens.numel(), embed.shape[1]))
    for row, token in zip(found, tokens.flatten().tolist(), strict=True):
        if 0 <= token < len(embed):
            row[:] = f64(embed[token])
    return found


@floats("draft_logits")
def draft_logits(*args: Any) -> list[Within]:
    base, tokens, embed, head = args
    vector, weight = bigram(tokens, embed), f64(head.tensors[0])
    start = f64(base)
    with np.errstate(invalid="ignore"):
        want = start + vector @ weight.T
        # The base may join the sum at either end.
        magnitude = np.abs(start) + largest_run(vector, weight)
    return [accumulated(terms_of("draft_logits", args), magnitude, want, torch.float32)]


@floats("draft_confidence")
def draft_confidence(*args: Any) -> list[Within]:
    hidden, tokens, embed, weight, inverse = args
    feature = np.concatenate((f64(hidden.flatten(0, 1)), bigram(tokens, embed)), axis=1)
    row = f64(weight)[None]
    with np.errstate(invalid="ignore", over="ignore"):
        scale = np.tile(f64(inverse), len(hidden))
        score = scale * (feature @ row.T)[:, 0]
        run = torched(largest_run(feature, row)[:, 0])
        error = scale * Accumulated.error(terms_of("draft_confidence", args), run).numpy() + U32 * np.abs(score)
        error = np.where(np.isfinite(score), error, 0.0)  # an infinite score is one of the ends, whatever its error
        low, middle, high = (1 / (1 + np.exp(-np.clip(score + d, -CLAMP, CLAMP))) for d in (-error, 0.0, error))
    # What the score's error moves the sigmoid, and six roundings of its own.
    limit = np.maximum(high - middle, middle - low) + 6 * U32 * np.maximum(high, middle) + FLOOR
    return [Within(torched(middle).view(tokens.shape), torched(np.nan_to_num(limit)).view(tokens.shape))]


@bits("draft_inputs")
def draft_inputs(*args: Any) -> list[Bits]:
    *arrays, block, window, noise = args
    rows: list[tuple[int, ...]] = []
    starts, draws = [], np.zeros((block, len(arrays[0])), np.int64)
    for s, (token, base, accepted, valid) in enumerate(zip(*(a.tolist() for a in arrays), strict=True)):
        if base < 0:
            rows += [(-1, 0, -1, 0, 0)] * block
            starts.append(0)
            continue
        last = base + accepted
        first = max(last - window + 1, valid, 0)
        starts.append(last + 1)
        for j in range(block):
            rows.append((noise if j else token, last + 1 + j, s, first, last + block))
            draws[j, s] = last + 2 + j
    columns = np.array(rows, np.int32).reshape(-1, 5).T
    begins = np.arange(len(starts), dtype=np.int32) * block
    wanted = [*columns, np.array(starts, np.int32), begins.astype(np.int32), draws]
    return [Bits(torch.from_numpy(np.ascontiguousarray(w))) for w in wanted]


@bits("draft_store")
def draft_store(*args: Any) -> list[Bits]:
    tokens, confidence, stop, slots, pool_tokens, pool_confidence = args
    kept, sure = pool_tokens.clone(), pool_confidence.clone()
    for s, slot in enumerate(slots.tolist()):
        if slot != -1:
            kept[slot] = tokens[s]
            sure[slot] = 0.0 if stop is not None and stop[s] else confidence[s]
    return [Bits(kept), Bits(sure)]


@bits("correct_q")
def correct_q(confidence: Tensor, remap: Tensor, total: int) -> list[Bits]:
    pairs = []
    for r, row in enumerate(remap.tolist()):
        survival = np.float32(1.0)
        for j in range(confidence.shape[1]):
            chance = np.float32(0.0) if row < 0 else confidence[row, j].numpy()
            chance = np.float32(0.0) if not chance > 0 else min(np.float32(1.0), chance)
            survival = np.float32(survival * chance)
            pairs.append((-float(survival), r, j))
    rows = [1] * len(remap)
    for _, r, _ in sorted(pairs)[: total - len(rows)]:
        rows[r] += 1
    return [Bits(torch.tensor(rows, dtype=torch.int32))]


@bits("correct_k")
def correct_k(base: Tensor, q: Tensor, remap: Tensor, assumed: Tensor, accepted: Tensor) -> list[Bits]:
    done = accepted.tolist()
    lengths = [
        b + n - (0 if row < 0 else drafts - done[row])
        for b, n, row, drafts in zip(*(t.tolist() for t in (base, q, remap, assumed)), strict=True)
    ]
    return [Bits(torch.tensor(lengths, dtype=torch.int32))]
