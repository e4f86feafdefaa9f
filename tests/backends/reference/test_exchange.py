"""Rows and products between ranks: against loops, and a mixture of experts over ranks against one rank."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

from deepinfer import ops
from deepinfer.backends import reference
from deepinfer.conformance.compare.exact import compare_bits, same_bits
from deepinfer.conformance.oracle.expected import BITS, load_oracles
from deepinfer.hal import comm
from deepinfer.hal.errors import ContractError
from deepinfer.ops import exchange
from deepinfer.ops import layer_samples as make
from deepinfer.ops.moe_samples import routes
from deepinfer.ops.spec import SPECS
from numerics_document import blocks

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def kernels() -> None:
    load_oracles()
    reference.backend.load()


def samples(name: str, seed: int = 0) -> Iterator[tuple[str, tuple[Any, ...]]]:
    for sample in SPECS[name].samples(np.random.default_rng(seed), CPU):
        yield sample.label, sample.args


@pytest.mark.parametrize("name", ["moe_dispatch", "moe_return"])
@pytest.mark.parametrize("seed", range(2))
def test_dispatch_and_return_by_definition(name: str, seed: int) -> None:
    """And the masks of what is specified say so."""
    for label, args in samples(name, seed):
        found = SPECS[name].run(*args)
        found = found if isinstance(found, tuple) else (found,)
        for got, want, mask in zip(found, BITS[name](*args), SPECS[name].defined(*args), strict=True):
            assert want is not None and (want.defined is None) == (mask is None), label
            assert compare_bits("", got, want.want, want.defined) is None, label
            assert mask is None or mask.equal(want.defined), label


def test_what_does_not_fit_is_refused() -> None:
    q, s = torch.zeros(2, 32, dtype=torch.uint8).view(torch.float8_e4m3fn), torch.zeros(2, 1, dtype=torch.uint8)
    chosen, weights = torch.zeros(2, 1, dtype=torch.int32), torch.zeros(2, 1)
    with pytest.raises(ContractError, match="own is 2, must be a rank from 0 to 1"):
        ops.moe_dispatch(q, s, chosen, weights, None, 2, 4, 2, 2, 2)
    with pytest.raises(ContractError, match="position has 3 rows, must be a multiple of ranks"):
        ops.moe_return(torch.zeros(1, 8).bfloat16(), torch.zeros(3, 1, dtype=torch.int32), 2, 4)
    with pytest.raises(ContractError, match="position holds 1"):
        ops.moe_return(torch.zeros(1, 8).bfloat16(), torch.ones(2, 1, dtype=torch.int32), 2, 4)


def test_vectors_of_the_document() -> None:
    for row in blocks()["vectors-dispatch"]:
        head, middle, tail = " ".join(row).split(" | ")
        *scalars, table = head.split(maxsplit=5)
        ranks, per_rank, own, capacity, returns = map(int, scalars)
        tokens, position = (
            [[int(x) for x in part.split(",")] for part in side.split()] for side in middle.split(" -> ")
        )
        replicas = None
        if table != "none":
            lists = [[int(x) for x in part.split(":")[1].split(",")] for part in table.split()]
            replicas = make.ints([x + [-1] * (3 - len(x)) for x in lists], CPU)
        rows = make.activations(np.random.default_rng(0), CPU, len(tokens), 32)
        chosen = make.ints(tokens, CPU)
        scalar_args = (ranks, per_rank, own, capacity, returns)
        got = ops.moe_dispatch(*rows, chosen, torch.ones(chosen.shape), replicas, *scalar_args)
        assert got.position.tolist() == position, row
        assert got.counts.tolist() == [[int(x) for x in part.split("/")] for part in tail.split()], row


# ---- a whole mixture of experts ------------------------------------------------------------------------------------

WIDTH, INNER, EXPERTS, SLOTS = 64, 32, 8, 3


class Threads(comm.Group):
    """Ranks as threads of one process: every collective meets at a barrier."""

    def __init__(self, rank: int, board: list[Any], barrier: threading.Barrier) -> None:
        super().__init__("threads", rank, range(len(board)), 30.0)
        self.board, self.barrier = board, barrier

    def _all_to_all(self, out: torch.Tensor, tensor: torch.Tensor, send: list[int], receive: list[int]) -> None:
        self.board[self.rank] = (tensor, np.cumsum([0, *send]))
        self.barrier.wait(30)
        parts = [data[bounds[self.rank] : bounds[self.rank + 1]] for data, bounds in self.board]
        assert [len(p) for p in parts] == receive
        torch.cat(parts, out=out)
        self.barrier.wait(30)


def weights_of(rng: np.random.Generator) -> list[torch.Tensor]:
    def codes(*shape: int) -> torch.Tensor:
        return torch.from_numpy(rng.integers(0, 256, shape, dtype=np.uint8))

    return [
        codes(EXPERTS, 2 * INNER, WIDTH // 2), make.scales(rng, CPU, EXPERTS, 2 * INNER, WIDTH // 32),
        codes(EXPERTS, WIDTH, INNER // 2), make.scales(rng, CPU, EXPERTS, WIDTH, INNER // 32),
    ]  # fmt: skip


def experts_forward(
    weights: Sequence[torch.Tensor], held: Sequence[int], xq: torch.Tensor, xs: torch.Tensor, chosen: torch.Tensor,
    route: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Products of the experts that a rank holds, packed, and their places."""
    w1, s1, w2, s2 = (part[list(held)] for part in weights)
    source, packed, offsets, position = ops.moe_pack(chosen, route, 0, len(held))
    hidden = ops.grouped_linear(xq, xs, ops.grouped_linear_prepare(w1, s1), source, offsets)
    inner = ops.swiglu_quant(hidden, packed, 10.0)
    return ops.grouped_linear(*inner, ops.grouped_linear_prepare(w2, s2), None, offsets), position


