"""Draws of tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from .program import Program, recast
from .register import kernel

SAMPLE_DRAW = Program("sampling_kernels.py", "sample_draw", needs=("parts_math.py",))


@kernel("sample_draw", version=0)
def sample_draw(
    logits: Tensor,
    inv_temperature: Tensor,
    threshold: Tensor,
    last_id: Tensor,
    count: Tensor,
    max_id: Tensor,
    seeds: Tensor,
    positions: Tensor,
    purpose: int,
    out: Tensor | None,
) -> Tensor:
    rows, width = logits.shape
    tokens = torch.empty((rows,), dtype=torch.int32, device=logits.device) if out is None else out
    if rows:
        SAMPLE_DRAW(
            rows,
            Z=logits,
            R=inv_temperature,
            H=threshold,
            L=last_id,
            C=count,
            A=max_id,
            SEED=recast(seeds, torch.uint32).view(rows, 2),
            AT=recast(positions, torch.uint32).view(rows, 2),
            Y=tokens,
            purpose=purpose,
            m=rows,
            V=width,
        )
    return tokens
