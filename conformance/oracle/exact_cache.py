"""Definitions of the exact ops of the families kv and index, row by row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from .attention import best
from .expected import Bits, bits
from .formats import Floats, f64

BF16_MAX = float(torch.finfo(torch.bfloat16).max)


def _last_rows(ring: Tensor, rows: Tensor, positions: Tensor, row_seq: Tensor, end: Tensor, slot: Tensor) -> Bits:
    """The ring after the rows of a step whose positions are still in it."""
    after = ring.clone()
    for row, p, s in zip(rows, positions.tolist(), row_seq.tolist(), strict=True):
        if s >= 0 and p >= int(end[s]) - ring.shape[1]:
            after[int(slot[s]), p % ring.shape[1]] = row
    return Bits(after)


@bits("window_store")
def window_store(records: Tensor, ring: Tensor, *where: Tensor) -> Sequence[Bits]:
    return (_last_rows(ring, records, *where),)


@bits("compressor_ring_store")
def compressor_ring_store(value: Tensor, gate: Tensor, ring: Tensor, *where: Tensor) -> Sequence[Bits]:
    return (_last_rows(ring, torch.stack((gate, value), dim=1), *where),)


def _padded(rows: Sequence[Sequence[int]], k: int) -> Bits:
    return Bits(torch.tensor([[*row, *[-1] * (k - len(row))] for row in rows], dtype=torch.int32).reshape(len(rows), k))


@bits("topk_select")
def topk_select(scores: Tensor, visible: Tensor, k: int, blocks: Tensor | None, block_size: int) -> Sequence[Bits]:
    wide, chosen = f64(scores), []
    for t, seen in enumerate(visible.tolist()):
        if blocks is None:
            entry = np.arange(min(seen, wide.shape[1]))
            lane = entry
        else:
            block = blocks[t].numpy().astype(np.int64)
            entry = (block[:, None] * block_size + np.arange(block_size)).reshape(-1)
            lane = np.flatnonzero((np.repeat(block, block_size) >= 0) & (entry < seen))
            lane = lane[np.argsort(entry[lane], kind="stable")]
            entry = entry[lane]
        chosen.append([int(entry[i]) for i in best(wide[t][lane], k)])
    return (_padded(chosen, k),)


@bits("block_select")
def block_select(scores: Tensor, visible: Tensor, block_size: int, k: int) -> Sequence[Bits]:
    wide = f64(scores)
    chosen = [_blocks(wide[t, : max(0, seen)], block_size, k) for t, seen in enumerate(visible.tolist())]
    return (_padded(chosen, k),)


def _blocks(row: Floats, size: int, k: int) -> list[int]:
    """Blocks of one row's visible scores."""
    parts = [row[b : b + size] for b in range(0, len(row), size)]
    score = np.array([np.nan if np.isnan(p).all() else min(np.nanmax(p), BF16_MAX) for p in parts])
    score[-1:] = np.inf
    return best(score, k)