@pytest.mark.parametrize(
    ("rows", "physical_of", "label"),
    [
        ([5, 0, 9, 1], None, "a rank without rows"),
        ([0, 0, 3, 0], None, "rows on one rank only"),
        ([4, 7], None, "two ranks"),
        ([3, 20], [0, 1, 2, 3, 4, 5, 6, 7, 0, 0, 5, 3], "replicas"),
        ([6, 6, 6], [7, 6, 5, 4, 3, 2, 1, 0, 2], "experts moved to other ranks"),
        ([13], None, "one rank"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_ranks_give_the_bits_of_one(rows: list[int], physical_of: list[int] | None, label: str) -> None:
    rng = np.random.default_rng(sum(rows))
    weights, ranks, total = weights_of(rng), len(rows), sum(rows)
    holds = list(range(EXPERTS)) if physical_of is None else physical_of
    per_rank = len(holds) // ranks
    table = None
    if physical_of is not None:
        lists = [[p for p, e in enumerate(holds) if e == logical] for logical in range(EXPERTS)]
        widest = max(map(len, lists))
        table = make.ints([(x + [-1] * widest)[:widest] for x in lists], CPU)
    xq, xs = make.activations(rng, CPU, total, WIDTH)
    skewed = routes(rng, total, SLOTS, EXPERTS - 3)  # some experts get nothing
    skewed[rng.random(total) < 0.1] = -1
    chosen, route = make.ints(skewed, CPU), make.normal(rng, CPU, total, SLOTS, dtype=torch.float32)
    shared = make.normal(rng, CPU, total, WIDTH)
    y, position = experts_forward(weights, range(EXPERTS), xq, xs, chosen, route)
    want = ops.moe_combine(y, position, shared)

    bounds = np.cumsum([0, *rows])
    capacity, returns = max(rows) + 2, (max(rows) + 2) * SLOTS
    board, barrier = [None] * ranks, threading.Barrier(ranks)

    def run(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
        group = Threads(rank, board, barrier)
        own = slice(int(bounds[rank]), int(bounds[rank + 1]))
        args = (xq[own], xs[own], chosen[own], route[own], table, per_rank, capacity, returns)
        arrived = exchange.dispatch(group, *args)
        held = holds[rank * per_rank : (rank + 1) * per_rank]
        products, place = experts_forward(weights, held, *arrived[:4])
        return exchange.combine(group, arrived, products, place, shared[own]), arrived.counts

    with ThreadPoolExecutor(ranks) as pool:
        found = list(pool.map(run, range(ranks)))
    assert same_bits(torch.cat([part for part, _ in found]), want)
    assert sum(int(counts[:, 1].sum()) for _, counts in found) == int((chosen >= 0).sum())


def test_one_process_needs_no_set_up() -> None:
    rng = np.random.default_rng(1)
    weights = weights_of(rng)
    xq, xs = make.activations(rng, CPU, 6, WIDTH)
    chosen, route = make.ints(routes(rng, 6, SLOTS, EXPERTS), CPU), make.normal(rng, CPU, 6, SLOTS, dtype=torch.float32)
    shared, group = make.normal(rng, CPU, 6, WIDTH), comm.single_process()
    arrived = exchange.dispatch(group, xq, xs, chosen, route, None, EXPERTS, 6, 18)
    got = exchange.combine(group, arrived, *experts_forward(weights, range(EXPERTS), *arrived[:4]), shared)
    y, position = experts_forward(weights, range(EXPERTS), xq, xs, chosen, route)
    assert same_bits(got, ops.moe_combine(y, position, shared))
