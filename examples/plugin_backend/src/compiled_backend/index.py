"""Exact top-k selection."""

from __future__ import annotations

import torch
from torch import Tensor

from deepinfer.hal.registry import Signature, kernel


def _without_blocks(signature: Signature) -> str | None:
    # A kernel may decline: the engine then takes the next one, and `deepinfer ops status` shows this reason.
    return "selects without candidate blocks only" if "blocks" in signature.args else None


@kernel("topk_select", version=0, backend="compiled", supports=_without_blocks, device_types=("cpu",))
def topk_select(
    scores: Tensor, visible: Tensor, k: int, blocks: Tensor | None, block_size: int, out: Tensor | None
) -> Tensor:
    rows, lanes = scores.shape
    seen = torch.arange(lanes) < visible.clamp(max=lanes).unsqueeze(1)
    # Integers that order like the floats: NaN below -inf, lanes out of sight below NaN; -0.0 equals +0.0.
    value = scores.to(torch.float32) + 0.0
    bits = value.view(torch.int32).long()
    order = torch.where(bits < 0, -(bits & 0x7FFFFFFF), bits)
    order = order.masked_fill(value.isnan(), -(1 << 40)).masked_fill(~seen, -(1 << 41))
    best = order.sort(dim=1, descending=True, stable=True).indices[:, :k]  # stable: of equals the lower id comes first
    count = torch.minimum(visible.long(), torch.tensor(min(k, lanes)))
    ids = best.masked_fill(torch.arange(best.shape[1]) >= count.unsqueeze(1), lanes).sort(dim=1).values
    y = torch.full((rows, k), -1, dtype=torch.int32)
    y[:, : ids.shape[1]] = ids.masked_fill(ids == lanes, -1)
    return y if out is None else out.copy_(y)
