"""Exact top-k selection."""

from __future__ import annotations

import torch
from torch import Tensor

from deepinfer.hal.registry import kernel


@kernel("topk_select", version=0, backend="compiled", device_types=("cpu",))
def topk_select(
    scores: Tensor, visible: Tensor, k: int, blocks: Tensor | None, block_size: int, out: Tensor | None
) -> Tensor:
    rows, lanes = scores.shape
    entry = torch.arange(lanes).expand(rows, lanes)
    if blocks is not None:  # lanes are compact: the entries of the blocks, side by side
        entry = torch.where(blocks < 0, -1, blocks).long().repeat_interleave(block_size, dim=1) * block_size
        entry = torch.where(entry < 0, -1, entry + torch.arange(lanes) % block_size)
    seen = (entry >= 0) & (entry < visible.unsqueeze(1))
    best = _order(scores, seen).sort(dim=1, descending=True, stable=True).indices[:, :k]  # of equals the lower id first
    last = torch.iinfo(torch.int64).max
    ids = torch.where(seen, entry, last).gather(1, best).sort(dim=1).values
    y = torch.full((rows, k), -1, dtype=torch.int32)
    y[:, : ids.shape[1]] = ids.masked_fill(ids == last, -1)
    return y if out is None else out.copy_(y)


def _order(scores: Tensor, seen: Tensor) -> Tensor:
    """Integers that order like the floats: NaN below -infinity, lanes out of sight below NaN; -0.0 equals +0.0."""
    value = scores.to(torch.float32) + 0.0
    bits = value.view(torch.int32).long()
    order = torch.where(bits < 0, -(bits & 0x7FFFFFFF), bits)
    return order.masked_fill(value.isnan(), -(1 << 40)).masked_fill(~seen, -(1 << 41))
