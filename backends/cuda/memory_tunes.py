"""How the launches of the memory-bound kernels are measured: rotation, quantisation, cache records and moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...ops.layouts import FP4_16, FP4_32_INDEX, FP8_32, RecordLayout
from . import kv, moves, quant, rope
from .tuning import Shape, Trial

PAIRS = 32
CONTEXT = 8192
PAGE = 114048
"""Bytes of a whole page of every layer's entries."""
RECORDS = (FP4_16, FP8_32, FP4_32_INDEX)


class Draw:
    """Random tensors, the same ones for the same calls."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.generator = torch.Generator(device).manual_seed(1)

    def normal(self, *shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
        return torch.randn(shape, device=self.device, generator=self.generator).to(dtype)

    def bytes(self, *shape: int) -> Tensor:
        return torch.randint(0, 256, shape, dtype=torch.uint8, device=self.device, generator=self.generator)

    def table(self, pairs: int = PAIRS) -> Tensor:
        return self.normal(CONTEXT, pairs, 2, dtype=torch.float32)

    def ints(self, values: Any) -> Tensor:
        return torch.as_tensor(values, dtype=torch.int32).to(self.device)

    def chunk(self, rows: int) -> tuple[Tensor, Tensor]:
        """positions and row_seq: the last rows of one sequence."""
        return self.ints(torch.arange(CONTEXT - rows, CONTEXT)), self.ints(torch.zeros(rows))

    def sequences(self, rows: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """positions, row_seq, seq_end and state_slot of sequences of up to 128 rows."""
        each = min(rows, 128)
        count = -(-rows // each)
        positions = torch.arange(rows) % each + 1
        ends = [each + 1] * (count - 1) + [rows - each * (count - 1) + 1]
        owners = torch.arange(rows) // each
        return self.ints(positions), self.ints(owners), self.ints(ends), self.ints(range(1, count + 1))


def _layout(d: int, size: int) -> RecordLayout:
    return next(layout for layout in RECORDS if layout.record_bytes(d) == size)


def _quant(shape: Shape, rows: int, device: torch.device) -> Any:
    x = Draw(device).normal(rows, shape[0])
    codes = torch.empty(x.shape, dtype=torch.float8_e4m3fn, device=device)
    return x, (codes, torch.empty(rows, shape[0] // 32, dtype=torch.uint8, device=device))


def _rope(shape: Shape, rows: int, device: torch.device) -> Any:
    draw = Draw(device)
    x = draw.normal(rows, 64 if shape[0] == 512 else 3, shape[0])
    return x, draw.chunk(rows)[0], draw.table(min(PAIRS, shape[0] // 2)), True, torch.empty_like(x)


def _pack(shape: Shape, rows: int, device: torch.device) -> Any:
    draw, layout = Draw(device), _layout(*shape)
    x = draw.normal(rows, 32, shape[0]) if layout is FP4_32_INDEX else draw.normal(rows, shape[0])
    out = torch.empty((*x.shape[:-1], shape[1]), dtype=torch.uint8, device=device)
    return x, draw.chunk(rows)[0], draw.table(), out, layout


def _entries(shape: Shape, rows: int, device: torch.device) -> Any:
    d, size, ratio = shape
    draw, count = Draw(device), CONTEXT // 128
    whole = torch.zeros((count + 1, PAGE), dtype=torch.uint8, device=device)
    pages = whole[:, : 128 // ratio * size]
    order = draw.ints(torch.arange(count, 0, -1)).view(1, count)
    return draw.normal(rows, d), pages, *draw.chunk(rows), order, draw.table(), ratio, _layout(d, size), whole


def _rings(rows: int, device: torch.device, *record: int, dtype: torch.dtype, slots: int) -> Tensor:
    return torch.zeros((-(-rows // 128) + 1, slots, *record), dtype=dtype, device=device)


def _window(shape: Shape, rows: int, device: torch.device) -> Any:
    draw = Draw(device)
    ring = _rings(rows, device, shape[0], dtype=torch.uint8, slots=134)
    return draw.bytes(rows, shape[0]), ring, *draw.sequences(rows)


def _pairs(shape: Shape, rows: int, device: torch.device) -> Any:
    draw = Draw(device)
    value, gate = (draw.normal(rows, shape[0], dtype=torch.float32) for _ in range(2))
    ring = _rings(rows, device, 2, shape[0], dtype=torch.float32, slots=7)
    return value, gate, ring, *draw.sequences(rows)


def _pool(shape: Shape, rows: int, device: torch.device) -> Any:
    value, gate, ring, positions, row_seq, ends, slot = _pairs(shape, rows, device)
    out = torch.empty(value.shape, dtype=torch.bfloat16, device=device)
    return value, gate, ring, positions, row_seq, torch.zeros_like(ends), slot, out


def _slots(shape: Shape, rows: int, device: torch.device) -> Any:
    """`rows` pairs of slots, as many as a gigabyte holds."""
    draw, count = Draw(device), max(1, min(rows, (1 << 29) // shape[0]))
    pool = torch.zeros((2 * count, shape[0]), dtype=torch.uint8, device=device)
    pool[:count] = draw.bytes(count, shape[0])
    return pool, draw.ints([[i, count + i] for i in range(count)])


def _ring_move(shape: Shape, rows: int, device: torch.device) -> Any:
    draw, ring = Draw(device), 134 if shape[0] == 528 else 9
    count = -(-rows // ring)
    source = draw.bytes(count + 1, ring, shape[0])
    slots, ends = draw.ints(range(1, count + 1)), draw.ints([min(rows, ring)] * count)
    return source, torch.zeros_like(source), slots, slots, torch.zeros_like(slots), ends


def _records(shape: Shape, rows: int, device: torch.device) -> Any:
    d, size = shape
    draw, count = Draw(device), -(-rows // 128)
    pages = draw.bytes(count + 1, PAGE)[:, : 128 * size]
    plan = draw.ints([[page + 1, 0, min(128, rows - 128 * page), 128 * page] for page in range(count)])
    out = torch.empty((rows, d), dtype=torch.bfloat16, device=device)
    return pages, plan, rows, 128, d, _layout(d, size).name, out


def _written(run: Callable[..., Any], *places: int) -> Callable[[Any], list[Tensor]]:
    """Call an op whose outputs are arguments at these places, and return them."""

    def call(inputs: Any) -> list[Tensor]:
        run(*inputs)
        return [inputs[place] for place in places]

    return call


def _in_pages(inputs: Any) -> list[Tensor]:
    kv.store_entries(*inputs[:-1])
    return [inputs[-1]]


def _copied(inputs: Any) -> list[Tensor]:
    pool, pairs = inputs
    moves.copy_slots(pool, pairs, None)
    return [pool[pairs.shape[0] :]]


def _then_none(run: Callable[..., Any]) -> Callable[..., Any]:
    """An op that writes to its arguments alone: `out` is None."""
    return lambda *args: run(*args, None)


TUNES = [
    Trial(
        quant.QUANT_FP8, [(k,) for k in (1280, 5120, 8192, 32768)], ((288,), 5), _quant, lambda a: quant.quant_fp8(*a)
    ),
    Trial(rope.ROPE, [(512,)], ((70,), 3), _rope, _written(rope.rope, 4)),
    Trial(kv.PACK_ROWS, [(512, 528), (128, 68)], ((512, 528), 3), _pack, _written(kv.pack_rows, 3)),
    Trial(
        kv.STORE_ENTRIES,
        [
            (d, layout.record_bytes(d), r)
            for layout, d in ((FP4_16, 512), (FP8_32, 512), (FP4_32_INDEX, 128))
            for r in (1, 2)
        ],
        ((128, 68, 2), 9),
        _entries,
        _in_pages,
    ),
    Trial(kv.WINDOW_STORE, [(528,)], ((300,), 9), _window, _written(_then_none(kv.window_store), 1)),
    Trial(kv.RING_STORE, [(512,)], ((600,), 7), _pairs, _written(_then_none(kv.compressor_ring_store), 2)),
    Trial(kv.COMPRESS_POOL, [(512,)], ((600,), 7), _pool, _written(kv.compress_pool, 7)),
    Trial(moves.COPY_SLOTS, [(PAGE,), (3128928,)], ((20000,), 2), _slots, _copied),
    Trial(moves.RING_MOVE, [(528,)], ((300,), 7), _ring_move, _written(_then_none(moves.ring_move), 1)),
    Trial(moves.LOAD_RECORDS, [(512, 288), (512, 528)], ((512, 288), 5), _records, _written(moves.load_records, 6)),
]
