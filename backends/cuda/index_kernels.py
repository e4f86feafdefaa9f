"""Device code of the index scores.

A score's bits depend on the row's query and that entry alone, since nothing in their making looks at the tile, the
number of rows or the op:

* codes times scales are exact in bf16, so queries and keys reach the tensor cores unrounded. Each output element is one
  chain of products over the channels, in the order of `channels` and of the instruction's K steps;
* relu, head weight and sum over heads follow in fp32: heads h, h + H/4, h + H/2, h + 3H/4 in a chain of fused
  multiply-adds from a product, then neighbours, then a tree over what is left; H rounded up to a power of two. Heads
  past the last have weight 0.

Unless the scales of a query's or a key's groups are more than some 2^9 apart, the chain of products is exact as well,
and does not depend on the instruction either.
"""

from __future__ import annotations

import triton.language as tl

from .jit import jit
from .portable import INTERPRETED, bf16_to_f32, dot, e2m1_to_f32, to_bf16

SCALE_GROUP: tl.constexpr = tl.constexpr(16)
"""Code bytes, of two channels each, that share a scale."""


@jit
def e8m0_to_bf16(scale):
    """bf16 2^(b - 127) of scale bytes b; byte 255 is NaN. Exact: byte 0 is a subnormal number."""
    b = scale.to(tl.int32)
    plain = tl.where(b == 0, 0x0040, b << 7)
    return tl.where(b == 255, 0x7FC0, plain).to(tl.int16).to(tl.bfloat16, bitcast=True)


@jit
def unpack_scaled(code, factor):
    """Even and odd channels of code bytes [.., n] times bf16 powers of two [.., n]; two bf16 tensors, exact.

    The instructions take two channels at once: a product puts a code's exponent bits and fraction, and its sign, where
    bf16 has its own; 2^126 moves the exponent's bias, subnormal codes included, and the scale is the second factor.
    """
    if INTERPRETED:
        value = bf16_to_f32(factor)
        return to_bf16(e2m1_to_f32(code & 15) * value), to_bf16(e2m1_to_f32(code >> 4) * value)
    else:
        return tl.inline_asm_elementwise(
            """{
            .reg .b32 x, y, m, c;
            mov.b32 c, 0x7E807E80;
            prmt.b32 x, $4, 0, 0x4140;
            prmt.b32 y, $4, 0, 0x4342;
            and.b32 m, x, 0x000F000F;   mul.lo.u32 m, m, 0x1040;   and.b32 m, m, 0x81C081C0;
            mul.rn.bf16x2 m, m, c;   mul.rn.bf16x2 $0, m, $5;
            and.b32 m, y, 0x000F000F;   mul.lo.u32 m, m, 0x1040;   and.b32 m, m, 0x81C081C0;
            mul.rn.bf16x2 m, m, c;   mul.rn.bf16x2 $1, m, $6;
            and.b32 m, x, 0x00F000F0;   mul.lo.u32 m, m, 0x0104;   and.b32 m, m, 0x81C081C0;
            mul.rn.bf16x2 m, m, c;   mul.rn.bf16x2 $2, m, $5;
            and.b32 m, y, 0x00F000F0;   mul.lo.u32 m, m, 0x0104;   and.b32 m, m, 0x81C081C0;
            mul.rn.bf16x2 m, m, c;   mul.rn.bf16x2 $3, m, $6;
            }""",
            "=r,=r,=r,=r,r,r,r",
            [code, factor],
            dtype=(tl.bfloat16, tl.bfloat16),
            is_pure=True,
            pack=4,
        )


