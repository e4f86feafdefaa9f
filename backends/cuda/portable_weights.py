"""Weights and activations from their codes to bf16, channels in their natural order. All exact, but below 2^-133.

A pair of neighbouring channels fills one register, as matrix units and shared memory want them, so nothing has to be
put in order afterwards. In the interpreter, which takes no assembler, the same values come from `portable`.
"""

from __future__ import annotations

import triton.language as tl

from .jit import jit
from .portable import INTERPRETED, bf16_to_f32, e2m1_to_f32, e4m3_to_f32, to_bf16


@jit
def e8m0_to_bf16(scale):
    """bf16 2^(b - 127) of scale bytes b; byte 255 is NaN. Exact: byte 0 is a subnormal number."""
    b = scale.to(tl.int32)
    plain = tl.where(b == 0, 0x0040, b << 7)
    return tl.where(b == 255, 0x7FC0, plain).to(tl.int16).to(tl.bfloat16, bitcast=True)


@jit
def e4m3_to_bf16(code, factor):
    """bf16 of E4M3 codes (uint8) times bf16 powers of two of the same shape, [.., 4n]. NaN codes give NaN in one of the
    four channels at least that lie in one word, maybe not in their own: in a sum over channels that is as good."""
    if INTERPRETED:
        return to_bf16(e4m3_to_f32(code) * bf16_to_f32(factor))
    else:
        # Under its sign, a code's seven bits become exponent and fraction of a bf16 that is 2^120 times smaller.
        return tl.inline_asm_elementwise(
            """{
            .reg .b32 h, t, n, bias;
            .reg .pred nan;
            mov.b32 bias, 0x7b807b80;
            and.b32 n, $2, 0x7f7f7f7f;
            add.u32 n, n, 0x01010101;
            and.b32 n, n, 0x80808080;
            setp.ne.u32 nan, n, 0;
            prmt.b32 h, $2, 0, 0x1404;
            shr.u32 t, h, 4;
            and.b32 t, t, 0x07f007f0;
            lop3.b32 h, h, 0x80008000, t, 0xea;
            mul.rn.bf16x2 h, h, bias;
            mul.rn.bf16x2 h, h, $3;
            selp.b32 $0, 0x7fff7fff, h, nan;
            prmt.b32 h, $2, 0, 0x3424;
            shr.u32 t, h, 4;
            and.b32 t, t, 0x07f007f0;
            lop3.b32 h, h, 0x80008000, t, 0xea;
            mul.rn.bf16x2 h, h, bias;
            mul.rn.bf16x2 $1, h, $4;
            }""",
            "=&r,=r,r,r,r",
            [code, factor],
            dtype=tl.bfloat16,
            is_pure=True,
            pack=4,
        )


@jit
def e2m1_to_bf16(word, factor):
    """bf16 [N, 8*C] of words of eight E2M1 codes (int32 [N, C], lowest nibble first) times bf16 powers of two."""
    if INTERPRETED:
        w = word.to(tl.uint32, bitcast=True)
        f = bf16_to_f32(factor)
        a, b = to_bf16(e2m1_to_f32(w) * f), to_bf16(e2m1_to_f32(w >> 4) * f)
        c, d = to_bf16(e2m1_to_f32(w >> 8) * f), to_bf16(e2m1_to_f32(w >> 12) * f)
        e, g = to_bf16(e2m1_to_f32(w >> 16) * f), to_bf16(e2m1_to_f32(w >> 20) * f)
        h, i = to_bf16(e2m1_to_f32(w >> 24) * f), to_bf16(e2m1_to_f32(w >> 28) * f)
    else:
        # A permutation takes two nibbles to the halves of a register; with bit 3 of a selector it gives 0.
        # A product puts a code's sign, and its exponent bits and fraction, where bf16 has its own, 2^126 too small.
        a, b, c, d, e, g, h, i = tl.inline_asm_elementwise(
            """{
            .reg .b32 l, u, m, f, up;
            mov.b32 up, 0x7E807E80;
            mov.b32 f, {$9, $9};
            and.b32 l, $8, 0x0F0F0F0F;
            shr.u32 u, $8, 4;
            and.b32 u, u, 0x0F0F0F0F;
            prmt.b32 m, l, u, 0xC480;   mul.lo.u32 m, m, 0x1040;   and.b32 m, m, 0x81C081C0;
            mul.rn.bf16x2 m, m, up;   mul.rn.bf16x2 m, m, f;   mov.b32 {$0, $1}, m;
            prmt.b32 m, l, u, 0xD591;   mul.lo.u32 m, m, 0x1040;   and.b32 m, m, 0x81C081C0;
            mul.rn.bf16x2 m, m, up;   mul.rn.bf16x2 m, m, f;   mov.b32 {$2, $3}, m;
            prmt.b32 m, l, u, 0xE6A2;   mul.lo.u32 m, m, 0x1040;   and.b32 m, m, 0x81C081C0;
            mul.rn.bf16x2 m, m, up;   mul.rn.bf16x2 m, m, f;   mov.b32 {$4, $5}, m;
            prmt.b32 m, l, u, 0xF7B3;   mul.lo.u32 m, m, 0x1040;   and.b32 m, m, 0x81C081C0;
            mul.rn.bf16x2 m, m, up;   mul.rn.bf16x2 m, m, f;   mov.b32 {$6, $7}, m;
            }""",
            "=h,=h,=h,=h,=h,=h,=h,=h,r,h",
            [word, factor],
            dtype=(
                tl.bfloat16,
                tl.bfloat16,
                tl.bfloat16,
                tl.bfloat16,
                tl.bfloat16,
                tl.bfloat16,
                tl.bfloat16,
                tl.bfloat16,
            ),  # fmt: skip
            is_pure=True,
            pack=1,
        )
    low = tl.join(tl.join(a, e), tl.join(c, h))
    high = tl.join(tl.join(b, g), tl.join(d, i))
    return tl.reshape(tl.join(low, high), (word.shape[0], 8 * word.shape[1]))
