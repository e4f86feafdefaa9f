"""Calls of any shape for the families embed, norm, quant, linear, rope and hyper-connections."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from .layer_samples import EPS, HC_EPS, activations, fp8_codes, ints, normal, rope_table, scales, strided
from .shapes import Pick, Range, shape
from .spec import SPECS

Rng = np.random.Generator
Args = tuple[Any, ...]
F32 = torch.float32

ROWS = Range(0, 300)
"""Past two row tiles of 128, and a tail."""
WIDTH = Range(1, 300)
GROUPS = Range(32, 320, 32)
"""Channels in groups of 32, past two tiles of 128."""


@shape("embed_streams", rows=ROWS, table=Range(1, 60), width=WIDTH, streams=Range(1, 5))
def embed_streams(rng: Rng, device: torch.device, *, rows: int, table: int, width: int, streams: int) -> Args:
    return ints(rng.integers(-2, table + 2, rows), device), normal(rng, device, table, width), streams


@shape("gather_rows", count=Range(0, 60), rows=ROWS, width=WIDTH, dtype=Pick(("bf16", "fp32")))
def gather_rows(rng: Rng, device: torch.device, *, count: int, rows: int, width: int, dtype: str) -> Args:
    x = normal(rng, device, count, width, dtype=F32 if dtype == "fp32" else torch.bfloat16)
    return x, ints(rng.integers(-1, count + 1, rows), device)


@shape("rms_norm", rows=ROWS, width=WIDTH, apart=Pick((False, True)), exponent=Range(-30, 30, 10))
def rms_norm(rng: Rng, device: torch.device, *, rows: int, width: int, apart: bool, exponent: int) -> Args:
    x = normal(rng, device, rows, width) * 2.0**exponent
    return strided(x) if apart else x, normal(rng, device, width), EPS


@shape("quant_fp8", rows=ROWS, width=GROUPS, apart=Pick((False, True)), exponent=Range(-60, 60, 20))
def quant_fp8(rng: Rng, device: torch.device, *, rows: int, width: int, apart: bool, exponent: int) -> Args:
    x = normal(rng, device, rows, width, dtype=F32) * 2.0**exponent
    return (strided(x) if apart else x,)


@shape("linear_fp8", rows=ROWS, outputs=Range(1, 300), width=GROUPS)
def linear_fp8(rng: Rng, device: torch.device, *, rows: int, outputs: int, width: int) -> Args:
    weight = fp8_codes(rng, device, outputs, width), scales(rng, device, -(-outputs // 32), width // 32)
    return (*activations(rng, device, rows, width), SPECS["linear_fp8"].prepare(*weight))


@shape("linear_fp8_grouped", rows=Range(0, 150), groups=Range(1, 4), outputs=Range(32, 160, 32), width=GROUPS)
def linear_fp8_grouped(rng: Rng, device: torch.device, *, rows: int, groups: int, outputs: int, width: int) -> Args:
    weight = fp8_codes(rng, device, groups, outputs, width), scales(rng, device, groups, outputs // 32, width // 32)
    return (*activations(rng, device, rows, groups, width), SPECS["linear_fp8_grouped"].prepare(*weight))


@shape("linear_bf16", rows=ROWS, outputs=Range(1, 300), width=WIDTH, fp32_out=Pick((False, True)))
def linear_bf16(rng: Rng, device: torch.device, *, rows: int, outputs: int, width: int, fp32_out: bool) -> Args:
    weight = SPECS["linear_bf16"].prepare(normal(rng, device, outputs, width))
    return normal(rng, device, rows, width), weight, fp32_out


@shape(
    "rope", rows=Range(0, 40), heads=Range(1, 5), pairs=Range(1, 20), copied=Range(0, 16), inverse=Pick((False, True))
)
def rope(rng: Rng, device: torch.device, *, rows: int, heads: int, pairs: int, copied: int, inverse: bool) -> Args:
    x = normal(rng, device, rows, heads, copied + 2 * pairs)
    return x, ints(rng.integers(0, 50, rows), device), rope_table(device, 50, pairs), inverse


@shape("hc_coefficients", rows=Range(0, 40), streams=Range(1, 4), width=WIDTH, iterations=Range(1, 20))
def hc_coefficients(rng: Rng, device: torch.device, *, rows: int, streams: int, width: int, iterations: int) -> Args:
    outputs = (2 + streams) * streams
    fn = normal(rng, device, outputs, streams * width, dtype=F32) * width**-0.5
    base, scale = normal(rng, device, outputs, dtype=F32), normal(rng, device, 3, dtype=F32)
    return normal(rng, device, rows, streams, width), fn, base, scale, EPS, HC_EPS, iterations


@shape("hc_collapse", rows=ROWS, streams=Range(1, 5), width=WIDTH)
def hc_collapse(rng: Rng, device: torch.device, *, rows: int, streams: int, width: int) -> Args:
    return normal(rng, device, rows, streams, width), normal(rng, device, rows, streams, dtype=F32)


@shape("hc_expand", rows=ROWS, streams=Range(1, 5), width=WIDTH)
def hc_expand(rng: Rng, device: torch.device, *, rows: int, streams: int, width: int) -> Args:
    def wide(*sizes: int) -> Tensor:
        return normal(rng, device, rows, *sizes, dtype=F32)

    return (
        normal(rng, device, rows, streams, width),
        normal(rng, device, rows, width),
        wide(streams),
        wide(streams, streams),
    )
