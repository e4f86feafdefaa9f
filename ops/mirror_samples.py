"""Samples of the family mirror: lengths below, at and above a multiple of the pieces, sequences without rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from .layer_samples import ints
from .spec import Sample

Rng = np.random.Generator

LENGTHS: tuple[tuple[str, tuple[int, ...], int], ...] = (
    ("no rows", (), 2),
    ("sequences without rows", (0, 0, 3, 0), 2),
    ("shorter than the pieces", (1, 2, 3), 4),
    ("around the pieces", (7, 8, 9, 15, 16, 17), 4),
    ("one rank", (5, 0, 8), 1),
    ("three ranks", (37, 1, 6, 40), 3),
    ("many rows", (463, 231, 150, 19), 2),
    ("real chunk", (4096, 77), 8),
)


def room(lengths: Sequence[int], ranks: int) -> int:
    """Local rows that a layout needs."""
    return sum(n if ranks == 1 else 2 * -(-n // (2 * ranks)) for n in lengths)


def mirror_rows(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """query_len, key_len, valid_start, ratios, ranks, own, rows, total."""
    for label, lengths, ranks in LENGTHS:
        for own in sorted({0, ranks - 1, ranks // 2}):
            start = [int(rng.integers(0, 500)) for _ in lengths]
            valid = ints([int(rng.integers(0, s + 1)) for s in start], device)
            key = ints([s + n for s, n in zip(start, lengths, strict=True)], device)
            sizes = (room(lengths, ranks) + own, sum(lengths) + 2 * own)
            args = (ints(lengths, device), key, valid, ints([1, 2], device), ranks, own, *sizes)
            yield Sample(f"{label}, rank {own}", args)


def _keep(rng: Rng, label: str, length: int) -> int:
    """Rows of a sequence that go on."""
    if label == "real chunk":
        return min(length, 140)
    least = length * 3 // 4 if label == "many rows" else min(length, 1)
    return int(rng.integers(least, length + 1))


def replay_rows(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """query_len, keep_len, ranks, own, kept, rows."""
    for label, lengths, ranks in LENGTHS:
        for own in sorted({0, ranks - 1, ranks // 2}):
            keep = [_keep(rng, label, n) for n in lengths]
            kept = min(sum(keep), room(lengths, ranks)) + own
            args = (ints(lengths, device), ints(keep, device), ranks, own, kept, room(keep, ranks) + 2 * own)
            yield Sample(f"{label}, rank {own}", args)
