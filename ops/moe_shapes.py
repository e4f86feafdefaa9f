"""Calls of any shape for the families MoE and Engram."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from .layer_samples import EPS, NAN_BYTE, activations, fp8_codes, ints, normal, scales
from .layer_shapes import GROUPS, ROWS, WIDTH
from .moe_samples import LIMIT, _primes, routes
from .shapes import Pick, Range, shape
from .spec import SPECS

Rng = np.random.Generator
Args = tuple[Any, ...]
F32 = torch.float32


@shape("engram_hash", rows=ROWS, size=Range(2, 5), heads=Range(1, 9), vocab=Range(1, 600))
def engram_hash(rng: Rng, device: torch.device, *, rows: int, size: int, heads: int, vocab: int) -> Args:
    ngrams = rng.integers(-1, vocab + 2, (rows, size))
    primes = _primes(int(rng.integers(2, 5000)), (size - 1) * heads)
    multipliers = rng.integers(0, (2**63 - 1) // vocab // 2, size) * 2 + 1
    wide = (ints(v, device, torch.int64) for v in (multipliers, primes, np.cumsum((0, *primes[:-1]))))
    lookup = ints(rng.integers(0, vocab, vocab), device)
    return ints(ngrams, device), lookup, *wide, int(rng.integers(vocab))


@shape("moe_gate", rows=ROWS, k=Range(1, 8), others=Range(0, 120), coarse=Pick((False, True)))
def moe_gate(rng: Rng, device: torch.device, *, rows: int, k: int, others: int, coarse: bool) -> Args:
    logits = normal(rng, device, rows, k + others, dtype=F32) * 4
    bias, bias_vl = (normal(rng, device, k + others, dtype=F32) * 0.1 for _ in range(2))
    if coarse:  # ties
        logits, bias, bias_vl = logits.round(), bias * 0, bias_vl * 0
    return logits, bias, bias_vl, torch.from_numpy(rng.random(rows) < 0.3).to(device), k, 1.5


@shape("moe_pack", rows=ROWS, k=Range(1, 6), others=Range(0, 40), first=Range(0, 20), count=Range(1, 30))
def moe_pack(rng: Rng, device: torch.device, *, rows: int, k: int, others: int, first: int, count: int) -> Args:
    chosen = ints(routes(rng, rows, k, k + others), device)
    chosen[torch.from_numpy(rng.random((rows, k)) < 0.1).to(device)] = -1
    return chosen, normal(rng, device, rows, k, dtype=F32), first, count


@shape(
    "grouped_linear",
    experts=Range(1, 12),
    most=Range(0, 60),
    spare=Range(0, 5),
    outputs=Range(1, 160),
    width=Range(32, 160, 32),
    gathered=Pick((True, False)),
)
def grouped_linear(
    rng: Rng, device: torch.device, *, experts: int, most: int, spare: int, outputs: int, width: int, gathered: bool
) -> Args:
    """Half of the experts have no row; their weights decode to NaN."""
    counts = rng.integers(0, most + 1, experts) * (rng.random(experts) < 0.5)
    weight = torch.from_numpy(rng.integers(0, 256, (experts, outputs, width // 2), dtype=np.uint8)).to(device)
    scale = scales(rng, device, experts, outputs, width // 32)
    scale[torch.from_numpy(counts == 0).to(device)] = NAN_BYTE
    used = int(counts.sum())
    xq, xs = activations(rng, device, max(used // 2, 1) if gathered else used + spare, width)
    source = ints([*rng.integers(0, xq.shape[0], used), *[-1] * spare], device) if gathered else None
    offsets = ints(np.cumsum((0, *counts)), device)
    return xq, xs, SPECS["grouped_linear"].prepare(weight, scale), source, offsets


@shape("swiglu_quant", rows=ROWS, width=GROUPS, weighted=Pick((True, False)))
def swiglu_quant(rng: Rng, device: torch.device, *, rows: int, width: int, weighted: bool) -> Args:
    weight = normal(rng, device, rows, dtype=F32) if weighted else None
    return normal(rng, device, rows, 2 * width) * 5, weight, LIMIT


@shape("moe_combine", rows=ROWS, k=Range(1, 8), width=WIDTH)
def moe_combine(rng: Rng, device: torch.device, *, rows: int, k: int, width: int) -> Args:
    y, position = normal(rng, device, rows * k, width), rng.permutation(rows * k)
    remote = rng.random(rows * k) < 0.4
    y[ints(position[remote], device, torch.int64)] = torch.nan
    position[remote] = -1
    return y, ints(position.reshape(rows, k), device), normal(rng, device, rows, width)


@shape("engram_gather", table=Range(1, 90), width=Range(32, 128, 32), rows=Range(0, 150), columns=Range(1, 9))
def engram_gather(rng: Rng, device: torch.device, *, table: int, width: int, rows: int, columns: int) -> Args:
    weight, scale = fp8_codes(rng, device, table, width), scales(rng, device, table, width // 32)
    return weight, scale, ints(rng.integers(0, table, (rows, columns)), device, torch.int64)


@shape("engram_gate", rows=Range(0, 150), streams=Range(1, 4), width=WIDTH)
def engram_gate(rng: Rng, device: torch.device, *, rows: int, streams: int, width: int) -> Args:
    x, kv = normal(rng, device, rows, streams, width), normal(rng, device, rows, (streams + 1) * width)
    image = torch.from_numpy(rng.random(rows) < 0.3).to(device)
    kv[image] = torch.nan
    return x, kv, normal(rng, device, streams, width), normal(rng, device, streams, width), image, EPS
