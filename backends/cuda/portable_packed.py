"""Packed conversions: four channels of a cache record at a time, from its codes to bf16.

A dot does not care in which order its channels come, as long as both operands agree. So a word of four channels becomes
four tensors, one for each place in the word: a pair of bf16 in one register then holds the same place of two
neighbouring words, and no instruction is spent on putting neighbours side by side. The results are exact.

In the interpreter, which takes no assembler, the same values come from `portable`.
"""

from __future__ import annotations

import triton.language as tl

from .jit import jit
from .portable import INTERPRETED, e2m1_to_f32, e4m3_to_f32, e8m0_to_f32, to_bf16

FP4_DOWN: tl.constexpr = tl.constexpr(2.0**-66)
"""Factor of what `fp4_channels` returns. An E2M1 code moved to where bf16 has its exponent is 2^-126 of its value, and
bf16 cannot hold 2^126 times every scale; with what is left over here one multiplication does."""
FP4_UP: tl.constexpr = tl.constexpr(2.0**66)
"""Its inverse, which another factor takes over."""


@jit
def settled(x):
    """x, bf16, unchanged. Triton 3.6 pulls a reshape of an operand behind its way to shared memory, and gives up where
    the layout that this asks for is none ("Illegal shared layout"); an instruction between the two keeps them apart."""
    if INTERPRETED:
        return x
    else:
        return tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [x], dtype=tl.bfloat16, is_pure=True, pack=2)


@jit
def anew(x):
    """x, integers of 32 bits, of which the compiler forgets how it came by them: it works out again what follows, and
    holds nothing for that."""
    if INTERPRETED:
        return x
    else:
        return tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [x], dtype=tl.int32, is_pure=False, pack=1)


@jit
def spread(x, TIMES: tl.constexpr):
    """[N, G] -> [N, G * TIMES], each column TIMES times in a row."""
    wide = tl.broadcast_to(tl.expand_dims(x, 2), (x.shape[0], x.shape[1], TIMES))
    return tl.reshape(wide, (x.shape[0], x.shape[1] * TIMES))


@jit
def fp8_channels(words, scale):
    """Four bf16 [N, C]: channels 4c, 4c+1, 4c+2, 4c+3 of FP8-32 records. Exact, but for values below 2^-133.

    words: int32 [N, C], four E4M3 codes each, the lowest byte first. scale: uint8 [N, G], E8M0, G dividing C. A NaN
    code makes at least one channel of its row NaN, maybe another one: for keys of an attention that is as good.
    """
    TIMES: tl.constexpr = words.shape[1] // scale.shape[1]
    if INTERPRETED:
        factor = spread(e8m0_to_f32(scale), TIMES)
        w = words.to(tl.uint32, bitcast=True)
        a = to_bf16(e4m3_to_f32((w & 0xFF).to(tl.uint8)) * factor)
        b = to_bf16(e4m3_to_f32(((w >> 8) & 0xFF).to(tl.uint8)) * factor)
        c = to_bf16(e4m3_to_f32(((w >> 16) & 0xFF).to(tl.uint8)) * factor)
        d = to_bf16(e4m3_to_f32((w >> 24).to(tl.uint8)) * factor)
        return a, b, c, d
    else:
        byte = scale.to(tl.int16)
        code = tl.where(byte == 255, 0x7FFF, tl.where(byte == 0, 0x0040, byte << 7)).to(tl.int16)
        factor = spread(code, TIMES).to(tl.bfloat16, bitcast=True)
        # A code's seven bits under its sign become exponent and fraction of a bf16 2^120 times smaller.
        return tl.inline_asm_elementwise(
            """{
            .reg .b32 h, t, y, z, bias;
            .reg .pred nan;
            mov.b32 bias, 0x7b807b80;
            prmt.b32 h, $4, $5, 0x4400;
            shr.u32 t, h, 4;
            and.b32 t, t, 0x07f007f0;
            lop3.b32 h, h, 0x80008000, t, 0xea;
            mul.rn.bf16x2 h, h, bias;
            mul.rn.bf16x2 $0, h, $6;
            prmt.b32 h, $4, $5, 0x5511;
            shr.u32 t, h, 4;
            and.b32 t, t, 0x07f007f0;
            lop3.b32 h, h, 0x80008000, t, 0xea;
            mul.rn.bf16x2 h, h, bias;
            mul.rn.bf16x2 $1, h, $6;
            prmt.b32 h, $4, $5, 0x6622;
            shr.u32 t, h, 4;
            and.b32 t, t, 0x07f007f0;
            lop3.b32 h, h, 0x80008000, t, 0xea;
            mul.rn.bf16x2 h, h, bias;
            mul.rn.bf16x2 $2, h, $6;
            prmt.b32 h, $4, $5, 0x7733;
            shr.u32 t, h, 4;
            and.b32 t, t, 0x07f007f0;
            lop3.b32 h, h, 0x80008000, t, 0xea;
            mul.rn.bf16x2 h, h, bias;
            mul.rn.bf16x2 $3, h, $6;
            and.b32 y, $4, 0x7f7f7f7f;
            and.b32 z, $5, 0x7f7f7f7f;
            add.u32 y, y, 0x01010101;
            add.u32 z, z, 0x01010101;
            lop3.b32 y, y, z, 0x80808080, 0xa8;
            setp.ne.u32 nan, y, 0;
            @nan mov.b32 $0, 0x7fff7fff;
            }""",
            "=&r,=&r,=&r,=&r,r,r,r",
            [words, factor],
            dtype=(tl.bfloat16, tl.bfloat16, tl.bfloat16, tl.bfloat16),
            is_pure=True,
            pack=2,
        )


