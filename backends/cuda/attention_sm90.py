"""Sparse attention for SM90 in CUDA C++ (`source/attention_sm90.cu`), above the Triton kernel in priority.

An item is a row and 64 of its heads. The kernel chooses among three ways by the shapes of a call:

* `rows`: a block takes one item after another, and unpacks records as it goes;
* `few`: the tiles of an item side by side, their scores and unpacked keys into scratch memory; then its channels side
  by side, each adding up the tiles in order;
* `unpacked`: every record that the step can reach is unpacked into scratch memory once, then as in `rows`.

A fourth, `anywhere`, is `rows` byte by byte, for tensors that do not begin on 16 bytes or have other strides. The bits
of all are equal: a sum runs over the same terms in the same order. A row's arithmetic is that of its own tiles alone,
whatever else is in the batch.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...hal.registry import Signature
from ...ops.attention import KEY_TILE
from ...ops.layouts import FP8_32, compressed_record, entries_per_page
from .register import kernel
from .source import SourceKernel

CHANNELS = 512
HEADS = 64
"""Heads of an item."""
MOST_TILES = 32
"""Tiles of a row that the block's list of slots holds."""
FEW_ITEMS = 33
"""Up to so many items, their tiles go to blocks of their own: the four blocks that then share an item's channels still
have a multiprocessor each, of the 132 there are."""
MANY_ROWS = 512
"""From so many rows on, records are unpacked first, where there are far fewer of them than slots of rows."""
QUARTERS = 4
"""Blocks that share the channels of an item."""

SHARED = 231_552
"""Bytes of shared memory where records or lines are laid into tiles."""

_ARGUMENTS = "P" * 17 + "QQQQ" + "i" * 12 + "f"


def _kernels(record: str) -> dict[str, SourceKernel]:
    """The kernels of one kind of pages, by name."""

    def source(way: int, entry: str, threads: int, shared: int, **more: int) -> SourceKernel:
        defines = {"WAY": way, "FP8_PAGES": int(record == FP8_32.name), **more}
        return SourceKernel(
            "attention_sm90.cu", entry, _ARGUMENTS, threads=threads, shared=shared, defines=defines, archs=("sm_90",)
        )

    return {
        "rows": source(0, "attention", 512, SHARED),
        "anywhere": source(0, "attention", 512, SHARED, ANY_ADDRESS=1),
        "unpacked": source(1, "attention", 512, SHARED, PRODUCER_REGISTERS=48, CONSUMER_REGISTERS=208),
        "scores": source(2, "attention_scores", 512, SHARED),
        "values": source(3, "attention_values", 544, 200960),
        "unpack": source(4, "attention_unpack", 256, 0),
    }


KERNELS = {record: _kernels(record) for record in ("fp4_16", "fp8_32")}
SOURCES = [source for kernels in KERNELS.values() for source in kernels.values()]


