"""Index queries and scores. The kernels are in `index_kernels.py`; top-k and candidate blocks in `topk_kernels.py`."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from ...hal.registry import Signature
from ...ops.layouts import FP4_32_INDEX, entries_per_page
from . import index_kernels as device
from . import topk_kernels as topk_kernels  # registers topk_select and block_select
from .kv import pack_rows, whole_rows
from .register import kernel
from .source import SourceKernel
from .strides import alignment, power_of_two

ROW_LAUNCH: dict[str, int] = {"BLOCK_E": 128, "TILES": 8, "num_warps": 4, "num_stages": 2}
"""A program that keeps a row, while tiles of keys pass by."""
FEW_LAUNCH: dict[str, int] = {"BLOCK_E": 128, "GROUP": 16, "ROWS": 2, "num_warps": 4, "num_stages": 3}
"""A program that keeps a tile of keys, while the rows of a few drafts pass by."""
MANY_LAUNCH: dict[str, int] = {"BLOCK_E": 128, "GROUP": 128, "ROWS": 4, "num_warps": 4, "num_stages": 2}
"""The same with the rows of a prompt."""
FEW, MANY = 2, 64
"""Rows per sequence from which on these are taken. No bit depends on it."""


def packed_widths(signature: Signature) -> str | None:
    """Queries are whole records of up to 512 channels, and a row's heads fit a tile."""
    width, heads = signature.dims["qb"], signature.dims["H"]
    if width <= 0 or width % 17 or width // 17 * 32 > 512:
        return f"qb must be a multiple of 17 (16 bytes of codes and a scale) up to 272, got {width}"
    return None if 1 <= heads <= 128 else f"H must be 1 to 128, got {heads}"


def _sizes(query: Tensor) -> dict[str, int]:
    """Constants that follow from the widths of the query."""
    heads, width = query.shape[1], query.shape[2]
    codes = width // 17 * 16
    return {
        "HEADS": heads,
        "HEADS_PADDED": power_of_two(heads, least=16),
        "CODES": codes,
        "CODES_PADDED": power_of_two(codes),
    }


def query_bytes(query: Tensor, *_: object) -> int:
    """Scratch: the queries unpacked to bf16, heads and channels padded to powers of two."""
    sizes = _sizes(query)
    return query.shape[0] * sizes["HEADS_PADDED"] * 2 * sizes["CODES_PADDED"] * 2