@jit
def fp4_channels(words, scale):
    """Four bf16 [N, C]: FP4_DOWN times channels 4c, 4c+1, 4c+2, 4c+3 of FP4-16 records. Exact.

    words: int16 [N, C], four E2M1 codes each, the lowest nibble first. scale: uint8 [N, G], E4M3, G dividing C.
    """
    TIMES: tl.constexpr = words.shape[1] // scale.shape[1]
    if INTERPRETED:
        factor = spread(e4m3_to_f32(scale) * FP4_DOWN, TIMES)
        w = words.to(tl.uint16, bitcast=True).to(tl.uint32)
        a = to_bf16(e2m1_to_f32(w) * factor)
        b = to_bf16(e2m1_to_f32(w >> 4) * factor)
        c = to_bf16(e2m1_to_f32(w >> 8) * factor)
        d = to_bf16(e2m1_to_f32(w >> 12) * factor)
        return a, b, c, d
    else:
        factor = spread(to_bf16(e4m3_to_f32(scale) * (2.0**60)), TIMES)
        return tl.inline_asm_elementwise(
            """{
            .reg .b32 s, t;
            shl.b32 s, $4, 12;
            shl.b32 t, $4, 6;
            and.b32 t, t, 0x01c001c0;
            lop3.b32 s, s, 0x80008000, t, 0xea;
            mul.rn.bf16x2 $0, s, $5;
            shl.b32 s, $4, 8;
            shl.b32 t, $4, 2;
            and.b32 t, t, 0x01c001c0;
            lop3.b32 s, s, 0x80008000, t, 0xea;
            mul.rn.bf16x2 $1, s, $5;
            shl.b32 s, $4, 4;
            shr.u32 t, $4, 2;
            and.b32 t, t, 0x01c001c0;
            lop3.b32 s, s, 0x80008000, t, 0xea;
            mul.rn.bf16x2 $2, s, $5;
            shr.u32 t, $4, 6;
            and.b32 t, t, 0x01c001c0;
            lop3.b32 s, $4, 0x80008000, t, 0xea;
            mul.rn.bf16x2 $3, s, $5;
            }""",
            "=&r,=&r,=&r,=&r,r,r",
            [words, factor],
            dtype=(tl.bfloat16, tl.bfloat16, tl.bfloat16, tl.bfloat16),
            is_pure=True,
            pack=2,
        )
