"""Weights and activations from their codes to bf16, a word of memory at a time. All exact, but below 2^-133.

A sum over channels does not care in which order they come, as long as both operands agree. So each word becomes pairs
of bf16 in the order that takes the fewest instructions: FP8 channels 0, 2, 1, 3 of four; FP4 channels 0, 4, 1, 5, 2, 6,
3, 7 of eight. `fp4_order` brings the first order into the second. A pair fills one register, and nothing is moved
afterwards.

CLEAN weights have no code that is NaN and no scale above `FP8_CLEAN` or `FP4_CLEAN`, which whoever passes them has made
sure of. What moves the exponent's bias is then part of the scale, and NaN needs no look. In the interpreter, which
takes no assembler, the same values come from `portable`.
"""

from __future__ import annotations

import triton.language as tl

from .jit import jit
from .portable import INTERPRETED, e2m1_to_f32, e4m3_to_f32, e8m0_to_f32, to_bf16

FP8_CLEAN = 134
"""Greatest scale byte of clean FP8 weights: 2^120 times the scale is a bf16."""
FP4_CLEAN = 128
"""Greatest scale byte of clean FP4 weights: 2^126 times the scale is a bf16."""


@jit
def spread(x, TIMES: tl.constexpr):
    """[N, G] -> [N, G * TIMES], each column TIMES times in a row."""
    wide = tl.broadcast_to(tl.expand_dims(x, 2), (x.shape[0], x.shape[1], TIMES))
    return tl.reshape(wide, (x.shape[0], x.shape[1] * TIMES))


@jit
def factors(scale, UP: tl.constexpr, CLEAN: tl.constexpr):
    """Scale bytes as pairs of equal bf16 in an int32, 2^UP times the scale if CLEAN; byte 255 is NaN otherwise."""
    b = scale.to(tl.int32)
    if CLEAN:
        return b * 0x00800080 + UP * 0x00800080
    else:
        plain = tl.where(b == 0, 0x0040, b << 7)
        return tl.where(b == 255, 0x7FC0, plain) * 0x00010001


