"""Rows by the rank of their experts, and products by the rank that asked."""

from __future__ import annotations

import torch
from torch import Tensor

from ...hal.registry import kernel
from ...ops.exchange import physical_experts
from .common import check_index, finish, widths


@kernel("moe_dispatch", version=0, backend="reference", supports=widths(D=32))
def moe_dispatch(
    xq: Tensor,
    xs: Tensor,
    experts: Tensor,
    weights: Tensor,
    replicas: Tensor | None,
    ranks: int,
    per_rank: int,
    own: int,
    capacity: int,
    returns: int,
    out: tuple[Tensor, ...] | None,
) -> tuple[Tensor, ...]:
    (tokens, k), device = experts.shape, experts.device
    names = {"experts": experts, "replicas": replicas, "own": own, "ranks": ranks, "per_rank": per_rank}
    expert = physical_experts(names)
    known = expert >= 0
    owner = expert // per_rank  # -1 stays -1
    here = owner.unsqueeze(2) == torch.arange(ranks, device=device)  # [T, k, ranks]
    goes = here.any(1)
    counts = torch.stack((goes.sum(0), here.sum((0, 1))), dim=1).to(torch.int32)

    # Place of a token in a segment, and of a slot among the products of a rank: how many came before.
    row = goes.long().cumsum(0) - 1
    number = (here.flatten(0, 1).long().cumsum(0) - 1).view(tokens, k, ranks)
    fits = here & (row < capacity).unsqueeze(1) & (number < returns)
    place = torch.where(fits, number + torch.arange(ranks, device=device) * returns, -1)
    position = place.amax(2) if tokens else place.new_zeros((0, k))

    token, rank = torch.nonzero(goes & (row < capacity), as_tuple=True)
    target = rank * capacity + row[token, rank]
    q = torch.zeros((ranks * capacity, xq.shape[1]), dtype=torch.uint8, device=device)
    s = torch.zeros((ranks * capacity, xs.shape[1]), dtype=torch.uint8, device=device)
    send_experts = torch.full((ranks * capacity, k), -1, dtype=torch.int32, device=device)
    send_weights = torch.zeros((ranks * capacity, k), dtype=torch.float32, device=device)
    q[target], s[target] = xq.view(torch.uint8)[token], xs[token]
    mine = owner[token] == rank.unsqueeze(1)
    send_experts[target] = torch.where(mine, expert[token] % per_rank, -1).to(torch.int32)
    send_weights[target] = torch.where(mine, weights[token], 0.0)
    load = torch.bincount(expert[known], minlength=ranks * per_rank).to(torch.int32)
    segments = (q.view(torch.float8_e4m3fn), s, send_experts, send_weights)
    shaped = tuple(part.view(ranks, capacity, part.shape[1]) for part in segments)
    return finish((*shaped, counts, position.to(torch.int32), load), out)


@kernel("moe_return", version=0, backend="reference")
def moe_return(y: Tensor, position: Tensor, ranks: int, returns: int, out: Tensor | None) -> Tensor:
    back = torch.zeros((ranks, returns, y.shape[1]), dtype=y.dtype, device=y.device)
    for rank, part in enumerate(position.flatten().view(ranks, -1)):
        wanted = part[part >= 0][:returns]
        back[rank, : len(wanted)] = y[check_index("moe_return", "position", wanted, y.shape[0])]
    return finish(back, out)
