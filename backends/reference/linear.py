"""Dense linear layers: FP8 block weights and bf16 weights. Weights stay packed and are expanded call by call."""

from __future__ import annotations

import torch
from torch import Tensor

from ...hal.registry import kernel
from ...ops.spec import WeightHandle
from .common import finish, widths
from .formats import FP8_GROUP, decode_e4m3, decode_e8m0, dequantize_fp8
from .quant import whole_groups
from .tiles import matmul, matmul_expanded


@kernel("linear_fp8", version=0, backend="reference", supports=whole_groups)
def linear_fp8(xq: Tensor, xs: Tensor, handle: WeightHandle, out: Tensor | None) -> Tensor:
    weight, scale = handle.tensors
    return finish(_multiply(dequantize_fp8(xq, xs), weight, scale).to(torch.bfloat16), out)


@kernel("linear_fp8_grouped", version=0, backend="reference", supports=widths(K=32, N=32))
def linear_fp8_grouped(xq: Tensor, xs: Tensor, handle: WeightHandle, out: Tensor | None) -> Tensor:
    weight, scale = handle.tensors
    x = dequantize_fp8(xq, xs)
    y = torch.empty((x.shape[0], *weight.shape[:2]), dtype=torch.bfloat16, device=x.device) if out is None else out
    for group in range(weight.shape[0]):
        y[:, group] = _multiply(x[:, group], weight[group], scale[group])
    return y


@kernel("linear_bf16", version=0, backend="reference")
def linear_bf16(x: Tensor, handle: WeightHandle, fp32_out: bool, out: Tensor | None) -> Tensor:
    (weight,) = handle.tensors
    y = matmul(x, weight)
    return finish(y.contiguous() if fp32_out else y.to(torch.bfloat16).contiguous(), out)


def expand_blocks(weight: Tensor, scale: Tensor) -> Tensor:
    """fp32 [N, K] of E4M3 codes [N, K] and one E8M0 byte per 32x32 block; the last blocks may be partial in N."""
    n, k = weight.shape
    rows, columns = scale.shape
    values = decode_e4m3(weight)
    if n % FP8_GROUP:
        values = torch.cat((values, values.new_zeros(rows * FP8_GROUP - n, k)))
    values.view(rows, FP8_GROUP, columns, FP8_GROUP).mul_(decode_e8m0(scale).view(rows, 1, columns, 1))
    return values[:n]


def _multiply(x: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    """fp32 x @ W.T. Codes times powers of two are exact in fp32, so scaling first equals scaling the sums."""

    def expand(first: int, end: int) -> Tensor:
        return expand_blocks(weight[first:end], scale[first // FP8_GROUP : -(-end // FP8_GROUP)])

    return matmul_expanded(x, weight.shape[0], expand)
