"""Device code of the hyper-connections.

The weight `fn` is fp32, and tensor cores take bf16: it goes in as the sum of three bf16 numbers, which hold its 24
bits, so that every product is exact. Sums over the channels are made in parts, whose number follows from the width
alone.
"""

from __future__ import annotations

import triton.language as tl

from .jit import jit
from .norm import store_normed
from .portable import bf16_to_f32, bits, dot, from_bits, round_bf16, to_bf16
from .portable_elementary import exp, reciprocal, sigmoid
from .wide_rows import inverse_rms, load_part, tree_sum


@jit
def collapse_kernel(x_ptr, pending_ptr, out_ptr, M: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr):
    """sum_j pending[j] * x[j], j ascending, of BLOCK channels of a row."""
    PARTS: tl.constexpr = (D + BLOCK - 1) // BLOCK
    row = (tl.program_id(0) // PARTS).to(tl.int64)
    channel = (tl.program_id(0) % PARTS) * BLOCK + tl.arange(0, BLOCK)
    mask = channel < D
    total = tl.zeros((BLOCK,), tl.float32)
    for j in tl.static_range(M):
        x = bf16_to_f32(tl.load(x_ptr + (row * M + j) * D + channel, mask=mask, other=0.0))
        term = x * tl.load(pending_ptr + row * M + j)
        total = term if j == 0 else total + term
    tl.store(out_ptr + row * D + channel, to_bf16(total), mask=mask)


@jit
def expand_kernel(
    x_ptr, y_ptr, post_ptr, comb_ptr, out_ptr,
    M: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr, STREAMS: tl.constexpr,
):  # fmt: skip
    """post[k] * y + sum_j comb[j, k] * x[j], j ascending, of BLOCK channels of a row; out may be x."""
    PARTS: tl.constexpr = (D + BLOCK - 1) // BLOCK
    row = (tl.program_id(0) // PARTS).to(tl.int64)
    channel = (tl.program_id(0) % PARTS) * BLOCK + tl.arange(0, BLOCK)
    mask = channel < D
    k = tl.arange(0, STREAMS)
    there = k < M
    y = bf16_to_f32(tl.load(y_ptr + row * D + channel, mask=mask, other=0.0))
    total = tl.load(post_ptr + row * M + k, mask=there, other=0.0)[:, None] * y[None, :]
    for j in tl.static_range(M):
        x = bf16_to_f32(tl.load(x_ptr + (row * M + j) * D + channel, mask=mask, other=0.0))
        total += tl.load(comb_ptr + (row * M + j) * M + k, mask=there, other=0.0)[:, None] * x[None, :]
    place = out_ptr + row * M * D + (k * D)[:, None] + channel[None, :]
    tl.store(place, to_bf16(total), mask=there[:, None] & mask[None, :])


@jit
def mix_streams(
    x_ptr, pending_ptr, row, keep, START: tl.constexpr, SIZE: tl.constexpr, D: tl.constexpr, M: tl.constexpr
):
    """What `collapse_kernel` gives, for channels START .. of rows [ROWS] (int64): fp32 [ROWS, SIZE]."""
    row = row.to(tl.int64)
    total = tl.zeros((row.shape[0], SIZE), tl.float32)
    for j in tl.static_range(M):
        weight = tl.load(pending_ptr + row * M + j, mask=keep, other=0.0)[:, None]
        term = load_part(x_ptr + (row * M + j) * D, keep, START, SIZE, D) * weight
        total = term if j == 0 else total + term
    return round_bf16(total)


@jit
def collapse_norm_kernel(
    x_ptr, pending_ptr, weight_ptr, y_ptr, code_ptr, scale_ptr, rows, eps,
    M: tl.constexpr, D: tl.constexpr, FIRST: tl.constexpr, REST: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """ROWS rows of streams bf16 [T, M, D], mixed, normed and quantised."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    keep = row < rows
    x = mix_streams(x_ptr, pending_ptr, row, keep, 0, FIRST, D, M)
    total = tree_sum(x * x)
    if REST > 0:
        tail = mix_streams(x_ptr, pending_ptr, row, keep, FIRST, REST, D, M)
        total += tree_sum(tail * tail)
    inverse = inverse_rms(total, eps, D)
    store_normed(y_ptr, code_ptr, scale_ptr, weight_ptr, x, inverse, row, keep, 0, FIRST, D)
    if REST > 0:
        store_normed(y_ptr, code_ptr, scale_ptr, weight_ptr, tail, inverse, row, keep, FIRST, REST, D)


@jit
def split_bf16(x):
    """fp32 as a bf16 of its upper 8 bits, cut, and the rest: 8 bits fewer, exact."""
    upper = bits(x) & -65536
    high = (upper >> 16).to(tl.int16).to(tl.bfloat16, bitcast=True)
    return high, x - from_bits(upper)


@jit
def product_kernel(
    x_ptr, fn_ptr, sum_ptr, rows,
    K: tl.constexpr, N: tl.constexpr, N_PADDED: tl.constexpr, STEPS: tl.constexpr, PARTS: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One part of the channels: fn @ x and the squares of x, [T, PARTS, N + 1]. Grid (blocks of rows, PARTS)."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    part = tl.program_id(1).to(tl.int64)
    keep = row < rows
    n = tl.arange(0, N_PADDED)
    product = tl.zeros((ROWS, N_PADDED), tl.float32)
    squares = tl.zeros((ROWS, BLOCK), tl.float32)
    for step in range(STEPS):
        channel = (part * STEPS + step) * BLOCK + tl.arange(0, BLOCK)
        inside = channel < K
        x = tl.load(x_ptr + (row * K)[:, None] + channel[None, :], mask=keep[:, None] & inside[None, :], other=0.0)
        place = fn_ptr + (n * K)[None, :] + channel[:, None]
        weight = tl.load(place, mask=(n < N)[None, :] & inside[:, None], other=0.0)
        high, rest = split_bf16(weight)
        middle, rest = split_bf16(rest)
        product = dot(x, high, product)
        product = dot(x, middle, product)
        product = dot(x, split_bf16(rest)[0], product)
        wide = bf16_to_f32(x)
        squares += wide * wide
    given = sum_ptr + (row * PARTS + part) * (N + 1)
    tl.store(given[:, None] + n[None, :], product, mask=keep[:, None] & (n < N)[None, :])
    tl.store(given + N, tree_sum(squares), mask=keep)


@jit
def coefficients_kernel(
    sum_ptr, base_ptr, scale_ptr, pre_ptr, post_ptr, comb_ptr, rows, norm_eps, hc_eps, iterations,
    M: tl.constexpr, STREAMS: tl.constexpr, K: tl.constexpr, PARTS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """ROWS rows: parts added in order, the norm, sigmoids, Sinkhorn."""
    N: tl.constexpr = (2 + M) * M
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    keep = row < rows
    one = tl.arange(0, STREAMS)
    first = one < M
    pair = (one * M)[:, None] + one[None, :]
    both = first[:, None] & first[None, :]
    total = tl.zeros((ROWS,), tl.float32)
    pre = tl.zeros((ROWS, STREAMS), tl.float32)
    post = tl.zeros((ROWS, STREAMS), tl.float32)
    c = tl.zeros((ROWS, STREAMS, STREAMS), tl.float32)
    wanted = keep[:, None] & first[None, :]
    square = keep[:, None, None] & both[None, :, :]
    for part in tl.range(PARTS, loop_unroll_factor=8):
        given = sum_ptr + (row * PARTS + part) * (N + 1)
        total += tl.load(given + N, mask=keep, other=0.0)
        pre += tl.load(given[:, None] + one[None, :], mask=wanted, other=0.0)
        post += tl.load(given[:, None] + (M + one)[None, :], mask=wanted, other=0.0)
        c += tl.load(given[:, None, None] + (2 * M + pair)[None, :, :], mask=square, other=0.0)
    inverse = inverse_rms(total, norm_eps, K)
    base = tl.load(base_ptr + one, mask=first, other=0.0)
    pre = sigmoid(pre * inverse[:, None] * tl.load(scale_ptr) + base[None, :]) + hc_eps
    tl.store(pre_ptr + (row * M)[:, None] + one[None, :], pre, mask=wanted)
    base = tl.load(base_ptr + M + one, mask=first, other=0.0)
    post = sigmoid(post * inverse[:, None] * tl.load(scale_ptr + 1) + base[None, :]) * 2.0
    tl.store(post_ptr + (row * M)[:, None] + one[None, :], post, mask=wanted)
    base = tl.load(base_ptr + 2 * M + pair, mask=both, other=0.0)
    c = sinkhorn(c * inverse[:, None, None] * tl.load(scale_ptr + 2) + base[None, :, :], both, hc_eps, iterations)
    tl.store(comb_ptr + (row * (M * M))[:, None, None] + pair[None, :, :], c, mask=square)


LIFT: tl.constexpr = tl.constexpr(2.0**64)


@jit
def sinkhorn(logits, both, eps, iterations):
    """Row softmax, then columns and rows in turn, of [ROWS, STREAMS, STREAMS]; entries outside `both` are 0.

    Inside, a stream has an axis for each of its bits: sums of two have no order, and no tensor is given another shape,
    for which the compiler would move it. Before each division both sides are lifted by a power of two, which changes no
    bit of ordinary numbers: without eps, a sum of tiny ones has no reciprocal in fp32.
    """
    logits, there = _by_bits(logits), _by_bits(both[None, :, :])
    BITS: tl.constexpr = (len(logits.shape) - 1) // 2
    largest = tl.where(there, logits, float("-inf"))
    bad = (logits != logits).to(tl.int32)
    for _ in tl.static_range(BITS):
        largest = tl.max(largest, len(largest.shape) - 1)
        bad = tl.max(bad, len(bad.shape) - 1)
    largest = tl.where(bad > 0, float("nan"), largest)
    c = tl.where(there, exp(logits - _in_rows(largest, BITS)), 0.0)
    c = tl.where(there, c * reciprocal(_in_rows(_row_sums(c, BITS), BITS)) + eps, 0.0)
    lift = tl.where(eps < 1.0, LIFT, 1.0)
    eps *= lift
    c *= lift
    c = tl.where(there, c * reciprocal(_in_columns(_column_sums(c, BITS) + eps, BITS)), 0.0)
    for _ in range(1, iterations):
        c *= lift
        c = tl.where(there, c * reciprocal(_in_rows(_row_sums(c, BITS) + eps, BITS)), 0.0)
        c *= lift
        c = tl.where(there, c * reciprocal(_in_columns(_column_sums(c, BITS) + eps, BITS)), 0.0)
    return tl.reshape(c, (c.shape[0], 1 << BITS, 1 << BITS))


@jit
def _by_bits(x):
    """[N, S, S] as [N, 2, .., 2], S a power of two up to 8."""
    N: tl.constexpr = x.shape[0]
    S: tl.constexpr = x.shape[1]
    if S == 8:
        x = tl.reshape(x, (N, 2, 2, 2, 2, 2, 2))
    elif S == 4:
        x = tl.reshape(x, (N, 2, 2, 2, 2))
    elif S == 1:
        x = tl.reshape(x, (N,))
    return x


@jit
def _row_sums(c, BITS: tl.constexpr):
    for _ in tl.static_range(BITS):
        c = tl.sum(c, len(c.shape) - 1)
    return c


@jit
def _column_sums(c, BITS: tl.constexpr):
    for i in tl.static_range(BITS):
        c = tl.sum(c, BITS - i)
    return c


@jit
def _in_rows(x, BITS: tl.constexpr):
    """A number for every row of the matrices, beside its entries."""
    for _ in tl.static_range(BITS):
        x = tl.expand_dims(x, len(x.shape))
    return x


@jit
def _in_columns(x, BITS: tl.constexpr):
    """A number for every column, beside its entries."""
    for _ in tl.static_range(BITS):
        x = tl.expand_dims(x, 1)
    return x
