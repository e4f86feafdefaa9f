"""Rows of a sampling step: parameters per row, masks on some rows, and log-probabilities of candidate lists.

The host knows requests; which row of the step belongs to which draft of which request may only be known on the device.
Forced top-k needs no selection op of its own: `sample_filter` takes `force_top_k`, and `top_logprobs` lists the kept
tokens; what lists of different steps have in common is found by `lookup_candidates`.
"""

from __future__ import annotations

from typing import NamedTuple, cast

from torch import Tensor

from . import sampling_rows_samples as samples
from .numerics import Exact
from .spec import F32, I32, I64, Cost, define, result, tensor


class RowParams(NamedTuple):
    """Parameters of a step's logit rows, as `sample_filter` and `sample_draw` take them.

    Attributes:
        inv_temperature: [L] f32. top_k: [L] i32. top_p, min_p, seeds, positions: [L] i64.
    """

    inv_temperature: Tensor
    top_k: Tensor
    top_p: Tensor
    min_p: Tensor
    seeds: Tensor
    positions: Tensor


EXPAND_PARAMS = define(
    "expand_params",
    version=0,
    family="sampling_rows",
    args=[
        tensor("request", "L", I32),
        tensor("offset", "L", I32),
        tensor("inv_temperature", "R", F32),
        tensor("top_k", "R", I32),
        tensor("top_p", "R", I64),
        tensor("min_p", "R", I64),
        tensor("seeds", "R", I64),
        tensor("base", "R", I64),
    ],
    outs=[
        result("row_inv_temperature", "L", F32),
        result("row_top_k", "L", I32),
        result("row_top_p", "L", I64),
        result("row_min_p", "L", I64),
        result("row_seeds", "L", I64),
        result("row_positions", "L", I64),
    ],
    dynamic="L R",
    semantics="""Row l takes the parameters of request[l], bit for bit; its position, the index in the whole sequence
        of the token it draws, is base[request[l]] + offset[l]. A row with request -1 is padding and reads nothing:
        greedy without filters (inverse temperature +infinity, top_k 0, top_p 2^31, min_p 0), seed 0, position 0.
        Requests may repeat in any order, or have no row. Other values of request are refused where they can be
        seen.""",
    numerics=Exact(),
    cost=lambda d: Cost(flops=d["L"], bytes=48 * d["L"] + 40 * min(d["L"], d["R"])),
    samples=samples.expand_params,
)

MASK_ROWS = define(
    "mask_rows",
    version=0,
    family="sampling_rows",
    args=[
        tensor("logits", "L V", F32, mutable=True),
        tensor("words", "G ceil(V,32)", I32),
        tensor("request", "G", I32),
        tensor("offset", "G", I32),
        tensor("first_row", "F", I32),
    ],
    outs=[],
    dynamic="L G F",
    semantics="""Request r, 0 <= r < F-1, has the logit rows first_row[r] .. first_row[r+1]-1. Mask g applies to row
        first_row[request[g]] + offset[g] if 0 <= offset[g] and the row is one of its request; else, and for request
        -1, it is skipped and its words are not read. In a masked row a token whose bit (i mod 32 of word i//32, least
        significant first) is clear becomes -infinity, whatever it was, NaN included; bits past V are not looked at. A
        row named twice keeps what both allow. Everything else stays bit for bit. first_row ascends within 0..L; G may
        be 0. A row left without a token is invalid to the sampling ops.""",
    numerics=Exact(),
    # Clear bits are written, set ones are not even read; every bit may be clear.
    cost=lambda d: Cost(
        flops=0,
        bytes=d["G"] * (4 * -(-d["V"] // 32) + 8) + 4 * min(d["L"], d["G"]) * d["V"] + 4 * min(d["F"], 2 * d["G"]),
    ),
    samples=samples.mask_rows,
)

LOOKUP_CANDIDATES = define(
    "lookup_candidates",
    version=0,
    family="sampling_rows",
    args=[tensor("ids", "L K", I32), tensor("values", "L K", F32), tensor("wanted", "L J", I32)],
    outs=[result("found", "L J", F32)],
    dynamic="L",
    semantics="""found[l, j] = values[l, i] where ids[l, i] = wanted[l, j], bit for bit; -infinity where there is no
        such i, and for a wanted id below 0. Ids of a row are distinct, in any order; -1 marks unused places, whose
        values are not looked at. Wanted ids may repeat. With J = 1 this looks a token up; with J = K it brings the
        list of a draft into the order of its target's.""",
    numerics=Exact(),
    cost=lambda d: Cost(flops=d["L"] * d["J"] * d["K"], bytes=8 * d["L"] * (d["K"] + d["J"])),
    samples=samples.lookup_candidates,
)


def expand_params(
    request: Tensor,
    offset: Tensor,
    inv_temperature: Tensor,
    top_k: Tensor,
    top_p: Tensor,
    min_p: Tensor,
    seeds: Tensor,
    base: Tensor,
    *,
    out: tuple[Tensor, ...] | None = None,
) -> RowParams:
    """Sampling parameters and draw positions of every logit row, from those of its request.

    Args:
        request: i32 [L], -1 for padding. offset: i32 [L], row within the request.
        inv_temperature: f32 [R]. top_k: i32 [R]. top_p, min_p: i64 [R], fixed point. seeds: i64 [R].
        base: i64 [R], index in the whole sequence of the token that the request's row 0 draws.
    """
    return RowParams(*EXPAND_PARAMS.run(request, offset, inv_temperature, top_k, top_p, min_p, seeds, base, out))


def mask_rows(logits: Tensor, words: Tensor, request: Tensor, offset: Tensor, first_row: Tensor) -> None:
    """Ban tokens in some rows, in place.

    Args:
        logits: f32 [L, V]. words: i32 [G, ceil(V/32)], set bits are allowed. request, offset: i32 [G].
        first_row: i32 [R + 1], first logit row of each request, and their number.
    """
    MASK_ROWS.run(logits, words, request, offset, first_row)


def lookup_candidates(ids: Tensor, values: Tensor, wanted: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Values of wanted ids in each row's candidate list; -infinity where it lacks them.

    Args:
        ids: i32 [L, K], -1 unused. values: f32 [L, K]. wanted: i32 [L, J].

    Returns:
        f32 [L, J].
    """
    return cast(Tensor, LOOKUP_CANDIDATES.run(ids, values, wanted, out))
