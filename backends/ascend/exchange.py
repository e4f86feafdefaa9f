"""Experts on several ranks: rows by the rank of their experts, and products by the rank that asked."""

from __future__ import annotations

import torch
from torch import Tensor

from ...hal.registry import Signature
from .program import Program, flat
from .register import kernel
from .scratch import nothing

SLOTS = 256  # that a core places at a time
PRODUCTS = 512  # that a core numbers at a time
MOST_RANKS, MOST_EXPERTS, MOST_CHANNELS = 1024, 8192, 65536
CHOOSE_EXPERTS = Program("exchange_kernels.py", "choose_experts", chunk=SLOTS)
PLACE_ROWS = Program("exchange_kernels.py", "place_rows", chunk=SLOTS, most=MOST_RANKS, experts=MOST_EXPERTS)
MOE_DISPATCH = Program("exchange_kernels.py", "moe_dispatch", codes=MOST_CHANNELS)
NUMBER_PRODUCTS = Program("exchange_kernels.py", "number_products", chunk=PRODUCTS)
MOE_RETURN = Program("exchange_kernels.py", "moe_return", chunk=65536)


def _fits(signature: Signature) -> str | None:
    ranks, experts = signature.scalars["ranks"], signature.scalars["ranks"] * signature.scalars["per_rank"]
    if signature.dims["D"] % 32 or not 0 < signature.dims["D"] <= MOST_CHANNELS:
        return f"D a multiple of 32 from 32 to {MOST_CHANNELS}, got {signature.dims['D']}"
    if not 0 < signature.dims["k"] <= SLOTS:
        return f"k from 1 to {SLOTS}, got {signature.dims['k']}"
    if ranks > MOST_RANKS or experts > MOST_EXPERTS:
        return f"up to {MOST_RANKS} ranks and {MOST_EXPERTS} experts, got {ranks} and {experts}"
    return None


def _slots_scratch(xq: Tensor, xs: Tensor, experts: Tensor, *rest: object) -> int:
    """Of every slot its expert, its rank where it is the token's first there, and its row, 32 bits each."""
    return 12 * experts.numel()


@kernel("moe_dispatch", version=0, supports=_fits, workspace=_slots_scratch)
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
    workspace: Tensor | None = None,
) -> tuple[Tensor, ...]:
    (tokens, width), k, device = xq.shape, experts.shape[1], xq.device
    if out is None:
        out = (
            torch.empty((ranks, capacity, width), dtype=torch.float8_e4m3fn, device=device),
            torch.empty((ranks, capacity, width // 32), dtype=torch.uint8, device=device),
            torch.empty((ranks, capacity, k), dtype=torch.int32, device=device),
            torch.empty((ranks, capacity, k), dtype=torch.float32, device=device),
            torch.empty((ranks, 2), dtype=torch.int32, device=device),
            torch.empty((tokens, k), dtype=torch.int32, device=device),
            torch.empty(ranks * per_rank, dtype=torch.int32, device=device),
        )
    q, s, send_experts, send_weights, counts, position, load = out
    n = tokens * k
    owner, first, target = _scratch(workspace, (3, n), device)
    given: dict[str, int] = {"slots": k, "per_rank": per_rank, "n": n}
    table = nothing(device, torch.int32) if replicas is None else flat(replicas)
    lie = {"E": 0, "X": 0} if replicas is None else {"E": replicas.shape[0], "X": replicas.shape[1]}
    take = min(SLOTS // k * k, n)
    tiles = -(-n // take) if n else 0
    CHOOSE_EXPERTS(
        tiles,
        I=flat(experts),
        R=table,
        O=flat(owner),
        F=flat(first),
        ranks=ranks,
        own=own,
        take=take,
        tiles=tiles,
        span=table.numel(),
        **lie,
        **given,
    )
    tiles = max(1, -(-n // SLOTS))  # counts are written without rows as well
    PLACE_ROWS(
        tiles,
        O=flat(owner),
        F=flat(first),
        W=flat(weights),
        SE=flat(send_experts),
        SW=flat(send_weights),
        C=flat(counts),
        P=flat(position),
        L=load,
        TO=flat(target),
        capacity=capacity,
        returns=returns,
        tiles=tiles,
        B=ranks * capacity * k,
        ranks=ranks,
        count=ranks * per_rank,
        **given,
    )
    codes, to = xq.view(torch.uint8), {"Q": q.view(torch.uint8), "H": s}
    if capacity:
        MOE_DISPATCH(tokens, X=codes, G=xs, TO=flat(target), **to, slots=k, m=tokens, D=width, n=n, B=ranks * capacity)
    return out


def _scratch(workspace: Tensor | None, shape: tuple[int, ...], device: torch.device) -> Tensor:
    """Integers of 32 bits."""
    if workspace is None:
        return torch.empty(shape, dtype=torch.int32, device=device)
    words = 1
    for size in shape:
        words *= size
    return workspace[: 4 * words].view(torch.int32).view(shape)


def _entries_scratch(y: Tensor, position: Tensor, *rest: object) -> int:
    """The number of every entry, 32 bits each."""
    return 4 * position.numel()


def _some(signature: Signature) -> str | None:
    return None if signature.dims["D"] > 0 else "D from 1 on, got 0"


@kernel("moe_return", version=0, supports=_some, workspace=_entries_scratch)
def moe_return(
    y: Tensor, position: Tensor, ranks: int, returns: int, out: Tensor | None, workspace: Tensor | None = None
) -> Tensor:
    n, width = position.numel(), y.shape[1]
    back = torch.empty((ranks, returns, width), dtype=y.dtype, device=y.device) if out is None else out
    part = n // ranks
    if not part or not returns or not y.shape[0]:
        return back
    numbers = _scratch(workspace, (n,), y.device)
    chunks = -(-part // PRODUCTS)
    entries = flat(position)
    NUMBER_PRODUCTS(ranks * chunks, P=entries, N=numbers, part=part, chunks=chunks, tiles=ranks * chunks, n=n)
    given = {"Y": y.view(torch.uint16), "P": entries, "N": numbers, "Z": back.view(torch.uint16)}
    MOE_RETURN(n, **given, part=part, returns=returns, M=y.shape[0], D=width, n=n, B=ranks * returns)
    return back
