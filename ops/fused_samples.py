"""Samples of fused ops: those of their parts, where borders lie close."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from .cache_samples import candidates, score_cases, score_inputs
from .layer_samples import DEEP, EPS, ROWS, WIDE, ints, normal, strided
from .spec import SPECS, Sample

Rng = np.random.Generator


def rms_norm_quant(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """x, weight, eps."""
    for rows in ROWS:
        yield Sample(f"{rows} rows", (normal(rng, device, rows, 128), normal(rng, device, 128), EPS))
    x = normal(rng, device, 7, 96)
    x[0], x[1], x[2], x[3, 5], x[4, 7], x[5] = 0.0, 1e-30, 1e25, torch.inf, torch.nan, x[5] * 1e-12
    x[6, 32:64] = 0.0
    yield Sample("zero, tiny, overflowing, infinite, NaN rows", (x, normal(rng, device, 96), EPS))
    yield Sample("strided rows", (strided(normal(rng, device, 37, 96)), normal(rng, device, 96), 1e-6))
    for label, width in (("width", 5120), ("query bottleneck", 1280), ("KV latent", 512)):
        yield Sample(f"real {label}", (normal(rng, device, 37, width), normal(rng, device, width), EPS))


def hc_collapse_norm(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """x, pending, weight, eps."""
    for rows in ROWS:
        yield Sample(f"{rows} rows", (*_streams(rng, device, rows, 4, 128), normal(rng, device, 128), EPS))
    x, pending = _streams(rng, device, 6, 2, 96)
    x[0], x[1, 1, 3], x[2, 0, 5], x[3] = 0.0, torch.nan, torch.inf, x[3] * 1e-15
    x[4, 1], pending[4] = x[4, 0], torch.tensor([0.5, -0.5])  # cancels to nothing
    x[5, 1, :64], pending[5] = x[5, 0, :64], torch.tensor([1.0, -1.0])  # in part
    yield Sample("zero, NaN, infinite, tiny, cancelling rows", (x, pending, normal(rng, device, 96), EPS))
    yield Sample("one hot", (normal(rng, device, 5, 4, 64), ints([[1, 0, 0, 0]] * 5, device).float(),
                             normal(rng, device, 64), 1e-6))  # fmt: skip
    yield Sample("real width", (*_streams(rng, device, 37, 4, 5120), normal(rng, device, 5120), EPS))


def _streams(rng: Rng, device: torch.device, rows: int, m: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    return normal(rng, device, rows, m, width), normal(rng, device, rows, m, dtype=torch.float32)


def moe_route(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """x, gate, bias, bias_vl, image, k, scaling."""

    def case(label: str, x: torch.Tensor, experts: int, k: int, twins: int = 0) -> Sample:
        weight = normal(rng, device, experts, x.shape[1]) * x.shape[1] ** -0.5 * 2
        bias, bias_vl = (normal(rng, device, experts, dtype=torch.float32) * 0.1 for _ in range(2))
        # Experts with equal weights and biases have equal keys.
        weight[:twins], bias[:twins], bias_vl[:twins] = weight[0].clone(), bias[0].clone(), bias_vl[0].clone()
        image = torch.from_numpy(rng.random(x.shape[0]) < 0.3).to(device)
        return Sample(label, (x, SPECS["moe_route"].prepare(weight), bias, bias_vl, image, k, 1.5))

    for rows in ROWS:
        yield case(f"{rows} rows", normal(rng, device, rows, 64), 8, 2)
    x = normal(rng, device, 4, 50)
    x[0], x[1, 3], x[2, 7] = 0.0, torch.nan, torch.inf
    yield case("zero, NaN, infinite rows; odd sizes", x, 7, 3)
    yield case("equal experts", normal(rng, device, 21, 64), 12, 3, twins=5)
    yield case("all experts", normal(rng, device, 5, 32), 6, 6)
    yield case("tails in experts and channels", normal(rng, device, 19, DEEP + 3), WIDE + 1, 6)
    yield case("real router", normal(rng, device, 37, 5120), 384, 6)


def index_topk(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """query, head_weight, pages, visible, row_seq, block_table, blocks, ratio, entries, block_size, k."""
    for label, step, heads, di, ratio in score_cases(rng, device):
        query, weight, pages = score_inputs(rng, step, heads, di, ratio)
        visible = step.visible(ratio)
        most = int(visible.max()) if step.rows else 0
        entries = min(most + 5, step.block_table.shape[1] * 128 // ratio)
        k = 512 if label.startswith("real") else 16
        if label in ("odd chunk, ratio 1", "mixed batch, ratio 1"):
            weight[3] = torch.nan  # every score of the row, so the lowest entries
            visible = torch.where(step.row_seq < 0, 9, visible)  # padding rows choose nothing all the same
        where = (query, weight, pages, visible, step.row_seq, step.block_table)
        yield Sample(label, (*where, None, ratio, entries, 8, k))
        if ratio == 1:
            blocks = candidates(rng, step, ratio, 8, max(9, min(most // 8, 263)))
            yield Sample(f"{label}, candidate blocks", (*where, blocks, ratio, 0, 8, k))
