"""Activation quantisation in front of FP8 and FP4 weights."""

from __future__ import annotations

import torch
import triton.language as tl
from torch import Tensor

from ...hal.registry import Signature
from . import tuning
from .compile_list import CompileCase
from .jit import jit
from .portable import E4M3_MAX, bf16_to_f32, bits, e8m0_ceil, from_bits, to_e4m3
from .register import kernel
from .strides import alignment, power_of_two

GROUP: tl.constexpr = tl.constexpr(32)


@jit
def quant_fp8_kernel(
    x_ptr,
    code_ptr,
    scale_ptr,
    rows,
    x_stride: tl.int64,
    K: tl.constexpr,
    ALIGN: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Q8 of a tile [BLOCK_T, BLOCK_K] of bf16 or fp32 [T, K]. x_stride: of rows, in units of ALIGN elements."""
    parts: tl.constexpr = (K + BLOCK_K - 1) // BLOCK_K
    row = (tl.program_id(0) // parts).to(tl.int64) * BLOCK_T + tl.arange(0, BLOCK_T)
    part = tl.program_id(0) % parts
    channel = part * BLOCK_K + tl.arange(0, BLOCK_K)
    keep = (row < rows)[:, None]
    mask = keep & (channel < K)[None, :]
    x = tl.load(x_ptr + (row * x_stride * ALIGN)[:, None] + channel[None, :], mask=mask, other=0.0)
    if x.dtype == tl.bfloat16:
        x = bf16_to_f32(x)
    x = tl.reshape(x, (BLOCK_T, BLOCK_K // GROUP, GROUP))
    # Magnitudes as integers put NaN above infinity.
    most = tl.max(bits(x) & 0x7FFFFFFF, 2)
    least = tl.full((BLOCK_T, BLOCK_K // GROUP), 1e-4, tl.float32)
    scale, inverse = e8m0_ceil(from_bits(tl.maximum(most, bits(least))), E4M3_MAX)
    code = tl.reshape(to_e4m3(x * inverse[:, :, None]), (BLOCK_T, BLOCK_K))
    tl.store(code_ptr + (row * K)[:, None] + channel[None, :], code, mask=mask)
    group = part * (BLOCK_K // GROUP) + tl.arange(0, BLOCK_K // GROUP)
    place = scale_ptr + (row * (K // GROUP))[:, None] + group[None, :]
    tl.store(place, scale, mask=keep & (group < K // GROUP)[None, :])


def whole_groups(signature: Signature) -> str | None:
    """Channels are quantised in groups of 32."""
    k = signature.dims["K"]
    return None if k % GROUP.value == 0 else f"K must be a multiple of {GROUP.value}, got {k}"


def _default(shape: tuning.Shape) -> tuning.Launch:
    block_k = min(512, power_of_two(shape[0]))
    return {"BLOCK_T": 2048 // block_k, "BLOCK_K": block_k, "num_warps": 4}


def _candidates(shape: tuning.Shape) -> list[tuning.Launch]:
    widths = {_default(shape)["BLOCK_K"], *(k for k in (128, 256, 512, 1024) if k <= power_of_two(shape[0]))}
    return [
        {"BLOCK_T": elements // block_k, "BLOCK_K": block_k, "num_warps": warps}
        for block_k in sorted(widths)
        for elements in (1024, 2048, 4096)
        for warps in (2, 4, 8)
    ]


QUANT_FP8 = tuning.Tunable("quant_fp8", ("K",), _default, _candidates)


@kernel("quant_fp8", version=0, supports=whole_groups)
def quant_fp8(x: Tensor, out: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor]:
    rows, k = x.shape
    if out is None:
        codes = torch.empty((rows, k), dtype=torch.float8_e4m3fn, device=x.device)
        out = codes, torch.empty((rows, k // 32), dtype=torch.uint8, device=x.device)
    if not rows or not k:
        return out
    align = max(1, alignment(x) // x.element_size())
    launch = QUANT_FP8.choose(x.device, k)
    grid = (-(-rows // launch["BLOCK_T"]) * -(-k // launch["BLOCK_K"]),)
    quant_fp8_kernel[grid](
        x,
        out[0].view(torch.uint8),
        out[1],
        rows,
        x.stride(0) // align,
        K=k,
        ALIGN=align,
        **launch,
        enable_fp_fusion=False,
    )
    return out


COMPILES = [
    CompileCase(
        quant_fp8_kernel,
        {"x_ptr": kind, "code_ptr": "*u8", "scale_ptr": "*u8", "rows": "i32", "x_stride": "i64"},
        {"K": k, "ALIGN": 16 // size, "BLOCK_T": launch["BLOCK_T"], "BLOCK_K": launch["BLOCK_K"]},
        num_warps=launch["num_warps"],
        label=tuning.label(f"{kind.removeprefix('*')}, {k}", archs),
        archs=archs,
    )
    for kind, size, k in (
        ("*bf16", 2, 1280),
        ("*bf16", 2, 5120),
        ("*bf16", 2, 8192),
        ("*bf16", 2, 32768),
        ("*fp32", 4, 5120),
    )
    for archs, launch in QUANT_FP8.launches(k)
]
