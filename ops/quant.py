"""Activation quantisation in front of FP8 and FP4 weights."""

from __future__ import annotations

from torch import Tensor

from . import layer_samples as samples
from .numerics import Exact
from .spec import BF16, E4M3, F32, U8, Cost, define, result, tensor

QUANT_FP8 = define(
    "quant_fp8",
    version=0,
    family="quant",
    args=[tensor("x", "T K", BF16, F32, layout="rows")],
    outs=[result("q", "T K", E4M3), result("scale", "T K//32", U8)],
    dynamic="T",
    semantics="""Q8 in groups of 32 consecutive channels, K a multiple of 32: a = max(max|x|, 1e-4); 2^e the smallest
        power of two >= a/448; scale byte e + 127; q = x * 2^-e rounded to E4M3 (nearest, ties to even), saturating at
        448. So zero groups have scale byte 105. A group that holds NaN or infinity has scale byte 255 (NaN) and every
        code 0x7F, so that it stays visible; other groups of the row are not touched by it.""",
    numerics=Exact(),
    cost=lambda d: Cost(
        flops=3 * d["T"] * d["K"], bytes=d["T"] * d["K"] * (d.get("x.itemsize", 2) + 1) + d["T"] * (d["K"] // 32)
    ),
    samples=samples.quant_fp8,
)


def quant_fp8(x: Tensor, *, out: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
    """Quantise activations to FP8 with one power-of-two scale per 32 channels.

    Args:
        x: bf16 or f32 [T, K], K a multiple of 32, rows may be strided.

    Returns:
        codes e4m3 [T, K] and E8M0 scale bytes uint8 [T, K/32].
    """
    return QUANT_FP8.run(x, out)  # type: ignore[no-any-return]
