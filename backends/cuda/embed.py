"""Token embedding and selection of rows: copies, found by id."""

from __future__ import annotations

import torch
import triton.language as tl
from torch import Tensor

from .compile_list import CompileCase
from .jit import jit
from .register import kernel
from .strides import power_of_two

COLUMNS = 2048
"""Channels of a row that a program copies."""


@jit
def gather_kernel(x_ptr, index_ptr, out_ptr, pending_ptr, rows, D: tl.constexpr, BLOCK: tl.constexpr, M: tl.constexpr):
    """BLOCK channels of one row to M rows of the output; zeros where the index lies outside the `rows` of x.

    With pending_ptr, the row's mix is written as well: 1 for the first stream, 0 for the others.
    """
    PARTS: tl.constexpr = (D + BLOCK - 1) // BLOCK
    row = (tl.program_id(0) // PARTS).to(tl.int64)
    channel = (tl.program_id(0) % PARTS) * BLOCK + tl.arange(0, BLOCK)
    index = tl.zeros((BLOCK,), tl.int64) + tl.load(index_ptr + row)
    there = (index >= 0) & (index < rows) & (channel < D)
    value = tl.load(x_ptr + index * D + channel, mask=there, other=0)
    for stream in tl.static_range(M):
        tl.store(out_ptr + (row * M + stream) * D + channel, value, mask=channel < D)
        if pending_ptr is not None:
            if tl.program_id(0) % PARTS == 0:
                tl.store(pending_ptr + row * M + stream, 1.0 if stream == 0 else 0.0)


def _bits(x: Tensor) -> Tensor:
    """A copy of numbers is one of integers of their width."""
    return x.view(torch.int16 if x.element_size() == 2 else torch.int32)


def gather_sizes(width: int, streams: int = 1) -> dict[str, int]:
    """Constants of `gather_kernel`."""
    return {"D": width, "BLOCK": min(COLUMNS, power_of_two(width, least=32)), "M": streams}


def _gather(x: Tensor, index: Tensor, out: Tensor, pending: Tensor | None, streams: int) -> None:
    width = x.shape[1]
    if not index.shape[0] or not width:
        return
    sizes = gather_sizes(width, streams)
    grid = (index.shape[0] * -(-width // sizes["BLOCK"]),)
    gather_kernel[grid](_bits(x), index, _bits(out), pending, x.shape[0], **sizes, num_warps=4)


@kernel("embed_streams", version=0)
def embed_streams(
    ids: Tensor, weight: Tensor, streams: int, out: tuple[Tensor, Tensor] | None
) -> tuple[Tensor, Tensor]:
    if out is None:
        x = torch.empty((ids.shape[0], streams, weight.shape[1]), dtype=weight.dtype, device=weight.device)
        out = x, torch.empty((ids.shape[0], streams), dtype=torch.float32, device=weight.device)
    _gather(weight, ids, *out, streams)
    return out


@kernel("gather_rows", version=0)
def gather_rows(x: Tensor, rows: Tensor, out: Tensor | None) -> Tensor:
    if out is None:
        out = torch.empty((rows.shape[0], x.shape[1]), dtype=x.dtype, device=x.device)
    _gather(x, rows, out, None, 1)
    return out


COMPILES = [
    CompileCase(
        gather_kernel,
        {"x_ptr": kind, "index_ptr": "*i32", "out_ptr": kind, "pending_ptr": pending, "rows": "i32"},
        gather_sizes(width, streams),
        label=label,
    )
    for label, kind, pending, width, streams in (
        ("embedding", "*i16", "*fp32", 5120, 4),
        ("rows of 5120", "*i16", None, 5120, 1),
        ("streams", "*i16", None, 20480, 1),
        ("mixes", "*i32", None, 4, 1),
    )
]
