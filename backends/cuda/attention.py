"""Sparse attention in Triton. The kernels are in `attention_kernels.py`; `attention_sm90.py` has one in CUDA C++.

A program takes a row from its first tile of keys to the last. The kernel `split` chooses among three ways by the shapes
of a call; sums are cut nowhere, so their bits are equal:

* a program per row, which unpacks records as it goes: decode;
* few rows: the tiles of a row side by side, their scores and unpacked keys into scratch memory; then the channels of a
  row side by side, each adding up the tiles in order;
* many rows of few sequences: every record that the step can reach is unpacked once, then a program per row.

It relies on products whose bits do not depend on their shape. That was seen on SM90 with 64 heads and 512 channels, not
with fewer, so it is for these; elsewhere a program per row is all there is.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Any

import torch
from torch import Tensor

from ...hal.registry import Signature
from ...ops.attention import KEY_TILE
from ...ops.layouts import FP4_16, compressed_record, entries_per_page
from . import attention_kernels as device
from . import attention_sm90  # noqa: F401  (registers)
from .register import kernel
from .strides import alignment, power_of_two

LOG2E = 1.4426950408889634
MOST_HEADS = 64
"""Heads of a program."""
FEW_ROWS = 64
"""Up to so many rows, tiles and channels of a row go to programs of their own."""
MANY_ROWS = 512
"""From so many rows on, records are unpacked first, where that is less work than unpacking them row by row."""
PART = 64
"""Channels of a program that adds up tiles."""


def widths(signature: Signature) -> str | None:
    """Whole groups of channels, up to 512."""
    d = signature.dims["d"]
    return None if d % 32 == 0 and 0 < d <= 512 else f"d must be a multiple of 32 up to 512, got {d}"


@dataclass(frozen=True)
class _Shape:
    """What a launch follows from: sizes of the call, and the constants of its kernels."""

    rows: int
    blocks: int
    tiles: int
    ring_lines: int
    entry_lines: int
    constants: dict[str, Any]

    @property
    def width(self) -> int:
        """Channels, padded."""
        return int(self.constants["WIDTH"])

    @property
    def way(self) -> str:
        """'few', 'rows' or 'many', where a kernel may choose."""
        if self.rows <= FEW_ROWS:
            return "few"
        lines = self.ring_lines + self.entry_lines
        return "many" if self.rows >= MANY_ROWS and 8 * lines <= self.rows * self.tiles * KEY_TILE else "rows"

    @property
    def slots(self) -> int:
        """Slots of all rows."""
        return self.rows * self.tiles * KEY_TILE

    def scratch(self, way: str) -> int:
        """Bytes of scratch memory: addresses of keys, then unpacked keys, then scores."""
        if way == "few":
            return self.slots * (2 * self.width + 4 * self.blocks * int(self.constants["HEADS"]))
        lines = self.rows + self.ring_lines + self.entry_lines if way == "many" else 0
        return self.slots * 8 + lines * 2 * self.width


def _shape(
    q: Tensor, ring: Tensor, sequences: int, block_table: Tensor | None, indices: Tensor | None, window: int, ratio: int
) -> _Shape:
    rows, heads, d = q.shape
    selected = 0 if indices is None else indices.shape[1]
    entries = entries_per_page(ratio) if selected else 1
    block = min(MOST_HEADS, power_of_two(heads, least=16))
    constants = {
        "D": d,
        "WIDTH": power_of_two(d, least=64),
        "HEADS": block,
        "WINDOW": window,
        "SELECTED": selected,
        "SPAN": power_of_two(max(selected, 1)),
    }
    tiles = -(-window // KEY_TILE) + -(-selected // KEY_TILE)
    columns = block_table.shape[1] if block_table is not None and selected else 0
    return _Shape(rows, -(-heads // block), tiles, sequences * ring.shape[1], sequences * columns * entries, constants)


def _shape_of(args: tuple[Any, ...]) -> _Shape:
    """The shape of a call, from its arguments in spec order."""
    return _shape(args[0], args[2], args[7].shape[0], args[11], args[12], args[13], args[14])


def row_scratch(*args: Any) -> int:
    """Scratch of a program per row: addresses of its keys."""
    return _shape_of(args).scratch("rows")


def split_scratch(*args: Any) -> int:
    """Scratch of the way that the shapes choose."""
    shape = _shape_of(args)
    return shape.scratch(shape.way)


def split_widths(signature: Signature) -> str | None:
    """64 heads at a time of 512 channels, padded at most."""
    d, heads = signature.dims["d"], signature.dims["h"]
    if power_of_two(d) != 512 or d % 32 or d > 512 or heads <= MOST_HEADS // 2:
        return f"d must be a multiple of 32 from 288 to 512 and heads more than {MOST_HEADS // 2}, got {d} and {heads}"
    return None


@kernel("sparse_attention", version=1, name="rows", supports=widths, workspace=row_scratch)
def sparse_attention(
    q: Tensor,
    fresh: Tensor,
    ring: Tensor,
    sink: Tensor,
    first_key: Tensor,
    last_key: Tensor,
    row_seq: Tensor,
    seq_start: Tensor,
    row_begin: Tensor,
    state_slot: Tensor,
    pages: Tensor | None,
    block_table: Tensor | None,
    indices: Tensor | None,
    window: int,
    ratio: int,
    scale: float,
    record: str,
    out: Tensor | None,
    workspace: Tensor | None = None,
) -> Tensor:
    return _run(
        (q, fresh, ring, sink, first_key, last_key, row_seq, seq_start, row_begin, state_slot, pages, block_table,
         indices, window, ratio, scale, record), out, workspace, "rows",
    )  # fmt: skip


@kernel(
    "sparse_attention", version=1, name="split", priority=1, archs=("sm_90",), supports=split_widths,
    workspace=split_scratch,
)  # fmt: skip
def split_attention(
    q: Tensor,
    fresh: Tensor,
    ring: Tensor,
    sink: Tensor,
    first_key: Tensor,
    last_key: Tensor,
    row_seq: Tensor,
    seq_start: Tensor,
    row_begin: Tensor,
    state_slot: Tensor,
    pages: Tensor | None,
    block_table: Tensor | None,
    indices: Tensor | None,
    window: int,
    ratio: int,
    scale: float,
    record: str,
    out: Tensor | None,
    workspace: Tensor | None = None,
) -> Tensor:
    return _run(
        (q, fresh, ring, sink, first_key, last_key, row_seq, seq_start, row_begin, state_slot, pages, block_table,
         indices, window, ratio, scale, record), out, workspace, "",
    )  # fmt: skip


def _run(args: tuple[Any, ...], out: Tensor | None, workspace: Tensor | None, way: str) -> Tensor:
    """Launch one way, '' for the one that the shapes choose."""
    (q, fresh, ring, sink, first_key, last_key, row_seq, seq_start, row_begin, state_slot, pages, block_table, indices,
     _, ratio, scale, record) = args  # fmt: skip
    if out is None:
        out = torch.empty_like(q)
    if not q.shape[0]:
        return out
    shape = _shape_of(args)
    way = way or shape.way
    if workspace is None:
        workspace = torch.empty(shape.scratch(way), dtype=torch.uint8, device=q.device)
    layout = compressed_record(record)
    size = layout.record_bytes(q.shape[2])
    # Not the widest loads: what a thread unpacks then fills 16 bytes beside what its neighbour does, without conflicts.
    align = min(8, _align(fresh, 1), _align(ring, 2))
    page_align = 1 if pages is None else gcd(4 if layout is FP4_16 else 8, _align(pages, 1), size)
    call = _Call(
        shape=shape,
        rows=(first_key, last_key, row_seq),
        sequences=(seq_start, row_begin, state_slot),
        window=(fresh, ring),
        paged=(state_slot if pages is None else pages, state_slot if block_table is None else block_table),
        indices=state_slot if indices is None else indices,
        ring_size=ring.shape[1],
        columns=0 if block_table is None else block_table.shape[1],
        scale=scale * LOG2E,
        strides=(fresh.stride(0), ring.stride(0), ring.stride(1)),
        page_row=0 if pages is None else pages.stride(0),
        entries={"ENTRIES": entries_per_page(ratio) if shape.constants["SELECTED"] else 1, "RECORD": size},
        fp4=layout is FP4_16,
        align=align,
        page_align=page_align,
    )
    {"few": _few, "rows": _by_row, "many": _many}[way](call, q, sink, out, workspace)
    return out


def _align(x: Tensor, dims: int) -> int:
    """Bytes that a tensor's beginning and the strides of its leading dims divide by."""
    return alignment(x, dims) if x.data_ptr() % 16 == 0 else 1


