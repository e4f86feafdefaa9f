"""Definitions of the sampling ops (`oracle/sampling.py`), row by row. Vocabularies past WIDEST are left to the twin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from . import sampling
from .expected import Bits, bits
from .sampling import ONE, Array, Fp32

WIDEST = 20_000
"""Tokens; Python needs a second per row of a released vocabulary."""


def _bits(values: Any, dtype: torch.dtype) -> Bits:
    return Bits(torch.from_numpy(np.asarray(values, dtype=torch.empty(0, dtype=dtype).numpy().dtype)))


def _entry(values: Tensor | None, row: int, otherwise: int) -> int:
    return otherwise if values is None else int(values[row])


def _kept(z: Fp32, threshold: Any, last: Any) -> list[int]:
    """The kept ids of a row, most likely first."""
    return [int(i) for i in sampling.order(z) if z[i] > threshold or (z[i] == threshold and i <= last)]


@bits("adjust_logits")
def adjust_logits(
    logits: Tensor,
    penalties: Tensor | None,
    stat_offsets: Tensor | None,
    stat_ids: Tensor | None,
    stat_counts: Tensor | None,
    bias_offsets: Tensor | None,
    bias_ids: Tensor | None,
    bias_values: Tensor | None,
    bitmask: Tensor | None,
) -> Sequence[Bits]:
    z = logits.numpy().copy()
    with np.errstate(all="ignore"):
        for row in range(len(z)):
            if penalties is not None and stat_offsets is not None and stat_ids is not None and stat_counts is not None:
                repetition, inverse, frequency, presence = penalties.numpy()[row]
                for n in range(int(stat_offsets[row]), int(stat_offsets[row + 1])):
                    i, count = int(stat_ids[n]), int(stat_counts[n])
                    x = z[row, i] * (inverse if z[row, i] > 0 else repetition)
                    x = x - frequency * np.float32(count)
                    z[row, i] = x - presence if count > 0 else x
            if bias_offsets is not None and bias_ids is not None and bias_values is not None:
                for n in range(int(bias_offsets[row]), int(bias_offsets[row + 1])):
                    i, value = int(bias_ids[n]), bias_values.numpy()[n]
                    z[row, i] = -np.inf if value == -np.inf else z[row, i] + value
            if bitmask is not None:
                words = bitmask.numpy()[row].view(np.uint32)
                token = np.arange(z.shape[1])
                z[row, (words[token // 32] >> (token % 32).astype(np.uint32)) & 1 == 0] = -np.inf
    return (Bits(torch.from_numpy(z)),)


@bits("sample_filter")
def sample_filter(
    logits: Tensor, inverse: Tensor, k: Tensor | None, p: Tensor | None, m: Tensor | None, force: int
) -> Sequence[Bits | None]:
    z = logits.numpy()
    if z.shape[1] > WIDEST:
        return [None] * 6
    rows = [
        sampling.sample_filter(z[r], inverse.numpy()[r], _entry(k, r, -1), _entry(p, r, ONE), _entry(m, r, 0), force)
        for r in range(len(z))
    ]
    dtypes = (torch.float32, torch.int32, torch.float32, torch.int32, torch.int32, torch.int64)
    return [_bits([row[i] for row in rows], dtype) for i, dtype in enumerate(dtypes)]


@bits("sample_draw")
def sample_draw(
    logits: Tensor,
    inverse: Tensor,
    threshold: Tensor,
    last_id: Tensor,
    count: Tensor,
    max_id: Tensor,
    seeds: Tensor,
    positions: Tensor,
    purpose: int,
) -> Sequence[Bits | None]:
    z = logits.numpy()
    if z.shape[1] > WIDEST:
        return [None]
    tokens = []
    for r in range(len(z)):
        token = int(max_id[r])
        if int(count[r]) > 1:
            kept = _kept(z[r], float(threshold[r]), int(last_id[r]))
            token = sampling.draw(z[r], inverse.numpy()[r], kept, int(seeds[r]), int(positions[r]), purpose)
        tokens.append(token)
    return [_bits(tokens, torch.int32)]


def _log_probabilities(
    z: Array, row: int, inverse: Tensor | None, threshold: Tensor | None, last_id: Tensor | None
) -> tuple[Array, list[int]]:
    """[V] of one row, and the kept ids in order (none for an invalid row)."""
    kept = None if threshold is None or last_id is None else _kept(z[row], float(threshold[row]), int(last_id[row]))
    scale = None if inverse is None else inverse.numpy()[row]
    found = sampling.log_probabilities(z[row], scale, kept)
    if not sampling.valid(z[row]):
        return found, []
    return found, [int(i) for i in sampling.order(z[row])] if kept is None else kept


@bits("token_logprobs")
def token_logprobs(
    logits: Tensor, tokens: Tensor, inverse: Tensor | None, threshold: Tensor | None, last_id: Tensor | None
) -> Sequence[Bits | None]:
    z = logits.numpy()
    if z.shape[1] > WIDEST:
        return [None]
    values = []
    for r, token in enumerate(tokens.tolist()):
        found, _ = _log_probabilities(z, r, inverse, threshold, last_id)
        values.append(found[token] if token >= 0 else np.float32(-9999))
    return [_bits(values, torch.float32)]


@bits("top_logprobs")
def top_logprobs(
    logits: Tensor, inverse: Tensor | None, threshold: Tensor | None, last_id: Tensor | None, k: int
) -> Sequence[Bits | None]:
    z = logits.numpy()
    if z.shape[1] > WIDEST:
        return [None, None]
    ids, values = np.full((len(z), k), -1, np.int32), np.full((len(z), k), -9999, np.float32)
    for r in range(len(z)):
        found, kept = _log_probabilities(z, r, inverse, threshold, last_id)
        for place, token in enumerate(kept[:k]):
            ids[r, place], values[r, place] = token, found[token]
    return [_bits(ids, torch.int32), _bits(values, torch.float32)]


@bits("smaller_mass")
def smaller_mass(
    logits: Tensor, inverse: Tensor, max_logit: Tensor, threshold: Tensor, last_id: Tensor, tokens: Tensor
) -> Sequence[Bits | None]:
    z = logits.numpy()
    if z.shape[1] > WIDEST:
        return [None]
    mass = []
    for r, token in enumerate(tokens.tolist()):
        judged = token >= 0 and sampling.valid(z[r])
        kept = _kept(z[r], float(threshold[r]), int(last_id[r])) if judged else []
        mass.append(sampling.smaller_mass(z[r], inverse.numpy()[r], kept, token) if judged else 0)
    return [_bits(mass, torch.int64)]
