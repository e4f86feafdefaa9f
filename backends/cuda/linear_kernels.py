"""The device side of linear layers; `linear.py` launches it and says how the kernels go together.

Outputs stand on one side of a product and rows of x on the other. K is summed channel after channel in steps of the
matrix unit, from 0 at the beginning of every part of `PART` channels, and the parts are added in order from 0. That is
the whole order, whatever the tiles.
"""

from __future__ import annotations

import triton.language as tl

from .jit import jit
from .portable import bf16_to_f32, dot, round_bf16, to_bf16
from .portable_scaled import dot_scaled
from .portable_weights import fp4_order, fp4_words, fp8_bytes, fp8_words

GROUP: tl.constexpr = tl.constexpr(32)
"""Channels of a scale, and output rows of a scale of FP8 weights."""
DEAL: tl.constexpr = tl.constexpr(64)
"""Unpacked rows have a multiple of so many channels."""
BLOCK: tl.constexpr = tl.constexpr(64)
"""Outputs and channels of a block of weights that are prepared in blocks: one after the other, along channels first."""
SCALES: tl.constexpr = tl.constexpr(8)
"""Scales of a row of a block of FP4 weights' scales."""
HALF_ROOT: tl.constexpr = tl.constexpr(0.7071067811865476)


# ---- operands -------------------------------------------------------------------------------------------------------


@jit
def load_tile(at, first, K: tl.constexpr, BLOCK_K: tl.constexpr):
    """Columns first .. first + BLOCK_K - 1 of rows of K numbers that begin at `at`; zeros behind the last."""
    column = first + tl.arange(0, BLOCK_K)
    if K % BLOCK_K == 0:
        return tl.load(at[:, None] + column[None, :])
    else:
        return tl.load(at[:, None] + column[None, :], mask=(column < K)[None, :], other=0.0)


@jit
def row_of(n, WIDTH: tl.constexpr, BYTES: tl.constexpr, BLOCKED: tl.constexpr):
    """Where row n of WIDTH bytes begins: of rows one after the other, or in blocks of 64 rows by BYTES."""
    if BLOCKED:
        return n // BLOCK * (BLOCK * WIDTH) + n % BLOCK * BYTES
    else:
        return n * WIDTH


@jit
def columns(first, COUNT: tl.constexpr, ACROSS: tl.constexpr, BLOCKED: tl.constexpr):
    """Places of columns first .. first + COUNT - 1 behind a row's beginning; blocks have ACROSS of them."""
    if BLOCKED:
        i = tl.arange(0, COUNT)
        if COUNT >= ACROSS:  # `first` begins a block
            return first * BLOCK + i // ACROSS * (ACROSS * BLOCK) + i % ACROSS
        else:
            return first // ACROSS * (ACROSS * BLOCK) + first % ACROSS + i
    else:
        return first + tl.arange(0, COUNT)