@dataclass(frozen=True)
class _Call:
    """The arguments that kernels share, in the order in which they take them."""

    shape: _Shape
    rows: tuple[Tensor, Tensor, Tensor]
    sequences: tuple[Tensor, Tensor, Tensor]
    window: tuple[Tensor, Tensor]
    paged: tuple[Tensor, Tensor]
    indices: Tensor
    ring_size: int
    columns: int
    scale: float
    strides: tuple[int, int, int]
    page_row: int
    entries: dict[str, int]
    fp4: bool
    align: int
    page_align: int

    @property
    def units(self) -> tuple[int, int, int, int]:
        """Strides in units of their alignment."""
        return *(stride // self.align for stride in self.strides), self.page_row // self.page_align  # type: ignore[return-value]


def _by_row(call: _Call, q: Tensor, sink: Tensor, out: Tensor, workspace: Tensor) -> None:
    places = workspace[: call.shape.slots * 8].view(torch.int64)
    _launch_rows(call, q, sink, out, places, places, 0)


def _launch_rows(
    call: _Call, q: Tensor, sink: Tensor, out: Tensor, places: Tensor, keys: Tensor, entries_at: int
) -> None:
    """Addresses, then a program per row; with `entries_at`, the line of the first entry, over unpacked keys."""
    shape, unpacked = call.shape, entries_at > 0
    names = ("WIDTH", "WINDOW", "SELECTED")
    device.find_keys[(shape.rows, shape.tiles)](
        *call.window, call.paged[0], keys, *call.rows, *call.sequences, call.paged[1], call.indices, places,
        shape.rows, call.ring_size, call.columns, entries_at, *call.strides, call.page_row,
        **{name: shape.constants[name] for name in names}, **call.entries, UNPACKED=unpacked, num_warps=2,
    )  # fmt: skip
    device.sparse_attention_rows[(shape.rows, shape.blocks)](
        q, sink, *call.rows, call.indices, places, out, q.shape[1], call.scale, **shape.constants,
        FP4=call.fp4, UNPACKED=unpacked, ALIGN=call.align, PAGE_ALIGN=call.page_align, num_warps=8, num_stages=2,
    )  # fmt: skip


def _few(call: _Call, q: Tensor, sink: Tensor, out: Tensor, workspace: Tensor) -> None:
    shape, heads = call.shape, q.shape[1]
    border = shape.slots * 2 * shape.width
    keys = workspace[:border].view(torch.bfloat16)
    scores = workspace[border : shape.scratch("few")].view(torch.float32)
    device.score_tiles[(shape.rows, shape.tiles, shape.blocks)](
        q, *call.window, *call.rows, *call.sequences, *call.paged, call.indices, keys, scores,
        heads, call.ring_size, call.columns, call.scale, *call.units, **shape.constants, **call.entries,
        FP4=call.fp4, ALIGN=call.align, PAGE_ALIGN=call.page_align, num_warps=8, num_stages=1,
    )  # fmt: skip
    part = min(PART, shape.width)
    device.sum_tiles[(shape.rows, shape.width // part, shape.blocks)](
        sink, *call.rows, call.indices, keys, scores, out, heads, **shape.constants, CHUNK=part, FP4=call.fp4,
        num_warps=4, num_stages=4,
    )  # fmt: skip


def _many(call: _Call, q: Tensor, sink: Tensor, out: Tensor, workspace: Tensor) -> None:
    shape = call.shape
    sizes = {"D": shape.constants["D"], "WIDTH": shape.width}
    border = shape.slots * 8
    places = workspace[:border].view(torch.int64)
    keys = workspace[border : shape.scratch("many")].view(torch.bfloat16)
    lines = shape.rows + shape.ring_lines
    device.unpack_window[(-(-lines // KEY_TILE),)](
        *call.window, call.sequences[2], keys, shape.rows, call.ring_size, lines, *call.units[:3], **sizes,
        ALIGN=call.align, num_warps=8, num_stages=1,
    )  # fmt: skip
    if shape.entry_lines:
        device.unpack_pages[(-(-shape.entry_lines // KEY_TILE),)](
            *call.paged, keys[lines * shape.width :], call.paged[0].shape[0], shape.entry_lines, call.units[3],
            **sizes, **call.entries, FP4=call.fp4, PAGE_ALIGN=call.page_align, num_warps=8, num_stages=1,
        )  # fmt: skip
    _launch_rows(call, q, sink, out, places, keys, lines)
