"""Dense linear layers. Weights go through `*_prepare` once, at load; the ops take the handle that returns."""

from __future__ import annotations

from torch import Tensor

from . import layer_samples as samples
from .numerics import Accumulated
from .spec import BF16, E4M3, F32, U8, Cost, WeightHandle, define, handle, result, scalar, tensor

LINEAR_FP8 = define(
    "linear_fp8",
    version=0,
    family="linear",
    args=[
        tensor("xq", "T K", E4M3),
        tensor("xs", "T K//32", U8),
        handle("weight", weight=("N K", E4M3), scale=("ceil(N,32) K//32", U8)),
    ],
    outs=[result("y", "T N", BF16)],
    dynamic="T",
    semantics="""y[t,n] = bf16(sum_k x[t,k] * w[n,k]) with x = xq * 2^(xs-127) per 32 channels and w = weight *
        2^(scale-127) per block of 32 rows by 32 channels, summed in fp32 in an order that depends on N and K alone. K
        is a multiple of 32; the last blocks of rows may be partial. Scale byte 255 and code 0x7F are NaN; a NaN in a
        row of x makes that row NaN and no other. Zero rows give an empty result.""",
    numerics=Accumulated("K"),
    cost=lambda d: Cost(
        flops=2 * d["T"] * d["N"] * d["K"],
        bytes=d["N"] * d["K"] * (1 + 1 / 1024) + d["T"] * (d["K"] * (1 + 1 / 32) + 2 * d["N"]),
    ),
    samples=samples.linear_fp8,
)

LINEAR_FP8_GROUPED = define(
    "linear_fp8_grouped",
    version=0,
    family="linear",
    args=[
        tensor("xq", "T G K", E4M3),
        tensor("xs", "T G K//32", U8),
        handle("weight", weight=("G N K", E4M3), scale=("G N//32 K//32", U8)),
    ],
    outs=[result("y", "T G N", BF16)],
    dynamic="T",
    semantics="""G independent products y[:,g] = linear_fp8(x[:,g], weight[g]); N and K are multiples of 32. Equal to
        G calls of linear_fp8 in its numerics class.""",
    numerics=Accumulated("K"),
    cost=lambda d: Cost(
        flops=2 * d["T"] * d["G"] * d["N"] * d["K"],
        bytes=d["G"] * (d["N"] * d["K"] * (1 + 1 / 1024) + d["T"] * (d["K"] * (1 + 1 / 32) + 2 * d["N"])),
    ),
    samples=samples.linear_fp8_grouped,
)

LINEAR_BF16 = define(
    "linear_bf16",
    version=0,
    family="linear",
    args=[tensor("x", "T K", BF16), handle("weight", weight=("N K", BF16)), scalar("fp32_out", bool)],
    outs=[result("y", "T N", BF16, F32)],
    dynamic="T",
    semantics="""y[t,n] = sum_k x[t,k] * w[n,k], summed in fp32 in an order that depends on N and K alone, returned as
        fp32 or rounded once to bf16. A NaN in a row of x makes that row NaN and no other. K may be any size.""",
    numerics=Accumulated("K"),
    cost=lambda d: Cost(
        flops=2 * d["T"] * d["N"] * d["K"],
        bytes=2 * d["N"] * d["K"] + d["T"] * (2 * d["K"] + (4 if d.get("fp32_out") else 2) * d["N"]),
    ),
    samples=samples.linear_bf16,
)


def linear_fp8_prepare(weight: Tensor, scale: Tensor) -> WeightHandle:
    """Prepare an FP8 weight for `linear_fp8`.

    Args:
        weight: e4m3 [N, K], K a multiple of 32. scale: E8M0 bytes uint8 [ceil(N/32), K/32].

    Raises:
        ContractError: the shapes do not fit each other.
        KernelError: no kernel takes such a weight.
    """
    return LINEAR_FP8.prepare(weight, scale)


def linear_fp8(xq: Tensor, xs: Tensor, weight: WeightHandle, *, out: Tensor | None = None) -> Tensor:
    """Linear layer with FP8 activations and FP8 block weights.

    Args:
        xq, xs: what `quant_fp8` returns, [T, K] and [T, K/32]. weight: from `linear_fp8_prepare`.

    Returns:
        bf16 [T, N].
    """
    return LINEAR_FP8.run(xq, xs, weight, out)  # type: ignore[no-any-return]


def linear_fp8_grouped_prepare(weight: Tensor, scale: Tensor) -> WeightHandle:
    """Prepare a stack of FP8 weights for `linear_fp8_grouped`.

    Args:
        weight: e4m3 [G, N, K]. scale: E8M0 bytes uint8 [G, N/32, K/32].
    """
    return LINEAR_FP8_GROUPED.prepare(weight, scale)


def linear_fp8_grouped(xq: Tensor, xs: Tensor, weight: WeightHandle, *, out: Tensor | None = None) -> Tensor:
    """G linear layers side by side, one weight per group of channels (the first output projection).

    Args:
        xq: e4m3 [T, G, K]. xs: uint8 [T, G, K/32]. weight: from `linear_fp8_grouped_prepare`.

    Returns:
        bf16 [T, G, N].
    """
    return LINEAR_FP8_GROUPED.run(xq, xs, weight, out)  # type: ignore[no-any-return]


def linear_bf16_prepare(weight: Tensor) -> WeightHandle:
    """Prepare a bf16 weight [N, K] for `linear_bf16`."""
    return LINEAR_BF16.prepare(weight)


def linear_bf16(x: Tensor, weight: WeightHandle, fp32_out: bool, *, out: Tensor | None = None) -> Tensor:
    """Linear layer with bf16 activations and weights.

    Args:
        x: bf16 [T, K]. weight: from `linear_bf16_prepare`. fp32_out: return the fp32 sums instead of bf16.

    Returns:
        bf16 or f32 [T, N].
    """
    return LINEAR_BF16.run(x, weight, fp32_out, out)  # type: ignore[no-any-return]