@jit
def scaled(value, scale):
    """bf16 [N, C] of fp32 [N, C] times scales [N, G]."""
    parts = tl.reshape(value, (value.shape[0], scale.shape[1], value.shape[1] // scale.shape[1]))
    return tl.reshape(to_bf16(parts * e8m0_to_f32(scale)[:, :, None]), (value.shape[0], value.shape[1]))


@jit
def fp8_order(x):
    """Channels 0, 2, 1, 3 of each four of [N, C]."""
    parts = tl.reshape(x, (x.shape[0], x.shape[1] // 4, 2, 2))
    return tl.reshape(tl.permute(parts, (0, 1, 3, 2)), (x.shape[0], x.shape[1]))


@jit
def fp4_order(x):
    """[N, C] in the order of FP8 words brought into the order of FP4 words."""
    parts = tl.reshape(x, (x.shape[0], x.shape[1] // 8, 2, 2, 2))
    return tl.reshape(tl.permute(parts, (0, 1, 4, 3, 2)), (x.shape[0], x.shape[1]))


@jit
def fp8_bytes(code, scale):
    """bf16 [N, C], in the order of FP8 words, of E4M3 codes (uint8 [N, C]) with scales [N, G].

    Element by element: codes at an odd address come one by one, and a thread need not have the four of a word.
    """
    return fp8_order(scaled(e4m3_to_f32(code), scale))


@jit
def fp8_words(word, scale, CLEAN: tl.constexpr):
    """bf16 [N, 4*C] of words of four E4M3 codes (int32 [N, C]) with scales [N, G], as `fp8_bytes` has them.

    A NaN code gives NaN in one of the four channels of its word, maybe not in its own: in a sum that is as good.
    """
    if INTERPRETED:
        w = tl.expand_dims(word.to(tl.uint32, bitcast=True), 2) >> (8 * tl.arange(0, 4))[None, None, :]
        code = tl.reshape((w & 0xFF).to(tl.uint8), (word.shape[0], 4 * word.shape[1]))
        return fp8_order(scaled(e4m3_to_f32(code), scale))
    elif CLEAN:
        a, b, c, d = tl.inline_asm_elementwise(
            """{
            .reg .b32 h, t;
            shl.b32 t, $4, 4;
            and.b32 t, t, 0x07f007f0;
            shl.b32 h, $4, 8;
            lop3.b32 h, h, 0x80008000, t, 0xea;
            mul.rn.bf16x2 h, h, $5;
            mov.b32 {$0, $1}, h;
            shr.u32 t, $4, 4;
            and.b32 t, t, 0x07f007f0;
            lop3.b32 h, $4, 0x80008000, t, 0xea;
            mul.rn.bf16x2 h, h, $5;
            mov.b32 {$2, $3}, h;
            }""",
            "=&h,=&h,=h,=h,r,r",
            [word, spread(factors(scale, 120, True), word.shape[1] // scale.shape[1])],
            dtype=(tl.bfloat16, tl.bfloat16, tl.bfloat16, tl.bfloat16),
            is_pure=True,
            pack=1,
        )
        return tl.reshape(tl.join(tl.join(a, c), tl.join(b, d)), (word.shape[0], 4 * word.shape[1]))
    else:
        a, b, c, d = tl.inline_asm_elementwise(
            """{
            .reg .b32 h, t, n, up;
            .reg .pred nan;
            mov.b32 up, 0x7b807b80;
            and.b32 n, $4, 0x7f7f7f7f;
            add.u32 n, n, 0x01010101;
            and.b32 n, n, 0x80808080;
            setp.ne.u32 nan, n, 0;
            shl.b32 t, $4, 4;
            and.b32 t, t, 0x07f007f0;
            shl.b32 h, $4, 8;
            lop3.b32 h, h, 0x80008000, t, 0xea;
            mul.rn.bf16x2 h, h, up;
            mul.rn.bf16x2 h, h, $5;
            selp.b32 h, 0x7fff7fff, h, nan;
            mov.b32 {$0, $1}, h;
            shr.u32 t, $4, 4;
            and.b32 t, t, 0x07f007f0;
            lop3.b32 h, $4, 0x80008000, t, 0xea;
            mul.rn.bf16x2 h, h, up;
            mul.rn.bf16x2 h, h, $5;
            mov.b32 {$2, $3}, h;
            }""",
            "=&h,=&h,=h,=h,r,r",
            [word, spread(factors(scale, 0, False), word.shape[1] // scale.shape[1])],
            dtype=(tl.bfloat16, tl.bfloat16, tl.bfloat16, tl.bfloat16),
            is_pure=True,
            pack=1,
        )
        return tl.reshape(tl.join(tl.join(a, c), tl.join(b, d)), (word.shape[0], 4 * word.shape[1]))


@jit
def fp4_words(word, scale, CLEAN: tl.constexpr):
    """bf16 [N, 8*C] of words of eight E2M1 codes (int32 [N, C], lowest nibble first) with scales [N, G]."""
    if INTERPRETED:
        w = tl.expand_dims(word.to(tl.uint32, bitcast=True), 2) >> (4 * tl.arange(0, 8))[None, None, :]
        x = scaled(tl.reshape(e2m1_to_f32(w), (word.shape[0], 8 * word.shape[1])), scale)
        parts = tl.reshape(x, (word.shape[0], word.shape[1], 2, 4))
        return tl.reshape(tl.permute(parts, (0, 1, 3, 2)), (word.shape[0], 8 * word.shape[1]))
    else:
        # A product puts a code's sign, and its exponent bits and fraction, where bf16 has its own, 2^126 too small.
        if CLEAN:
            a, b, c, d, e, f, g, h = tl.inline_asm_elementwise(
                """{
                .reg .b32 m, u;
                shr.u32 u, $8, 8;
                and.b32 m, $8, 0x000F000F;   mul.lo.u32 m, m, 0x1040;   and.b32 m, m, 0x81C081C0;
                mul.rn.bf16x2 m, m, $9;   mov.b32 {$0, $1}, m;
                and.b32 m, $8, 0x00F000F0;   mul.lo.u32 m, m, 0x0104;   and.b32 m, m, 0x81C081C0;
                mul.rn.bf16x2 m, m, $9;   mov.b32 {$2, $3}, m;
                and.b32 m, u, 0x000F000F;   mul.lo.u32 m, m, 0x1040;   and.b32 m, m, 0x81C081C0;
                mul.rn.bf16x2 m, m, $9;   mov.b32 {$4, $5}, m;
                and.b32 m, u, 0x00F000F0;   mul.lo.u32 m, m, 0x0104;   and.b32 m, m, 0x81C081C0;
                mul.rn.bf16x2 m, m, $9;   mov.b32 {$6, $7}, m;
                }""",
                "=&h,=&h,=&h,=&h,=&h,=&h,=h,=h,r,r",
                [word, spread(factors(scale, 126, True), word.shape[1] // scale.shape[1])],
                dtype=(
                    tl.bfloat16, tl.bfloat16, tl.bfloat16, tl.bfloat16, tl.bfloat16, tl.bfloat16, tl.bfloat16,
                    tl.bfloat16,
                ),
                is_pure=True,
                pack=1,
            )  # fmt: skip
        else:
            a, b, c, d, e, f, g, h = tl.inline_asm_elementwise(
                """{
                .reg .b32 m, u, up;
                mov.b32 up, 0x7E807E80;
                shr.u32 u, $8, 8;
                and.b32 m, $8, 0x000F000F;   mul.lo.u32 m, m, 0x1040;   and.b32 m, m, 0x81C081C0;
                mul.rn.bf16x2 m, m, up;   mul.rn.bf16x2 m, m, $9;   mov.b32 {$0, $1}, m;
                and.b32 m, $8, 0x00F000F0;   mul.lo.u32 m, m, 0x0104;   and.b32 m, m, 0x81C081C0;
                mul.rn.bf16x2 m, m, up;   mul.rn.bf16x2 m, m, $9;   mov.b32 {$2, $3}, m;
                and.b32 m, u, 0x000F000F;   mul.lo.u32 m, m, 0x1040;   and.b32 m, m, 0x81C081C0;
                mul.rn.bf16x2 m, m, up;   mul.rn.bf16x2 m, m, $9;   mov.b32 {$4, $5}, m;
                and.b32 m, u, 0x00F000F0;   mul.lo.u32 m, m, 0x0104;   and.b32 m, m, 0x81C081C0;
                mul.rn.bf16x2 m, m, up;   mul.rn.bf16x2 m, m, $9;   mov.b32 {$6, $7}, m;
                }""",
                "=&h,=&h,=&h,=&h,=&h,=&h,=h,=h,r,r",
                [word, spread(factors(scale, 0, False), word.shape[1] // scale.shape[1])],
                dtype=(
                    tl.bfloat16, tl.bfloat16, tl.bfloat16, tl.bfloat16, tl.bfloat16, tl.bfloat16, tl.bfloat16,
                    tl.bfloat16,
                ),
                is_pure=True,
                pack=1,
            )  # fmt: skip
        low = tl.join(tl.join(a, e), tl.join(c, g))
        high = tl.join(tl.join(b, f), tl.join(d, h))
        return tl.reshape(tl.join(low, high), (word.shape[0], 8 * word.shape[1]))
