"""Oracles of the vision family."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...ops.numerics import FLOOR, Rounded
from ...ops.spec import SPECS
from .expected import BF16, U16, U32, Bits, Within, accumulated, bits, floats, terms_of, torched
from .formats import Floats, f64
from .formulas import product, sigmoid

GELU_SLOPE = 1.13
"""The largest slope of gelu is 1.1289, near the root of two."""
_erf = np.vectorize(math.erf, otypes=[np.float64])


@bits("image_patches")
def image_patches(place: Tensor, pixels: Tensor, images: Tensor, patch: int) -> Sequence[Bits]:
    made = np.zeros((len(place), 3, patch, patch), np.float32)
    for row, (image, down, across) in zip(made, place.tolist(), strict=True):
        if not 0 <= image < len(images):
            continue
        offset, width, height, left, top = images[image].tolist()
        stored = pixels[offset : offset + 3 * width * height].numpy().reshape(height, width, 3)
        for y in range(patch):
            for x in range(patch):
                v, u = down * patch + y - top, across * patch + x - left
                inside = 0 <= v < height and 0 <= u < width
                byte = stored[v, u].astype(np.float32) if inside else np.float32(127)
                row[:, y, x] = (byte / np.float32(255) - np.float32(0.5)) / np.float32(0.5)
    return (Bits(torch.from_numpy(made).flatten(1).to(BF16)),)


def gelu(x: Floats) -> Floats:
    """x times the normal distribution's mass below x."""
    with np.errstate(invalid="ignore"):
        return np.asarray(x * (1 + _erf(x / math.sqrt(2))) / 2)


@floats("vision_linear")
def vision_linear(*args: Any) -> list[Within]:
    x, weight, bias, residual, activation = args
    want, magnitude = product(f64(x), f64(weight.tensors[0]))
    if bias is not None:
        want, magnitude = want + f64(bias), magnitude + np.abs(f64(bias))
    found = accumulated(terms_of("vision_linear", args), magnitude, want)
    value, limit = found.want.numpy(), found.limit.numpy()
    if activation == "gelu":
        # The slope times what the input is off; erf (4), the sum and three products, relative to the input; a rounding.
        error = GELU_SLOPE * limit + 8 * U32 * np.abs(value)
        value = gelu(value)
        limit = error + U16 * (np.abs(value) + error)
    if residual is not None:
        with np.errstate(invalid="ignore"):
            value = value + f64(residual)
        limit = limit + U16 * (np.abs(value) + limit)
    return [Within(torched(value), torched(limit))]


@floats("silu_mul")
def silu_mul(gate_up: Tensor) -> list[Within]:
    gate, up = np.split(f64(gate_up), 2, axis=1)
    numerics = SPECS["silu_mul"].numerics
    assert isinstance(numerics, Rounded)
    with np.errstate(all="ignore"):
        want = torched(gate * sigmoid(gate) * up)
        flushed = torched(np.abs(gate * up) * FLOOR)
    return [Within(want, numerics.limit(want, BF16) + torch.nan_to_num(flushed, 0, 0, 0))]


@floats("image_rope")
def image_rope(*args: Any) -> list[Within]:
    qkv, place, table = args
    want, magnitude = f64(qkv).copy(), np.zeros(qkv.shape)
    half, quarter, angles = qkv.shape[-1] // 2, table.shape[1], f64(table)
    for t, (_, row, column) in enumerate(place.tolist()):
        for i in range(half):
            cosine, sine = angles[row, i] if i < quarter else angles[column, i - quarter]
            a, b = f64(qkv[t, :2, :, i]), f64(qkv[t, :2, :, i + half])
            with np.errstate(invalid="ignore"):
                want[t, :2, :, i], want[t, :2, :, i + half] = a * cosine - b * sine, a * sine + b * cosine
            magnitude[t, :2, :, i] = np.abs(a * cosine) + np.abs(b * sine)
            magnitude[t, :2, :, i + half] = np.abs(a * sine) + np.abs(b * cosine)
    found = accumulated(terms_of("image_rope", args), magnitude, want)
    found.limit[:, 2] = 0.0  # copied
    return [found]


@floats("image_attention")
def image_attention(*args: Any) -> list[Within]:
    q, k, v, begin, end, scale = args
    want, limit = np.zeros(q.shape), np.full(q.shape, FLOOR)
    query, key, value = f64(q), f64(k), f64(v)
    for t, (first, last) in enumerate(zip(begin.tolist(), end.tolist(), strict=True)):
        for head in range(q.shape[1] if first < last else 0):
            row = query[t, head], key[first:last, head], value[first:last, head]
            want[t, head], limit[t, head] = attended(*row, scale)
    return [Within(torched(want), torched(limit))]


def attended(q: Floats, k: Floats, v: Floats, scale: float) -> tuple[Floats, Floats]:
    """One row and head: output [d] and its limit. As for sparse attention, a score of d terms moves an exponential, P
    and the result are rounded to bf16, the sums run over the keys."""
    with np.errstate(invalid="ignore"):
        score = scale * (k @ q)
        weight = np.exp(score - score.max())
        total = weight.sum()
        want = weight @ v / total
        spread = weight @ np.abs(v) / total
        size = scale * (np.abs(k) @ np.abs(q)).max()
        moved = 4 * (len(q) + 2) * U32 * size + 2 * len(k) * U32
        limit = U16 * np.abs(want) + 1.01 * (U16 + moved) * spread + FLOOR
    return want, np.nan_to_num(limit)


@bits("merge_patches")
def merge_patches(x: Tensor, source: Tensor) -> Sequence[Bits]:
    count, width = x.shape
    made = torch.zeros((len(source), width, source.shape[1]), dtype=x.dtype)
    for m, row in enumerate(source.tolist()):
        for s, patch in enumerate(row):
            if 0 <= patch < count:
                made[m, :, s] = x[patch]
    return (Bits(made.flatten(1)),)


@bits("scatter_embeds")
def scatter_embeds(x: Tensor, values: Tensor, marks: Tensor, source: Tensor) -> Sequence[Bits]:
    made = x.clone()
    for row, s in zip(made, source.tolist(), strict=True):
        if s != -1:
            row[:] = values[s] if s >= 0 else marks[-2 - s]
    return (Bits(made),)
