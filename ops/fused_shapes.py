"""Calls of any shape for the fused ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from .cache_samples import candidates, score_inputs
from .cache_steps import make_step
from .layer_samples import EPS, normal, strided
from .shapes import Pick, Range, Spans, shape
from .spec import SPECS

Rng = np.random.Generator
Args = tuple[Any, ...]
Pieces = Sequence[Sequence[int]]
F32 = torch.float32
GROUPS = Range(32, 320, 32)


@shape("rms_norm_quant", rows=Range(0, 300), width=GROUPS, apart=Pick((False, True)), exponent=Range(-30, 30, 10))
def rms_norm_quant(rng: Rng, device: torch.device, *, rows: int, width: int, apart: bool, exponent: int) -> Args:
    x = normal(rng, device, rows, width) * 2.0**exponent
    return strided(x) if apart else x, normal(rng, device, width), EPS


@shape("hc_collapse_norm", rows=Range(0, 150), streams=Range(1, 5), width=GROUPS)
def hc_collapse_norm(rng: Rng, device: torch.device, *, rows: int, streams: int, width: int) -> Args:
    pending = normal(rng, device, rows, streams, dtype=F32)
    return normal(rng, device, rows, streams, width), pending, normal(rng, device, width), EPS


@shape("moe_route", rows=Range(0, 60), width=Range(1, 300), k=Range(1, 8), others=Range(0, 120))
def moe_route(rng: Rng, device: torch.device, *, rows: int, width: int, k: int, others: int) -> Args:
    gate = SPECS["moe_route"].prepare(normal(rng, device, k + others, width) * width**-0.5)
    bias, bias_vl = (normal(rng, device, k + others, dtype=F32) * 0.1 for _ in range(2))
    image = torch.from_numpy(rng.random(rows) < 0.3).to(device)
    return normal(rng, device, rows, width), gate, bias, bias_vl, image, k, 1.5


@shape(
    "index_topk",
    spans=Spans(most=4, start=300, length=20),
    padding=Range(0, 3),
    heads=Range(1, 6),
    ratio=Pick((1, 2)),
    blocks=Range(0, 20),
    k=Range(1, 80),
)
def index_topk(
    rng: Rng, device: torch.device, *, spans: Pieces, padding: int, heads: int, ratio: int, blocks: int, k: int
) -> Args:
    step = make_step(rng, device, [(a, b) for a, b in spans], padding)
    query, weight, pages = score_inputs(rng, step, heads, 32, ratio)
    visible = step.visible(ratio)
    chosen = candidates(rng, step, ratio, 8, blocks) if blocks else None
    entries = int(visible.max()) if step.rows and not blocks else 0
    return query, weight, pages, visible, step.row_seq, step.block_table, chosen, ratio, entries, 8, k
