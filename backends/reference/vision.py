"""The vision tower: patches, linears with their epilogue, attention within an image."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ...hal.registry import kernel
from ...ops.spec import SPECS, WeightHandle
from .common import check_index, finish, tree_sum, widths
from .embed import select_rows
from .portable import sigmoid
from .tiles import matmul

GRAY = 127
PATCHES_AT_ONCE = 4096
QUERIES_AT_ONCE = 256


@kernel("image_patches", version=0, backend="reference")
def image_patches(place: Tensor, pixels: Tensor, images: Tensor, patch: int, out: Tensor | None) -> Tensor:
    result = torch.zeros((place.shape[0], 3 * patch * patch), dtype=torch.bfloat16, device=place.device)
    if images.shape[0] == 0:
        return finish(result, out)
    values = ((torch.arange(256) / 255 - 0.5) / 0.5).to(torch.bfloat16).to(place.device)
    step = torch.arange(patch, device=place.device)
    for first in range(0, place.shape[0], PATCHES_AT_ONCE):
        image, row, column = place[first : first + PATCHES_AT_ONCE].long().unbind(1)
        known = (image >= 0) & (image < images.shape[0])
        described = images[torch.where(known, image, 0)].unsqueeze(2)
        offset, width, height, left, top = described.unbind(1)
        y = (row.unsqueeze(1) * patch + step - top).unsqueeze(2)
        x = (column.unsqueeze(1) * patch + step - left).unsqueeze(1)
        inside = (y >= 0) & (y < height.unsqueeze(2)) & (x >= 0) & (x < width.unsqueeze(2)) & known[:, None, None]
        at = torch.where(inside, offset.unsqueeze(2) + 3 * (y * width.unsqueeze(2) + x), 0)
        for channel in range(3):
            byte = torch.full(at.shape, GRAY, device=place.device)
            if inside.any():
                index = check_index("image_patches", "offset of a pixel", at[inside] + channel, pixels.shape[0])
                byte[inside] = pixels[index].long()
            part = torch.where(known[:, None, None], values[byte], 0.0)
            plane = slice(channel * patch * patch, (channel + 1) * patch * patch)
            result[first : first + PATCHES_AT_ONCE, plane] = part.flatten(1)
    return finish(result, out)


@kernel("vision_linear", version=0, backend="reference")
def vision_linear(
    x: Tensor,
    handle: WeightHandle,
    bias: Tensor | None,
    residual: Tensor | None,
    activation: str,
    out: Tensor | None,
) -> Tensor:
    (weight,) = handle.tensors
    y = matmul(x, weight)
    if bias is not None:
        y = y + bias.float()
    y = y.to(torch.bfloat16)
    if activation == "gelu":
        wide = y.float()
        y = (wide * (torch.erf(wide * math.sqrt(0.5)) + 1.0) * 0.5).to(torch.bfloat16)
    if residual is not None:
        y = residual + y
    return finish(y.contiguous(), out)


@kernel("silu_mul", version=0, backend="reference", supports=widths(N=2))
def silu_mul(gate_up: Tensor, out: Tensor | None) -> Tensor:
    gate, up = gate_up.float().chunk(2, dim=1)
    return finish((gate * sigmoid(gate) * up).to(torch.bfloat16), out)


@kernel("image_rope", version=0, backend="reference", supports=widths(d=4))
def image_rope(qkv: Tensor, place: Tensor, table: Tensor, out: Tensor | None) -> Tensor:
    half = qkv.shape[-1] // 2
    spots = (check_index("image_rope", f"place[:, {i}]", place[:, i], table.shape[0]) for i in (1, 2))
    angles = torch.cat([table.index_select(0, spot) for spot in spots], dim=1)
    cosine, sine = angles[:, None, None].unbind(-1)
    first, second = qkv[:, :2].float().split(half, dim=-1)
    turned = qkv.clone()
    turned[:, :2, :, :half] = first * cosine - second * sine
    turned[:, :2, :, half:] = first * sine + second * cosine
    return finish(turned, out)


@kernel("image_attention", version=0, backend="reference")
def image_attention(
    q: Tensor, k: Tensor, v: Tensor, begin: Tensor, end: Tensor, scale: float, out: Tensor | None
) -> Tensor:
    result = torch.zeros(q.shape, dtype=q.dtype, device=q.device)
    bounds = list(zip(begin.tolist(), end.tolist(), strict=True))
    ranges: dict[tuple[int, int], list[int]] = {}
    for row, (first, last) in enumerate(bounds):
        if not 0 <= first <= last <= k.shape[0]:
            raise SPECS["image_attention"].error(
                f"begin and end hold {first} and {last}, must be ascending in [0, {k.shape[0]}]"
            )
        ranges.setdefault((first, last), []).append(row)
    for (first, last), members in ranges.items():
        if first == last:
            continue
        for at in range(0, len(members), QUERIES_AT_ONCE):
            rows = torch.tensor(members[at : at + QUERIES_AT_ONCE], device=q.device)
            for head in range(q.shape[1]):
                result[rows, head] = _attend(q[rows, head], k[first:last, head], v[first:last, head], scale)
    return finish(result, out)


def _attend(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """One head: bf16 [n, d] of queries [n, d] over all keys and values [m, d]."""
    score = matmul(q, k) * scale
    weight = torch.exp(score - score.amax(-1, keepdim=True))
    value = matmul(weight.to(torch.bfloat16), v.t())
    return (value / tree_sum(weight)).to(torch.bfloat16)


@kernel("merge_patches", version=0, backend="reference")
def merge_patches(x: Tensor, source: Tensor, out: Tensor | None) -> Tensor:
    merged = select_rows(x, source.flatten()).view(*source.shape, x.shape[1])
    return finish(merged.transpose(1, 2).flatten(1).contiguous(), out)


@kernel("scatter_embeds", version=0, backend="reference")
def scatter_embeds(x: Tensor, values: Tensor, marks: Tensor, source: Tensor, out: Tensor | None) -> Tensor:
    if source.numel():
        low, high = (int(bound) for bound in source.aminmax())
        if high >= values.shape[0] and high >= 0 or low < -1 - marks.shape[0]:
            raise SPECS["scatter_embeds"].error(
                f"source holds {low} to {high}, must lie in [{-1 - marks.shape[0]}, {values.shape[0]})"
            )
    taken = torch.where(source >= 0, source, -2 - source + values.shape[0])
    rows = select_rows(torch.cat((values, marks)), torch.where(source == -1, -1, taken)).unsqueeze(1)
    return finish(torch.where((source == -1).view(-1, 1, 1), x, rows), out)
