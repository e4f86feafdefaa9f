"""Mixture of experts: routing, packing rows by expert, FP4 expert products, combination."""

from __future__ import annotations

import torch
from torch import Tensor

from ...hal.registry import Signature, kernel
from ...ops.spec import SPECS, WeightHandle
from .common import check_index, finish, widths
from .formats import FP8_GROUP, decode_e8m0, dequantize_fp8, quantize_fp8, unpack_e2m1
from .portable import sigmoid, softplus
from .tiles import CHUNK_ELEMENTS, multiply_tiles, tile_groups, whole_tiles

WEIGHT_SUM_FLOOR = 1e-20
NAN_KEY = -(2**31)


@kernel("moe_gate", version=0, backend="reference")
def moe_gate(
    logits: Tensor,
    bias: Tensor,
    bias_vl: Tensor,
    image: Tensor,
    k: int,
    scaling: float,
    out: tuple[Tensor, Tensor] | None,
) -> tuple[Tensor, Tensor]:
    score = softplus(logits).sqrt_()
    key = score + torch.where(image.unsqueeze(1), bias_vl, bias)
    chosen = torch.sort(order_key(key), dim=1, descending=True, stable=True).indices[:, :k]
    weight = score.gather(1, chosen)
    total = weight[:, 0]
    for slot in range(1, k):
        total = total + weight[:, slot]
    weight = weight / (total + WEIGHT_SUM_FLOOR).unsqueeze(1) * scaling
    return finish((weight, chosen.to(torch.int32)), out)


def order_key(x: Tensor) -> Tensor:
    """int32 that orders like fp32 x: -0 equals +0, NaN below everything."""
    bits = (x + 0.0).view(torch.int32)
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).masked_fill_(x.isnan(), NAN_KEY)


@kernel("moe_pack", version=0, backend="reference")
def moe_pack(
    experts: Tensor, weights: Tensor, first: int, count: int, out: tuple[Tensor, Tensor, Tensor, Tensor] | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    tokens, k = experts.shape
    flat = experts.flatten() - first
    local = (flat >= 0) & (flat < count)
    key, order = torch.sort(torch.where(local, flat, count), stable=True)
    offsets = torch.searchsorted(key, torch.arange(count + 1, dtype=key.dtype, device=key.device), out_int32=True)
    used = key < count
    source_row = torch.where(used, order // max(k, 1), -1).to(torch.int32)
    packed_weight = torch.where(used, weights.flatten()[order], 0.0)
    place = torch.arange(tokens * k, dtype=torch.int32, device=experts.device)
    position = torch.empty_like(place)
    position[order] = torch.where(used, place, -1)
    return finish((source_row, packed_weight, offsets, position.view(tokens, k)), out)


def whole_groups(signature: Signature) -> str | None:
    """Scales cover 32 channels, that is 16 packed bytes."""
    packed = signature.dims["H"]
    return None if packed % 16 == 0 else f"rows must hold a multiple of 16 packed bytes, got {packed}"


@kernel("grouped_linear", version=0, backend="reference", supports=whole_groups)
def grouped_linear(
    xq: Tensor, xs: Tensor, handle: WeightHandle, source_row: Tensor | None, offsets: Tensor, out: Tensor | None
) -> Tensor:
    weight, scale = handle.tensors
    rows = xq.shape[0] if source_row is None else source_row.shape[0]
    n, k = weight.shape[1], xq.shape[1]
    y = torch.zeros((rows, n), dtype=torch.bfloat16, device=xq.device) if out is None else out
    bounds = offsets.tolist()
    if bounds[0] < 0 or bounds[-1] > rows or any(b < a for a, b in zip(bounds, bounds[1:], strict=False)):
        raise SPECS["grouped_linear"].error(f"offsets must ascend within 0..{rows}, the packed rows; got {bounds}")
    groups, begins, places = tile_groups(bounds)
    if not groups:
        return y
    x = dequantize_fp8(xq, xs)
    x = x[: bounds[-1]] if source_row is None else x.index_select(0, _rows(source_row[: bounds[-1]], x.shape[0]))
    place = torch.tensor(places, device=xq.device)
    padded = torch.zeros((begins[-1], k), dtype=torch.float32, device=xq.device).index_copy_(0, place, x)
    step = max(1, CHUNK_ELEMENTS // (n * k))
    product: Tensor | None = None
    for first in range(0, len(groups), step):
        chosen = torch.tensor(groups[first : first + step], device=xq.device)
        expanded = whole_tiles(expand_fp4(weight.index_select(0, chosen), scale.index_select(0, chosen)))
        if product is None:
            product = torch.empty((begins[-1], expanded.shape[1]), dtype=torch.float32, device=xq.device)
        for i in range(len(chosen)):
            rows_of = slice(begins[first + i], begins[first + i + 1])
            multiply_tiles(padded[rows_of], expanded[i], product[rows_of])
    assert product is not None
    y[: bounds[-1]] = product.index_select(0, place)[:, :n]
    return y


def _rows(source_row: Tensor, count: int) -> Tensor:
    return check_index("grouped_linear", "source_row", source_row, count)


def expand_fp4(weight: Tensor, scale: Tensor) -> Tensor:
    """fp32 [..., N, K] of packed E2M1 codes [..., N, K/2] and E8M0 bytes [..., N, K/32]; exact."""
    values = unpack_e2m1(weight)
    groups = values.view(*scale.shape, FP8_GROUP)
    return groups.mul_(decode_e8m0(scale).unsqueeze(-1)).view(values.shape)


@kernel("swiglu_quant", version=0, backend="reference", supports=widths(N=64))
def swiglu_quant(
    gate_up: Tensor, weight: Tensor | None, limit: float, out: tuple[Tensor, Tensor] | None
) -> tuple[Tensor, Tensor]:
    gate, up = gate_up.to(torch.float32).chunk(2, dim=1)
    gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    act = gate * sigmoid(gate)
    if weight is not None:
        act = weight.unsqueeze(1) * act
    return finish(quantize_fp8(act * up), out)


@kernel("moe_combine", version=0, backend="reference")
def moe_combine(y: Tensor, position: Tensor, shared: Tensor, out: Tensor | None) -> Tensor:
    tokens, k = position.shape
    total = torch.zeros(shared.shape, dtype=torch.float32, device=shared.device)
    local = position >= 0
    check_index("moe_combine", "position", position.clamp(min=0), max(1, y.shape[0]))
    if y.shape[0] == 0 and bool(local.any()):
        raise SPECS["moe_combine"].error("position names rows of y, which has none")
    if y.shape[0]:
        taken = y.index_select(0, torch.where(local, position, 0).flatten()).view(tokens, k, y.shape[1])
        terms = taken.masked_fill_(~local.unsqueeze(-1), 0.0).to(torch.float32)
        for slot in range(k):
            total += terms[:, slot]
    return finish((total + shared.to(torch.float32)).to(torch.bfloat16), out)
