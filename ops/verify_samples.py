"""Samples of the verification ops.

The filter results and pools are built with numpy, so that no sample depends on the kernel under test. Drafts are drawn
so that every branch has rows: certain, likely, unlikely and impossible drafts, rows with one kept token, invalid rows,
rows without a draft.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from . import sampling_samples as base
from .spec import Sample

Rng = np.random.Generator
Array = base.Array


def _batches(rng: Rng) -> Iterator[tuple[str, Array, Array]]:
    yield "no rows", np.zeros((0, 37), np.float32), np.zeros(0, np.float32)
    shapes = (*base.WIDTHS, base.REAL)
    for width, rows in shapes:
        label = f"real {rows}x{width}" if (width, rows) == base.REAL else f"{rows}x{width}"
        yield label, base._logits(rng, rows, width), base._temperatures(rng, rows)


def _proposal(rng: Rng, z: Array, inverse: Array) -> Array:
    """Base-2 log-probabilities near those of the row, some tokens left out; what a drafter may have had."""
    noisy = np.nan_to_num(z, nan=0.0, posinf=8.0, neginf=-30.0) + rng.standard_normal(z.shape)
    scaled = noisy * np.where(np.isinf(inverse), 4.0, inverse)[:, None]
    scaled[rng.random(z.shape) < 0.1] = -np.inf
    scaled[np.arange(len(z)), rng.integers(0, z.shape[1], len(z))] = 0.0
    scaled -= np.log(np.exp(scaled - scaled.max(1, keepdims=True)).sum(1, keepdims=True)) + scaled.max(1, keepdims=True)
    log2: Array = np.minimum(scaled / np.log(2), 0.0).astype(np.float32)
    return log2


def _drafts(rng: Rng, z: Array, kept: tuple[Array, ...], proposal: Array) -> Array:
    """A draft per row: by the proposal, the row's best token, any token, none."""
    drawn = np.array([rng.choice(z.shape[1], p=_normal(row)) for row in proposal], np.int32).reshape(len(z))
    kind = rng.random(len(z))
    drawn = np.where(kind < 0.2, kept[1], drawn)
    drawn = np.where(kind > 0.8, rng.integers(0, z.shape[1], len(z)), drawn)
    drafts: Array = np.where((kind > 0.4) & (kind < 0.5), -1, drawn).astype(np.int32)
    return drafts


def _normal(log2: Array) -> Array:
    weight = np.exp2(log2.astype(np.float64))
    share: Array = weight / weight.sum()
    return share


def draft_distribution(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """logits, inv_temperature, threshold, last_id, count, tokens, slots, pool, place."""
    for label, z, inverse in _batches(rng):
        rows, width = z.shape
        _, max_id, threshold, last_id, count = base._kept(rng, z, inverse)
        slots = rng.permutation(rows + 2)[:rows].astype(np.int32)
        slots[2::4] = -1
        pool = np.full((rows + 2, 3, width), np.nan, np.float32)
        args = (z, inverse, threshold, last_id, count, max_id, slots, pool, rows % 3)
        yield Sample(label, base._send(device, *args))


def verify_drafts(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """All arguments of the op, in order."""
    for label, z, inverse in _batches(rng):
        rows, width = z.shape
        kept = base._kept(rng, z, inverse)
        _, max_id, threshold, last_id, count = kept
        proposal = _proposal(rng, z, inverse)
        drafts = _drafts(rng, z, kept, proposal)
        seeds = rng.integers(-(2**63), 2**63, rows, dtype=np.int64)
        positions = rng.integers(0, 2**40, rows, dtype=np.int64)
        place = rng.permutation(rows + 3)[:rows].astype(np.int32)
        pool = np.full((rows + 3, width), np.nan, np.float32)
        pool[place] = proposal
        place[3::5] = -1
        common = (z, inverse, threshold, last_id, count, max_id, drafts, seeds, positions)
        yield Sample(f"{label}, shared noise", base._send(device, *common, None, None, True))
        yield Sample(f"{label}, certain drafts", base._send(device, *common, None, None, False))
        yield Sample(label, base._send(device, *common, pool, place, False))


def accept_prefix(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """tokens, accepted, drafts, golden, begin, rows, stop_ids, width."""

    def sample(label: str, lengths: Any, width: int, *, forced: bool, stops: bool) -> Sample:
        offsets = np.cumsum([0, *lengths]).astype(np.int32)
        begin = np.where(np.asarray(lengths) > 0, offsets[:-1], -9).astype(np.int32)
        rows = int(offsets[-1]) + (3 if len(lengths) > 1 else 0)
        tokens, drafts = rng.integers(0, 12, (2, rows)).astype(np.int32)
        accepted = rng.random(rows) < 0.7
        golden = np.where(rng.random(rows) < 0.5, rng.integers(0, 12, rows), -1).astype(np.int32)
        ids = rng.integers(-1, 12, (len(lengths), 2)).astype(np.int32)
        args = (tokens, accepted, drafts if forced else None, golden if forced else None, begin)
        return Sample(label, base._send(device, *args, np.array(lengths, np.int32), ids if stops else None, width))

    yield sample("no sequences", [], 6, forced=False, stops=False)
    yield sample("sequences without rows", [0, 0], 6, forced=True, stops=True)
    yield sample("single rows", [1] * 5, 1, forced=False, stops=True)
    yield sample("mixed lengths", [6, 1, 0, 3, 6, 2], 6, forced=False, stops=True)
    yield sample("golden tokens", [6, 1, 0, 3, 6, 2], 6, forced=True, stops=False)
    yield sample("many rows", rng.integers(0, 7, 261), 6, forced=True, stops=True)
    yield sample("real batch", [6] * 256, 6, forced=False, stops=True)
