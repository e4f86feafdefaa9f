"""Attention within an image. The kernel is in `vision_attention_kernels.py`.

A program takes a tile of rows and a head. Most tiles lie in one image and make one pass over its keys; one that touches
several images makes a pass for each.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...hal.registry import Signature
from . import vision_attention_kernels as device
from .linear_launches import Launch
from .register import kernel
from .strides import alignment, power_of_two

LOG2E = 1.4426950408889634
ROWS, KEYS = 128, 64
"""Rows and keys of a tile. The order of a row's sums follows from them: one choice for every call."""


def widths(signature: Signature) -> str | None:
    """Heads that a program can hold."""
    d = signature.dims["d"]
    return None if 0 < d <= 256 else f"d must be 1 to 256, got {d}"


def launch(rows: int, heads: int, d: int, align: int) -> Launch:
    """The kernel, for strides that are multiples of `align` elements."""
    constants = {"D": d, "WIDTH": power_of_two(d, least=16), "ALIGN": align, "BLOCK_T": ROWS, "BLOCK_M": KEYS}
    return Launch(device.image_attention_tile, (-(-rows // ROWS), heads), constants, 8, 3)


@kernel("image_attention", version=0, supports=widths)
def image_attention(
    q: Tensor, k: Tensor, v: Tensor, begin: Tensor, end: Tensor, scale: float, out: Tensor | None
) -> Tensor:
    rows, heads, d = q.shape
    if out is None:
        out = torch.empty((rows, heads, d), dtype=q.dtype, device=q.device)
    if not out.numel():
        return out
    align = max(1, min(alignment(x, 2) for x in (q, k, v)) // 2)
    strides = [stride // align for x in (q, k, v) for stride in x.stride()[:2]]
    launch(rows, heads, d, align)(q, k, v, begin, end, out, rows, heads, scale * LOG2E, *strides)
    return out
