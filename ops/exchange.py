"""Experts on several ranks: what a rank sends to each other one, and what it sends back.

A step of one rank: `moe_dispatch` lays rows out by destination; the group moves them; `moe_pack` orders what came by
expert, and the expert products run as on one rank; `moe_return` lays the products out by the rank that asked; the group
moves them; `moe_combine` adds them, slots in order, with one rounding. A row goes once to each rank that holds some of
its experts; every slot's product comes back by itself in bf16, so that the sum is that of one rank, bit for bit,
whatever the number of ranks, replicas or rows, and padding never enters a sum.

The ops here are local and exact. The exchange moves equal shares, so that nothing has to be known on the host and a
step can be captured: `dispatch` and `combine` below do it over a communicator of `hal`. `out` may be a buffer that
peers read or write; a kernel that moves the bytes itself writes what these ops define, into the peers' buffers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from torch import Tensor

from . import exchange_samples as samples
from .moe import moe_combine
from .numerics import Exact
from .spec import BF16, E4M3, F32, I32, U8, Cost, define, result, scalar, tensor

if TYPE_CHECKING:
    from ..hal.comm import Group


class Dispatch(NamedTuple):
    """What one rank sends; segment r goes to rank r.

    Attributes:
        q: e4m3 [ranks, capacity, D], s: uint8 [ranks, capacity, D/32]: activations.
        experts: i32 [ranks, capacity, k], the receiver's own numbers of the experts, -1 for slots that go elsewhere.
        weights: f32 [ranks, capacity, k], routing weights, 0 for slots that go elsewhere.
        counts: i32 [ranks, 2], rows and slots for each rank, those included that the buffers have no room for.
        position: i32 [T, k], place of each slot's product among those that come back, [ranks * returns]; -1: none.
        load: i32 [ranks * per_rank], slots routed to each physical expert.
    """

    q: Tensor
    s: Tensor
    experts: Tensor
    weights: Tensor
    counts: Tensor
    position: Tensor
    load: Tensor


def physical_experts(given: Mapping[str, Any]) -> Tensor:
    """int64 [T, k]: physical expert of every slot, -1 where it has none; as the semantics of `moe_dispatch` say."""
    ids, table = cast(Tensor, given["experts"]).long(), cast("Tensor | None", given["replicas"])
    if table is not None:
        inside = (ids >= 0) & (ids < table.shape[0])
        if table.numel() == 0:
            return torch.full_like(ids, -1)
        row = table.long()[torch.where(inside, ids, 0)]
        count = (row >= 0).long().cumprod(2).sum(2)
        turn = (given["own"] + torch.arange(ids.shape[0], device=ids.device)).unsqueeze(1)
        pick = row.gather(2, (turn % count.clamp(min=1)).unsqueeze(2)).squeeze(2)
        ids = torch.where(inside & (count > 0), pick, -1)
    return torch.where((ids >= 0) & (ids < given["ranks"] * given["per_rank"]), ids, -1)


def _sent_rows(given: Mapping[str, Any]) -> Tensor:
    """[ranks, capacity, 1]: rows of the segments that hold a token."""
    expert = physical_experts(given)
    owner = torch.where(expert < 0, -1, expert // given["per_rank"])
    goes = (owner.unsqueeze(2) == torch.arange(given["ranks"], device=owner.device)).any(1)
    row = torch.arange(given["capacity"], device=owner.device)
    return (row < goes.sum(0).unsqueeze(1)).unsqueeze(2)


def _returned_rows(given: Mapping[str, Any]) -> Tensor:
    """[ranks, returns, 1]: rows of the segments that hold a product."""
    asked = (cast(Tensor, given["position"]) >= 0).view(given["ranks"], -1).sum(1, keepdim=True)
    return (torch.arange(given["returns"], device=asked.device) < asked).unsqueeze(2)


MOE_DISPATCH = define(
    "moe_dispatch",
    version=0,
    family="exchange",
    args=[
        tensor("xq", "T D", E4M3),
        tensor("xs", "T D//32", U8),
        tensor("experts", "T k", I32),
        tensor("weights", "T k", F32),
        tensor("replicas", "E X", I32, optional=True),
        scalar("ranks", int, low=1),
        scalar("per_rank", int, low=1),
        scalar("own", int, static=False),
        scalar("capacity", int, static=False),
        scalar("returns", int, static=False),
    ],
    outs=[
        result("q", "ranks capacity D", E4M3, unspecified="rows past the last token", defined=_sent_rows),
        result("s", "ranks capacity D//32", U8, unspecified="rows past the last token", defined=_sent_rows),
        result("send_experts", "ranks capacity k", I32),
        result("send_weights", "ranks capacity k", F32),
        result("counts", "ranks 2", I32),
        result("position", "T k", I32),
        result("load", "ranks*per_rank", I32),
    ],
    dynamic="T capacity returns",
    semantics="""Physical expert of slot j of token t: experts[t, j] itself; with replicas, whose row e lists n
        physical experts and then -1, number (own + t) mod n of row experts[t, j]. Rank r holds the experts r*per_rank
        .. (r+1)*per_rank-1. Ids outside the table, rows without a replica and physical experts that no rank holds (-1
        is the usual id of padding) belong to nobody: they are neither sent nor counted. Segment r holds every token
        with a slot at rank r, once, tokens ascending, codes and scales bit for bit, own rank included; its
        send_experts are the physical numbers less r*per_rank, -1 for slots that go elsewhere, its send_weights those
        of the slots, 0 for slots that go elsewhere. Rows past the last token: experts -1, weights 0, codes and scales
        unspecified. counts[r] = (tokens, slots) for rank r. The n-th slot for rank r, in the order of tokens and then
        slots, has position r*returns + n. load counts the slots of each physical expert. More tokens than capacity,
        or slots than returns, is an overflow: counts says so, with the full numbers; tokens past capacity are not
        sent, and their slots and those past returns have position -1; the step must not be used. capacity = T and
        returns = T * min(k, per_rank) always suffice. T may be 0, as may capacity and returns.""",
    numerics=Exact(),
    cost=lambda d: Cost(
        flops=0,
        bytes=(d["T"] + d["ranks"] * d["capacity"]) * (d["D"] + d["D"] // 32 + 8 * d["k"])
        + 4 * d["T"] * d["k"]
        + 4 * min(d.get("E", 0), d["T"] * d["k"]) * d.get("X", 0)
        + 8 * d["ranks"]
        + 4 * d["ranks"] * d["per_rank"],
    ),
    samples=samples.moe_dispatch,
)

MOE_RETURN = define(
    "moe_return",
    version=0,
    family="exchange",
    args=[
        tensor("y", "M D", BF16),
        tensor("position", "N k", I32),
        scalar("ranks", int, low=1),
        scalar("returns", int, static=False),
    ],
    outs=[result("back", "ranks returns D", BF16, unspecified="rows past the last product", defined=_returned_rows)],
    dynamic="M N returns",
    semantics="""`position` is moe_pack's, over the rows that came: N = ranks * capacity of them, those of rank r from
        r*capacity on. The n-th entry >= 0 of rank r, in the order of rows and then slots, puts y[entry] into back[r,
        n], bit for bit. That is the order in which `moe_dispatch` on rank r numbered its slots. Rows past the last
        entry are unspecified; entries past `returns` are left out, which `moe_dispatch` reported as an overflow. Rows
        of y that no entry names are not read and may hold anything.""",
    numerics=Exact(),
    cost=lambda d: Cost(
        flops=0,
        bytes=4 * d["N"] * d["k"]
        + 2 * d["D"] * (min(d["M"], d["N"] * d["k"], d["ranks"] * d["returns"]) + d["ranks"] * d["returns"]),
    ),
    samples=samples.moe_return,
)


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
    *,
    out: tuple[Tensor, ...] | None = None,
) -> Dispatch:
    """Lay routed rows out by the ranks that hold their experts.

    Args:
        xq, xs: e4m3 [T, D] and uint8 [T, D/32]. experts: i32 [T, k], logical ids. weights: f32 [T, k].
        replicas: i32 [E, X], physical experts of each logical one, -1 behind them; None: they are the same.
        ranks, per_rank: physical experts are spread evenly. own: this rank.
        capacity, returns: rows, and products to come back, that the buffers hold per rank.

    Raises:
        ContractError: among others, `own` is no rank.
    """
    if not 0 <= own < ranks:
        raise MOE_DISPATCH.error(f"own is {own}, must be a rank from 0 to {ranks - 1}")
    args = (xq, xs, experts, weights, replicas, ranks, per_rank, own, capacity, returns)
    return Dispatch(*MOE_DISPATCH.run(*args, out))


def moe_return(y: Tensor, position: Tensor, ranks: int, returns: int, *, out: Tensor | None = None) -> Tensor:
    """Lay expert products out by the ranks that asked for them.

    Args:
        y: bf16 [M, D], packed by expert. position: i32 [ranks * capacity, k] from `moe_pack`.

    Returns:
        bf16 [ranks, returns, D].

    Raises:
        ContractError: among others, the rows of `position` are not as many for every rank.
    """
    if ranks >= 1 and position.ndim == 2 and position.shape[0] % ranks:
        raise MOE_RETURN.error(f"position has {position.shape[0]} rows, must be a multiple of ranks ({ranks})")
    return cast(Tensor, MOE_RETURN.run(y, position, ranks, returns, out))


class Arrived(NamedTuple):
    """Rows that came to a rank's experts, X = ranks * capacity of them, and what is kept for the way back.

    Attributes:
        xq: e4m3 [X, D]. xs: uint8 [X, D/32]. experts: i32 [X, k], -1 where there is nothing to do. weights: f32 [X, k].
        position: i32 [T, k], of `Dispatch`. counts: i32 [ranks, 2], of `Dispatch`. returns: products per rank.
    """

    xq: Tensor
    xs: Tensor
    experts: Tensor
    weights: Tensor
    position: Tensor
    counts: Tensor
    returns: int


def dispatch(
    group: Group,
    xq: Tensor,
    xs: Tensor,
    experts: Tensor,
    weights: Tensor,
    replicas: Tensor | None,
    per_rank: int,
    capacity: int,
    returns: int,
) -> Arrived:
    """Send routed rows to the ranks of a group and take theirs; arguments as in `moe_dispatch`. Every rank calls.

    Raises:
        CommunicatorError: in host memory, a rank did not come in time; names it. On a device the host does not wait:
            `group.check()` raises it, once results are there; until then they may be anything.
    """
    ranks = group.world_size
    sent = moe_dispatch(xq, xs, experts, weights, replicas, ranks, per_rank, group.rank, capacity, returns)
    came = [group.all_to_all(part).flatten(0, 1) for part in sent[:4]]
    return Arrived(came[0], came[1], came[2], came[3], sent.position, sent.counts, returns)


def combine(group: Group, arrived: Arrived, y: Tensor, packed: Tensor, shared: Tensor) -> Tensor:
    """Send expert products back and add those of the own rows. Every rank calls.

    Args:
        arrived: of `dispatch`. y: bf16 [M, D], products packed by expert. packed: i32 [X, k], `position` of `moe_pack`.
        shared: bf16 [T, D], output of the shared expert.

    Returns:
        bf16 [T, D], the bits of one rank that holds every expert.

    Raises:
        CommunicatorError: as in `dispatch`.
    """
    back = group.all_to_all(moe_return(y, packed, group.world_size, arrived.returns))
    return moe_combine(back.flatten(0, 1), arrived.position, shared)
