"""Calls of any shape for the sampling ops: rows with ties, bans, infinities and NaN among healthy ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from .sampling_samples import FIXED_ONE, _kept, _logits, _ragged, _send, _temperatures
from .shapes import Pick, Range, shape

Rng = np.random.Generator
Args = tuple[Any, ...]

ROWS = Range(0, 20)
WIDTH = Range(1, 1500)


@shape("adjust_logits", rows=ROWS, width=WIDTH, groups=Pick(("penalties", "bias", "mask", "all")))
def adjust_logits(rng: Rng, device: torch.device, *, rows: int, width: int, groups: str) -> Args:
    z = _logits(rng, rows, width)
    repetition = rng.choice([1.0, 1.2, 0.8], rows).astype(np.float32)
    inverse = (1.0 / repetition.astype(np.float64)).astype(np.float32)
    additive = rng.uniform(-2, 2, (2, rows)).astype(np.float32)
    offsets, ids = _ragged(rng, rows, width)
    penalties = (np.stack((repetition, inverse, *additive), 1), offsets, ids, rng.integers(0, 4, len(ids), np.int32))
    offsets, ids = _ragged(rng, rows, width)
    values = np.where(rng.random(len(ids)) < 0.3, -np.inf, rng.uniform(-5, 5, len(ids))).astype(np.float32)
    mask = rng.integers(-(2**31), 2**31, (rows, -(-width // 32))).astype(np.int32)
    given = (("penalties", penalties), ("bias", (offsets, ids, values)), ("mask", (mask,)))
    parts = (part if groups in (name, "all") else (None,) * len(part) for name, part in given)
    return _send(device, z, *(value for part in parts for value in part))


@shape("sample_filter", rows=ROWS, width=WIDTH, filters=Pick(("none", "k", "p", "m", "all")), force=Range(0, 20, 5))
def sample_filter(rng: Rng, device: torch.device, *, rows: int, width: int, filters: str, force: int) -> Args:
    z, inverse = _logits(rng, rows, width), _temperatures(rng, rows)
    k = rng.choice([-1, 0, 1, 2, 20, width, 2**31 - 1], rows).astype(np.int32)
    p = rng.integers(0, FIXED_ONE + 1, rows).astype(np.int64)
    m = (rng.integers(0, FIXED_ONE + 1, rows) >> rng.integers(0, 12, rows)).astype(np.int64)
    given = [x if filters in (name, "all") else None for name, x in (("k", k), ("p", p), ("m", m))]
    return _send(device, z, inverse, *given, min(force, width))


@shape("sample_draw", rows=ROWS, width=WIDTH, purpose=Range(0, 3))
def sample_draw(rng: Rng, device: torch.device, *, rows: int, width: int, purpose: int) -> Args:
    z, inverse = _logits(rng, rows, width), _temperatures(rng, rows)
    _, max_id, threshold, last_id, count = _kept(rng, z, inverse)
    seeds = rng.integers(-(2**63), 2**63, rows, dtype=np.int64)
    positions = rng.integers(0, 2**40, rows, dtype=np.int64)
    return _send(device, z, inverse, threshold, last_id, count, max_id, seeds, positions, purpose)


@shape("token_logprobs", rows=ROWS, width=WIDTH, form=Pick(("raw", "tempered", "filtered")))
def token_logprobs(rng: Rng, device: torch.device, *, rows: int, width: int, form: str) -> Args:
    z, inverse = _logits(rng, rows, width), _temperatures(rng, rows)
    _, _, threshold, last_id, _ = _kept(rng, z, inverse)
    tokens = rng.integers(-1, width, rows).astype(np.int32)
    edges = (threshold, last_id) if form == "filtered" else (None, None)
    return _send(device, z, tokens, None if form == "raw" else inverse, *edges)


@shape("smaller_mass", rows=ROWS, width=WIDTH)
def smaller_mass(rng: Rng, device: torch.device, *, rows: int, width: int) -> Args:
    z, inverse = _logits(rng, rows, width), _temperatures(rng, rows)
    max_logit, _, threshold, last_id, _ = _kept(rng, z, inverse)
    tokens = rng.integers(-1, width, rows).astype(np.int32)
    return _send(device, z, inverse, max_logit, threshold, last_id, tokens)


@shape("top_logprobs", rows=ROWS, width=WIDTH, k=Range(0, 60), filtered=Pick((False, True)))
def top_logprobs(rng: Rng, device: torch.device, *, rows: int, width: int, k: int, filtered: bool) -> Args:
    z, inverse = _logits(rng, rows, width), _temperatures(rng, rows)
    _, _, threshold, last_id, _ = _kept(rng, z, inverse)
    given = (inverse, threshold, last_id) if filtered else (None, None, None)
    return _send(device, z, *given, k)
