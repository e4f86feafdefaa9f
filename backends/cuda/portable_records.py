"""Rotary embedding and the quantisers of cache records, on pairs of adjacent channels; docs/numerics.md, section 8.

A row's channels travel as two fp32 tensors, [rows, pairs] of even and of odd ones: a pair is what the rotary embedding
turns, and what a byte of FP4 codes holds. Groups share a scale and are whole pairs.
"""

from __future__ import annotations

import triton.language as tl

from .jit import jit
from .portable import (
    E2M1_MAX,
    E4M3_MAX,
    bf16_to_f32,
    bits,
    e4m3_to_f32,
    e8m0_ceil,
    from_bits,
    round_bf16,
    to_e2m1,
    to_e4m3,
)


@jit
def load_angles(table_ptr, position, keep, pair, PAIRS: tl.constexpr):
    """cos and sin [rows, pairs] of positions [rows]; 1 and 0 for pairs [pairs] below 0, which are copied."""
    place = (position.to(tl.int64) * (2 * PAIRS))[:, None] + (2 * pair)[None, :]  # lint: address, pairs of one row
    mask = keep[:, None] & ((pair >= 0) & (pair < PAIRS))[None, :]
    return tl.load(table_ptr + place, mask=mask, other=1.0), tl.load(table_ptr + place + 1, mask=mask, other=0.0)


@jit
def rotate(even, odd, cosine, sine):
    """Turn pairs: two rounded products and a rounded sum each, then bf16. Contraction has to be off."""
    return round_bf16(even * cosine - odd * sine), round_bf16(even * sine + odd * cosine)


@jit
def load_rotated(
    x_ptr, row, keep, position, table_ptr, D: tl.constexpr, D_PADDED: tl.constexpr, PAIRS: tl.constexpr, R: tl.constexpr
):
    """Rows of bf16 [.., D], the last 2*PAIRS channels turned: even and odd channels [R, D_PADDED/2], fp32.

    Channels before those, and all of them with PAIRS 0, are as they were.
    """
    channel = tl.arange(0, D_PADDED)
    x = tl.load(
        x_ptr + (row.to(tl.int64) * D)[:, None] + channel[None, :],
        mask=keep[:, None] & (channel < D)[None, :],
        other=0.0,
    )
    even, odd = tl.split(tl.reshape(bf16_to_f32(x), (R, D_PADDED // 2, 2)))
    if PAIRS > 0:
        pair = tl.arange(0, D_PADDED // 2) - (D // 2 - PAIRS)
        cosine, sine = load_angles(table_ptr, position, keep, pair, PAIRS)
        turned_even, turned_odd = rotate(even, odd, cosine, sine)
        turned = ((pair >= 0) & (pair < PAIRS))[None, :]
        even, odd = tl.where(turned, turned_even, even), tl.where(turned, turned_odd, odd)
    return even, odd


@jit
def group_max(even, odd, FLOOR: tl.constexpr, R: tl.constexpr, GROUPS: tl.constexpr, SIZE: tl.constexpr):
    """Largest magnitude of each group, at least FLOOR, fp32 [R, GROUPS]; infinity and NaN come through.

    Magnitudes are compared as integers, which puts NaN above infinity.
    """
    most = tl.maximum(bits(even) & 0x7FFFFFFF, bits(odd) & 0x7FFFFFFF)
    most = tl.max(tl.reshape(most, (R, GROUPS, SIZE // 2)), 2)
    least = tl.full((R, GROUPS), FLOOR, tl.float32)
    return from_bits(tl.maximum(most, bits(least)))


@jit
def scaled(x, factor, R: tl.constexpr, GROUPS: tl.constexpr, SIZE: tl.constexpr):
    """x [R, pairs] times the factor of its group [R, GROUPS]."""
    wide = tl.broadcast_to(factor[:, :, None], (R, GROUPS, SIZE // 2))
    return x * tl.reshape(wide, (R, GROUPS * SIZE // 2))


@jit
def quantize_fp8(even, odd, R: tl.constexpr, D: tl.constexpr):
    """Q8: E4M3 codes of even and odd channels, uint8 [R, D/2] each, and scale bytes [R, D/32]."""
    scale, inverse = e8m0_ceil(group_max(even, odd, 1e-4, R, D // 32, 32), E4M3_MAX)
    low = to_e4m3(scaled(even, inverse, R, D // 32, 32))
    return low, to_e4m3(scaled(odd, inverse, R, D // 32, 32)), scale


@jit
def quantize_fp4_pow2(even, odd, R: tl.constexpr, D: tl.constexpr):
    """Q4p: bytes of two E2M1 codes [R, D/2], and scale bytes [R, D/32]."""
    scale, inverse = e8m0_ceil(group_max(even, odd, 7.052966104933725e-38, R, D // 32, 32), E2M1_MAX)
    low = to_e2m1(scaled(even, inverse, R, D // 32, 32))
    return low | (to_e2m1(scaled(odd, inverse, R, D // 32, 32)) << 4), scale


@jit
def quantize_fp4_e4m3(even, odd, R: tl.constexpr, D: tl.constexpr):
    """Q4e: bytes of two E2M1 codes [R, D/2], and E4M3 scale bytes [R, D/16]."""
    sixth: tl.constexpr = 1.0 / 6.0
    scale = to_e4m3(group_max(even, odd, 0.01171875, R, D // 16, 16) * sixth)
    value = e4m3_to_f32(scale)
    inverse = tl.div_rn(tl.full(value.shape, 1.0, tl.float32), value)
    low = to_e2m1(scaled(even, inverse, R, D // 16, 16))
    return low | (to_e2m1(scaled(odd, inverse, R, D // 16, 16)) << 4), scale


@jit
def store_record(
    code_ptr,
    scale_ptr,
    keep,
    even,
    odd,
    RECORD: tl.constexpr,
    D: tl.constexpr,
    D_PADDED: tl.constexpr,
    R: tl.constexpr,
):
    """Quantise rows and write codes at code_ptr [R] and scales at scale_ptr [R].

    Args:
        RECORD: 'fp8_32', 'fp4_16' or 'fp4_32_index', as `ops.layouts` names them.
    """
    if RECORD == "fp8_32":
        low, high, scale = quantize_fp8(even, odd, R, D_PADDED)
        code = tl.reshape(tl.join(low, high), (R, D_PADDED))
        CODES: tl.constexpr = D
        GROUPS: tl.constexpr = D_PADDED // 32
        USED: tl.constexpr = D // 32
    elif RECORD == "fp4_16":
        code, scale = quantize_fp4_e4m3(even, odd, R, D_PADDED)
        CODES: tl.constexpr = D // 2
        GROUPS: tl.constexpr = D_PADDED // 16
        USED: tl.constexpr = D // 16
    else:
        tl.static_assert(RECORD == "fp4_32_index")
        code, scale = quantize_fp4_pow2(even, odd, R, D_PADDED)
        CODES: tl.constexpr = D // 2
        GROUPS: tl.constexpr = D_PADDED // 32
        USED: tl.constexpr = D // 32
    place = tl.arange(0, code.shape[1])
    tl.store(code_ptr[:, None] + place[None, :], code, mask=keep[:, None] & (place < CODES)[None, :])
    group = tl.arange(0, GROUPS)
    tl.store(scale_ptr[:, None] + group[None, :], scale, mask=keep[:, None] & (group < USED)[None, :])
