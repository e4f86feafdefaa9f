"""Engram: hashes of n-grams, rows of its tables, and the gate that writes them into the streams."""

from __future__ import annotations

from typing import Any

import torch
import triton.language as tl
from torch import Tensor

from ...hal.registry import Signature
from .compile_list import CompileCase
from .jit import jit
from .portable import bf16_to_f32, bits, from_bits, to_bf16
from .portable_elementary import sigmoid
from .register import kernel
from .strides import power_of_two
from .wide_rows import fewer, inverse_rms, row_sizes, sums_of_fewer, whole_rows

MOST_ROWS, FEW_ROWS = 4, 256
"""Rows that a program gates one after the other, up to; and from twice how many rows on it is more than one."""


@jit
def hash_kernel(
    ngram_ptr, lookup_ptr, multiplier_ptr, prime_ptr, offset_ptr, out_ptr, rows, vocab, pad,
    SIZE: tl.constexpr, HEADS: tl.constexpr, HEADS_PADDED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """BLOCK rows: SIZE - 1 hashes, each with HEADS columns."""
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    keep = row < rows
    head = tl.arange(0, HEADS_PADDED)
    known = keep
    state = tl.zeros((BLOCK,), tl.int64)
    for i in tl.static_range(SIZE):
        token = tl.load(ngram_ptr + row * SIZE + i, mask=keep, other=-1)
        known = known & (token >= 0) & (token < vocab)  # behind a gap everything is missing
        number = tl.load(lookup_ptr + token, mask=known, other=0)
        number = tl.where(known, number, pad).to(tl.int64) * tl.load(multiplier_ptr + i)
        state = number if i == 0 else state ^ number
        if i > 0:
            column = (i - 1) * HEADS + head
            prime = tl.load(prime_ptr + column, mask=head < HEADS, other=1)[None, :]
            rest = state[:, None] % prime
            rest = tl.where((rest != 0) & ((rest < 0) != (prime < 0)), rest + prime, rest)  # of the divisor's sign
            value = rest + tl.load(offset_ptr + column, mask=head < HEADS, other=0)[None, :]
            place = out_ptr + (row * ((SIZE - 1) * HEADS))[:, None] + column[None, :]
            tl.store(place, value, mask=keep[:, None] & (head < HEADS)[None, :])


def whole_sizes(signature: Signature) -> str | None:
    """Columns belong to n-gram sizes 2 .. n, as many to each."""
    n, columns = signature.dims["n"], signature.dims["C"]
    if n < 2 or columns % (n - 1) or not columns:
        return f"n must be at least 2 and C a positive multiple of n - 1, got n = {n} and C = {columns}"
    return None


def hash_sizes(size: int, columns: int) -> dict[str, int]:
    """Constants of `hash_kernel`."""
    heads = columns // (size - 1)
    return {"SIZE": size, "HEADS": heads, "HEADS_PADDED": power_of_two(heads), "BLOCK": 32}


@kernel("engram_hash", version=0, supports=whole_sizes)
def engram_hash(
    ngrams: Tensor, lookup: Tensor, multipliers: Tensor, primes: Tensor, offsets: Tensor, pad: int, out: Tensor | None
) -> Tensor:
    (rows, size), columns = ngrams.shape, primes.shape[0]
    if out is None:
        out = torch.empty((rows, columns), dtype=torch.int64, device=ngrams.device)
    if rows:
        sizes = hash_sizes(size, columns)
        hash_kernel[(-(-rows // sizes["BLOCK"]),)](
            ngrams, lookup, multipliers, primes, offsets, out, rows, lookup.shape[0], pad, **sizes, num_warps=4
        )
    return out


@jit
def table_kernel(
    weight_ptr, scale_ptr, row_ptr, code_out_ptr, scale_out_ptr, wanted, table: tl.int64,
    D: tl.constexpr, D_PADDED: tl.constexpr, G: tl.constexpr, G_PADDED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """BLOCK rows of a table with `table` rows of D codes and G scales. Rows outside it read nothing and give zeros."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    keep = place < wanted
    row = tl.load(row_ptr + place, mask=keep, other=-1)
    there = (row >= 0) & (row < table)
    code = tl.arange(0, D_PADDED)
    mask = (code < D)[None, :]
    value = tl.load(weight_ptr + (row * D)[:, None] + code[None, :], mask=there[:, None] & mask, other=0)
    tl.store(code_out_ptr + (place * D)[:, None] + code[None, :], value, mask=keep[:, None] & mask)
    group = tl.arange(0, G_PADDED)
    mask = (group < G)[None, :]
    value = tl.load(scale_ptr + (row * G)[:, None] + group[None, :], mask=there[:, None] & mask, other=0)
    tl.store(scale_out_ptr + (place * G)[:, None] + group[None, :], value, mask=keep[:, None] & mask)


def table_sizes(width: int) -> dict[str, int]:
    """Constants of `table_kernel`: some 4,096 bytes a program."""
    padded = power_of_two(width)
    return {
        "D": width,
        "D_PADDED": padded,
        "G": width // 32,
        "G_PADDED": padded // 32,
        "BLOCK": max(1, 4096 // padded),
    }


@kernel("engram_gather", version=0, supports=whole_rows("dh", 32))
def engram_gather(
    weight: Tensor, scale: Tensor, rows: Tensor, out: tuple[Tensor, Tensor] | None
) -> tuple[Tensor, Tensor]:
    (count, columns), width = rows.shape, weight.shape[1]
    if out is None:
        codes = torch.empty((count, columns * width), dtype=weight.dtype, device=weight.device)
        out = codes, torch.empty((count, columns * (width // 32)), dtype=torch.uint8, device=weight.device)
    wanted = rows.numel()
    if wanted:
        sizes = table_sizes(width)
        table_kernel[(-(-wanted // sizes["BLOCK"]),)](
            weight.view(torch.uint8), scale, rows, out[0].view(torch.uint8), out[1], wanted, weight.shape[0], **sizes,
            num_warps=4,
        )  # fmt: skip
    return out


@jit
def load_vector(x_ptr, START: tl.constexpr, SIZE: tl.constexpr, D: tl.constexpr):
    """fp32 [SIZE] of bf16, channels START .. ; 0 beyond D."""
    channel = START + tl.arange(0, SIZE)
    return bf16_to_f32(tl.load(x_ptr + channel, mask=channel < D, other=0.0))


@jit
def weigh(q_weight_ptr, k_weight_ptr, START: tl.constexpr, SIZE: tl.constexpr, D: tl.constexpr):
    """The product of both weights of these channels."""
    return load_vector(q_weight_ptr, START, SIZE, D) * load_vector(k_weight_ptr, START, SIZE, D)


@jit
def store_gated(out_ptr, value, x, gate, START: tl.constexpr, SIZE: tl.constexpr, D: tl.constexpr):
    """x + gate * value of these channels."""
    channel = START + tl.arange(0, SIZE)
    tl.store(out_ptr + channel, to_bf16(x + gate * value), mask=channel < D)


@jit
def gate_of(dot, x_squares, key_squares, eps, root, D: tl.constexpr):
    """The gate, of sums over D channels (scalars)."""
    dot = dot * inverse_rms(x_squares, eps, D) * inverse_rms(key_squares, eps, D) * root
    size = from_bits(bits(dot) & 0x7FFFFFFF)
    size = tl.sqrt_rn(tl.where(size < 1e-6, 1e-6, size))
    return sigmoid(from_bits(bits(size) | (bits(dot) & -2147483648)))


@jit
def gate_kernel(
    x_ptr, kv_ptr, q_weight_ptr, k_weight_ptr, image_ptr, out_ptr, rows, each, eps, root,
    M: tl.constexpr, D: tl.constexpr, FIRST: tl.constexpr, REST: tl.constexpr, COPY: tl.constexpr,
):  # fmt: skip
    """One stream of `each` rows; out may be x. root: D^-1/2. COPY: channels that an image row copies at a time.

    The streams of a row are neighbours in the grid, so that all but one of them find the shared value in the L2 cache.
    """
    stream = (tl.program_id(0) % M).to(tl.int64)
    weight = weigh(q_weight_ptr + stream * D, k_weight_ptr + stream * D, 0, FIRST, D)
    if REST > 0:
        weight_tail = weigh(q_weight_ptr + stream * D, k_weight_ptr + stream * D, FIRST, REST, D)
    begin = (tl.program_id(0) // M).to(tl.int64) * each
    for row in range(begin, begin + tl.minimum(each, rows - begin)):
        own = x_ptr + (row * M + stream) * D
        given = out_ptr + (row * M + stream) * D
        if tl.load(image_ptr + row).to(tl.int32) != 0:
            for start in range(0, D, COPY):
                channel = start + tl.arange(0, COPY)
                tl.store(given + channel, tl.load(own + channel, mask=channel < D, other=0.0), mask=channel < D)
        else:
            key_ptr = kv_ptr + (row * (M + 1) + stream) * D
            value_ptr = kv_ptr + (row * (M + 1) + M) * D
            x = load_vector(own, 0, FIRST, D)
            key = load_vector(key_ptr, 0, FIRST, D)
            if REST > 0:
                tail = load_vector(own, FIRST, REST, D)
                key_tail = load_vector(key_ptr, FIRST, REST, D)
            value = load_vector(value_ptr, 0, FIRST, D)
            dot, x_squares, key_squares = fewer(x * weight * key), fewer(x * x), fewer(key * key)
            if REST > 0:
                value_tail = load_vector(value_ptr, FIRST, REST, D)
                more = fewer(tail * weight_tail * key_tail)
                more_x, more_key = fewer(tail * tail), fewer(key_tail * key_tail)
                if more.shape[0] != dot.shape[0]:
                    dot, x_squares, key_squares = sums_of_fewer(dot, x_squares, key_squares)
                    more, more_x, more_key = sums_of_fewer(more, more_x, more_key)
                dot, x_squares, key_squares = dot + more, x_squares + more_x, key_squares + more_key
            if len(dot.shape) > 0:
                dot, x_squares, key_squares = sums_of_fewer(dot, x_squares, key_squares)
            gate = gate_of(dot, x_squares, key_squares, eps, root, D)
            store_gated(given, value, x, gate, 0, FIRST, D)
            if REST > 0:
                store_gated(given, value_tail, tail, gate, FIRST, REST, D)


def gate_sizes(streams: int, width: int) -> dict[str, Any]:
    """Constants of `gate_kernel`, and num_warps."""
    sizes: dict[str, Any] = row_sizes(width)
    del sizes["ROWS"]
    return {**sizes, "M": streams, "COPY": min(1024, power_of_two(width))}


@kernel("engram_gate", version=0, supports=whole_rows("D"))
def engram_gate(
    x: Tensor, kv: Tensor, q_weight: Tensor, k_weight: Tensor, image: Tensor, eps: float, out: Tensor | None
) -> Tensor:
    rows, streams, width = x.shape
    if out is None:
        out = torch.empty_like(x)
    if rows and streams:
        each = max(1, min(MOST_ROWS, rows // FEW_ROWS))
        gate_kernel[(-(-rows // each) * streams,)](
            x, kv, q_weight, k_weight, image, out, rows, each, eps, width**-0.5, **gate_sizes(streams, width)
        )
    return out


def _cases() -> list[CompileCase]:
    gate = gate_sizes(4, 5120)
    warps = gate.pop("num_warps")
    integers = ("multiplier_ptr", "prime_ptr", "offset_ptr", "out_ptr")
    return [
        CompileCase(
            hash_kernel,
            {
                **dict.fromkeys(("ngram_ptr", "lookup_ptr"), "*i32"),
                **dict.fromkeys(integers, "*i64"),
                **dict.fromkeys(("rows", "vocab", "pad"), "i32"),
            },
            hash_sizes(4, 24),
        ),
        CompileCase(
            table_kernel,
            {
                **dict.fromkeys(("weight_ptr", "scale_ptr", "code_out_ptr", "scale_out_ptr"), "*u8"),
                "row_ptr": "*i64",
                "wanted": "i32",
                "table": "i64",
            },
            table_sizes(256),
        ),
        CompileCase(
            gate_kernel,
            {
                **dict.fromkeys(("x_ptr", "kv_ptr", "q_weight_ptr", "k_weight_ptr", "out_ptr"), "*bf16"),
                "image_ptr": "*i1",
                "rows": "i32",
                "each": "i32",
                "eps": "fp32",
                "root": "fp32",
            },
            gate,
            num_warps=warps,
            label="Engram",
        ),
    ]


COMPILES = _cases()
