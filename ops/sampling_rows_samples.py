"""Samples of the family sampling_rows: padding, repeated and missing rows, lists without a match."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from .layer_samples import ints
from .spec import Sample

Rng = np.random.Generator
FIXED_ONE = 1 << 31
NOWHERE = 2**31 - 1


def expand_params(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """request, offset, inv_temperature, top_k, top_p, min_p, seeds, base."""
    for label, rows, requests in (
        ("no rows", 0, 3), ("no requests", 3, 0), ("one row", 1, 1), ("mixed", 37, 5), ("many rows", 261, 90),
        ("real step", 43 * 6, 43),
    ):  # fmt: skip
        owner = rng.integers(0, requests, rows) if requests else np.full(rows, -1)
        owner[rng.random(rows) < 0.2] = -1
        inverse = torch.from_numpy((1 / rng.choice([0.2, 0.7, 1.0], requests)).astype(np.float32)).to(device)
        inverse[:1] = torch.inf
        inverse[2:3] = torch.nan  # copied like anything else
        parameters = (
            ints(rng.choice([-1, 0, 1, 20, 2**31 - 1], requests), device),
            ints(rng.choice([0, 1, FIXED_ONE // 2, FIXED_ONE], requests), device, torch.int64),
            ints(rng.choice([0, 1, FIXED_ONE], requests), device, torch.int64),
            torch.from_numpy(rng.integers(-(2**63), 2**63, requests, dtype=np.int64)).to(device),
            ints(rng.integers(0, 2**40, requests), device, torch.int64),
        )
        offset = ints(np.where(owner < 0, NOWHERE, rng.integers(0, 6, rows)), device)
        yield Sample(label, (ints(owner, device), offset, inverse, *parameters))


def mask_rows(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """logits, words, request, offset, first_row."""
    for label, counts, masks, width in (
        ("no rows", (), 0, 37), ("no masks", (2, 1), 0, 37), ("requests without rows", (0, 3, 0), 7, 33),
        ("one column", (2, 1), 4, 1), ("draft rows", (6, 1, 4, 6, 2), 19, 100), ("many rows", (3,) * 87, 263, 131),
        ("real vocabulary", (6, 6, 1), 8, 129280),
    ):  # fmt: skip
        rows = sum(counts)
        logits = (rng.standard_normal((rows, width)) * 3).astype(np.float32)
        logits[rng.random(rows) < 0.2, 0] = np.nan
        words = rng.integers(-(2**31), 2**31, (masks, -(-width // 32)))
        request = rng.integers(-1, max(len(counts), 1), masks)
        offset = rng.integers(-1, 7, masks)
        # Near the end of the integers: a sum of 32 bits would come round to a row.
        offset[: masks // 8] = NOWHERE
        words[:1], request[:1] = 0, -1
        begin = np.concatenate(([0], np.cumsum(counts))) if counts else np.zeros(1)
        args = (torch.from_numpy(logits).to(device), ints(words, device), ints(request, device), ints(offset, device))
        yield Sample(label, (*args, ints(begin, device)))


def lookup_candidates(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """ids, values, wanted."""
    for label, rows, k, j, vocab in (
        ("no rows", 0, 4, 4, 9), ("no candidates", 3, 0, 2, 9), ("nothing wanted", 3, 4, 0, 9),
        ("one token", 37, 9, 1, 16), ("lists of one step and another", 5, 40, 40, 64), ("many rows", 261, 7, 5, 12),
        ("tails", 3, 2100, 300, 9000), ("real lists", 6, 1024, 1024, 129280),
    ):  # fmt: skip
        ids = np.stack([rng.permutation(vocab)[:k] for _ in range(rows)]) if rows else np.zeros((0, k), np.int64)
        values = -rng.exponential(4, (rows, k)).astype(np.float32)
        unused = rng.random((rows, k)) < 0.1
        ids[unused] = -1
        values[unused | (rng.random((rows, k)) < 0.05)] = np.nan
        values[rng.random((rows, k)) < 0.1] = -np.inf
        wanted = rng.integers(-1, vocab, (rows, j))
        if k:
            known = rng.random((rows, j)) < 0.5
            wanted[known] = np.take_along_axis(ids, rng.integers(0, k, (rows, j)), axis=1)[known]
        yield Sample(label, (ints(ids, device), torch.from_numpy(values).to(device), ints(wanted, device)))
