"""Calls of any shape for the vision ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from .layer_samples import ints, normal
from .shapes import Pick, Range, Spans, shape
from .spec import SPECS
from .vision_samples import grid, packed, rope_table

Rng = np.random.Generator
Args = tuple[Any, ...]
ROWS = Range(0, 300)
WIDTH = Range(1, 300)


@shape("image_patches", rows=Range(0, 8), columns=Range(1, 8), patch=Range(1, 16), less=Range(0, 5))
def image_patches(rng: Rng, device: torch.device, *, rows: int, columns: int, patch: int, less: int) -> Args:
    width, height = max(columns * patch - less, 1), max(rows * patch - less, 1)
    place = np.array(grid(0, rows, columns), dtype=np.int64).reshape(-1, 3)
    return ints(place, device), *packed(rng, device, [(width, height, less // 2, less // 2)], gap=less), patch


@shape(
    "vision_linear", rows=ROWS, outputs=WIDTH, width=WIDTH, bias=Pick((False, True)), residual=Pick((False, True)),
    activation=Pick(("none", "gelu")),
)  # fmt: skip
def vision_linear(
    rng: Rng, device: torch.device, *, rows: int, outputs: int, width: int, bias: bool, residual: bool, activation: str
) -> Args:
    weight = SPECS["vision_linear"].prepare(normal(rng, device, outputs, width) * width**-0.5)
    added = normal(rng, device, outputs) if bias else None
    before = normal(rng, device, rows, outputs) if residual else None
    return normal(rng, device, rows, width), weight, added, before, activation


@shape("silu_mul", rows=ROWS, half=WIDTH, exponent=Range(-30, 6, 6))
def silu_mul(rng: Rng, device: torch.device, *, rows: int, half: int, exponent: int) -> Args:
    return (normal(rng, device, rows, 2 * half) * 2.0**exponent,)


@shape("image_rope", rows=Range(0, 40), heads=Range(1, 5), quarter=Range(1, 20))
def image_rope(rng: Rng, device: torch.device, *, rows: int, heads: int, quarter: int) -> Args:
    place = ints(rng.integers(0, 50, (rows, 3)), device)
    return normal(rng, device, rows, 3, heads, 4 * quarter), place, rope_table(device, 50, quarter)


@shape("image_attention", pieces=Spans(4, 10, 150), heads=Range(1, 4), width=Range(1, 80))
def image_attention(rng: Rng, device: torch.device, *, pieces: Sequence[Sequence[int]], heads: int, width: int) -> Args:
    begin: list[int] = []
    end: list[int] = []
    total = 0
    for gap, last in pieces:  # so many unused keys, then the image
        first, total = total + gap, total + last
        begin += [first] * (total - first)
        end += [total] * (total - first)
    q, k, v = (normal(rng, device, n, heads, width) for n in (len(begin), total, total))
    return q, k, v, ints(begin, device), ints(end, device), width**-0.5


@shape("merge_patches", count=Range(0, 60), rows=ROWS, width=Range(1, 100), merged=Range(1, 16))
def merge_patches(rng: Rng, device: torch.device, *, count: int, rows: int, width: int, merged: int) -> Args:
    return normal(rng, device, count, width), ints(rng.integers(-1, count + 1, (rows, merged)), device)


@shape("scatter_embeds", rows=ROWS, streams=Range(1, 5), width=WIDTH, count=Range(0, 60))
def scatter_embeds(rng: Rng, device: torch.device, *, rows: int, streams: int, width: int, count: int) -> Args:
    values, marks = normal(rng, device, count, width), normal(rng, device, 3, width)
    return normal(rng, device, rows, streams, width), values, marks, ints(rng.integers(-4, count, rows), device)
