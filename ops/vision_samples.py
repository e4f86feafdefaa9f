"""Samples of the vision ops: edge cases first, then tiles with tails, then the released model's widths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from .layer_samples import DEEP, MANY, ROWS, WIDE, ints, normal
from .spec import SPECS, Sample

Rng = np.random.Generator
Image = tuple[int, int, int, int]
"""Width, height, left, top in pixels."""


def packed(rng: Rng, device: torch.device, sizes: Sequence[Image], gap: int = 0) -> tuple[Tensor, Tensor]:
    """Random pixels of images with `gap` bytes in front of each, and their descriptions i64 [I, 5]."""
    described, offset = [], 0
    for width, height, left, top in sizes:
        described.append((offset + gap, width, height, left, top))
        offset += gap + 3 * width * height
    pixels = torch.from_numpy(rng.integers(0, 256, offset, dtype=np.uint8)).to(device)
    table = torch.from_numpy(np.array(described, dtype=np.int64).reshape(-1, 5)).to(device)
    return pixels, table


def grid(image: int, rows: int, columns: int) -> list[tuple[int, int, int]]:
    """Places of an image's patches, row by row."""
    return [(image, y, x) for y in range(rows) for x in range(columns)]


def image_patches(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """place, pixels, images, patch."""

    def place(values: Sequence[tuple[int, int, int]]) -> Tensor:
        return ints(np.array(values, dtype=np.int64).reshape(-1, 3), device)

    pixels, images = packed(rng, device, [(11, 7, 1, 0)], gap=5)
    yield Sample("no patches", (place([]), pixels, images, 4))
    yield Sample("no images", (place([(-1, 0, 0), (0, 1, 1)]), pixels[:0], images[:0], 4))
    yield Sample("one image, margins on all sides", (place(grid(0, 3, 4)), *packed(rng, device, [(9, 6, 3, 3)]), 4))
    several = [(1, 1, 2, 3), (12, 8, 0, 0), (5, 9, -2, -1)]
    mixed = [*grid(1, 2, 3), (-1, 0, 0), *grid(0, 2, 2), (3, 0, 0), *grid(2, 2, 1), (2, 9, 9)]
    yield Sample("gaps, padding, one pixel, cut image", (place(mixed), *packed(rng, device, several, gap=7), 4))
    every = torch.arange(256 * 3, device=device) // 3
    description = torch.tensor([[0, 16, 16, 0, 0]], device=device)
    yield Sample("every value", (place(grid(0, 2, 2)), every.to(torch.uint8), description, 8))
    yield Sample("many patches", (place(grid(0, 9, 29)), *packed(rng, device, [(140, 44, 2, 0)]), 5))
    yield Sample("real patches", (place(grid(0, 6, 7)), *packed(rng, device, [(98, 80, 0, 2)]), 14))


def vision_linear(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """x, weight, bias, residual, activation."""

    def weight(n: int, k: int) -> object:
        return SPECS["vision_linear"].prepare(normal(rng, device, n, k))

    prepared, bias = weight(72, 128), normal(rng, device, 72)
    for rows in ROWS:
        x, residual = normal(rng, device, rows, 128), normal(rng, device, rows, 72)
        yield Sample(f"{rows} rows", (x, prepared, bias, residual if rows % 2 else None, "none"))
    x = normal(rng, device, 5, 50)
    x[1, 7], x[3] = torch.nan, 0.0
    yield Sample("NaN row, zero row, odd sizes", (x, weight(7, 50), None, normal(rng, device, 5, 7), "none"))
    small = normal(rng, device, 37, 50) * 0.3
    yield Sample("gelu over its bend", (small, weight(40, 50), normal(rng, device, 40), None, "gelu"))
    both = normal(rng, device, 9, 40)
    yield Sample("gelu and residual", (small[:9], weight(40, 50), None, both, "gelu"))
    yield Sample("one output", (normal(rng, device, 19, 33), weight(1, 33), None, None, "none"))
    tails = normal(rng, device, 37, DEEP), weight(WIDE, DEEP)
    yield Sample("tails in outputs and channels", (*tails, None, normal(rng, device, 37, WIDE), "none"))
    wide = normal(rng, device, 37, 1024), weight(3072, 1024), normal(rng, device, 3072)
    yield Sample("real query, key and value", (*wide, None, "none"))


def silu_mul(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """gate_up."""
    for rows in ROWS:
        yield Sample(f"{rows} rows", (normal(rng, device, rows, 144) * 4,))
    x = normal(rng, device, 6, 10)
    x[0], x[1, 2], x[2, 7] = 0.0, torch.nan, torch.nan
    x[3, :5], x[4, :5], x[5, 5:] = -95.0, 80.0, torch.inf
    yield Sample("zero row, NaN gate, NaN value, ends of the sigmoid, infinite values", (x,))
    yield Sample("real width", (normal(rng, device, 37, 5632),))


def rope_table(device: torch.device, places: int, quarter: int) -> Tensor:
    """cos and sin of the places of a grid, f32 [places, quarter, 2]."""
    angle = np.arange(places)[:, None] * 10000.0 ** (-np.arange(quarter) / quarter)
    return torch.from_numpy(np.stack((np.cos(angle), np.sin(angle)), -1).astype(np.float32)).to(device)


def image_rope(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """qkv, place, table."""
    table = rope_table(device, 60, 4)
    for rows in ROWS:
        place = ints(rng.integers(0, 60, (rows, 3)), device)
        yield Sample(f"{rows} rows", (normal(rng, device, rows, 3, 3, 16), place, table))
    x = normal(rng, device, 3, 3, 2, 16)
    x[1, 0, 0, 3], x[2, 2] = torch.nan, torch.inf
    place = ints([[-1, 0, 59], [7, 5, 0], [2**31 - 1, 59, 59]], device)
    yield Sample("NaN, infinite values, first and last place, any image", (x, place, table))
    real = normal(rng, device, 37, 3, 16, 64), ints(rng.integers(0, 348, (37, 3)), device)
    yield Sample("real heads", (*real, rope_table(device, 348, 16)))


def image_attention(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """q, k, v, begin, end, scale."""

    def sample(label: str, lengths: Sequence[int], h: int, d: int, padding: int = 0) -> Sample:
        """Images of so many patches, their queries, keys and values side by side, padding rows behind."""
        total, begin, end = sum(lengths), [], []
        for i, n in enumerate(lengths):
            begin += [sum(lengths[:i])] * n
            end += [sum(lengths[: i + 1])] * n
        qkv = normal(rng, device, total + padding, 3, h, d)
        qkv[total:] = torch.nan
        bounds = (ints(part + [total] * padding, device) for part in (begin, end))
        return Sample(label, (*qkv.unbind(1), *bounds, d**-0.5))

    yield sample("no rows", [], 2, 16)
    yield sample("one key", [1], 2, 16)
    yield sample("images of several sizes, padding", [1, 16, 20], 3, 24, padding=3)
    yield sample("three images, padding", [9, 63, 65], 2, 32, padding=2)
    q, k, v = (normal(rng, device, n, 2, 16) for n in (5, 9, 9))
    k[0], v[8], q[4, 1, 3] = torch.nan, torch.inf, torch.nan
    begin, end = ints([1, 1, 4, 9, 2], device), ints([8, 2, 8, 9, 5], device)
    yield Sample("ranges that overlap, none, NaN outside and inside", (q, k, v, begin, end, 0.25))
    steep = normal(rng, device, 7, 1, 16) * 30, normal(rng, device, 40, 1, 16), normal(rng, device, 40, 1, 16)
    yield Sample("steep scores", (*steep, ints([0] * 7, device), ints([40, 33, 32, 31, 17, 16, 3], device), 0.25))
    yield sample("many rows", [MANY], 2, 16)
    yield sample("real heads", [24, 161], 16, 64)


def merge_patches(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """x, source."""
    x = normal(rng, device, 12, 20)
    x[5] = torch.nan
    yield Sample("no vectors", (x, ints(np.zeros((0, 4)), device)))
    yield Sample("from no patches", (x[:0], ints([[-1, 0, 3, -1]], device)))
    edges = [[0, 1, 4, 6], [2, -1, 11, -1], [12, 11, 11, -(2**31)], [-1, -1, -1, -1]]
    yield Sample("edges of a grid, repeats, outside; NaN patch left out", (x, ints(edges, device)))
    yield Sample("NaN patch taken", (x, ints([[5, 0, 5], [1, 2, 3]], device)))
    yield Sample("many vectors", (normal(rng, device, 300, 33), ints(rng.integers(-1, 301, (MANY, 9)), device)))
    yield Sample("real width", (normal(rng, device, 150, 1024), ints(rng.integers(-1, 150, (20, 9)), device)))


def scatter_embeds(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """x, values, marks, source."""

    def sample(label: str, rows: int, m: int, width: int, values: int) -> Sample:
        source = rng.integers(-4, max(values, -3), rows)
        x = normal(rng, device, rows, m, width)
        x[torch.from_numpy(source != -1).to(device)] = torch.nan
        given = normal(rng, device, values, width), normal(rng, device, 3, width)
        return Sample(label, (x, *given, ints(source, device)))

    yield sample("no rows", 0, 4, 32, 5)
    yield Sample(
        "no images", (normal(rng, device, 3, 2, 8), *(normal(rng, device, 0, 8) for _ in "vm"), ints([-1] * 3, device))
    )
    given = normal(rng, device, 4, 2, 16), normal(rng, device, 2, 16), normal(rng, device, 3, 16)
    yield Sample("every kind of row", (*given, ints([-4, 1, -1, -2], device)))
    yield sample("one stream", 37, 1, 33, 11)
    yield sample("many rows", MANY, 4, 48, 90)
    yield sample("real width", 37, 4, 5120, 20)
