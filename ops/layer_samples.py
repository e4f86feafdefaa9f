"""Samples of the families embed, norm, quant, linear, rope and hyper-connections: edges, tails, real widths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from .spec import SPECS, Sample

Rng = np.random.Generator

ROWS = (0, 1, 16, 37, 261)
"""No row, one, a full 16-row tile, two tiles and a tail, two 128-row tiles and a tail."""
MANY = 261
WIDE, DEEP = 328, 288
"""Two tiles of 128 outputs and a tail, two tiles of 128 channels and a tail."""

EPS = 1e-20
HC_EPS = 1e-6
SINKHORN = 20
NAN_BYTE = 0xFF
"""NaN as an E4M3 code, NaN as an E8M0 scale, -6 twice as a pair of E2M1 codes."""


def normal(rng: Rng, device: torch.device, *shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """Standard normal values."""
    return torch.from_numpy(rng.standard_normal(shape).astype(np.float32)).to(device=device, dtype=dtype)


def ints(
    values: Sequence[int] | Sequence[Sequence[int]] | np.ndarray,
    device: torch.device,
    dtype: torch.dtype = torch.int32,
) -> Tensor:
    """An integer tensor."""
    return torch.tensor(np.asarray(values, dtype=np.int64), dtype=dtype, device=device)


def strided(x: Tensor) -> Tensor:
    """The same rows as a view with NaN between them."""
    wide = torch.full((x.shape[0], x.shape[1] + 24), torch.nan, dtype=x.dtype, device=x.device)
    view = wide[:, 8 : 8 + x.shape[1]]
    view.copy_(x)
    return view


def fp8_codes(rng: Rng, device: torch.device, *shape: int) -> Tensor:
    """E4M3 codes of both signs and all magnitudes, no NaN."""
    codes = rng.integers(0, 0x7F, shape, dtype=np.uint8) | (rng.integers(0, 2, shape, dtype=np.uint8) << 7)
    return torch.from_numpy(codes).to(device).view(torch.float8_e4m3fn)


def scales(rng: Rng, device: torch.device, *shape: int, low: int = 112, high: int = 122) -> Tensor:
    """E8M0 bytes in [low, high)."""
    return torch.from_numpy(rng.integers(low, high, shape, dtype=np.uint8)).to(device)


def activations(rng: Rng, device: torch.device, *shape: int) -> tuple[Tensor, Tensor]:
    """FP8 codes [..., K] and scales [..., K/32]."""
    return fp8_codes(rng, device, *shape), scales(rng, device, *shape[:-1], shape[-1] // 32)


def rope_table(device: torch.device, positions: int, pairs: int) -> Tensor:
    """cos and sin of plain rotary angles, f32 [positions, pairs, 2]."""
    angle = np.arange(positions)[:, None] * 10000.0 ** (-np.arange(pairs) / pairs)
    return torch.from_numpy(np.stack((np.cos(angle), np.sin(angle)), -1).astype(np.float32)).to(device)


def embed_streams(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """ids, weight, streams."""
    weight = normal(rng, device, 50, 64)
    yield Sample("no rows", (ints([], device), weight, 4))
    yield Sample("ids outside the table", (ints([-1, 0, 49, 50, 2**31 - 1, -(2**31), 7], device), weight, 4))
    yield Sample("one stream", (ints(rng.integers(0, 50, 37), device), weight, 1))
    yield Sample("many rows", (ints(rng.integers(-1, 51, MANY), device), weight, 4))
    yield Sample("real width", (ints(rng.integers(-2, 300, 37), device), normal(rng, device, 300, 5120), 4))


def gather_rows(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """x, rows."""
    x = normal(rng, device, 9, 48)
    x[3] = torch.nan
    yield Sample("no rows wanted", (x, ints([], device)))
    yield Sample("from no rows", (x[:0], ints([-1, 0], device)))
    yield Sample("padding, repeats, NaN rows left out", (x, ints([8, -1, 0, 0, 9, -1], device)))
    yield Sample("fp32, NaN row taken", (x.float(), ints([3, 8, -1], device)))
    yield Sample("many rows", (normal(rng, device, 300, 48), ints(rng.integers(-1, 301, MANY), device)))
    yield Sample("real width", (normal(rng, device, 37, 20480), ints(rng.integers(-1, 37, 35), device)))


def rms_norm(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """x, weight, eps."""
    for rows in ROWS:
        yield Sample(f"{rows} rows", (normal(rng, device, rows, 128), normal(rng, device, 128), EPS))
    x = normal(rng, device, 6, 65)
    x[0], x[1], x[2], x[3, 5], x[4, 7] = 0.0, 1e-30, 1e25, torch.inf, torch.nan
    yield Sample("zero, tiny, overflowing, infinite, NaN rows; odd width", (x, normal(rng, device, 65), EPS))
    yield Sample("strided rows", (strided(normal(rng, device, 37, 96)), normal(rng, device, 96), 1e-6))
    yield Sample("real width", (normal(rng, device, 37, 5120), normal(rng, device, 5120), EPS))
    yield Sample("real query bottleneck", (normal(rng, device, 37, 1280), normal(rng, device, 1280), EPS))


def quant_fp8(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """x."""
    yield Sample("no rows", (normal(rng, device, 0, 64),))
    x = normal(rng, device, 9, 64)
    x[0], x[1], x[2, 33] = 0.0, 6.3e-38, torch.nan
    x[3, 40], x[4, 2], x[5] = -torch.inf, 464.0, 3e38
    x[6], x[7] = 448.0, torch.tensor([1.75, 1.7578125] * 32)
    yield Sample("zero, tiny, NaN, infinite, huge, border rows", (x,))
    fine = normal(rng, device, 37, 96, dtype=torch.float32) * 2.0 ** ints(rng.integers(-20, 20, (37, 1)), device)
    yield Sample("fp32, strided", (strided(fine),))
    yield Sample("many rows", (normal(rng, device, MANY, 96),))
    yield Sample("real width", (normal(rng, device, 37, 5120),))


def linear_fp8(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """xq, xs, weight."""

    def weight(n: int, k: int) -> object:
        codes, scale = fp8_codes(rng, device, n, k), scales(rng, device, -(-n // 32), k // 32)
        return SPECS["linear_fp8"].prepare(codes, scale)

    prepared = weight(96, 128)
    for rows in ROWS:
        yield Sample(f"{rows} rows", (*activations(rng, device, rows, 128), prepared))
    xq, xs = activations(rng, device, 5, 64)
    xs[1, 1] = NAN_BYTE
    xq.view(torch.uint8)[3] = 0
    yield Sample("NaN row, zero row, partial last block", (xq, xs, weight(41, 64)))
    yield Sample("few outputs", (*activations(rng, device, 19, 32), weight(1, 32)))
    yield Sample("tails in outputs and channels", (*activations(rng, device, 37, DEEP), weight(WIDE, DEEP)))
    yield Sample("real query bottleneck", (*activations(rng, device, 37, 5120), weight(1280, 5120)))


def linear_fp8_grouped(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """xq, xs, weight."""

    def weight(g: int, n: int, k: int) -> object:
        codes, scale = fp8_codes(rng, device, g, n, k), scales(rng, device, g, n // 32, k // 32)
        return SPECS["linear_fp8_grouped"].prepare(codes, scale)

    prepared = weight(3, 32, 96)
    for rows in ROWS:
        yield Sample(f"{rows} rows", (*activations(rng, device, rows, 3, 96), prepared))
    xq, xs = activations(rng, device, 4, 2, 64)
    xs[2, 1] = NAN_BYTE
    yield Sample("NaN in one group of one row", (xq, xs, weight(2, 64, 64)))
    yield Sample("tails in outputs and channels", (*activations(rng, device, 37, 2, DEEP), weight(2, DEEP, DEEP)))
    yield Sample("real groups", (*activations(rng, device, 37, 8, 4096), weight(8, 128, 4096)))


def linear_bf16(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """x, weight, fp32_out."""

    def weight(n: int, k: int) -> object:
        return SPECS["linear_bf16"].prepare(normal(rng, device, n, k))

    prepared = weight(72, 128)
    for rows in ROWS:
        yield Sample(f"{rows} rows", (normal(rng, device, rows, 128), prepared, rows % 2 == 0))
    x = normal(rng, device, 5, 50)
    x[1, 7], x[3] = torch.nan, 0.0
    yield Sample("NaN row, zero row, odd sizes", (x, weight(7, 50), True))
    yield Sample(
        "tails in outputs and channels", (normal(rng, device, 37, DEEP + 3), weight(WIDE + 1, DEEP + 3), False)
    )
    yield Sample("real router", (normal(rng, device, 37, 5120), weight(384, 5120), True))
    yield Sample("real index keys", (normal(rng, device, 37, 512), weight(128, 512), False))


def rope(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """x, positions, table, inverse."""
    table = rope_table(device, 300, 8)
    for rows in ROWS:
        place = ints(rng.integers(0, 300, rows), device)
        yield Sample(f"{rows} rows", (normal(rng, device, rows, 3, 64), place, table, rows == 16))
    x = normal(rng, device, 3, 2, 16)
    x[1, 0, 3] = torch.nan
    yield Sample("all channels, NaN, first and last position", (x, ints([0, 5, 299], device), table, False))
    args = (normal(rng, device, 37, 64, 512), ints(rng.integers(0, 300, 37), device), rope_table(device, 300, 32))
    yield Sample("real heads", (*args, False))
    yield Sample("real heads, inverse", (*args, True))


def hc_coefficients(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """x, fn, base, scale, norm_eps, hc_eps, iterations."""

    def parameters(m: int, width: int) -> tuple[Tensor, ...]:
        outputs = (2 + m) * m
        fn = normal(rng, device, outputs, m * width, dtype=torch.float32) * width**-0.5
        return fn, normal(rng, device, outputs, dtype=torch.float32), normal(rng, device, 3, dtype=torch.float32)

    known = parameters(4, 64)
    for rows in ROWS:
        yield Sample(f"{rows} rows", (normal(rng, device, rows, 4, 64), *known, EPS, HC_EPS, SINKHORN))
    x = normal(rng, device, 4, 2, 33)
    x[0], x[1, 1, 3], x[2] = 0.0, torch.nan, x[2] * 1e-15
    yield Sample("zero, NaN and tiny rows; two streams", (x, *parameters(2, 33), EPS, HC_EPS, 1))
    fn, base, scale = known
    steep = torch.where(torch.arange(len(base), device=device) % 3 == 0, 95.0, -95.0)  # exponentials past the range
    x = normal(rng, device, 5, 4, 64)
    yield Sample("steep", (x, fn, base + steep, scale, EPS, HC_EPS, SINKHORN))
    # Without eps nothing keeps a column of tiny numbers from being a column of zeros, where a division is careless.
    streams = torch.arange(16, device=device) % 4
    tiny = torch.cat((torch.zeros(8, device=device), torch.where(streams == 3, -80.0, 0.0)))
    yield Sample("no eps, a column of tiny numbers", (x, fn, tiny, scale * 0.1, 0.0, 0.0, SINKHORN))
    yield Sample("real width", (normal(rng, device, 37, 4, 5120), *parameters(4, 5120), EPS, HC_EPS, SINKHORN))


def hc_collapse(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """x, pending."""
    for label, rows, m, width in _stream_shapes():
        yield Sample(label, (normal(rng, device, rows, m, width), normal(rng, device, rows, m, dtype=torch.float32)))


def hc_expand(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """x, y, post, comb."""
    for label, rows, m, width in _stream_shapes():
        post, comb = (normal(rng, device, *shape, dtype=torch.float32) for shape in ((rows, m), (rows, m, m)))
        yield Sample(label, (normal(rng, device, rows, m, width), normal(rng, device, rows, width), post, comb))


def _stream_shapes() -> Iterator[tuple[str, int, int, int]]:
    for rows in ROWS:
        yield f"{rows} rows", rows, 4, 128
    yield "two streams, odd width", 5, 2, 33
    yield "real width", 37, 4, 5120
