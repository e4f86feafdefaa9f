"""Rotary position embedding: adjacent pairs of the last channels."""

from __future__ import annotations

import torch
from torch import Tensor

from ...hal.registry import Signature
from .program import Program
from .register import kernel

MOST, PAIRS = 40960, 256
ROPE = Program("rope_kernels.py", "rope", most=MOST, pairs=PAIRS)


def _fits(signature: Signature) -> str | None:
    d, h, pairs = (signature.dims[name] for name in ("d", "h", "F"))
    if d % 16 or pairs % 8 or not 0 < 2 * pairs <= d:
        return f"d in multiples of 16 and F of 8, 0 < 2F <= d; got d = {d}, F = {pairs}"
    if h * d > MOST or pairs > PAIRS:
        return f"h * d up to {MOST} and F up to {PAIRS}, got {h * d} and {pairs}"
    return None


@kernel("rope", version=0, supports=_fits)
def rope(x: Tensor, positions: Tensor, table: Tensor, inverse: bool, out: Tensor | None) -> Tensor:
    rows, heads, d = x.shape
    y = torch.empty_like(x) if out is None else out
    size, pairs = table.shape[:2]
    ROPE(
        rows,
        X=x.view(rows, heads * d),
        P=positions,
        C=table.view(size, 2 * pairs),
        Y=y.view(rows, heads * d),
        heads=heads,
        d=d,
        sign=-1.0 if inverse else 1.0,
        m=rows,
        width=heads * d,
        M=size,
        turned=2 * pairs,
    )
    return y
