"""Rotary position embedding of the last channels of every head."""

from __future__ import annotations

import torch
import triton.language as tl
from torch import Tensor

from . import tuning
from .compile_list import CompileCase
from .jit import jit
from .kv import by_rows, whole_rows
from .portable import bf16_to_f32, to_bf16
from .portable_records import load_angles
from .register import kernel
from .strides import power_of_two


@jit
def rope_kernel(
    x_ptr,
    positions_ptr,
    table_ptr,
    out_ptr,
    rows,
    HEADS: tl.constexpr,
    D: tl.constexpr,
    WIDTH: tl.constexpr,
    PAIRS: tl.constexpr,
    INVERSE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Rows bf16 [T * HEADS, D], the last 2*PAIRS channels turned, the others copied bit for bit.

    Args:
        rows: T * HEADS. WIDTH: a power of two that holds D channels behind an odd one, if the pairs begin at one.
    """
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    keep = row < rows
    channel = tl.arange(0, WIDTH) - D % 2  # pairs begin at even places
    mask = keep[:, None] & ((channel >= 0) & (channel < D))[None, :]
    place = (row * D)[:, None] + channel[None, :]
    even, odd = tl.split(tl.reshape(tl.load(x_ptr + place, mask=mask, other=0.0), (BLOCK, WIDTH // 2, 2)))
    position = tl.load(positions_ptr + row // HEADS, mask=keep, other=0)
    pair = tl.arange(0, WIDTH // 2) - ((D + D % 2) // 2 - PAIRS)
    cosine, sine = load_angles(table_ptr, position, keep, pair, PAIRS)
    if INVERSE:
        sine = -sine
    a, b = bf16_to_f32(even), bf16_to_f32(odd)
    turned = ((pair >= 0) & (pair < PAIRS))[None, :]
    even = tl.where(turned, to_bf16(a * cosine - b * sine), even)
    odd = tl.where(turned, to_bf16(a * sine + b * cosine), odd)
    tl.store(out_ptr + place, tl.reshape(tl.join(even, odd), (BLOCK, WIDTH)), mask=mask)


ROPE = by_rows("rope", "D")


@kernel("rope", version=0, supports=whole_rows("d", rotary=True))
def rope(x: Tensor, positions: Tensor, table: Tensor, inverse: bool, out: Tensor | None) -> Tensor:
    if out is None:
        out = torch.empty_like(x)
    d = x.shape[2]
    rows = x.shape[0] * x.shape[1]
    if not rows:
        return out
    launch = ROPE.choose(x.device, d + d % 2)
    rope_kernel[(-(-rows // launch["BLOCK"]),)](
        x,
        positions,
        table,
        out,
        rows,
        HEADS=x.shape[1],
        D=d,
        WIDTH=power_of_two(d + d % 2, least=2),
        PAIRS=table.shape[1],
        INVERSE=inverse,
        **launch,
        enable_fp_fusion=False,
    )
    return out


COMPILES = [
    CompileCase(
        rope_kernel,
        {"x_ptr": "*bf16", "positions_ptr": "*i32", "table_ptr": "*fp32", "out_ptr": "*bf16", "rows": "i32"},
        {"HEADS": 64, "D": 512, "WIDTH": 512, "PAIRS": 32, "INVERSE": inverse, "BLOCK": launch["BLOCK"]},
        num_warps=launch["num_warps"],
        label=tuning.label("inverse" if inverse else "", archs),
        archs=archs,
    )
    for inverse in (False, True)
    for archs, launch in ROPE.launches(512)
]
