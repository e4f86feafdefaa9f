"""Rows that a program takes whole: their parts, sums in an order of their own, and their codes.

A row of D channels is taken as two tiles of powers of two, the largest that D holds and one for the rest: 5120 as 4096
and 1024, without idle lanes. Sums are trees of pairs, written out: `tl.sum` adds in an order that follows from the
layout of its operand, and that from the alignment of what was loaded, so equal rows would differ in their last bits.
"""

from __future__ import annotations

import triton.language as tl

from ...hal.registry import Signature, Supports
from .jit import jit
from .portable import E4M3_MAX, bf16_to_f32, bits, e8m0_ceil, from_bits, to_e4m3
from .strides import power_of_two

WIDEST = 16384
"""Channels of a row, at most."""
TILE = 2048
"""Channels of a program's rows, where rows are short."""

GROUP: tl.constexpr = tl.constexpr(32)
"""Channels of one scale."""


def whole_rows(dim: str, group: int = 1) -> Supports:
    """`supports` of kernels that take a row whole."""

    def supports(signature: Signature) -> str | None:
        width = signature.dims[dim]
        if width <= 0 or width % group or width > WIDEST:
            return f"{dim} must be a positive multiple of {group} up to {WIDEST}, got {width}"
        return None

    return supports


def row_sizes(width: int, group: int = 1) -> dict[str, int]:
    """The constants D, FIRST, REST (0: nothing is left) and ROWS, rows of a program; and num_warps."""
    first = power_of_two(width + 1) // 2
    rest = power_of_two(width - first, least=group) if width > first else 0
    if first < group:
        first = group
    rows = max(1, TILE // power_of_two(first + rest))
    warps = 8 if first > 4096 else 4 if rows * first > 512 else 1
    return {"D": width, "FIRST": first, "REST": rest, "ROWS": rows, "num_warps": warps}


@jit
def part_mask(keep, START: tl.constexpr, SIZE: tl.constexpr, D: tl.constexpr):
    """[ROWS, SIZE]: channels START .. of rows that there are."""
    return keep[:, None] & (START + tl.arange(0, SIZE) < D)[None, :]


@jit
def load_part(row_ptr, keep, START: tl.constexpr, SIZE: tl.constexpr, D: tl.constexpr):
    """fp32 [ROWS, SIZE] of bf16 rows that begin at row_ptr [ROWS], channels START .. ; 0 beyond D."""
    channel = START + tl.arange(0, SIZE)
    x = tl.load(row_ptr[:, None] + channel[None, :], mask=part_mask(keep, START, SIZE, D), other=0.0)
    return bf16_to_f32(x)


@jit
def load_weight(weight_ptr, START: tl.constexpr, SIZE: tl.constexpr, D: tl.constexpr):
    """fp32 [1, SIZE] of a bf16 vector."""
    channel = START + tl.arange(0, SIZE)
    return bf16_to_f32(tl.load(weight_ptr + channel, mask=channel < D, other=0.0))[None, :]


@jit
def tree_sum(x):
    """Sums of the rows of [ROWS, N], N a power of two: [ROWS]. Neighbours are added until one is left."""
    ROWS: tl.constexpr = x.shape[0]
    N: tl.constexpr = x.shape[1]
    if N >= 8:  # what a thread has loaded side by side
        x = _add_neighbours(_add_neighbours(_add_neighbours(x)))
    for _ in tl.static_range(3):  # what it has loaded in several turns
        if x.shape[1] > 128:
            low, high = tl.split(tl.permute(tl.reshape(x, (ROWS, 2, x.shape[1] // 2)), (0, 2, 1)))
            x = low + high
    for _ in tl.static_range(16):
        if x.shape[1] > 1:
            x = _add_neighbours(x)
    return tl.reshape(x, (ROWS,))


@jit
def _add_neighbours(x):
    """[ROWS, N] -> [ROWS, N/2]. A sum of two does not depend on their order."""
    return tl.sum(tl.reshape(x, (x.shape[0], x.shape[1] // 2, 2)), 2)


@jit
def sums_of_fewer(a, b, c):
    """Sums of three vectors that `fewer` gave: scalars. A sum of two has no order, so neither has the tree.

    Their numbers become axes of two, and no tensor in between is given another shape: each sum stays where its terms
    are, where the compiler would move them through shared memory after every reshape. All three are added in one
    reduction, whose barriers are shared.
    """
    a, b, c = _axes(a), _axes(b), _axes(c)
    for _ in tl.static_range(7):
        if len(a.shape) > 0:
            a, b, c = tl.reduce((a, b, c), len(a.shape) - 1, _add_three)
    return a, b, c


@jit
def _add_three(a, b, c, d, e, f):
    return a + d, b + e, c + f


@jit
def _axes(x):
    """[N], N a power of two up to 128, with an axis for every factor 2."""
    N: tl.constexpr = x.shape[0]
    if N == 128:
        x = tl.reshape(x, (2, 2, 2, 2, 2, 2, 2))
    elif N == 64:
        x = tl.reshape(x, (2, 2, 2, 2, 2, 2))
    elif N == 32:
        x = tl.reshape(x, (2, 2, 2, 2, 2))
    elif N == 16:
        x = tl.reshape(x, (2, 2, 2, 2))
    elif N == 8:
        x = tl.reshape(x, (2, 2, 2))
    elif N == 4:
        x = tl.reshape(x, (2, 2))
    return x


@jit
def fewer(x):
    """[N], N a power of two -> [up to 128], the same sum: a tree as far as threads add what they have loaded."""
    if x.shape[0] >= 8:
        for _ in tl.static_range(3):
            x = tl.sum(tl.reshape(x, (x.shape[0] // 2, 2)), 1)
    for _ in tl.static_range(3):
        if x.shape[0] > 128:
            x = tl.sum(tl.reshape(x, (2, x.shape[0] // 2)), 0)
    for _ in tl.static_range(16):
        if x.shape[0] > 128:
            x = tl.sum(tl.reshape(x, (x.shape[0] // 2, 2)), 1)
    return x


@jit
def inverse_rms(total, eps, D: tl.constexpr):
    """1 / sqrt(mean + eps) of sums of D squares; 0 where they overflowed."""
    mean = tl.div_rn(total, tl.full(total.shape, D, tl.float32)) + eps
    return tl.div_rn(tl.full(total.shape, 1.0, tl.float32), tl.sqrt_rn(mean))


@jit
def quantize_groups(x):
    """Q8 of fp32 [ROWS, N], docs/numerics.md, section 8: E4M3 codes uint8 [ROWS, N], scale bytes uint8 [ROWS, N/32]."""
    ROWS: tl.constexpr = x.shape[0]
    N: tl.constexpr = x.shape[1]
    x = tl.reshape(x, (ROWS, N // GROUP, GROUP))
    most = tl.max(bits(x) & 0x7FFFFFFF, 2)  # as integers, which puts NaN above infinity
    least = tl.full((ROWS, N // GROUP), 1e-4, tl.float32)
    scale, inverse = e8m0_ceil(from_bits(tl.maximum(most, bits(least))), E4M3_MAX)
    return tl.reshape(to_e4m3(x * inverse[:, :, None]), (ROWS, N)), scale


@jit
def store_codes(code_ptr, scale_ptr, x, row, keep, START: tl.constexpr, SIZE: tl.constexpr, D: tl.constexpr):
    """Quantise the channels START .. of rows [ROWS] of e4m3 [T, D] and uint8 [T, D/32]."""
    code, scale = quantize_groups(x)
    channel = START + tl.arange(0, SIZE)
    mask = part_mask(keep, START, SIZE, D)
    tl.store(code_ptr + (row.to(tl.int64) * D)[:, None] + channel[None, :], code, mask=mask)
    group = START // GROUP + tl.arange(0, SIZE // GROUP)
    place = scale_ptr + (row.to(tl.int64) * (D // GROUP))[:, None] + group[None, :]
    tl.store(place, scale, mask=keep[:, None] & (group < D // GROUP)[None, :])