def _unpack_query(query: Tensor, sizes: dict[str, int], workspace: Tensor | None) -> Tensor:
    """The queries in bf16, in scratch memory."""
    size = query_bytes(query)
    if workspace is None:
        workspace = torch.empty(size, dtype=torch.uint8, device=query.device)
    unpacked = workspace[:size].view(torch.bfloat16)
    lines, block = query.shape[0] * sizes["HEADS_PADDED"], 32
    grid = (-(-lines // block),)
    device.unpack_query_kernel[grid](query, unpacked, lines, **sizes, BLOCK=block, num_warps=4)
    return unpacked


@kernel("index_query_pack", version=0, supports=whole_rows("di", 32, rotary=True))
def index_query_pack(q: Tensor, positions: Tensor, table: Tensor, out: Tensor | None) -> Tensor:
    if out is None:
        width = FP4_32_INDEX.record_bytes(q.shape[2])
        out = torch.empty((*q.shape[:2], width), dtype=torch.uint8, device=q.device)
    pack_rows(q, positions, table, out, FP4_32_INDEX)
    return out


PACK_WIDTHS = (128, 256, 512)
PACK_EACH = 4
"""Heads of a thread, where a row's heads are a multiple of it."""


def whole_lines(signature: Signature) -> str | None:
    """What `source/index_pack.cu` is made for."""
    width, pairs = signature.dims["di"], signature.dims["F"]
    if width not in PACK_WIDTHS:
        return f"di must be one of {', '.join(map(str, PACK_WIDTHS))}, got {width}"
    if pairs % 4 or 2 * pairs > width:
        return f"F must be a multiple of 4 up to {width // 2}, got {pairs}"
    return None


@functools.cache
def pack_kernel(width: int, heads: int, pairs: int) -> SourceKernel:
    """The kernel of `source/index_pack.cu` for static widths."""
    defines = {"WIDTH": width, "HEADS": heads, "PAIRS": pairs, "MOST": PACK_EACH}
    return SourceKernel("index_pack.cu", "index_query_pack", "PPPPq", threads=256, defines=defines)


@kernel("index_query_pack", version=0, name="source", source="cuda", priority=10, supports=whole_lines)
def index_query_pack_source(q: Tensor, positions: Tensor, table: Tensor, out: Tensor | None) -> Tensor:
    rows, heads, width = q.shape
    if out is None:
        out = torch.empty((rows, heads, FP4_32_INDEX.record_bytes(width)), dtype=torch.uint8, device=q.device)
    lines = rows * heads
    if lines:
        pointers = q.data_ptr(), positions.data_ptr(), table.data_ptr(), out.data_ptr()
        each = PACK_EACH if heads % PACK_EACH == 0 else 1
        grid = (-(-lines * width // (4096 * each)), 1, 1)
        pack_kernel(width, heads, table.shape[1]).launch(grid, q.device.index, *pointers, lines)
    return out


@kernel("index_score", version=0, supports=packed_widths, workspace=query_bytes)
def index_score(
    query: Tensor,
    head_weight: Tensor,
    pages: Tensor,
    visible: Tensor,
    row_seq: Tensor,
    block_table: Tensor,
    ratio: int,
    entries: int,
    out: Tensor | None,
    workspace: Tensor | None = None,
) -> Tensor:
    rows = query.shape[0]
    if out is None:
        out = torch.empty((rows, entries), dtype=torch.bfloat16, device=query.device)
    if not rows or not entries or not block_table.shape[0]:
        return out
    sizes = _sizes(query)
    unpacked = _unpack_query(query, sizes, workspace)
    if rows < FEW * block_table.shape[0]:
        _score_rows(unpacked, head_weight, pages, None, visible, row_seq, block_table, ratio, 0, entries, out, sizes)
        return out
    align = alignment(pages)
    launch = MANY_LAUNCH if rows >= MANY * block_table.shape[0] else FEW_LAUNCH
    tiles = -(-entries // launch["BLOCK_E"])
    grid = (tiles * -(-rows // launch["GROUP"]),)
    device.score_keys_kernel[grid](
        unpacked,
        head_weight,
        pages,
        visible,
        row_seq,
        block_table,
        out,
        rows,
        entries,
        tiles,
        block_table.shape[1],
        pages.stride(0) // align,
        **sizes,
        ENTRIES=entries_per_page(ratio),
        ALIGN=align,
        **launch,
    )
    return out


@kernel("index_score_blocks", version=0, supports=packed_widths, workspace=query_bytes)
def index_score_blocks(
    query: Tensor,
    head_weight: Tensor,
    pages: Tensor,
    blocks: Tensor,
    visible: Tensor,
    row_seq: Tensor,
    block_table: Tensor,
    ratio: int,
    block_size: int,
    out: Tensor | None,
    workspace: Tensor | None = None,
) -> Tensor:
    rows, lanes = query.shape[0], blocks.shape[1] * block_size
    if out is None:
        out = torch.empty((rows, lanes), dtype=torch.bfloat16, device=query.device)
    if not rows or not lanes or not block_table.numel():
        return out
    sizes = _sizes(query)
    unpacked = _unpack_query(query, sizes, workspace)
    _score_rows(
        unpacked, head_weight, pages, blocks, visible, row_seq, block_table, ratio, block_size, lanes, out, sizes
    )
    return out


def _score_rows(
    unpacked: Tensor,
    head_weight: Tensor,
    pages: Tensor,
    blocks: Tensor | None,
    visible: Tensor,
    row_seq: Tensor,
    block_table: Tensor,
    ratio: int,
    block_size: int,
    lanes: int,
    out: Tensor,
    sizes: dict[str, int],
) -> None:
    """Launch the kernel that keeps a row and lets keys pass by."""
    align = alignment(pages)
    parts = -(-lanes // (ROW_LAUNCH["BLOCK_E"] * ROW_LAUNCH["TILES"]))
    device.score_rows_kernel[(visible.shape[0] * parts,)](
        unpacked,
        head_weight,
        pages,
        visible if blocks is None else blocks,
        visible,
        row_seq,
        block_table,
        out,
        lanes,
        parts,
        block_table.shape[1],
        pages.stride(0) // align,
        BLOCK_SIZE=block_size,
        **sizes,
        ENTRIES=entries_per_page(ratio),
        ALIGN=align,
        **ROW_LAUNCH,
    )


SOURCES = [pack_kernel(128, 32, 32)]

assert device.SCALE_GROUP.value == FP4_32_INDEX.group // 2
