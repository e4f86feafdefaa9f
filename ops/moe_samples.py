"""Samples of the families MoE and Engram. What an op must not read holds codes and values that decode to NaN."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from .layer_samples import DEEP, EPS, MANY, NAN_BYTE, ROWS, WIDE, activations, fp8_codes, ints, normal, scales
from .spec import SPECS, Sample

Rng = np.random.Generator

LIMIT = 10.0


def moe_gate(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """logits, bias, bias_vl, image, k, scaling."""

    def args(logits: Tensor, k: int) -> tuple[object, ...]:
        rows, experts = logits.shape
        bias, bias_vl = (normal(rng, device, experts, dtype=torch.float32) * 0.1 for _ in range(2))
        return logits, bias, bias_vl, torch.from_numpy(rng.random(rows) < 0.3).to(device), k, 1.5

    for rows in ROWS:
        yield Sample(f"{rows} rows", args(normal(rng, device, rows, 8, dtype=torch.float32) * 4, 2))
    logits = normal(rng, device, 9, 12, dtype=torch.float32)
    logits[0], logits[1, :11], logits[2, 4], logits[3] = 0.0, -200.0, torch.nan, torch.nan
    logits[4, 1:] = torch.nan
    logits[5], logits[6, 3], logits[7, 2], logits[8] = -torch.inf, torch.inf, 20.0, 1e4
    even = torch.zeros(12, device=device)
    image = ints([0] * 9, device).bool()
    yield Sample("ties, one expert, NaN, infinities", (logits, even, even.clone(), image, 3, 1.5))
    yield Sample("all experts", args(normal(rng, device, 5, 6, dtype=torch.float32), 6))
    yield Sample("real experts", args(normal(rng, device, 37, 384, dtype=torch.float32) * 4, 6))
    yield Sample("real draft experts", args(normal(rng, device, 37, 128, dtype=torch.float32) * 4, 3))


def moe_pack(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """experts, weights, first, count."""
    chosen = ints(routes(rng, 6, 2, 4), device)
    chosen[1], chosen[4, 0] = -1, -1
    yield Sample("padding ids", (chosen, normal(rng, device, 6, 2, dtype=torch.float32), 0, 4))
    for label, rows, k, experts, first, count in (
        ("no rows", 0, 2, 8, 0, 8),
        ("one row", 1, 2, 8, 0, 8),
        ("all experts local", 37, 2, 8, 0, 8),
        ("some experts local", 37, 3, 12, 5, 3),
        ("no expert local", 7, 2, 8, 100, 4),
        ("real experts", 300, 6, 384, 96, 48),
    ):
        chosen = ints(routes(rng, rows, k, experts), device)
        yield Sample(label, (chosen, normal(rng, device, rows, k, dtype=torch.float32), first, count))


def routes(rng: Rng, rows: int, k: int, experts: int) -> np.ndarray:
    """k distinct experts per row."""
    return np.array([rng.permutation(experts)[:k] for _ in range(rows)], dtype=np.int64).reshape(rows, k)


def grouped_linear(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """xq, xs, weight, source_row, offsets."""
    for label, counts, spare, n, k in (
        ("no rows", (0, 0, 0), 0, 64, 64),
        ("no local rows", (0, 0), 5, 64, 64),
        ("one row", (0, 1, 0), 1, 64, 64),
        ("empty groups, tail of unused rows", (5, 0, 17, 0, 1), 9, 96, 64),
        ("two tiles and a tail", (37, 16), 0, 40, 96),
        ("many rows", (MANY, 3), 0, 32, 64),
        ("many rows, few an expert", (2, 0, 1) * 90, 0, 32, 32),
        ("tails in outputs and channels", (37, 2), 0, WIDE, DEEP),
        ("real widths", (0, 17, 0, 3), 4, 4608, 5120),
    ):
        weight = SPECS["grouped_linear"].prepare(*_experts(rng, device, counts, n, k))
        used = sum(counts)
        offsets = ints(np.cumsum((0, *counts)), device)
        xq, xs = activations(rng, device, max(used // 2, 1), k)
        source = ints([*rng.integers(0, xq.shape[0], used), *[-1] * spare], device)
        yield Sample(f"{label}, gathered", (xq, xs, weight, source, offsets))
        if not label.startswith("real"):
            xq, xs = activations(rng, device, used + spare, k)
            xs[used:] = NAN_BYTE
            yield Sample(f"{label}, packed", (xq, xs, weight, None, offsets))


def _experts(rng: Rng, device: torch.device, counts: Sequence[int], n: int, k: int) -> tuple[Tensor, Tensor]:
    """FP4 weights; experts without rows decode to NaN."""
    experts = len(counts)
    weight = torch.from_numpy(rng.integers(0, 256, (experts, n, k // 2), dtype=np.uint8)).to(device)
    scale = scales(rng, device, experts, n, k // 32)
    for expert, count in enumerate(counts):
        if count == 0:
            scale[expert] = NAN_BYTE
    return weight, scale


def swiglu_quant(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """gate_up, weight, limit."""
    for rows in ROWS:
        weight = normal(rng, device, rows, dtype=torch.float32).abs()
        yield Sample(f"{rows} rows", (normal(rng, device, rows, 128) * 5, weight, LIMIT))
    x = normal(rng, device, 6, 64) * 5
    x[0], x[1], x[2], x[3, 2], x[4, 40], x[5] = 0.0, 300.0, -300.0, torch.nan, torch.inf, x[5] * 1e-20
    yield Sample("zero, clamped, NaN, infinite, tiny rows; no weight", (x, None, LIMIT))
    yield Sample("real width", (normal(rng, device, 37, 4608) * 4, normal(rng, device, 37, dtype=torch.float32), LIMIT))


def moe_combine(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """y, position, shared."""
    remote_only = ints(np.full((3, 2), -1), device)
    yield Sample("no local expert at all", (normal(rng, device, 0, 64), remote_only, normal(rng, device, 3, 64)))
    nobody = ints(np.zeros((0, 2)), device)
    yield Sample("products, but no row", (normal(rng, device, 4, 64) * torch.nan, nobody, normal(rng, device, 0, 64)))
    for label, rows, k, width in (
        ("no rows", 0, 2, 64), ("one row", 1, 2, 64), ("two tiles and a tail", 37, 3, 96),
        ("many rows", MANY, 2, 64), ("real width", 37, 6, 5120),
    ):  # fmt: skip
        y = normal(rng, device, rows * k, width)
        position = rng.permutation(rows * k)
        remote = rng.random(rows * k) < 0.4
        y[ints(position[remote], device, torch.int64)] = torch.nan
        position[remote] = -1
        yield Sample(label, (y, ints(position.reshape(rows, k), device), normal(rng, device, rows, width)))


def engram_hash(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """ngrams, lookup, multipliers, primes, offsets, pad."""

    def tables(vocab: int, compressed: int, sizes: int, heads: int, start: int) -> tuple[Tensor, ...]:
        primes = _primes(start, (sizes - 1) * heads)
        lookup = rng.permutation(vocab) % compressed
        bound = (2**63 - 1) // vocab // 2
        multipliers = rng.integers(0, bound, sizes) * 2 + 1
        return (
            ints(lookup, device),
            *(ints(v, device, torch.int64) for v in (multipliers, primes, np.cumsum((0, *primes[:-1])))),
        )

    known = tables(512, 400, 4, 2, 257)
    for rows in ROWS:
        yield Sample(f"{rows} rows", (ints(rng.integers(0, 512, (rows, 4)), device), *known, 2))
    gaps = [[5, -1, 7, 8], [-1, 5, 6, 7], [1, 2, 3, -1], [512, 1, 2, 3], [9, 8, 600, 1], [-1] * 4, [511, 0, 511, 0]]
    yield Sample("missing and image tokens", (ints(gaps, device), *known, 2))
    real = tables(129280, 99092, 4, 8, 16_000_057)
    yield Sample("real tables", (ints(rng.integers(-1, 129280, (37, 4)), device), *real, 2))


def _primes(start: int, count: int) -> list[int]:
    found: list[int] = []
    value = start
    while len(found) < count:
        if all(value % divisor for divisor in range(2, int(value**0.5) + 1)):
            found.append(value)
        value += 1
    return found


def engram_gather(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """weight, scale, rows."""
    for label, table, width, rows, columns in (
        ("no rows", 40, 32, 0, 6), ("one row", 40, 32, 1, 6), ("repeats", 3, 64, 37, 6),
        ("many rows", 300, 32, MANY, 4),
        ("real width", 5000, 256, 37, 24),
    ):  # fmt: skip
        weight, scale = fp8_codes(rng, device, table, width), scales(rng, device, table, width // 32)
        wanted = rng.integers(0, table, (rows, columns))
        if rows:
            wanted[0, :2] = 0, table - 1
        yield Sample(label, (weight, scale, ints(wanted, device, torch.int64)))


def engram_gate(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """x, kv, q_weight, k_weight, image, eps."""
    for label, rows, m, width in (
        *((f"{rows} rows", rows, 4, 64) for rows in ROWS), ("two streams, odd width", 5, 2, 33),
        ("real width", 37, 4, 5120),
    ):  # fmt: skip
        x, kv = normal(rng, device, rows, m, width), normal(rng, device, rows, (m + 1) * width)
        weights = normal(rng, device, m, width), normal(rng, device, m, width)
        image = torch.from_numpy(rng.random(rows) < 0.3).to(device)
        kv[image] = torch.nan
        if rows > 3:
            x[1], image[1], kv[2], image[2] = 0.0, False, 0.0, False
        yield Sample(label, (x, kv, *weights, image, EPS))
