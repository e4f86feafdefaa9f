"""Sampling: logit adjustments, filters, the exponential race, log-probabilities.

Every op here is exact and row-wise: a row's result has the same bits on every backend and in every batch. The
arithmetic (Philox, polynomials, fixed-point weights, the summation tree) is written out in `docs/numerics.md`.

One decode step: `adjust_logits` (only if a row has penalties, a bias or a mask), `sample_filter`, `sample_draw`, then
`token_logprobs` and `top_logprobs` where log-probabilities are wanted. Raw log-probabilities are those calls on the
unadjusted logits without temperature and filter.

Invalid rows (a NaN, or no logit above -inf) get count 0 from `sample_filter`, `FALLBACK_ID` from `sample_draw` and
`LOGPROB_FLOOR` from the log-probability ops. Other rows do not notice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple, cast

import numpy as np
from torch import Tensor

from ..hal.errors import InvalidArgumentError
from . import sampling_samples as samples
from .numerics import Exact
from .spec import F32, I32, I64, Cost, define, result, scalar, tensor

FALLBACK_ID = 0
"""Token of an invalid row."""

NO_TOKEN = -1
"""Fills the places of a top list past the kept set."""

LOGPROB_FLOOR = -9999.0
"""Smallest log-probability reported; also that of tokens outside the kept set and of invalid rows."""

FIXED_ONE = 1 << 31
"""1.0 in the 31-bit fixed point of probabilities."""


class Purpose(IntEnum):
    """What a random number is for; part of its counter, so that the streams of one seed never meet."""

    TARGET = 0
    DRAFT = 1
    ACCEPTANCE = 2
    RESIDUAL = 3


class Filter(NamedTuple):
    """The kept set of each row: a prefix of its tokens in the order logit descending, id ascending.

    Token i is kept iff z_i > threshold, or z_i == threshold and i <= last_id.

    Attributes:
        max_logit: [L] f32, largest logit; -inf in invalid rows.
        max_id: [L] i32, lowest id with that logit; FALLBACK_ID in invalid rows.
        threshold: [L] f32, lowest kept logit; -inf where every token above -inf is kept, +inf in invalid rows.
        last_id: [L] i32, highest kept id among the tokens that equal the threshold; -1 where every token above -inf is
            kept and in invalid rows.
        count: [L] i32, number of kept tokens; 0 marks an invalid row.
        mass: [L] i64, sum of the kept tokens' weights (2**31 is the weight of the most likely token).
    """

    max_logit: Tensor
    max_id: Tensor
    threshold: Tensor
    last_id: Tensor
    count: Tensor  # type: ignore[assignment]  # hides tuple.count, which nobody wants here
    mass: Tensor


def inverse_temperature(temperature: float) -> float:
    """1/T as the fp32 value that the ops take; +inf, which means greedy, for T = 0.

    Raises:
        InvalidArgumentError: T is negative, not finite, or so large that its inverse is no normal fp32 number.
    """
    if not (0.0 <= temperature <= 2.0**126):
        raise InvalidArgumentError("temperature", temperature, "0 (greedy) to 2**126")
    if temperature < 2.0**-126:
        return math.inf
    return float(np.float32(1.0 / temperature))


def fixed31(fraction: float) -> int:
    """A probability as 31-bit fixed point, rounded down.

    Raises:
        InvalidArgumentError: not in [0, 1].
    """
    if not (0.0 <= fraction <= 1.0):
        raise InvalidArgumentError("probability", fraction, "0 to 1")
    return math.floor(fraction * FIXED_ONE)


def _cost(d: Mapping[str, int], flops: float, row: int) -> Cost:
    """Work per logit, one pass over the logits, and the bytes that a row reads and writes besides."""
    optional = ("inv_temperature", "threshold", "last_id", "top_k", "top_p", "min_p")
    row += sum(d.get(f"{name}.itemsize", 0) for name in optional)
    return Cost(flops * d["L"] * d["V"], d["L"] * (4 * d["V"] + row))


def _adjust_cost(d: Mapping[str, int]) -> Cost:
    row = 4 * d["V"] + 4 * d.get("penalties.itemsize", 0) + -(-d["V"] // 32) * d.get("bitmask.itemsize", 0)
    offsets = (d["L"] + 1) * (d.get("stat_offsets.itemsize", 0) + d.get("bias_offsets.itemsize", 0))
    pass_over = _cost(d, 1, row)
    return Cost(pass_over.flops, pass_over.bytes + offsets + 8 * (d.get("N", 0) + d.get("M", 0)))


ADJUST_LOGITS = define(
    "adjust_logits", version=0, family="sampling",
    args=[
        tensor("logits", "L V", F32),
        tensor("penalties", "L 4", F32, optional=True),
        tensor("stat_offsets", "L+1", I32, optional=True),
        tensor("stat_ids", "N", I32, optional=True),
        tensor("stat_counts", "N", I32, optional=True),
        tensor("bias_offsets", "L+1", I32, optional=True),
        tensor("bias_ids", "M", I32, optional=True),
        tensor("bias_values", "M", F32, optional=True),
        tensor("bitmask", "L ceil(V,32)", I32, optional=True),
    ],
    outs=[result("adjusted", "L V", F32, in_place="logits")],
    dynamic="L N M",
    semantics="""In this order, each step rounded once per operation, never contracted. (1) For each listed token of
        the row (entries offsets[l] to offsets[l+1]-1; ids distinct in a row, in [0, V)): z = z*inverse if z
        > 0, else z*repetition; z = z - frequency*count; if count > 0, z = z - presence. penalties[l] =
        (repetition, inverse = fp32(1/repetition), frequency, presence). (2) For each biased token: z = z +
        value; value -inf sets -inf whatever z is (also NaN). Values are finite or -inf. (3) Tokens whose
        bit (i mod 32 of word i//32, least significant first) is clear become -inf, NaN included; bits past
        V are not read. The groups (penalties with their statistics, bias, bitmask) are each given whole or
        not at all. Entries past the last offset are not read. NaN and infinities otherwise follow IEEE 754.""",
    numerics=Exact(), cost=_adjust_cost, samples=samples.adjust_logits,
)  # fmt: skip


def adjust_logits(
    logits: Tensor, penalties: Tensor | None = None, stat_offsets: Tensor | None = None,
    stat_ids: Tensor | None = None, stat_counts: Tensor | None = None, bias_offsets: Tensor | None = None,
    bias_ids: Tensor | None = None, bias_values: Tensor | None = None, bitmask: Tensor | None = None,
    *, out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Penalties, then bias, then mask of allowed tokens.

    Args:
        logits: [L, V] f32; not modified.
        penalties: [L, 4] f32: repetition, fp32(1 / repetition), frequency, presence. Neutral: 1, 1, 0, 0.
        stat_offsets: [L+1] i32, ragged ranges of the next two.
        stat_ids: [N] i32, distinct ids that occur in the row's prompt or output.
        stat_counts: [N] i32, occurrences in the output (0: in the prompt only, so repetition alone applies).
        bias_offsets: [L+1] i32, ragged ranges of the next two.
        bias_ids: [M] i32, distinct within a row.
        bias_values: [M] f32, finite or -inf (a ban).
        bitmask: [L, ceil(V/32)] i32, set bits are allowed tokens.

    Returns:
        [L, V] f32.

    Raises:
        ContractError: shapes or dtypes break the spec, or a group is given in part.
    """
    for group in ((penalties, stat_offsets, stat_ids, stat_counts), (bias_offsets, bias_ids, bias_values)):
        if len({t is None for t in group}) > 1:
            raise ADJUST_LOGITS.error("penalties with stat_*, and bias_*, are each given whole or not at all")
    args = (logits, penalties, stat_offsets, stat_ids, stat_counts, bias_offsets, bias_ids, bias_values, bitmask)
    return cast(Tensor, ADJUST_LOGITS.run(*args, out))


SAMPLE_FILTER = define(
    "sample_filter", version=0, family="sampling",
    args=[
        tensor("logits", "L V", F32),
        tensor("inv_temperature", "L", F32),
        tensor("top_k", "L", I32, optional=True),
        tensor("top_p", "L", I64, optional=True),
        tensor("min_p", "L", I64, optional=True),
        scalar("force_top_k", int),
    ],
    outs=[
        result("max_logit", "L", F32), result("max_id", "L", I32), result("threshold", "L", F32),
        result("last_id", "L", I32), result("count", "L", I32), result("mass", "L", I64),
    ],
    dynamic="L",
    semantics="""Order the tokens with z > -inf by logit descending, then id ascending (-0 equals +0). Weight of a
        token: w = trunc(exp2((z - max)*a) * 2**31), a = fp32(log2 e)*inv_temperature, exactly 2**31 where z
        equals the maximum. The pool is the first force_top_k tokens (all if force_top_k <= 0). The kept set
        is the longest prefix of the pool such that (a) it has at most top_k tokens (<= 0: off); (b) for
        each token, the weight of those before it is <= floor(W*top_p / 2**31), W the weight of the pool
        (top_p >= 2**31: off); (c) each token has w >= min_p (0: off). The first token is always kept. a =
        +inf is a greedy row: the first token alone is kept, whatever the filters. +inf logits are ordinary
        largest values: all of them weigh 2**31 and everything finite weighs 0. If every token above -inf is
        kept, threshold is -inf and last_id -1. Zeros in max_logit and threshold are +0. Invalid rows (any
        NaN, or nothing above -inf): max_logit -inf, max_id 0, threshold +inf, last_id -1, count 0, mass 0.""",
    numerics=Exact(), cost=lambda d: _cost(d, 20, 28), samples=samples.sample_filter,
)  # fmt: skip


def sample_filter(
    logits: Tensor, inv_temperature: Tensor, top_k: Tensor | None = None, top_p: Tensor | None = None,
    min_p: Tensor | None = None, force_top_k: int = 0, *, out: tuple[Tensor, ...] | None = None,
) -> Filter:  # fmt: skip
    """Find the kept set of every row exactly: forced top-k, top-k, top-p (the crossing token is kept), min-p.

    Args:
        logits: [L, V] f32.
        inv_temperature: [L] f32 > 0 from `inverse_temperature`; +inf = greedy.
        top_k: [L] i32, <= 0 off. None, here and below, where no row of the batch uses the filter.
        top_p: [L] i64 in [0, 2**31] from `fixed31`; 2**31 off.
        min_p: [L] i64 in [0, 2**31] from `fixed31`, relative to the most likely token; 0 off.
        force_top_k: only the so many largest logits take part; top_p counts their mass alone. 0 off.
    """
    return Filter(*SAMPLE_FILTER.run(logits, inv_temperature, top_k, top_p, min_p, force_top_k, out))


SAMPLE_DRAW = define(
    "sample_draw", version=0, family="sampling",
    args=[
        tensor("logits", "L V", F32),
        tensor("inv_temperature", "L", F32),
        tensor("threshold", "L", F32),
        tensor("last_id", "L", I32),
        tensor("count", "L", I32),
        tensor("max_id", "L", I32),
        tensor("seeds", "L", I64),
        tensor("positions", "L", I64),
        scalar("purpose", int, choices=tuple(Purpose)),
    ],
    outs=[result("tokens", "L", I32)],
    dynamic="L",
    semantics="""Rows with count <= 1 (invalid, greedy, or one kept token) give max_id. Others: the kept token with
        the largest z*a - log2(E_i), a = fp32(log2 e)*inv_temperature, ties to the lower id; E_i = -log2(1 -
        v_i), v_i = min(fp32((x_i + 1/2) * 2**-32), 1 - 2**-24), x_i word i mod 4 of Philox4x32-10 with key
        (seed low, seed high) and counter (position low, position high, purpose, i // 4). If every kept
        score is -inf (products past the fp32 range), max_id. The result is always a kept token. It depends
        on the row's logits, filter, seed, position and purpose alone.""",
    numerics=Exact(), cost=lambda d: _cost(d, 100, 28), samples=samples.sample_draw,
)  # fmt: skip


def sample_draw(
    logits: Tensor, inv_temperature: Tensor, filter: Filter, seeds: Tensor, positions: Tensor,
    purpose: int = Purpose.TARGET, *, out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Draw one token per row from its kept set by an exponential race.

    Args:
        logits: [L, V] f32, those given to `sample_filter`.
        inv_temperature: [L] f32, likewise.
        filter: its result.
        seeds: [L] i64, bits of the unsigned 64-bit seeds.
        positions: [L] i64, index in the whole sequence, prompt included, of the token drawn.
        purpose: `Purpose` of the draw.

    Returns:
        tokens [L] i32.
    """
    _, max_id, threshold, last_id, count, _ = filter
    args = (logits, inv_temperature, threshold, last_id, count, max_id, seeds, positions, purpose)
    return cast(Tensor, SAMPLE_DRAW.run(*args, out))


_LOGPROB = """Exponent e_i = (z_i - max)*a, 0 where z_i equals the maximum, a = fp32(log2 e)*inv_temperature (no
    inv_temperature: fp32(log2 e)). Value = (e_i - log2(S))*fp32(ln 2), S the sum of exp2(e_i) over the kept tokens by
    the written tree for vocabulary sums; at least -9999. Without a filter every token above -inf is kept."""

TOKEN_LOGPROBS = define(
    "token_logprobs", version=0, family="sampling",
    args=[
        tensor("logits", "L V", F32),
        tensor("tokens", "L", I32),
        tensor("inv_temperature", "L", F32, optional=True),
        tensor("threshold", "L", F32, optional=True),
        tensor("last_id", "L", I32, optional=True),
    ],
    outs=[result("logprobs", "L", F32)],
    dynamic="L",
    semantics=_LOGPROB + """ Token -1, tokens that are not kept, and invalid rows: -9999. Tokens are below V.""",
    numerics=Exact(), cost=lambda d: _cost(d, 20, 8), samples=samples.token_logprobs,
)  # fmt: skip


def token_logprobs(
    logits: Tensor, tokens: Tensor, inv_temperature: Tensor | None = None, filter: Filter | None = None,
    *, out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Natural log-probability of one token per row, at least -9999.0.

    Raw: the model's logits and nothing else. Processed: adjusted logits, inverse temperature and filter; then the
    distribution is renormalised over the kept set. A greedy row's kept token has 0.0.

    Args:
        logits: [L, V] f32.
        tokens: [L] i32 in [-1, V); -1 = none.
        inv_temperature: [L] f32; None = 1.
        filter: result of `sample_filter`; None = every token above -inf.

    Returns:
        [L] f32.
    """
    threshold, last_id = _edges(filter)
    return cast(Tensor, TOKEN_LOGPROBS.run(logits, tokens, inv_temperature, threshold, last_id, out))


SMALLER_MASS = define(
    "smaller_mass", version=0, family="sampling",
    args=[
        tensor("logits", "L V", F32),
        tensor("inv_temperature", "L", F32),
        tensor("max_logit", "L", F32),
        tensor("threshold", "L", F32),
        tensor("last_id", "L", I32),
        tensor("tokens", "L", I32),
    ],
    outs=[result("mass", "L", I64)],
    dynamic="L",
    semantics="""Sum of the fixed-point weights (see sample_filter) of the kept tokens whose logit is strictly below
        that of the given token. Token -1 and invalid rows: 0. Tokens are below V.""",
    numerics=Exact(), cost=lambda d: _cost(d, 20, 16), samples=samples.smaller_mass,
)  # fmt: skip


def smaller_mass(
    logits: Tensor, inv_temperature: Tensor, filter: Filter, tokens: Tensor, *, out: Tensor | None = None
) -> Tensor:
    """[L] i64: weight of the kept tokens less likely than the given one. As a probability: divide by `filter.mass`.

    Args:
        logits: [L, V] f32, those given to `sample_filter`.
        inv_temperature: [L] f32, likewise.
        filter: its result.
        tokens: [L] i32 in [-1, V); -1 = none.
    """
    args = (logits, inv_temperature, filter.max_logit, filter.threshold, filter.last_id, tokens)
    return cast(Tensor, SMALLER_MASS.run(*args, out))


TOP_LOGPROBS = define(
    "top_logprobs", version=0, family="sampling",
    args=[
        tensor("logits", "L V", F32),
        tensor("inv_temperature", "L", F32, optional=True),
        tensor("threshold", "L", F32, optional=True),
        tensor("last_id", "L", I32, optional=True),
        scalar("k", int),
    ],
    outs=[result("ids", "L k", I32), result("values", "L k", F32)],
    dynamic="L",
    semantics="""The k largest kept logits in the order logit descending, id ascending, and their log-probabilities. """
    + _LOGPROB
    + """ Places past the kept set, and all places of invalid rows: id -1, value -9999. The first j places do not
        depend on k.""",
    numerics=Exact(), cost=lambda d: _cost(d, 20, 8 * d["k"]), samples=samples.top_logprobs,
)  # fmt: skip


def top_logprobs(
    logits: Tensor, k: int, inv_temperature: Tensor | None = None, filter: Filter | None = None,
    *, out: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The k most likely kept tokens of every row and their natural log-probabilities.

    Args:
        logits: [L, V] f32.
        k: places per row, >= 0; may exceed V. Rows that want fewer slice their first places.
        inv_temperature: [L] f32; None = 1.
        filter: result of `sample_filter`; None = every token above -inf.

    Returns:
        ids [L, k] i32, -1 past the kept set; values [L, k] f32, -9999.0 there.
    """
    threshold, last_id = _edges(filter)
    return cast(tuple[Tensor, Tensor], TOP_LOGPROBS.run(logits, inv_temperature, threshold, last_id, k, out))


def _edges(filter: Filter | None) -> tuple[Tensor | None, Tensor | None]:
    return (None, None) if filter is None else (filter.threshold, filter.last_id)