@jit
def load_scales(at, first, K: tl.constexpr, BLOCK_K: tl.constexpr, BLOCKED: tl.constexpr = False):
    """Scale bytes [N, BLOCK_K/32] of the channels from `first` on; zeros behind the last."""
    group = first // GROUP + tl.arange(0, BLOCK_K // GROUP)
    place = columns(first // GROUP, BLOCK_K // GROUP, SCALES, BLOCKED)
    return tl.load(at[:, None] + place[None, :], mask=(group < K // GROUP)[None, :], other=0)


@jit
def load_words(at, first, K: tl.constexpr, CODES: tl.constexpr, BLOCK_K: tl.constexpr, BLOCKED: tl.constexpr):
    """Words (int32) of CODES codes of the channels from `first` on; zeros behind the last."""
    word = first // CODES + tl.arange(0, BLOCK_K // CODES)
    column = columns(first // CODES, BLOCK_K // CODES, BLOCK // CODES, BLOCKED)
    place = at.to(tl.pointer_type(tl.int32))[:, None] + column[None, :]
    if K % BLOCK_K == 0:
        return tl.load(place)
    else:
        return tl.load(place, mask=(word < K // CODES)[None, :], other=0)


@jit
def deal(x):
    """[N, K] with the channels of each 64 dealt so that a thread of the matrix unit has 16 neighbours of them.

    In a step of 16 channels the unit wants channels 2q, 2q + 1, 2q + 8 and 2q + 9 of a row from thread q of four. With
    channels 16q .. 16q + 15 dealt to it over four steps, what a thread unpacks lies side by side in memory.
    """
    parts = tl.reshape(x, (x.shape[0], x.shape[1] // DEAL, 4, 4, 2, 2))
    return tl.reshape(tl.permute(parts, (0, 1, 3, 4, 2, 5)), (x.shape[0], x.shape[1]))


@jit
def unpack_rows(code, scale, FP4: tl.constexpr):
    """bf16 of rows of x, their channels in the order of the weights they meet."""
    x = fp8_bytes(code, scale)
    if FP4:
        x = fp4_order(x)
    return deal(x)


# ---- FP8 to bf16 ----------------------------------------------------------------------------------------------------


@jit
def unpack_fp8(
    code_ptr, scale_ptr, out_ptr, rows, K: tl.constexpr, WIDTH: tl.constexpr, SHARED: tl.constexpr,
    FP4: tl.constexpr, BLOCKED: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """bf16 [rows, WIDTH], dealt, of E4M3 codes [rows, K]; a row of scale bytes for SHARED rows of codes."""
    parts: tl.constexpr = (WIDTH + BLOCK_K - 1) // BLOCK_K
    row = (tl.program_id(0) // parts).to(tl.int64) * BLOCK_T + tl.arange(0, BLOCK_T)
    first = tl.program_id(0) % parts * BLOCK_K
    here = tl.minimum(row, rows - 1)
    scale = load_scales(scale_ptr + here // SHARED * (K // GROUP), first, K, BLOCK_K)
    column = first + tl.arange(0, BLOCK_K)
    place = (code_ptr + row_of(here, K, BLOCK, BLOCKED))[:, None] + columns(first, BLOCK_K, BLOCK, BLOCKED)[None, :]
    if K % BLOCK_K == 0:
        code = tl.load(place)
    else:
        code = tl.load(place, mask=(column < K)[None, :], other=0)
    value = unpack_rows(code, scale, FP4)
    at = out_ptr + (row * WIDTH)[:, None] + column[None, :]
    tl.store(at, value, mask=(row < rows)[:, None] & (column < WIDTH)[None, :])


# ---- packed weights, unpacked on the way ----------------------------------------------------------------------------


@jit
def packed_product(
    x_at, xs_at, w_at, ws_at, begin, end,
    K: tl.constexpr, FP4: tl.constexpr, CLEAN: tl.constexpr, BLOCKED: tl.constexpr, X8: tl.constexpr,
    NATIVE: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """fp32 [BLOCK_N, BLOCK_T]: sums over channels begin .. end - 1 of packed weights and rows of x, in FP8 if X8.

    NATIVE gives codes and scales to the matrix unit as they are; else both become bf16.
    x_at, xs_at, w_at, ws_at: pointers to the beginnings of rows of x and their scales, of weights and their scales.
    """
    WIDTH: tl.constexpr = K if X8 else (K + DEAL - 1) // DEAL * DEAL
    acc = tl.zeros((BLOCK_N, BLOCK_T), tl.float32)
    if NATIVE:
        CODES: tl.constexpr = 2 if FP4 else 1
        for first in range(begin, end, BLOCK_K):
            w = load_tile(w_at, first // CODES, K // CODES, BLOCK_K // CODES)
            x = load_tile(x_at, first, K, BLOCK_K)
            w_scale = load_scales(ws_at, first, K, BLOCK_K)
            acc = dot_scaled(w, w_scale, x, load_scales(xs_at, first, K, BLOCK_K), acc, FP4)
        return acc
    # Scales are too narrow for the copies that run ahead, so they are asked for a step before they are wanted.
    SCALES_TOO: tl.constexpr = BLOCKED and FP4
    scale = load_scales(ws_at, begin, K, BLOCK_K, SCALES_TOO)
    x_scale = load_scales(xs_at, begin, K, BLOCK_K) if X8 else 0
    for first in range(begin, end, BLOCK_K):
        code = load_words(w_at, first, K, 8 if FP4 else 4, BLOCK_K, BLOCKED)
        x = load_tile(x_at, first, WIDTH, BLOCK_K)
        next_scale = load_scales(ws_at, first + BLOCK_K, K, BLOCK_K, SCALES_TOO)
        if X8:
            next_x_scale = load_scales(xs_at, first + BLOCK_K, K, BLOCK_K)
            x = unpack_rows(x, x_scale, FP4)
            x_scale = next_x_scale
        w = fp4_words(code, scale, CLEAN) if FP4 else fp8_words(code, scale, CLEAN)
        acc = dot(deal(w), tl.trans(x), acc)
        scale = next_scale
    return acc


@jit
def packed_linear(
    x_ptr, xs_ptr, w_ptr, ws_ptr, out_ptr, rows,
    G: tl.constexpr, N: tl.constexpr, K: tl.constexpr, PART: tl.constexpr, CLEAN: tl.constexpr, BLOCKED: tl.constexpr,
    X8: tl.constexpr, NATIVE: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """A tile of y [rows, G, N] in bf16, or of the parts [parts, rows, G, N] in fp32, for FP8 weights [G, N, K].

    Program (tile of outputs, tile of rows, part). x: [rows, G, K]. A row of weight scales serves 32 outputs.
    """
    tiles: tl.constexpr = (N + BLOCK_N - 1) // BLOCK_N
    blocks: tl.constexpr = (N + GROUP - 1) // GROUP
    group = tl.program_id(0) // tiles
    output = tl.program_id(0) % tiles * BLOCK_N + tl.arange(0, BLOCK_N)
    row = tl.program_id(1).to(tl.int64) * BLOCK_T + tl.arange(0, BLOCK_T)
    part = tl.program_id(2)
    WIDTH: tl.constexpr = K if X8 else (K + DEAL - 1) // DEAL * DEAL
    # Rows and outputs behind the last are the last once more.
    n = tl.minimum(output, N - 1).to(tl.int64)
    line = tl.minimum(row, rows - 1) * G + group
    acc = packed_product(
        x_ptr + line * WIDTH, xs_ptr + line * (K // GROUP) if X8 else x_ptr,
        w_ptr + row_of(group.to(tl.int64) * N + n, K, BLOCK, BLOCKED),
        ws_ptr + (group * blocks + n // GROUP) * (K // GROUP), part * PART, tl.minimum(part * PART + PART, K),
        K, False, CLEAN, BLOCKED, X8, NATIVE, BLOCK_N, BLOCK_T, BLOCK_K,
    )  # fmt: skip
    keep = (output < N)[:, None] & (row < rows)[None, :]
    line = (part.to(tl.int64) * rows + row) * G + group
    at = out_ptr + (line * N)[None, :] + output[:, None]
    if out_ptr.dtype.element_ty == tl.float32:
        tl.store(at, acc, mask=keep)
    else:
        tl.store(at, to_bf16(acc), mask=keep)


# ---- bf16 weights ---------------------------------------------------------------------------------------------------


@jit
def finish(y, bias_ptr, residual_ptr, output, at, keep, GELU: tl.constexpr):
    """Bias, activation and residual of sums [rows, outputs], as fp32 that one rounding to bf16 is left to do with."""
    if bias_ptr is not None:
        y += bf16_to_f32(tl.load(bias_ptr + output))
    if GELU:
        y = round_bf16(y)
        y = round_bf16(y * (tl.erf(y * HALF_ROOT) + 1.0) * 0.5)
    if residual_ptr is not None:
        y = round_bf16(y) + bf16_to_f32(tl.load(residual_ptr + at, mask=keep, other=0.0))
    return y


@jit
def store(out_ptr, at, y, keep):
    if out_ptr.dtype.element_ty == tl.float32:
        tl.store(out_ptr + at, y, mask=keep)
    else:
        tl.store(out_ptr + at, to_bf16(y), mask=keep)


@jit
def few_rows(
    x_ptr, w_ptr, bias_ptr, residual_ptr, out_ptr, rows,
    N: tl.constexpr, K: tl.constexpr, PART: tl.constexpr, GELU: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """A tile of y [rows, N], or of the parts [parts, rows, N] in fp32, for bf16 weights [N, K] and few rows.

    Program (tile of outputs, tile of rows, part). Outputs take the side that a matrix unit wants 64 of.
    """
    output = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    row = tl.program_id(1).to(tl.int64) * BLOCK_T + tl.arange(0, BLOCK_T)
    part = tl.program_id(2)
    n = tl.minimum(output, N - 1)
    x_at = x_ptr + tl.minimum(row, rows - 1) * K
    w_at = w_ptr + n.to(tl.int64) * K
    acc = tl.zeros((BLOCK_N, BLOCK_T), tl.float32)
    for first in range(part * PART, tl.minimum(part * PART + PART, K), BLOCK_K):
        w = load_tile(w_at, first, K, BLOCK_K)
        acc = dot(w, tl.trans(load_tile(x_at, first, K, BLOCK_K)), acc)
    keep = (output < N)[:, None] & (row < rows)[None, :]
    at = ((part.to(tl.int64) * rows + row) * N)[None, :] + output[:, None]
    store(out_ptr, at, finish(acc, bias_ptr, residual_ptr, n[:, None], at, keep, GELU), keep)


@jit
def many_rows(
    x_ptr, w_ptr, bias_ptr, residual_ptr, out_ptr, rows,
    G: tl.constexpr, N: tl.constexpr, K: tl.constexpr, PART: tl.constexpr, GELU: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """A tile of y [rows, G, N] for bf16 weights [G, N, K] and x [rows, G, K], part after part.

    Programs next to each other share their outputs' weights, eight tiles of rows at a time.
    """
    tiles: tl.constexpr = (N + BLOCK_N - 1) // BLOCK_N
    down = (rows + BLOCK_T - 1) // BLOCK_T
    band = tl.program_id(0) // (tiles * 8)
    height = tl.minimum(down - band * 8, 8)
    within = tl.program_id(0) % (tiles * 8)
    output = within // height * BLOCK_N + tl.arange(0, BLOCK_N)
    row = (band * 8 + within % height).to(tl.int64) * BLOCK_T + tl.arange(0, BLOCK_T)
    group = tl.program_id(1)
    n = tl.minimum(output, N - 1)
    x_at = x_ptr + (tl.minimum(row, rows - 1) * G + group) * K
    w_at = w_ptr + (group.to(tl.int64) * N + n) * K
    total = tl.zeros((BLOCK_T, BLOCK_N), tl.float32)
    if PART >= K:
        for first in range(0, K, BLOCK_K):
            x = load_tile(x_at, first, K, BLOCK_K)
            total = dot(x, tl.trans(load_tile(w_at, first, K, BLOCK_K)), total)
    else:
        for begin in range(0, K, PART):
            acc = tl.zeros((BLOCK_T, BLOCK_N), tl.float32)
            for first in range(begin, tl.minimum(begin + PART, K), BLOCK_K):
                x = load_tile(x_at, first, K, BLOCK_K)
                acc = dot(x, tl.trans(load_tile(w_at, first, K, BLOCK_K)), acc)
            total += acc
    keep = (row < rows)[:, None] & (output < N)[None, :]
    at = ((row * G + group) * N)[:, None] + output[None, :]
    store(out_ptr, at, finish(total, bias_ptr, residual_ptr, n[None, :], at, keep, GELU), keep)


# ---- parts ----------------------------------------------------------------------------------------------------------


@jit
def add_parts(
    part_ptr, bias_ptr, residual_ptr, out_ptr, elements: tl.int64,
    N: tl.constexpr, PARTS: tl.constexpr, GELU: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """y of fp32 parts [PARTS, elements], added in order from 0. N: length of a row of y."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    keep = at < elements
    total = tl.zeros((BLOCK,), tl.float32)
    for part in tl.static_range(PARTS):
        total += tl.load(part_ptr + part * elements + at, mask=keep, other=0.0)
    output = (at % N).to(tl.int32)
    store(out_ptr, at, finish(total, bias_ptr, residual_ptr, output, at, keep, GELU), keep)
