"""Samples of the drafting ops: edge cases first, then tiles with tails, then the released model's widths."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .spec import SPECS, Sample

Rng = np.random.Generator
SEQUENCES = (0, 1, 37, 261)
BLOCK = 5
REAL_WIDTH, REAL_RANK, REAL_VOCAB = 5120, 256, 129280


def _bf16(rng: Rng, device: torch.device, *shape: int) -> Tensor:
    return torch.from_numpy(rng.standard_normal(shape, dtype=np.float32)).to(device, torch.bfloat16)


def _f32(rng: Rng, device: torch.device, *shape: int) -> Tensor:
    return torch.from_numpy(rng.standard_normal(shape, dtype=np.float32)).to(device)


def _ints(device: torch.device, values: Any) -> Tensor:
    return torch.from_numpy(np.asarray(values, dtype=np.int32)).to(device)


def draft_tap(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """x, taps, place."""
    for rows in SEQUENCES:
        taps = torch.full((rows, 3, 64), torch.nan, dtype=torch.bfloat16, device=device)
        yield Sample(f"{rows} rows", (_bf16(rng, device, rows, 4, 64), taps, rows % 3))
    x = _bf16(rng, device, 6, 3, 32)
    x[0], x[1, 0], x[2, 1, 5], x[3], x[4, 0] = 0.0, -(x[1, 1] + x[1, 2]), torch.inf, x[3] * 1e37, torch.nan
    taps = torch.full((6, 1, 32), torch.nan, dtype=torch.bfloat16, device=device)
    yield Sample("three streams; cancelling, infinite, large and NaN rows", (x, taps, 0))
    taps = torch.zeros((9, 3, REAL_WIDTH), dtype=torch.bfloat16, device=device)
    yield Sample("real width", (_bf16(rng, device, 9, 4, REAL_WIDTH), taps, 2))


def draft_inputs(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """tokens, base, accepted, valid_start, block, window, noise."""
    for count in SEQUENCES:
        base = rng.integers(-3, 400, count)
        accepted = rng.integers(0, BLOCK + 1, count)
        valid = np.where(rng.random(count) < 0.5, 0, rng.integers(0, 400, count)).clip(0, np.maximum(base, 0))
        tokens = np.where(base < 0, -1, rng.integers(0, 500, count))
        arrays = (_ints(device, a) for a in (tokens, base, accepted, valid))
        yield Sample(f"{count} sequences", (*arrays, BLOCK, 16, 511))
    edges = ([7, 8, 9], [0, 15, -1], [0, 0, 9], [0, 4, 9])
    yield Sample("first token, full window, none", (*(_ints(device, e) for e in edges), 1, 16, 511))
    base = rng.integers(1 << 20, 1 << 24, 3)
    arrays = (_ints(device, a) for a in (rng.integers(0, REAL_VOCAB, 3), base, [0, 3, 5], [0, 0, 1 << 20]))
    yield Sample("real window, long contexts", (*arrays, BLOCK, 128, 128799))


def _table(rng: Rng, device: torch.device, rows: int, width: int) -> Tensor:
    """Random bf16 [rows, width]; beyond a prime number of rows they repeat, or making them would take seconds."""
    few = _bf16(rng, device, min(rows, 8191), width)
    return few if rows <= 8191 else few.repeat(-(-rows // 8191), 1)[:rows].contiguous()


def draft_logits(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """base, tokens, embed, head."""

    def sample(label: str, rows: int, vocab: int, rank: int, strided: bool = True) -> Sample:
        whole = _f32(rng, device, rows, BLOCK if strided else 1, vocab)
        tokens = _ints(device, rng.integers(0, vocab, rows))
        tokens[1:2], tokens[2:3] = -1, vocab
        embed, weight = (_table(rng, device, vocab, rank) for _ in range(2))
        head = SPECS["draft_logits"].prepare(weight)
        return Sample(label, (whole[:, -1], tokens, embed, head))

    for rows in SEQUENCES:
        yield sample(f"{rows} rows", rows, 301, 32)
    yield sample("contiguous", 5, 64, 16, strided=False)
    yield sample("two tiles of rank and a tail", 3, 20, 300)
    special = sample("banned, infinite and NaN logits", 4, 40, 16)
    base = special.args[0]
    base[0, ::2], base[1, 3], base[2, 3] = -torch.inf, torch.inf, torch.nan
    yield special
    yield sample("real widths", 2, REAL_VOCAB, REAL_RANK)


def draft_confidence(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """hidden, tokens, embed, weight, inv_temperature."""

    def sample(label: str, rows: int, block: int, width: int, rank: int) -> Sample:
        vocab = 301
        tokens = _ints(device, rng.integers(0, vocab, (rows, block)))
        tokens[1:2], tokens[2:3] = -1, vocab
        temperature = torch.from_numpy((1 / rng.uniform(0.5, 2, block)).astype(np.float32)).to(device)
        embed, weight = _bf16(rng, device, vocab, rank), _bf16(rng, device, width + rank) / 8
        return Sample(label, (_bf16(rng, device, rows, block, width), tokens, embed, weight, temperature))

    for rows in SEQUENCES:
        yield sample(f"{rows} sequences", rows, BLOCK, 64, 32)
    edge = sample("clamped, infinite and NaN", 4, 3, 32, 16)
    hidden = edge.args[0]
    hidden[0], hidden[1], hidden[2, 0, 1], hidden[3, 1] = hidden[0] * 1e4, -hidden[1] * 1e4, torch.inf, torch.nan
    yield edge
    yield sample("real widths", 7, BLOCK, REAL_WIDTH, REAL_RANK)


def draft_store(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """tokens, confidence, stop, slots, pool_tokens, pool_confidence."""

    def sample(label: str, rows: int, block: int, stops: bool) -> Sample:
        slots = rng.permutation(rows + 3)[:rows].astype(np.int32)
        slots[1::3] = -1
        confidence = torch.from_numpy(rng.random((rows, block), dtype=np.float32)).to(device)
        stop = torch.from_numpy(rng.random(rows) < 0.3).to(device) if stops else None
        pool = torch.full((rows + 3, block), -7, dtype=torch.int32, device=device)
        sure = torch.full((rows + 3, block), torch.nan, device=device)
        tokens = _ints(device, rng.integers(0, 500, (rows, block)))
        return Sample(label, (tokens, confidence, stop, _ints(device, slots), pool, sure))

    for rows in SEQUENCES:
        yield sample(f"{rows} sequences", rows, BLOCK, rows % 2 == 0)
    yield sample("one draft", 4, 1, True)
    yield sample("real block", 64, BLOCK, True)


def correct_q(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """confidence, remap, total."""

    def sample(label: str, confidence: Any, remap: Any, total: int) -> Sample:
        values = torch.from_numpy(np.asarray(confidence, dtype=np.float32)).to(device)
        return Sample(label, (values, _ints(device, remap), total))

    yield sample("no sequences", np.zeros((3, BLOCK)), [], 0)
    yield sample("no state", np.zeros((0, BLOCK)), [-1, -1], 7)
    ties = [[0.5, 0.5, 0.5], [0.5, 0.5, 1.0], [0.25, 1.0, 0.0]]
    for total in (3, 4, 6, 9, 12):
        yield sample(f"ties, {total} rows", ties, [2, 0, 1], total)
    odd = [[np.nan, 0.9], [-0.0, 1.0], [np.inf, 0.5], [-1.0, 2.0], [1.0, 0.6]]
    for total in range(7, 15):  # a cut at every rank that a number taken as it is would change
        label = f"NaN, infinite, negative and large confidences, {total} rows"
        yield sample(label, odd, [0, -1, 1, 2, 3, 4], total)
    for count in (37, 261):
        drawn = rng.random((count + 5, BLOCK)).round(1)
        remap = rng.permutation(count + 5)[:count]
        remap[::7] = -1
        yield sample(f"{count} sequences", drawn, remap, int(rng.integers(count, count * (BLOCK + 1))))
    yield sample("real block", rng.random((300, BLOCK)), np.arange(256), 700)


def correct_k(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """base, q, remap, assumed, accepted."""
    for label, count in (*((f"{n} sequences", n) for n in SEQUENCES), ("real batch", 256)):
        remap = rng.permutation(count + 4)[:count]
        remap[::5] = -1
        assumed = rng.integers(0, BLOCK + 1, count)
        arrays = (rng.integers(6, 1 << 20, count), rng.integers(1, BLOCK + 2, count), remap, assumed)
        accepted = rng.integers(0, 2, count + 4)
        yield Sample(label, (*(_ints(device, a) for a in arrays), _ints(device, accepted)))
