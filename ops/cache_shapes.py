"""Calls of any shape for the families kv, index and attention: any pieces of any sequences, with padding rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from . import cache_steps as build
from .cache_samples import candidates
from .cache_steps import Step, make_step
from .layouts import FP4_32_INDEX, FP8_32, LAYOUTS
from .shapes import Pick, Range, Spans, shape

Rng = np.random.Generator
Args = tuple[Any, ...]
Pieces = Sequence[Sequence[int]]

SPANS = Spans(most=4, start=300, length=40)
PADDING = Range(0, 3)
RATIO = Pick((1, 2))


def _step(rng: Rng, device: torch.device, spans: Pieces, padding: int) -> Step:
    return make_step(rng, device, [(start, end) for start, end in spans], padding)


@shape("window_pack", spans=SPANS, padding=PADDING, width=Range(32, 128, 32))
def window_pack(rng: Rng, device: torch.device, *, spans: Pieces, padding: int, width: int) -> Args:
    step = _step(rng, device, spans, padding)
    table = build.rope_table(512, width // 4, device)
    return build.normal(rng, device, step.rows, width), step.positions, table


@shape("window_store", spans=SPANS, padding=PADDING, width=Range(32, 128, 32), slots=Range(1, 40))
def window_store(rng: Rng, device: torch.device, *, spans: Pieces, padding: int, width: int, slots: int) -> Args:
    step = _step(rng, device, spans, padding)
    fresh = torch.from_numpy(build.records(rng, FP8_32, (step.rows,), width)).to(device)
    ring = build.window_ring(rng, step, slots, width)
    return fresh, ring, step.positions, step.row_seq, step.seq_end, step.state_slot


@shape("compress_pool", spans=SPANS, padding=PADDING, width=Range(1, 100), slots=Range(1, 9))
def compress_pool(rng: Rng, device: torch.device, *, spans: Pieces, padding: int, width: int, slots: int) -> Args:
    step = _step(rng, device, spans, padding)
    value, gate = (build.normal(rng, device, step.rows, width, dtype=torch.float32) for _ in range(2))
    ring = build.compressor_ring(rng, step, slots, width)
    return value, gate * 4, ring, step.positions, step.row_seq, step.seq_start, step.state_slot


@shape("compressor_ring_store", spans=SPANS, padding=PADDING, width=Range(1, 100), slots=Range(1, 9))
def compressor_ring_store(
    rng: Rng, device: torch.device, *, spans: Pieces, padding: int, width: int, slots: int
) -> Args:
    step = _step(rng, device, spans, padding)
    value, gate = (build.normal(rng, device, step.rows, width, dtype=torch.float32) for _ in range(2))
    ring = build.compressor_ring(rng, step, slots, width)
    return value, gate, ring, step.positions, step.row_seq, step.seq_end, step.state_slot


@shape(
    "compressed_store",
    spans=SPANS,
    padding=PADDING,
    width=Range(32, 128, 32),
    ratio=RATIO,
    record=Pick(("fp4_16", "fp8_32")),
)
def compressed_store(
    rng: Rng, device: torch.device, *, spans: Pieces, padding: int, width: int, ratio: int, record: str
) -> Args:
    step = _step(rng, device, spans, padding)
    pages = build.empty_pages(step, LAYOUTS[record], width, ratio)
    latent, table = build.normal(rng, device, step.rows, width), build.rope_table(512, width // 4, device)
    return latent, pages, step.positions, step.row_seq, step.block_table, table, ratio, record


@shape("index_key_store", spans=SPANS, padding=PADDING, width=Range(32, 128, 32), ratio=RATIO)
def index_key_store(rng: Rng, device: torch.device, *, spans: Pieces, padding: int, width: int, ratio: int) -> Args:
    step = _step(rng, device, spans, padding)
    pages = build.empty_pages(step, FP4_32_INDEX, width, ratio)
    key, table = build.normal(rng, device, step.rows, width), build.rope_table(512, width // 2, device)
    return key, pages, step.positions, step.row_seq, step.block_table, table, ratio


@shape("index_query_pack", spans=SPANS, padding=PADDING, heads=Range(1, 9), width=Range(32, 128, 32))
def index_query_pack(rng: Rng, device: torch.device, *, spans: Pieces, padding: int, heads: int, width: int) -> Args:
    step = _step(rng, device, spans, padding)
    table = build.rope_table(512, width // 2, device)
    return build.normal(rng, device, step.rows, heads, width), step.positions, table


@shape("index_score", spans=SPANS, padding=PADDING, heads=Range(1, 9), width=Range(32, 128, 32), ratio=RATIO)
def index_score(
    rng: Rng, device: torch.device, *, spans: Pieces, padding: int, heads: int, width: int, ratio: int
) -> Args:
    step = _step(rng, device, spans, padding)
    query = torch.from_numpy(build.records(rng, FP4_32_INDEX, (step.rows, heads), width)).to(device)
    weight, pages = (
        build.normal(rng, device, step.rows, heads),
        build.filled_pages(rng, step, FP4_32_INDEX, width, ratio),
    )
    visible = step.visible(ratio)
    entries = int(visible.max()) if step.rows else 0
    return query, weight, pages, visible, step.row_seq, step.block_table, ratio, entries


@shape(
    "index_score_blocks",
    spans=SPANS,
    padding=PADDING,
    heads=Range(1, 9),
    width=Range(32, 128, 32),
    ratio=RATIO,
    blocks=Range(1, 40),
)
def index_score_blocks(
    rng: Rng, device: torch.device, *, spans: Pieces, padding: int, heads: int, width: int, ratio: int, blocks: int
) -> Args:
    step = _step(rng, device, spans, padding)
    query = torch.from_numpy(build.records(rng, FP4_32_INDEX, (step.rows, heads), width)).to(device)
    weight, pages = (
        build.normal(rng, device, step.rows, heads),
        build.filled_pages(rng, step, FP4_32_INDEX, width, ratio),
    )
    chosen = candidates(rng, step, ratio, 8, blocks)
    return query, weight, pages, chosen, step.visible(ratio), step.row_seq, step.block_table, ratio, 8


def _ties(rng: Rng, device: torch.device, rows: int, lanes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores of a few values, NaN among them and in every lane that is not visible; and `visible`."""
    seen = torch.from_numpy(rng.integers(0, lanes + 1, rows).astype(np.int32)).to(device)
    scores = (build.normal(rng, device, rows, lanes, dtype=torch.float32) * 2).round()
    scores[torch.from_numpy(rng.random((rows, lanes)) < 0.02).to(device)] = torch.nan
    return torch.where(torch.arange(lanes, device=device) < seen[:, None], scores, torch.nan), seen


