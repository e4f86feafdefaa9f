"""Attention of image patches: a mixed kernel, both products on the matrix unit, softmax on the vector cores."""

from __future__ import annotations

import torch
from torch import Tensor

from ...hal.registry import Signature
from .program import Program, flat
from .register import kernel

ROWS, MOST = 64, 128
"""Rows that a block takes at once, and the widest head."""
IMAGE_ATTENTION = Program("image_attention.cpp", "image_attention")


def _width(signature: Signature) -> str | None:
    d = signature.dims["d"]
    return None if 0 < d <= MOST else f"d up to {MOST}, got {d}"


@kernel("image_attention", version=0, source="ascendc", supports=_width)
def image_attention(
    q: Tensor, k: Tensor, v: Tensor, begin: Tensor, end: Tensor, scale: float, out: Tensor | None
) -> Tensor:
    rows, heads, d = q.shape
    o = torch.empty((rows, heads, d), dtype=q.dtype, device=q.device) if out is None else out
    IMAGE_ATTENTION(
        -(-rows // ROWS) * heads,
        q=flat(q),
        k=flat(k),
        v=flat(v),
        begin=begin,
        end=end,
        o=o,
        q_stride=q.stride(0),
        q_head=q.stride(1),
        k_stride=k.stride(0),
        k_head=k.stride(1),
        v_stride=v.stride(0),
        v_head=v.stride(1),
        rows=rows,
        h=heads,
        d=d,
        scale=scale,
    )
    return o
