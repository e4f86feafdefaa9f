"""Device code of the mixture of experts but its products: choice, lists of rows by expert, activation, combination."""

from __future__ import annotations

import triton.language as tl

from .jit import jit
from .portable import bf16_to_f32, bits, dot, from_bits, to_bf16
from .portable_elementary import sigmoid_of_bf16, softplus
from .wide_rows import GROUP, quantize_groups

TAKEN: tl.constexpr = tl.constexpr(-(2**31))
NAN_KEY: tl.constexpr = tl.constexpr(-(2**31) + 1)
"""Order of NaN: below that of minus infinity, above what is taken or not there."""


@jit
def gate_kernel(
    logit_ptr, sum_ptr, bias_ptr, bias_vl_ptr, image_ptr, weight_ptr, expert_ptr, rows, scaling,
    E: tl.constexpr, E_PADDED: tl.constexpr, K: tl.constexpr, K_PADDED: tl.constexpr, PARTS: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    """ROWS rows: the K largest keys in turn, as integers of the same order; of equal ones the first.

    With sum_ptr, fp32 [T, PARTS, E], the logits are sums over the parts, and written; else they are read.
    """
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    keep = row < rows
    expert = tl.arange(0, E_PADDED)
    inside = expert < E
    mask = keep[:, None] & inside[None, :]
    place = (row * E)[:, None] + expert[None, :]
    if sum_ptr is not None:
        x = tl.zeros((ROWS, E_PADDED), tl.float32)
        for part in tl.static_range(PARTS):
            x += tl.load(sum_ptr + ((row * PARTS + part) * E)[:, None] + expert[None, :], mask=mask, other=0.0)
        tl.store(logit_ptr + place, x, mask=mask)
    else:
        x = tl.load(logit_ptr + place, mask=mask, other=0.0)
    score = tl.sqrt_rn(softplus(x))
    image = tl.load(image_ptr + row, mask=keep, other=0).to(tl.int1)
    text = tl.load(bias_ptr + expert, mask=inside, other=0.0)
    vision = tl.load(bias_vl_ptr + expert, mask=inside, other=0.0)
    key = score + tl.where(image[:, None], vision[None, :], text[None, :])
    order = bits(key + 0.0)
    order = tl.where(key != key, NAN_KEY, order ^ ((order >> 31) & 0x7FFFFFFF))
    left = tl.where(inside[None, :], order, TAKEN)
    magnitude = bits(score) & 0x7FFFFFFF
    slot = tl.arange(0, K_PADDED)
    chosen = tl.zeros((ROWS, K_PADDED), tl.int32)
    weight = tl.zeros((ROWS, K_PADDED), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    for j in range(K):
        best = tl.max(left, 1)
        number = tl.min(tl.where(left == best[:, None], expert[None, :], E_PADDED), 1)
        taken = expert[None, :] == number[:, None]
        left = tl.where(taken, TAKEN, left)
        # Magnitudes and NaN are positive integers: the largest of one and zeros is that one.
        own = from_bits(tl.max(tl.where(taken, magnitude, 0), 1))
        total = own if j == 0 else total + own
        here = (slot == j)[None, :]
        chosen = tl.where(here, number[:, None], chosen)
        weight = tl.where(here, own[:, None], weight)
    weight = tl.div_rn(weight, tl.broadcast_to((total + 1e-20)[:, None], (ROWS, K_PADDED))) * scaling
    mask = keep[:, None] & (slot < K)[None, :]
    place = (row * K)[:, None] + slot[None, :]
    tl.store(weight_ptr + place, weight, mask=mask)
    tl.store(expert_ptr + place, chosen, mask=mask)


@jit
def router_kernel(
    x_ptr, gate_ptr, sum_ptr, rows, E: tl.constexpr, K: tl.constexpr, STEPS: tl.constexpr, PARTS: tl.constexpr,
    ROWS: tl.constexpr, EXPERTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A part of the channels of x @ gate.T: [T, PARTS, E]. Grid (blocks of rows, blocks of experts, PARTS)."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    expert = tl.program_id(1).to(tl.int64) * EXPERTS + tl.arange(0, EXPERTS)
    part = tl.program_id(2).to(tl.int64)
    keep = row < rows
    total = tl.zeros((ROWS, EXPERTS), tl.float32)
    for step in range(STEPS):
        channel = (part * STEPS + step) * BLOCK + tl.arange(0, BLOCK)
        inside = channel < K
        x = tl.load(x_ptr + (row * K)[:, None] + channel[None, :], mask=keep[:, None] & inside[None, :], other=0.0)
        place = gate_ptr + (expert * K)[None, :] + channel[:, None]
        gate = tl.load(place, mask=(expert < E)[None, :] & inside[:, None], other=0.0)
        total = dot(x, gate, total)
    given = sum_ptr + ((row * PARTS + part) * E)[:, None] + expert[None, :]
    tl.store(given, total, mask=keep[:, None] & (expert < E)[None, :])


@jit
def bucket_of(expert_ptr, slot, slots, first, COUNT: tl.constexpr):
    """Local expert of slots; COUNT for experts of others, COUNT + 1 behind the last slot."""
    local = tl.load(expert_ptr + slot, mask=slot < slots, other=0).to(tl.int64) - first
    local = tl.where((local >= 0) & (local < COUNT), local, COUNT).to(tl.int32)
    return tl.where(slot < slots, local, COUNT + 1)


@jit
def count_slots(expert_ptr, count_ptr, slots, first, COUNT: tl.constexpr, BUCKETS: tl.constexpr, BLOCK: tl.constexpr):
    """Slots of each bucket in a block of slots: [blocks, BUCKETS]."""
    slot = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    bucket = bucket_of(expert_ptr, slot, slots, first, COUNT)
    place = count_ptr + tl.program_id(0).to(tl.int64) * BUCKETS + tl.arange(0, BUCKETS)
    tl.store(place, tl.histogram(bucket, BUCKETS))


@jit
def add_blocks(count_ptr, total_ptr, blocks, BUCKETS: tl.constexpr, COLUMNS: tl.constexpr, STEP: tl.constexpr):
    """Counts become those of the blocks before, COLUMNS buckets a program; totals [BUCKETS] behind them."""
    bucket = tl.program_id(0).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)
    before = tl.zeros((COLUMNS,), tl.int32)
    for start in range(0, blocks, STEP):
        block = start + tl.arange(0, STEP)
        place = count_ptr + (block.to(tl.int64) * BUCKETS)[:, None] + bucket[None, :]
        mask = (block < blocks)[:, None] & (bucket < BUCKETS)[None, :]
        count = tl.load(place, mask=mask, other=0)
        tl.store(place, before[None, :] + tl.cumsum(count, 0) - count, mask=mask)
        before += tl.sum(count, 0)
    tl.store(total_ptr + bucket, before, mask=bucket < BUCKETS)


@jit
def store_slots(
    weight_ptr, source_ptr, packed_ptr, position_ptr, slot, slots, bucket, row, K: tl.constexpr, COUNT: tl.constexpr
):
    """Write what packed rows hold, and where slots went."""
    local, mask = bucket < COUNT, slot < slots
    weight = tl.load(weight_ptr + slot, mask=mask & local, other=0.0)
    tl.store(source_ptr + row, tl.where(local, (slot // K).to(tl.int32), -1), mask=mask)
    tl.store(packed_ptr + row, tl.where(local, weight, 0.0), mask=mask)
    tl.store(position_ptr + slot, tl.where(local, row, -1), mask=mask)


@jit
def pack_blocks(
    expert_ptr, weight_ptr, count_ptr, total_ptr, source_ptr, packed_ptr, offset_ptr, position_ptr, slots, first,
    K: tl.constexpr, COUNT: tl.constexpr, BUCKETS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One block of slots, behind `count_slots` and `add_blocks`."""
    number = tl.arange(0, BUCKETS)
    total = tl.load(total_ptr + number)
    begin = tl.cumsum(total, 0) - total
    if tl.program_id(0) == 0:
        tl.store(offset_ptr + number, begin, mask=number <= COUNT)
    begin += tl.load(count_ptr + tl.program_id(0).to(tl.int64) * BUCKETS + number)
    slot = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    bucket = bucket_of(expert_ptr, slot, slots, first, COUNT)
    place = tl.arange(0, BLOCK)
    earlier = (bucket[:, None] == bucket[None, :]) & (place[None, :] < place[:, None])
    row = tl.gather(begin, bucket, 0) + tl.sum(earlier.to(tl.int32), 1)
    store_slots(weight_ptr, source_ptr, packed_ptr, position_ptr, slot, slots, bucket, row, K, COUNT)


@jit
def pack_at_once(
    expert_ptr, weight_ptr, source_ptr, packed_ptr, offset_ptr, position_ptr, slots, first,
    K: tl.constexpr, COUNT: tl.constexpr, MOST: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """BLOCK slots of up to MOST, and BLOCK offsets: what lies before each is counted over all slots.

    A slot's key is its bucket and its number, so packed rows are in the order of keys.
    """
    slot = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    bucket = bucket_of(expert_ptr, slot, slots, first, COUNT)
    key = bucket * MOST + slot.to(tl.int32)
    number = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = tl.zeros((BLOCK, STEP), tl.int32)
    offset = tl.zeros((BLOCK, STEP), tl.int32)
    for start in range(0, slots, STEP):
        other = start + tl.arange(0, STEP).to(tl.int64)
        before = bucket_of(expert_ptr, other, slots, first, COUNT) * MOST + other.to(tl.int32)
        row += (before[None, :] < key[:, None]).to(tl.int32)
        offset += (before[None, :] < (number * MOST)[:, None]).to(tl.int32)
    tl.store(offset_ptr + number, tl.sum(offset, 1), mask=number <= COUNT)
    store_slots(weight_ptr, source_ptr, packed_ptr, position_ptr, slot, slots, bucket, tl.sum(row, 1), K, COUNT)


@jit
def swiglu_kernel(
    x_ptr, weight_ptr, code_ptr, scale_ptr, rows, limit, N: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_N: tl.constexpr
):
    """A tile [BLOCK_T, BLOCK_N] of clamped SwiGLU of bf16 [M, 2N], quantised."""
    PARTS: tl.constexpr = (N + BLOCK_N - 1) // BLOCK_N
    row = (tl.program_id(0) // PARTS).to(tl.int64) * BLOCK_T + tl.arange(0, BLOCK_T)
    part = tl.program_id(0) % PARTS
    channel = part * BLOCK_N + tl.arange(0, BLOCK_N)
    keep = (row < rows)[:, None]
    mask = keep & (channel < N)[None, :]
    place = x_ptr + (row * (2 * N))[:, None] + channel[None, :]
    gate = bf16_to_f32(tl.load(place, mask=mask, other=0.0))
    up = bf16_to_f32(tl.load(place + N, mask=mask, other=0.0))
    gate = tl.minimum(gate, limit, tl.PropagateNan.ALL)
    up = tl.maximum(tl.minimum(up, limit, tl.PropagateNan.ALL), -limit, tl.PropagateNan.ALL)
    value = gate * sigmoid_of_bf16(gate)  # the limit, which may be no bf16, is positive
    if weight_ptr is not None:
        value = tl.load(weight_ptr + row, mask=row < rows, other=0.0)[:, None] * value
    code, scale = quantize_groups(value * up)
    tl.store(code_ptr + (row * N)[:, None] + channel[None, :], code, mask=mask)
    group = part * (BLOCK_N // GROUP) + tl.arange(0, BLOCK_N // GROUP)
    tl.store(
        scale_ptr + (row * (N // GROUP))[:, None] + group[None, :], scale, mask=keep & (group < N // GROUP)[None, :]
    )


@jit
def combine_kernel(
    y_ptr, position_ptr, shared_ptr, out_ptr, products, K: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr
):
    """BLOCK channels of a token: its products, slots in order, and the shared expert's."""
    PARTS: tl.constexpr = (D + BLOCK - 1) // BLOCK
    row = (tl.program_id(0) // PARTS).to(tl.int64)
    channel = (tl.program_id(0) % PARTS) * BLOCK + tl.arange(0, BLOCK)
    inside = channel < D
    total = tl.zeros((BLOCK,), tl.float32)
    for j in tl.static_range(K):
        position = tl.zeros((BLOCK,), tl.int64) + tl.load(position_ptr + row * K + j)
        there = inside & (position >= 0) & (position < products)
        total += bf16_to_f32(tl.load(y_ptr + position * D + channel, mask=there, other=0.0))
    total += bf16_to_f32(tl.load(shared_ptr + row * D + channel, mask=inside, other=0.0))
    tl.store(out_ptr + row * D + channel, to_bf16(total), mask=inside)
