"""Samples of the family step: lengths at the edges, sequences without rows, tokens from host and device mixed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from .cache_steps import make_step
from .layer_samples import ints
from .spec import Sample

Rng = np.random.Generator
POISON = 1_234_567_890
"""A token that nobody asked for."""

LENGTHS: tuple[tuple[str, tuple[tuple[int, int], ...], int], ...] = (
    ("no rows", (), 0),
    ("padding rows only", (), 3),
    ("sequences without rows", ((0, 0), (0, 9), (3, 3), (0, 1)), 2),
    ("first and second token", ((1, 1), (1, 2)), 0),
    ("chunk, decoded row, draft rows", ((7, 7), (1, 201), (79, 140), (6, 303)), 5),
    ("last positions", ((2, 2**31 - 1), (1, 2**31 - 1)), 1),
)
"""Label, (query length, key length) of every sequence, padding rows."""


def _lengths(rng: Rng) -> Iterator[tuple[str, Sequence[tuple[int, int]], int]]:
    yield from LENGTHS
    yield "many sequences", [(int(rng.integers(0, 4)), int(rng.integers(4, 400))) for _ in range(173)], 9
    yield "many rows", ((131, 1131), (0, 3), (130, 130)), 0
    yield "real decode step", [(6, int(rng.integers(6, 2**20))) for _ in range(43)], 6


def step_metadata(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """query_len, key_len, valid_start, ratios, rows."""
    for label, pairs, padding in _lengths(rng):
        lengths = np.array(pairs, np.int64).reshape(-1, 2)
        valid = [int(rng.integers(0, int(start) + 1)) for start in lengths[:, 1] - lengths[:, 0]]
        args = (ints(lengths[:, 0], device), ints(lengths[:, 1], device), ints(valid, device))
        yield Sample(label, (*args, ints([1, 2], device), int(lengths[:, 0].sum()) + padding))


def step_tokens(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """positions, row_seq, seq_start, slot, fresh, fresh_begin, last_token, drafts, history, skip, vocab, size."""
    decode = [(start, start + int(rng.integers(1, 7))) for start in rng.integers(0, 9, 60)]
    many = [(start, start + int(rng.integers(1, 7))) for start in rng.integers(0, 300, 83)]
    for label, spans, n, size, padding, vocab in (
        ("no rows", [], 5, 4, 0, 100),
        ("padding rows only", [], 5, 4, 3, 100),
        ("first tokens", [(0, 1), (0, 2), (1, 2)], 2, 3, 1, 100),
        ("no drafts, no n-grams", [(0, 9), (5, 6)], 0, 1, 2, 100),
        ("few draft rows", [(200, 206), (1, 3), (64, 70), (2, 3)], 5, 4, 1, 100),
        ("chunks and draft rows", [(0, 7), (200, 206), (3, 90), (1, 3), (64, 70)], 5, 4, 3, 100),
        ("around the start", decode, 5, 4, 0, 100),
        ("many rows", many, 5, 4, 2, 100),
        ("real n-grams", [(4000, 4006)] * 7 + [(0, 300)], 5, 4, 1, 129280),
    ):
        args = token_args(rng, device, spans, n, size, padding, vocab)
        yield Sample(label, args)
        if label in ("few draft rows", "chunks and draft rows"):
            yield Sample(f"{label}, histories that end early", (*args[:8], args[8][:, :3].contiguous(), *args[9:]))


def token_args(
    rng: Rng, device: torch.device, spans: Sequence[tuple[int, int]], n: int, size: int, padding: int, vocab: int
) -> tuple[Any, ...]:
    """Short sequences take device tokens or fresh ones by chance, long ones fresh ones; a few tokens are images."""
    step = make_step(rng, device, spans, padding)
    count, slots, width = len(spans), len(spans) + 3, size - 1 + n
    lengths = np.array([end - start for start, end in spans], np.int64)
    on_device = (lengths <= n + 1) & (rng.random(count) < 0.6)
    order = rng.permutation(slots)[:count]
    if on_device.any():  # slot 0 is one like others
        order = np.where(order == 0, order[on_device.argmax()], order)
        order[on_device.argmax()] = 0
    slot = np.where(on_device, order, -1)
    used = np.where(on_device, 0, lengths)
    begin = np.where(on_device, 2**31 - 1, np.cumsum(used) - used + 2)
    fresh = np.full(int(used.sum()) + 3, POISON)
    fresh[2:-1] = rng.integers(-1, vocab + 3, int(used.sum()))
    last, drafts = np.full(slots, POISON), np.full((slots, n), POISON)
    for s in np.flatnonzero(on_device):
        last[slot[s]] = rng.integers(0, vocab)
        drafts[slot[s], : lengths[s] - 1] = rng.integers(0, vocab, lengths[s] - 1)
    skip = np.where(on_device, rng.integers(0, n + 1, count), 0)
    history = rng.integers(0, vocab + 2, (count, width))
    for sequence, (start, _) in enumerate(spans):
        history[sequence, : skip[sequence]] = POISON
        history[sequence, skip[sequence] + start :] = POISON  # before the first token
    return (
        step.positions, step.row_seq, step.seq_start, ints(slot, device), ints(fresh, device), ints(begin, device),
        ints(last, device), ints(drafts, device), ints(history, device), ints(skip, device), vocab, size,
    )  # fmt: skip
