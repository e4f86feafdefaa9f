"""Samples of the family exchange: ranks without rows, experts without rows, skew, replicas, full and short buffers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from .layer_samples import NAN_BYTE, activations, ints, normal
from .moe_samples import routes
from .spec import Sample

Rng = np.random.Generator


def moe_dispatch(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """xq, xs, experts, weights, replicas, ranks, per_rank, own, capacity, returns."""

    def case(
        label: str, chosen: np.ndarray, ranks: int, per_rank: int, *, width: int = 64, table: np.ndarray | None = None,
        capacity: int | None = None, returns: int | None = None,
    ) -> Sample:  # fmt: skip
        rows, k = chosen.shape
        weights = normal(rng, device, rows, k, dtype=torch.float32)
        weights[ints(chosen, device) < 0] = torch.nan
        weights[rows // 3 : rows // 2] = torch.nan  # passed on bit for bit
        capacity = rows if capacity is None else capacity
        returns = rows * min(k, per_rank) if returns is None else returns
        replicas = None if table is None else ints(table, device)
        scalars = (ranks, per_rank, int(rng.integers(0, ranks)), capacity, returns)
        xq, xs = activations(rng, device, rows, width)
        xq.view(torch.uint8)[rows // 3 : rows // 2, ::5], xs[rows // 3 : rows // 2] = 0x7F, NAN_BYTE
        return Sample(label, (xq, xs, ints(chosen, device), weights, replicas, *scalars))

    yield case("no rows", routes(rng, 0, 2, 8), 2, 4)
    yield case("no rows, room for others'", routes(rng, 0, 2, 8), 2, 4, capacity=5, returns=7)
    yield case("one rank", routes(rng, 9, 2, 8), 1, 8)
    yield case("nobody's experts", np.full((4, 2), -1), 2, 4)
    chosen = routes(rng, 37, 3, 12)
    chosen[3], chosen[5, 1], chosen[7, 0], chosen[8, 2] = -1, -1, 12, 2**31 - 1
    yield case("padding rows and ids", chosen, 4, 3)
    yield case("all to one expert of one rank", np.full((21, 1), 5), 4, 2)
    yield case("more ranks than experts chosen", routes(rng, 3, 2, 16), 16, 1)
    yield case("rows overflow", routes(rng, 37, 2, 8), 2, 4, capacity=11)
    yield case("products overflow", routes(rng, 37, 3, 8), 2, 4, returns=9)
    yield case("both overflow", routes(rng, 37, 3, 8), 2, 4, capacity=20, returns=30)
    table = np.full((8, 4), -1)
    for expert in range(8):
        table[expert, : 1 + expert % 3] = rng.permutation(12)[: 1 + expert % 3]
    table[6] = -1
    yield case("replicas, one expert without", routes(rng, 40, 3, 8), 3, 4, table=table)
    yield case("many rows", routes(rng, 262, 2, 12), 3, 4, capacity=270)
    yield case("real experts", routes(rng, 37, 6, 384), 4, 96, width=5120)


def moe_return(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """y, position, ranks, returns."""

    def case(label: str, capacity: int, k: int, ranks: int, width: int, share: float, returns: int | None) -> Sample:
        rows = ranks * capacity
        local = rng.random((rows, k)) < share
        used = int(local.sum())
        y = normal(rng, device, used + 5, width)
        y[used:] = torch.nan
        position = np.full((rows, k), -1)
        position[local] = rng.permutation(used)
        y[: used // 4, 1] = torch.nan  # passed on bit for bit
        room = rows * k // ranks + 3 if returns is None else returns
        return Sample(label, (y, ints(position, device), ranks, room))

    yield case("no rows", 0, 2, 3, 64, 1.0, 0)
    yield case("no products", 5, 2, 3, 64, 0.0, 4)
    yield case("one rank", 7, 3, 1, 33, 0.5, None)
    yield case("several ranks", 37, 3, 4, 64, 0.4, None)
    yield case("every slot", 5, 2, 2, 64, 1.0, 10)
    yield case("overflow", 37, 3, 2, 64, 0.7, 20)
    yield case("many rows", 131, 2, 2, 64, 0.5, None)
    yield case("real width", 37, 6, 4, 5120, 0.25, None)