def _tiles(slots: int) -> int:
    return -(-slots // KEY_TILE)


@functools.cache
def _processors(device: int) -> int:
    """Multiprocessors of a GPU."""
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


@dataclass(frozen=True)
class Shape:
    """What the way of a call and its scratch memory follow from.

    Attributes:
        rows: of the call. groups: of heads. tiles: of a row. lines: records that the step can reach.
    """

    rows: int
    groups: int
    tiles: int
    lines: int

    @property
    def items(self) -> int:
        """Rows times groups of heads."""
        return self.rows * self.groups

    @property
    def way(self) -> str:
        """The way that is fastest."""
        if self.items <= FEW_ITEMS and self.tiles > 1:
            return "few"
        much = 8 * self.lines <= self.rows * self.tiles * KEY_TILE
        return "unpacked" if self.rows >= MANY_ROWS and much else "rows"

    def scratch(self, way: str) -> int:
        """Bytes of scratch memory."""
        if way == "few":
            tiles = self.items * self.tiles
            return tiles * KEY_TILE * (2 * CHANNELS + 4 * HEADS) + self.items * MOST_TILES * 8
        return self.lines * 2 * CHANNELS if way == "unpacked" else 0


def shape_of(args: tuple[Any, ...]) -> Shape:
    """The shape of a call, from its arguments in spec order."""
    q, fresh, ring, sequences, block_table, indices, window, ratio = (args[i] for i in (0, 1, 2, 7, 11, 12, 13, 14))
    selected = 0 if indices is None else int(indices.shape[1])
    lines = int(fresh.shape[0]) + sequences.shape[0] * ring.shape[1]
    if selected and block_table is not None:
        lines += sequences.shape[0] * block_table.shape[1] * entries_per_page(ratio)
    return Shape(int(q.shape[0]), -(-int(q.shape[1]) // HEADS), _tiles(window) + _tiles(selected), lines)


def workspace_of(*args: Any) -> int:
    """Scratch memory of a call, from its arguments in spec order."""
    shape = shape_of(args)
    return shape.scratch(shape.way)


def supports(signature: Signature) -> str | None:
    """512 channels, heads in sixteens, as many slots as shared memory lists."""
    dims, scalars = signature.dims, signature.scalars
    if dims["d"] != CHANNELS or dims["h"] % 16:
        return f"d must be {CHANNELS} and heads a multiple of 16, got {dims['d']} and {dims['h']}"
    tiles = _tiles(scalars["window"]) + _tiles(dims.get("K", 0))
    if tiles > MOST_TILES:
        return f"window and selected slots must fit {MOST_TILES} tiles of {KEY_TILE}, got {tiles}"
    return None


@kernel(
    "sparse_attention", version=1, name="sm90", priority=10, source="cuda", archs=("sm_90",), supports=supports,
    workspace=workspace_of,
)  # fmt: skip
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
    args = (q, fresh, ring, sink, first_key, last_key, row_seq, seq_start, row_begin, state_slot, pages, block_table,
            indices, window, ratio, scale, record)  # fmt: skip
    return run(args, out, workspace)


def run(args: tuple[Any, ...], out: Tensor | None = None, workspace: Tensor | None = None, way: str = "") -> Tensor:
    """Launch a call, its arguments in spec order, in one way; '' for the one that the shapes choose."""
    q = args[0]
    if out is None:
        out = torch.empty_like(q)
    shape = shape_of(args)
    if not shape.rows:
        return out
    way = "anywhere" if not way and not _in_chunks(args, out) else way or shape.way
    if workspace is None and shape.scratch(way):
        workspace = torch.empty(shape.scratch(way), dtype=torch.uint8, device=q.device)
    scratch = 0 if workspace is None else workspace.data_ptr()
    device, processors = q.device.index, _processors(q.device.index)
    kernels = KERNELS[compressed_record(args[16]).name]
    keys_size = shape.items * shape.tiles * KEY_TILE * 2 * CHANNELS
    score_size = shape.items * shape.tiles * KEY_TILE * 4 * HEADS
    packed = _arguments(args, shape, out, (scratch, scratch + keys_size, scratch + keys_size + score_size))
    if way == "few":
        splits = min(shape.tiles, max(1, processors // shape.items))
        kernels["scores"].launch((shape.items, splits, 1), device, *packed)
        kernels["values"].launch((shape.items, QUARTERS, 1), device, *packed)
        return out
    if way == "unpacked":
        kernels["unpack"].launch((min(-(-shape.lines // 8), 16 * processors), 1, 1), device, *packed)
    kernels[way].launch((min(shape.items, processors), 1, 1), device, *packed)
    return out


def _in_chunks(args: tuple[Any, ...], out: Tensor) -> bool:
    """Whether all rows and records begin on 16 bytes. No bit depends on it."""
    q, fresh, ring, pages = args[0], args[1], args[2], args[10]
    places = q.data_ptr() | out.data_ptr() | fresh.data_ptr() | ring.data_ptr()
    strides = fresh.stride(0) | ring.stride(0) | ring.stride(1)
    if pages is not None:
        places, strides = places | pages.data_ptr(), strides | pages.stride(0)
    return not (places | strides) % 16


def _arguments(args: tuple[Any, ...], shape: Shape, out: Tensor, scratch: tuple[int, int, int]) -> tuple[Any, ...]:
    """What all kernels take."""
    (q, fresh, ring, sink, first_key, last_key, row_seq, seq_start, row_begin, state_slot, pages, block_table, indices,
     window, ratio, scale, _) = args  # fmt: skip
    paged = (0, 0, 0)
    page_stride = selected = width = entries_log2 = pool = 0
    if pages is not None and block_table is not None and indices is not None:
        paged = (pages.data_ptr(), block_table.data_ptr(), indices.data_ptr())
        page_stride, pool = pages.stride(0), pages.shape[0]
        width, selected = block_table.shape[1], indices.shape[1]
        entries_log2 = entries_per_page(ratio).bit_length() - 1
    tensors = (q, fresh, ring, sink, first_key, last_key, row_seq, seq_start, row_begin, state_slot)
    strides = (fresh.stride(0), ring.stride(0), ring.stride(1), page_stride)
    return (
        *(x.data_ptr() for x in tensors), *paged, out.data_ptr(), *scratch, *strides,
        shape.items, shape.groups, q.shape[1], window, selected, ring.shape[1], width, entries_log2,
        fresh.shape[0], seq_start.shape[0], ring.shape[0], pool, scale,
    )  # fmt: skip
