"""Device code of the vision tower but its products."""

from __future__ import annotations

import triton.language as tl

from .jit import jit
from .portable import bf16_to_f32, to_bf16
from .portable_elementary import sigmoid

GRAY: tl.constexpr = tl.constexpr(127)


@jit
def patches_kernel(
    place_ptr, pixel_ptr, image_ptr, out_ptr, images, size: tl.int64, PATCH: tl.constexpr, PIXELS: tl.constexpr
):
    """PIXELS of one patch: three channels, normalised. size: bytes of all images."""
    AREA: tl.constexpr = PATCH * PATCH
    PARTS: tl.constexpr = (AREA + PIXELS - 1) // PIXELS
    row = (tl.program_id(0) // PARTS).to(tl.int64)
    pixel = (tl.program_id(0) % PARTS) * PIXELS + tl.arange(0, PIXELS)
    inside = pixel < AREA
    image = tl.zeros((PIXELS,), tl.int64) + tl.load(place_ptr + row * 3)
    known = (image >= 0) & (image < images)
    offset = tl.load(image_ptr + image * 5, mask=known, other=0)
    width = tl.load(image_ptr + image * 5 + 1, mask=known, other=0)
    height = tl.load(image_ptr + image * 5 + 2, mask=known, other=0)
    left = tl.load(image_ptr + image * 5 + 3, mask=known, other=0)
    top = tl.load(image_ptr + image * 5 + 4, mask=known, other=0)
    y = tl.load(place_ptr + row * 3 + 1).to(tl.int64) * PATCH + pixel // PATCH - top
    x = tl.load(place_ptr + row * 3 + 2).to(tl.int64) * PATCH + pixel % PATCH - left
    there = inside & known & (y >= 0) & (y < height) & (x >= 0) & (x < width)
    at = offset + 3 * (y * width + x)
    for channel in tl.static_range(3):
        byte = tl.load(pixel_ptr + at + channel, mask=there & (at >= 0) & (at + channel < size), other=GRAY)
        share = tl.div_rn(byte.to(tl.float32), tl.full((PIXELS,), 255.0, tl.float32))
        value = (share - 0.5) * 2.0  # a division by one half, exact either way
        value = tl.where(known, value, 0.0)
        tl.store(out_ptr + row * (3 * AREA) + channel * AREA + pixel, to_bf16(value), mask=inside)


@jit
def gate_rows_kernel(x_ptr, out_ptr, N: tl.constexpr, BLOCK: tl.constexpr):
    """(g * sigmoid(g)) * u of BLOCK channels of a row of bf16 [T, 2N]."""
    PARTS: tl.constexpr = (N + BLOCK - 1) // BLOCK
    row = (tl.program_id(0) // PARTS).to(tl.int64)
    channel = (tl.program_id(0) % PARTS) * BLOCK + tl.arange(0, BLOCK)
    mask = channel < N
    gate = bf16_to_f32(tl.load(x_ptr + row * (2 * N) + channel, mask=mask, other=0.0))
    up = bf16_to_f32(tl.load(x_ptr + row * (2 * N) + N + channel, mask=mask, other=0.0))
    tl.store(out_ptr + row * N + channel, to_bf16(gate * sigmoid(gate) * up), mask=mask)


@jit
def turn_kernel(
    x_ptr, place_ptr, table_ptr, out_ptr, lines, places,
    HEADS: tl.constexpr, D: tl.constexpr, HALF: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """BLOCK heads of bf16 [T, 3, HEADS, D]; those of values are copied. Out may be x."""
    QUARTER: tl.constexpr = D // 4
    line = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    keep = line < lines
    row = line // (3 * HEADS)
    pair = tl.arange(0, HALF)
    mask = keep[:, None] & (pair < D // 2)[None, :]
    at = (line * D)[:, None] + pair[None, :]
    low = tl.load(x_ptr + at, mask=mask, other=0.0)
    high = tl.load(x_ptr + at + D // 2, mask=mask, other=0.0)
    by_row = (pair < QUARTER)[None, :]
    spot = tl.load(place_ptr + row * 3 + 1, mask=keep, other=0)[:, None]
    spot = tl.where(by_row, spot, tl.load(place_ptr + row * 3 + 2, mask=keep, other=0)[:, None]).to(tl.int64)
    angle = table_ptr + (spot * QUARTER + (pair % QUARTER)[None, :]) * 2
    turned = (line // HEADS % 3 < 2)[:, None]
    known = mask & turned & (spot >= 0) & (spot < places)
    cosine = tl.load(angle, mask=known, other=1.0)
    sine = tl.load(angle + 1, mask=known, other=0.0)
    a, b = bf16_to_f32(low), bf16_to_f32(high)
    tl.store(out_ptr + at, tl.where(turned, to_bf16(a * cosine - b * sine), low), mask=mask)
    tl.store(out_ptr + at + D // 2, tl.where(turned, to_bf16(a * sine + b * cosine), high), mask=mask)


@jit
def merge_kernel(
    x_ptr, source_ptr, out_ptr, rows,
    C: tl.constexpr, S: tl.constexpr, S_PADDED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """BLOCK channels of the S patches of one vector, channel by channel; zeros for patches outside the rows of x."""
    PARTS: tl.constexpr = (C + BLOCK - 1) // BLOCK
    vector = (tl.program_id(0) // PARTS).to(tl.int64)
    channel = (tl.program_id(0) % PARTS) * BLOCK + tl.arange(0, BLOCK)
    patch = tl.arange(0, S_PADDED)
    index = tl.load(source_ptr + vector * S + patch, mask=patch < S, other=-1).to(tl.int64)
    there = (index >= 0) & (index < rows)
    inside = (channel < C)[:, None]
    value = tl.load(x_ptr + (index * C)[None, :] + channel[:, None], mask=there[None, :] & inside, other=0)
    place = out_ptr + vector * (C * S) + (channel.to(tl.int64) * S)[:, None] + patch[None, :]
    tl.store(place, value, mask=(patch < S)[None, :] & inside)


@jit
def scatter_kernel(
    x_ptr, value_ptr, mark_ptr, source_ptr, out_ptr, values, marks,
    M: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """BLOCK channels of all streams of a row; out may be x."""
    PARTS: tl.constexpr = (D + BLOCK - 1) // BLOCK
    row = (tl.program_id(0) // PARTS).to(tl.int64)
    channel = (tl.program_id(0) % PARTS) * BLOCK + tl.arange(0, BLOCK)
    inside = channel < D
    source = tl.zeros((BLOCK,), tl.int64) + tl.load(source_ptr + row)
    mark = -2 - source
    value = tl.load(value_ptr + source * D + channel, mask=inside & (source >= 0) & (source < values), other=0)
    learned = tl.load(mark_ptr + mark * D + channel, mask=inside & (mark >= 0) & (mark < marks), other=0)
    value = tl.where(source >= 0, value, learned)
    for stream in tl.static_range(M):
        at = (row * M + stream) * D + channel
        own = tl.load(x_ptr + at, mask=inside & (source == -1), other=0)
        tl.store(out_ptr + at, tl.where(source == -1, own, value), mask=inside)