@shape("topk_select", rows=Range(0, 150), lanes=Range(0, 300), k=Range(1, 320))
def topk_select(rng: Rng, device: torch.device, *, rows: int, lanes: int, k: int) -> Args:
    return (*_ties(rng, device, rows, lanes), k, None, 8)


@shape("block_select", rows=Range(0, 150), lanes=Range(0, 300), block_size=Pick((8, 4, 16)), k=Range(1, 40))
def block_select(rng: Rng, device: torch.device, *, rows: int, lanes: int, block_size: int, k: int) -> Args:
    scores, seen = _ties(rng, device, rows, lanes)
    return scores.bfloat16(), seen, block_size, k


@shape(
    "sparse_attention",
    spans=SPANS,
    padding=PADDING,
    heads=Range(1, 6),
    width=Range(32, 96, 32),
    window=Range(1, 140),
    spare=Range(0, 7),
    ratio=Pick((0, 1, 2)),
    k=Range(1, 140),
    record=Pick(("fp4_16", "fp8_32")),
    bounded=Pick((False, True)),
)
def sparse_attention(
    rng: Rng,
    device: torch.device,
    *,
    spans: Pieces,
    padding: int,
    heads: int,
    width: int,
    window: int,
    spare: int,
    ratio: int,
    k: int,
    record: str,
    bounded: bool,
) -> Args:
    step = _step(rng, device, spans, padding)
    fresh = torch.from_numpy(build.records(rng, FP8_32, (step.rows,), width)).to(device)
    ring = build.window_ring(rng, step, max(window - 1, 1) + spare, width)
    paged: tuple[Any, ...] = (None, None, None)
    if ratio:
        pages = build.filled_pages(rng, step, LAYOUTS[record], width, ratio)
        paged = (pages, step.block_table, build.selection(rng, step, k, ratio))
    last = step.positions
    first = torch.zeros_like(last)
    if bounded:
        first = (last + torch.from_numpy(rng.integers(-window, 3, last.shape)).to(device)).int()
    q, sink = build.normal(rng, device, step.rows, heads, width), build.normal(rng, device, heads, dtype=torch.float32)
    where = (first, last, step.row_seq, step.seq_start, step.row_begin, step.state_slot)
    return (q, fresh, ring, sink, *where, *paged, window, ratio, width**-0.5, record)
