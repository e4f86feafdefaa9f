"""Token embedding and row selection."""

from __future__ import annotations

import torch
from torch import Tensor

from ...hal.registry import kernel
from .common import finish


@kernel("embed_streams", version=0, backend="reference")
def embed_streams(
    ids: Tensor, weight: Tensor, streams: int, out: tuple[Tensor, Tensor] | None
) -> tuple[Tensor, Tensor]:
    rows = select_rows(weight, ids)
    x = rows.unsqueeze(1).expand(-1, streams, -1).contiguous()
    pending = torch.zeros((ids.shape[0], streams), dtype=torch.float32, device=ids.device)
    pending[:, 0] = 1.0
    return finish((x, pending), out)


@kernel("gather_rows", version=0, backend="reference")
def gather_rows(x: Tensor, rows: Tensor, out: Tensor | None) -> Tensor:
    return finish(select_rows(x, rows), out)


def select_rows(table: Tensor, rows: Tensor) -> Tensor:
    """table[rows] with zero rows for indices outside the table; those read nothing."""
    inside = (rows >= 0) & (rows < table.shape[0])
    if table.shape[0] == 0:
        return table.new_zeros((rows.shape[0], table.shape[1]))
    found = table.index_select(0, torch.where(inside, rows, 0))
    return found.masked_fill_(~inside.unsqueeze(1), 0.0)