@jit
def channels(code, scale, N: tl.constexpr, CODES: tl.constexpr):
    """Channels of code bytes [N, CODES] with scale bytes [N, CODES/16], bf16 [N, 2*CODES], in the order of products.

    The order is one in which a thread of the matrix unit has neighbouring bytes: of each 16 bytes the even channels,
    then the odd ones; of these bytes 0, 1, 4, 5, 8, 9, 12, 13, then 2, 3, 6, 7, 10, 11, 14, 15.
    """
    groups: tl.constexpr = CODES // SCALE_GROUP
    factor = tl.broadcast_to(e8m0_to_bf16(scale)[:, :, None], (N, groups, SCALE_GROUP))
    even, odd = unpack_scaled(code, tl.reshape(factor, (N, CODES)))
    even = tl.permute(tl.reshape(even, (N, groups, 4, 2, 2)), (0, 1, 3, 2, 4))
    odd = tl.permute(tl.reshape(odd, (N, groups, 4, 2, 2)), (0, 1, 3, 2, 4))
    both = tl.join(tl.reshape(even, (N, groups, 16)), tl.reshape(odd, (N, groups, 16)))
    return tl.reshape(tl.permute(both, (0, 1, 3, 2)), (N, 2 * CODES))


@jit
def load_keys(
    pages_ptr,
    page_stride,
    table_ptr,
    entry,
    seen,
    N: tl.constexpr,
    CODES: tl.constexpr,
    CODES_PADDED: tl.constexpr,
    ENTRIES: tl.constexpr,
    ALIGN: tl.constexpr,
):
    """Keys of entries [N] of one sequence, bf16 [N, 2*CODES_PADDED] as `channels` has them; zeros where not `seen`.

    Of what is not seen neither the page id nor the page is read.

    Args:
        page_stride: in units of ALIGN bytes, which tells the compiler how wide it may load.
        table_ptr: the sequence's row of the block table.
    """
    page = tl.load(table_ptr + entry // ENTRIES, mask=seen, other=-1).to(tl.int64)
    seen = seen & (page >= 0)
    slot = entry % ENTRIES
    page_ptr = pages_ptr + page * page_stride * ALIGN
    byte = tl.arange(0, CODES_PADDED)
    group = tl.arange(0, CODES_PADDED // SCALE_GROUP)
    code_mask = seen[:, None]
    scale_mask = seen[:, None]
    if CODES_PADDED != CODES:
        code_mask = code_mask & (byte < CODES)[None, :]
        scale_mask = scale_mask & (group < CODES // SCALE_GROUP)[None, :]
    code = tl.load((page_ptr + slot * CODES)[:, None] + byte[None, :], mask=code_mask, other=0)
    scale_ptr = page_ptr + ENTRIES * CODES + slot * (CODES // SCALE_GROUP)
    scale = tl.load(scale_ptr[:, None] + group[None, :], mask=scale_mask, other=0)
    return channels(code, scale, N, CODES_PADDED)


@jit
def halves(x, N: tl.constexpr, ROWS: tl.constexpr, HALF: tl.constexpr):
    """The first and the second half of the last dim of [N, ROWS, 2*HALF]."""
    return tl.split(tl.permute(tl.reshape(x, (N, ROWS, 2, HALF)), (0, 1, 3, 2)))


@jit
def head_sum(x, weight, N: tl.constexpr, ROWS: tl.constexpr, HEADS: tl.constexpr):
    """Sum over heads of weight * relu(dot): dots [N, ROWS*HEADS], weights [ROWS*HEADS] -> fp32 [N, ROWS].

    The order of the module's first lines. On a GPU a thread holds the heads of a chain and of a pair of neighbours.
    """
    x = tl.reshape(tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL), (N, ROWS, HEADS))
    weight = tl.reshape(weight, (1, ROWS, HEADS))
    x_low, x_high = halves(x, N, ROWS, HEADS // 2)
    w_low, w_high = halves(weight, 1, ROWS, HEADS // 2)
    x0, x1 = halves(x_low, N, ROWS, HEADS // 4)
    x2, x3 = halves(x_high, N, ROWS, HEADS // 4)
    w0, w1 = halves(w_low, 1, ROWS, HEADS // 4)
    w2, w3 = halves(w_high, 1, ROWS, HEADS // 4)
    total = x0 * w0
    total = tl.fma(x1, tl.broadcast_to(w1, x1.shape), total)
    total = tl.fma(x2, tl.broadcast_to(w2, x2.shape), total)
    total = tl.fma(x3, tl.broadcast_to(w3, x3.shape), total)
    even, odd = tl.split(tl.reshape(total, (N, ROWS, HEADS // 8, 2)))
    return tl.sum(even + odd, 2)


@jit
def score_tile(
    keys,
    query,
    weight,
    N: tl.constexpr,
    ROWS: tl.constexpr,
    HEADS: tl.constexpr,
    HEADS_PADDED: tl.constexpr,
):
    """bf16 scores [N, ROWS] of keys [N, D] and queries [ROWS*HEADS_PADDED, D], as `channels` has them."""
    acc = tl.zeros((N, ROWS * HEADS_PADDED), tl.float32)
    acc = dot(keys, tl.trans(query), acc)
    if HEADS != HEADS_PADDED:  # an infinite key times no query is no number
        head = tl.arange(0, ROWS * HEADS_PADDED) % HEADS_PADDED
        acc = tl.where((head < HEADS)[None, :], acc, 0.0)
    return to_bf16(head_sum(acc, bf16_to_f32(weight), N, ROWS, HEADS_PADDED))


@jit
def unpack_query_kernel(
    query_ptr,
    out_ptr,
    count,
    HEADS: tl.constexpr,
    HEADS_PADDED: tl.constexpr,
    CODES: tl.constexpr,
    CODES_PADDED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Packed queries as bf16 [T * HEADS_PADDED, 2*CODES_PADDED], as `channels` has them, zeros where there are none.

    Args:
        count: T * HEADS_PADDED.
    """
    line = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    row, head = line // HEADS_PADDED, line % HEADS_PADDED
    used = (line < count) & (head < HEADS)
    source = query_ptr + (row * HEADS + head) * (CODES + CODES // SCALE_GROUP)
    byte = tl.arange(0, CODES_PADDED)
    group = tl.arange(0, CODES_PADDED // SCALE_GROUP)
    code = tl.load(source[:, None] + byte[None, :], mask=used[:, None] & (byte < CODES)[None, :], other=0)
    scale_mask = used[:, None] & (group < CODES // SCALE_GROUP)[None, :]
    scale = tl.load(source[:, None] + CODES + group[None, :], mask=scale_mask, other=0)
    channel = tl.arange(0, 2 * CODES_PADDED)
    target = out_ptr + (line * (2 * CODES_PADDED))[:, None] + channel[None, :]
    tl.store(target, channels(code, scale, BLOCK, CODES_PADDED), mask=(line < count)[:, None])


@jit
def score_rows_kernel(
    query_ptr,
    weight_ptr,
    pages_ptr,
    blocks_ptr,
    visible_ptr,
    row_seq_ptr,
    table_ptr,
    out_ptr,
    lanes,
    parts,
    table_width,
    page_stride: tl.int64,
    BLOCK_SIZE: tl.constexpr,
    HEADS: tl.constexpr,
    HEADS_PADDED: tl.constexpr,
    CODES: tl.constexpr,
    CODES_PADDED: tl.constexpr,
    ENTRIES: tl.constexpr,
    ALIGN: tl.constexpr,
    BLOCK_E: tl.constexpr,
    TILES: tl.constexpr,
):
    """Up to TILES * BLOCK_E lanes of one row. BLOCK_SIZE 0: lane j is entry j; else lanes of candidate blocks.

    Args:
        query_ptr: what `unpack_query_kernel` gave.
        lanes: of a row. parts: programs of a row.
        page_stride: in units of ALIGN bytes.
    """
    row = (tl.program_id(0) // parts).to(tl.int64)
    first = (tl.program_id(0) % parts) * (TILES * BLOCK_E)
    seq = tl.load(row_seq_ptr + row)
    limit = tl.load(visible_ptr + row)
    last = tl.minimum(lanes, first + TILES * BLOCK_E)
    if BLOCK_SIZE == 0:
        last = tl.minimum(last, limit)
    else:
        block_row = blocks_ptr + row * (lanes // BLOCK_SIZE)
        # Blocks ascend, and -1 stands behind them only.
        if tl.load(block_row + first // BLOCK_SIZE) < 0:
            last = first
    if (seq >= 0) & (first < last):
        head = tl.arange(0, HEADS_PADDED)
        weight = tl.load(weight_ptr + row * HEADS + head, mask=head < HEADS, other=0.0)
        channel = tl.arange(0, 2 * CODES_PADDED)
        query = tl.load(query_ptr + ((row * HEADS_PADDED + head) * (2 * CODES_PADDED))[:, None] + channel[None, :])
        sequence_table = table_ptr + seq.to(tl.int64) * table_width
        for start in range(first, last, BLOCK_E):
            lane = start + tl.arange(0, BLOCK_E)
            seen = lane < last
            entry = lane
            if BLOCK_SIZE != 0:
                block = tl.load(block_row + lane // BLOCK_SIZE, mask=seen, other=-1)
                entry = block * BLOCK_SIZE + lane % BLOCK_SIZE
                seen = (block >= 0) & (entry < limit)
            keys = load_keys(
                pages_ptr,
                page_stride,
                sequence_table,
                entry,
                seen,
                BLOCK_E,
                CODES,
                CODES_PADDED,
                ENTRIES,
                ALIGN,
            )
            score = score_tile(keys, query, weight, BLOCK_E, 1, HEADS, HEADS_PADDED)
            tl.store(out_ptr + row * lanes + lane, tl.reshape(score, (BLOCK_E,)), mask=seen)


@jit
def score_keys_kernel(
    query_ptr,
    weight_ptr,
    pages_ptr,
    visible_ptr,
    row_seq_ptr,
    table_ptr,
    out_ptr,
    rows,
    lanes,
    tiles,
    table_width,
    page_stride: tl.int64,
    HEADS: tl.constexpr,
    HEADS_PADDED: tl.constexpr,
    CODES: tl.constexpr,
    CODES_PADDED: tl.constexpr,
    ENTRIES: tl.constexpr,
    ALIGN: tl.constexpr,
    BLOCK_E: tl.constexpr,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
):
    """One tile of lanes of GROUP consecutive rows: the keys stay, ROWS rows at a time pass by.

    Rows of one sequence share the tile; where the next sequence begins, its keys are loaded.
    """
    tile = tl.program_id(0) % tiles
    row = (tl.program_id(0) // tiles) * GROUP
    end = tl.minimum(row + GROUP, rows)
    lane = tile * BLOCK_E + tl.arange(0, BLOCK_E)
    channel = tl.arange(0, 2 * CODES_PADDED)
    while row < end:
        seq = tl.load(row_seq_ptr + row)
        member = row + tl.arange(0, GROUP)
        other = tl.load(row_seq_ptr + member, mask=member < end, other=-2) != seq
        stop = tl.min(tl.where(other, member, row + GROUP))
        limits = tl.load(visible_ptr + member, mask=member < stop, other=0)
        reach = tl.minimum(tl.max(limits), lanes)
        if (seq >= 0) & (tile * BLOCK_E < reach):
            keys = load_keys(
                pages_ptr,
                page_stride,
                table_ptr + seq.to(tl.int64) * table_width,
                lane,
                lane < reach,
                BLOCK_E,
                CODES,
                CODES_PADDED,
                ENTRIES,
                ALIGN,
            )
            for at in range(row, stop, ROWS):
                line = at + tl.arange(0, ROWS * HEADS_PADDED) // HEADS_PADDED
                part = tl.arange(0, ROWS * HEADS_PADDED) % HEADS_PADDED
                used = line < stop
                weight = tl.load(weight_ptr + line.to(tl.int64) * HEADS + part, mask=used & (part < HEADS), other=0.0)
                # Rows behind the last give scores that are not stored; those behind the workspace are not read.
                place = tl.minimum(line, rows - 1).to(tl.int64) * HEADS_PADDED + part
                query = tl.load(query_ptr + (place * (2 * CODES_PADDED))[:, None] + channel[None, :])
                score = score_tile(keys, query, weight, BLOCK_E, ROWS, HEADS, HEADS_PADDED)
                target = at + tl.arange(0, ROWS)
                limit = tl.load(visible_ptr + target, mask=target < stop, other=0)
                keep = (lane[:, None] < limit[None, :]) & (lane < lanes)[:, None]
                tl.store(out_ptr + target.to(tl.int64)[None, :] * lanes + lane[:, None], score, mask=keep)
        row = stop
