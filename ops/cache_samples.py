"""Samples of the families kv, index and attention: edge cases first, then tiles with tails, then released widths."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from . import cache_steps as build
from .cache_steps import Step, make_step
from .layouts import FP4_16, FP4_32_INDEX, FP8_32, LAYOUTS
from .spec import Sample

Rng = np.random.Generator

MIXED = ((0, 7), (200, 201), (61, 140), (300, 303))
"""A first chunk, a decoded row, a chunk that crosses a page, draft rows."""


MANY = ((0, 150), (37, 147))
"""Two 128-row tiles and, with one row of padding, a tail."""
BLOCKS = (
    ("draft blocks", ((0, 5), (3, 8), (200, 205), (16, 21))),
    ("many draft blocks", tuple((17 * i, 17 * i + 5) for i in range(53))),
)
"""Draft rows behind 0, 3, 16 and 200 positions; two 128-row tiles of them, a block across the border, and a tail."""
LONG = ((2100, 2102), (2198, 2199), (5, 6))
"""Contexts of more than two tiles of 1024 entries at ratio 1."""


def _steps(rng: Rng, device: torch.device) -> Iterator[tuple[str, Step]]:
    yield "no rows", make_step(rng, device, ())
    yield "padding rows only", make_step(rng, device, (), padding=3)
    yield "first token", make_step(rng, device, ((0, 1),))
    yield "second token", make_step(rng, device, ((1, 2),))
    yield "odd chunk", make_step(rng, device, ((1, 6),), padding=1)
    yield "mixed batch", make_step(rng, device, MIXED, padding=2)
    yield "many rows", make_step(rng, device, MANY, padding=1)


def window_pack(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """kv, positions, table."""
    table = build.rope_table(512, 16, device)
    for label, step in _steps(rng, device):
        yield Sample(label, (build.normal(rng, device, step.rows, 64), step.positions, table))
    kv = build.normal(rng, device, 4, 64)
    kv[0], kv[1], kv[2, 5], kv[3] = 0.0, 1e-30, torch.inf, kv[3] * 1e30
    yield Sample("zero, tiny, infinite and huge rows", (kv, torch.arange(4, dtype=torch.int32, device=device), table))
    place = torch.arange(300, 429, dtype=torch.int32, device=device)
    yield Sample(
        "real width, many rows", (build.normal(rng, device, 129, 512), place, build.rope_table(512, 64, device))
    )


def window_store(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """records, ring, positions, row_seq, seq_end, state_slot."""
    for label, step, slots, d in _ring_cases(rng, device, slots=22, real=133):
        fresh = torch.from_numpy(build.records(rng, FP8_32, (step.rows,), d)).to(device)
        ring = build.window_ring(rng, step, slots, d)
        yield Sample(label, (fresh, ring, step.positions, step.row_seq, step.seq_end, step.state_slot))


def compress_pool(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """value, gate, ring, positions, row_seq, seq_start, state_slot."""
    for label, step, slots, d in _ring_cases(rng, device, slots=7):
        value, gate = (build.normal(rng, device, step.rows, d, dtype=torch.float32) for _ in range(2))
        gate[:, :4] *= 50  # exponentials past the range
        ring = build.compressor_ring(rng, step, slots, d)
        yield Sample(label, (value, gate * 4, ring, step.positions, step.row_seq, step.seq_start, step.state_slot))


def compressor_ring_store(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """value, gate, ring, positions, row_seq, seq_end, state_slot."""
    for label, step, slots, d in _ring_cases(rng, device, slots=7):
        value, gate = (build.normal(rng, device, step.rows, d, dtype=torch.float32) for _ in range(2))
        ring = build.compressor_ring(rng, step, slots, d)
        yield Sample(label, (value, gate, ring, step.positions, step.row_seq, step.seq_end, step.state_slot))


def _ring_cases(
    rng: Rng, device: torch.device, slots: int, real: int | None = None
) -> Iterator[tuple[str, Step, int, int]]:
    for label, step in _steps(rng, device):
        yield label, step, slots, 64
    step = make_step(rng, device, ((1, 300), (999, 1000)))
    yield "real width, chunk longer than the ring", step, real or slots, 512


def compressed_store(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """latent, pages, positions, row_seq, block_table, table, ratio, record."""
    for label, step, ratio, d in _store_cases(rng, device, 64):
        record = FP8_32 if label == "mixed batch" and ratio == 2 else FP4_16
        pages = build.empty_pages(step, record, d, ratio)
        latent = _edge_rows(build.normal(rng, device, step.rows, d))
        table = build.rope_table(1024, 64 if d == 512 else d // 4, device)
        args = (latent, pages, step.positions, step.row_seq, step.block_table, table, ratio, record.name)
        yield Sample(f"{label}, ratio {ratio}, {record.name}", args)


def index_key_store(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """key, pages, positions, row_seq, block_table, table, ratio."""
    for label, step, ratio, di in _store_cases(rng, device, 32):
        pages = build.empty_pages(step, FP4_32_INDEX, di, ratio)
        key = _edge_rows(build.normal(rng, device, step.rows, di))
        table = build.rope_table(1024, di // 2, device)
        args = (key, pages, step.positions, step.row_seq, step.block_table, table, ratio)
        yield Sample(f"{label}, ratio {ratio}", args)


def _edge_rows(x: Tensor) -> Tensor:
    """The third row is zero, the fifth beyond the largest number that a group of fp4 with a scale in E4M3 holds."""
    x[2:3], x[4:5] = 0.0, x[4:5] * 3e4
    return x


def _store_cases(rng: Rng, device: torch.device, width: int) -> Iterator[tuple[str, Step, int, int]]:
    for ratio in (1, 2):
        for label, step in _steps(rng, device):
            yield label, step, ratio, width
    for ratio in (1, 2):
        real = 512 if width == 64 else 128
        yield "real width", make_step(rng, device, ((250, 391), (7, 8))), ratio, real


def index_query_pack(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """q, positions, table."""
    table = build.rope_table(512, 16, device)
    for label, step in _steps(rng, device):
        yield Sample(label, (_edge_rows(build.normal(rng, device, step.rows, 4, 32)), step.positions, table))
    place = torch.arange(65, dtype=torch.int32, device=device)
    yield Sample("real widths", (build.normal(rng, device, 65, 32, 128), place, build.rope_table(128, 64, device)))


def score_inputs(rng: Rng, step: Step, heads: int, di: int, ratio: int) -> tuple[Tensor, Tensor, Tensor]:
    query = torch.from_numpy(build.records(rng, FP4_32_INDEX, (step.rows, heads), di)).to(step.device)
    weight = build.normal(rng, step.device, step.rows, heads)
    return query, weight, build.filled_pages(rng, step, FP4_32_INDEX, di, ratio)


def score_cases(rng: Rng, device: torch.device) -> Iterator[tuple[str, Step, int, int, int]]:
    for ratio in (1, 2):
        for label, step in _steps(rng, device):
            yield f"{label}, ratio {ratio}", step, 4, 32, ratio
    yield "real widths, ratio 1", make_step(rng, device, ((300, 301), (126, 129))), 32, 128, 1
    yield "real widths, ratio 2", make_step(rng, device, ((500, 530),), padding=1), 32, 128, 2
    yield "real widths, long contexts", make_step(rng, device, LONG, padding=1), 32, 128, 1


def index_score(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """query, head_weight, pages, visible, row_seq, block_table, ratio, entries."""
    for label, step, heads, di, ratio in score_cases(rng, device):
        query, weight, pages = score_inputs(rng, step, heads, di, ratio)
        visible = step.visible(ratio)
        most = int(visible.max()) if step.rows else 0
        entries = min(most + 5, step.block_table.shape[1] * 128 // ratio)
        yield Sample(label, (query, weight, pages, visible, step.row_seq, step.block_table, ratio, entries))


def candidates(rng: Rng, step: Step, ratio: int, block_size: int, count: int) -> Tensor:
    """i32 [T, count]: visible blocks of each row, the newest among them, ascending, -1 padded."""
    blocks = np.full((step.rows, count), -1, dtype=np.int32)
    for t, seen in enumerate(step.visible(ratio).tolist()):
        if seen:
            last = (seen - 1) // block_size
            older = rng.permutation(last)[: count - 1]
            blocks[t, : older.size + 1] = np.sort(np.append(older, last))
    return torch.from_numpy(blocks).to(step.device)


def index_score_blocks(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """query, head_weight, pages, blocks, visible, row_seq, block_table, ratio, block_size."""
    for label, step, heads, di, ratio in score_cases(rng, device):
        query, weight, pages = score_inputs(rng, step, heads, di, ratio)
        visible = step.visible(ratio)
        longest = int(visible.max()) // 8 if step.rows else 0
        blocks = candidates(rng, step, ratio, 8, max(9, min(longest, 263)))
        yield Sample(label, (query, weight, pages, blocks, visible, step.row_seq, step.block_table, ratio, 8))


def topk_select(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """scores, visible, k, blocks, block_size."""

    def ints(*values: int) -> Tensor:
        return torch.tensor(values, dtype=torch.int32, device=device)

    yield Sample("no rows", (torch.zeros((0, 5), device=device), ints(), 4, None, 8))
    yield Sample("no lanes", (torch.zeros((2, 0), device=device), ints(0, 0), 4, None, 8))
    special = torch.tensor([torch.nan, -0.0, 0.0, -torch.inf, torch.inf, -torch.nan, 0.0, 1.0], device=device)
    rows = special.expand(6, -1).contiguous()
    yield Sample("NaN, infinities and both zeros", (rows, ints(0, 1, 3, 5, 7, 8), 3, None, 8))
    yield Sample("more wanted than visible", (rows, ints(8, 7, 6, 3, 1, 0), 11, None, 8))
    winners = torch.zeros((1, 8320))
    winners[0, rng.permutation(8320)[:100]] = torch.from_numpy(rng.random(100, dtype=np.float32)) + 1
    yield Sample("few winners among equal zeros", (winners.to(device), ints(8320), 2048, None, 8))
    close = (0x3F800000 + rng.permutation(6000)).astype(np.int32)
    yield Sample(
        "equal in their high bits",
        (torch.from_numpy(close).view(torch.float32)[None].to(device), ints(6000), 512, None, 8),
    )
    low = build.normal(rng, device, 150, 1029, dtype=torch.float32).abs() * -1e6 - 65505
    seen = torch.from_numpy(rng.integers(0, 1030, 150).astype(np.int32)).to(device)
    yield Sample("all below -65504, many rows", (low, seen, 512, None, 8))
    yield Sample("many rows", (*_many_ties(rng, device, 261, 70), 16, None, 8))
    step = make_step(rng, device, MIXED, padding=2)
    blocks = candidates(rng, step, 1, 8, 9)
    scores = (build.normal(rng, device, step.rows, 72, dtype=torch.float32) * 2).round().bfloat16()
    yield Sample("candidate blocks", (scores, step.visible(1), 16, blocks, 8))
    yield Sample("real k, many ties", (*_many_ties(rng, device, 70, 700), 512, None, 8))
    yield Sample("real k, long contexts", (*_many_ties(rng, device, 3, 16421), 512, None, 8))


def _many_ties(rng: Rng, device: torch.device, rows: int, lanes: int) -> tuple[Tensor, Tensor]:
    """Scores bf16 [rows, lanes] of a few dozen values, NaN in the lanes that are not visible, and `visible`."""
    seen = torch.from_numpy(rng.integers(0, lanes + 1, rows).astype(np.int32)).to(device)
    seen[:1] = lanes
    coarse = (build.normal(rng, device, rows, lanes, dtype=torch.float32) * 2).round().bfloat16()
    return torch.where(torch.arange(lanes, device=device) < seen[:, None], coarse, torch.nan), seen


def block_select(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """scores, visible, block_size, k."""

    def ints(*values: int) -> Tensor:
        return torch.tensor(values, dtype=torch.int32, device=device)

    def scores(*shape: int) -> Tensor:
        return (build.normal(rng, device, *shape, dtype=torch.float32) * 2).round().bfloat16()

    yield Sample("no rows", (scores(0, 5), ints(), 8, 4))
    yield Sample("no lanes", (scores(2, 0), ints(0, 0), 8, 4))
    yield Sample("lengths around a block", (scores(6, 17), ints(0, 1, 8, 9, 16, 17), 8, 2))
    special = scores(3, 40)
    special[0, ::2], special[1], special[2, :32] = torch.nan, torch.nan, torch.inf
    yield Sample("NaN and infinity", (special, ints(40, 40, 35), 8, 3))
    yield Sample("many rows", (*_many_ties(rng, device, 261, 70), 8, 4))
    yield Sample("real block size, many ties", (*_many_ties(rng, device, 70, 1000), 8, 64))
    yield Sample("real k, long contexts", (*_many_ties(rng, device, 3, 2 * 16384 + 77), 8, 2048))


def sparse_attention(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """All arguments of the op, in order."""
    for label, step in _steps(rng, device):
        yield _attention(rng, step, f"{label}, window only", 4, 64, window=16)
        yield _attention(rng, step, f"{label}, ratio 1", 4, 64, window=16, ratio=1, k=16)
        yield _attention(rng, step, f"{label}, ratio 2", 4, 64, window=16, ratio=2, k=16)
    step = make_step(rng, device, MIXED)
    yield _attention(rng, step, "fp8 entries", 4, 64, window=16, ratio=1, k=16, record="fp8_32")
    yield _attention(rng, step, "two tiles and a tail", 4, 64, window=130, ratio=1, k=150)
    yield _attention(rng, step, "one head", 1, 32, window=64, ratio=2, k=64)
    yield _attention(
        rng, make_step(rng, device, MIXED, padding=1), "lower bounds", 4, 64, window=16, ratio=1, k=16, bounded=True
    )
    for label, spans in BLOCKS:
        yield _attention(rng, make_step(rng, device, spans, padding=2), label, 4, 64, window=16 + 5, block=True)
    step = make_step(rng, device, ((700, 701), (126, 129)), padding=1)
    yield _attention(rng, step, "real widths, ratio 1", 64, 512, window=128, ratio=1, k=512)
    yield _attention(rng, step, "real widths, ratio 2", 64, 512, window=128, ratio=2, k=512)
    step = make_step(rng, device, ((700, 705), (126, 131)), padding=1)
    yield _attention(rng, step, "real widths, draft blocks", 64, 512, window=128 + 5, block=True)


def _attention(
    rng: Rng,
    step: Step,
    label: str,
    heads: int,
    d: int,
    *,
    window: int,
    ratio: int = 0,
    k: int = 0,
    record: str = "fp4_16",
    bounded: bool = False,
    block: bool = False,
) -> Sample:
    """`bounded`: first keys before the window, in it and past the row; `block`: rows of a sequence see one another."""
    device = step.device
    q = build.normal(rng, device, step.rows, heads, d)
    fresh = torch.from_numpy(build.records(rng, FP8_32, (step.rows,), d)).to(device)
    ring = build.window_ring(rng, step, window + 6, d)
    sink = build.normal(rng, device, heads, dtype=torch.float32)
    paged: tuple[Tensor | None, ...] = (None, None, None)
    if ratio:
        pages = build.filled_pages(rng, step, LAYOUTS[record], d, ratio)
        paged = (pages, step.block_table, build.selection(rng, step, k, ratio))
    first, last = torch.zeros_like(step.positions), step.positions
    if bounded:
        first = (last + torch.from_numpy(rng.integers(-window, 3, last.shape)).to(device)).int()
    if block:
        sequence = step.row_seq.clamp(min=0).long()
        last = torch.where(step.row_seq >= 0, step.seq_end[sequence] - 1, 0).int()
        first = last - window + 1
    args = (
        q,
        fresh,
        ring,
        sink,
        first,
        last,
        step.row_seq,
        step.seq_start,
        step.row_begin,
        step.state_slot,
        *paged,
        window,
        ratio,
        d**-0.5,
        record,
    )
    return Sample(label, args)
