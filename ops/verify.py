"""Verification of drafts: which are accepted, what is drawn instead, and what a step has produced.

One step: `sample_filter` on the rows' adjusted logits, `verify_drafts`, then `accept_prefix`. The arithmetic is written
out in `docs/numerics.md`, section 4.8. `draft_distribution` keeps what a draft was drawn from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, cast

from torch import Tensor

from . import verify_samples as samples
from .numerics import Exact
from .sampling import Filter
from .spec import BOOL, F32, I32, I64, Cost, define, result, scalar, tensor

NO_DRAFT = -1
"""In place of a draft: a row that has none, which draws afresh."""


class Emitted(NamedTuple):
    """What a step produced, per sequence.

    Attributes:
        accepted: i32 [S], drafts accepted.
        tokens: i32 [S, width], the accepted drafts and the token behind them, then -1.
        last: i32 [S], the token behind the accepted drafts, input of the next step; -1 without rows.
        row: i32 [S], the row that gave it; -1 without rows.
        stop: bool [S], whether one of the tokens is a stop token.
    """

    accepted: Tensor
    tokens: Tensor
    last: Tensor
    row: Tensor
    stop: Tensor


DRAFT_DISTRIBUTION = define(
    "draft_distribution",
    version=0,
    family="verify",
    args=[
        tensor("logits", "S V", F32),
        tensor("inv_temperature", "S", F32),
        tensor("threshold", "S", F32),
        tensor("last_id", "S", I32),
        tensor("count", "S", I32),
        tensor("tokens", "S", I32),
        tensor("slots", "S", I32),
        tensor("pool", "Z n V", F32, mutable=True, layout="rows"),
        scalar("place", int, static=False),
    ],
    outs=[],
    dynamic="S Z",
    semantics="""pool[slots[s], place, i] = e_i - log2(S) for kept tokens, -inf for others: base-2 log-probabilities,
        e_i and S as in token_logprobs, no least value. Rows with count <= 1 (greedy, one kept token, invalid): 0 at
        tokens[s], -inf elsewhere. Slot -1 writes nothing; other slots are distinct; no other row of the pool is read or
        written. 0 <= place < n.""",
    numerics=Exact(),
    cost=lambda d: Cost(20.0 * d["S"] * d["V"], d["S"] * (8 * d["V"] + 24)),
    samples=samples.draft_distribution,
)


def _verify_cost(d: Mapping[str, int]) -> Cost:
    pool = d.get("log2q.itemsize", 0) * d["V"] * min(d["L"], d.get("Q", 0))
    return Cost(140.0 * d["L"] * d["V"], d["L"] * (4 * d["V"] + 45 + d.get("draft_row.itemsize", 0)) + pool)


VERIFY_DRAFTS = define(
    "verify_drafts",
    version=0,
    family="verify",
    args=[
        tensor("logits", "L V", F32),
        tensor("inv_temperature", "L", F32),
        tensor("threshold", "L", F32),
        tensor("last_id", "L", I32),
        tensor("count", "L", I32),
        tensor("max_id", "L", I32),
        tensor("drafts", "L", I32),
        tensor("seeds", "L", I64),
        tensor("positions", "L", I64),
        tensor("log2q", "Q V", F32, optional=True, layout="rows"),
        tensor("draft_row", "L", I32, optional=True),
        scalar("shared", bool),
    ],
    outs=[result("tokens", "L", I32), result("accepted", "L", BOOL)],
    dynamic="L Q",
    semantics="""Every row stands for itself; x = drafts[l] < V. (1) x = -1: tokens = sample_draw with purpose 0, not
        accepted. (2) shared: the same token, accepted if it is x; the drafter drew with purpose 0 too, and log2q and
        draft_row are not read. (3) count <= 1 (greedy, one kept token, invalid): tokens = max_id, accepted if count is
        1 and max_id is x. (4) Else, with l_i = e_i - log2(S) the base-2 log-probabilities of the kept tokens (-inf for
        others; e_i and S as in token_logprobs) and m_i = log2q[draft_row[l], i]: x is accepted if l_x > -inf and
        exp2(min(l_x - m_x, 0)) > v, v the uniform number of word 0 with purpose 2 (as v_i in sample_draw). Then tokens
        = x. If not, r_i = exp2(l_i) - exp2(m_i), and tokens = the i with r_i > 2**-100 and the largest log2(r_i) -
        log2(E_i), E_i as in sample_draw with purpose 3, ties to the lower id; max_id if no r_i is so large. draft_row
        -1, or no log2q: the draft was certain, m_x = 0 and m_i = -inf otherwise. log2q holds no NaN and nothing above
        0. log2q and draft_row go together.""",
    numerics=Exact(),
    cost=_verify_cost,
    samples=samples.verify_drafts,
)

ACCEPT_PREFIX = define(
    "accept_prefix",
    version=0,
    family="verify",
    args=[
        tensor("tokens", "L", I32),
        tensor("accepted", "L", BOOL),
        tensor("drafts", "L", I32, optional=True),
        tensor("golden", "L", I32, optional=True),
        tensor("begin", "S", I32),
        tensor("rows", "S", I32),
        tensor("stop_ids", "S C", I32, optional=True),
        scalar("width", int, low=1),
    ],
    outs=[
        result("count", "S", I32),
        result("emitted", "S width", I32),
        result("last", "S", I32),
        result("row", "S", I32),
        result("stop", "S", BOOL),
    ],
    dynamic="L S",
    semantics="""Rows begin[s] .. begin[s]+rows[s]-1 belong to sequence s, 0 to `width` of them. golden[l] >= 0 replaces
        a row's token and decision: accepted if it equals drafts[l]. count = number of accepted rows before the first
        that is not, the last row of a sequence never counting as accepted. emitted = the tokens of those rows and of
        the row behind them, then -1; last and row are the token and the number of the row behind them; stop = one of
        these tokens is in stop_ids[s] (-1 there is no token). A sequence without rows: 0, -1, -1, -1, false; its begin
        is not looked at. Rows of no sequence are not read. drafts and golden go together.""",
    numerics=Exact(),
    cost=lambda d: Cost(
        flops=0,
        bytes=d["L"] * (5 + d.get("drafts.itemsize", 0) + d.get("golden.itemsize", 0))
        + d["S"] * (21 + 4 * d["width"] + d.get("C", 0) * d.get("stop_ids.itemsize", 0)),
    ),
    samples=samples.accept_prefix,
)


def draft_distribution(
    logits: Tensor, inv_temperature: Tensor, filter: Filter, tokens: Tensor, slots: Tensor, pool: Tensor, place: int
) -> None:
    """Keep the distribution that the drafts of one place were drawn from.

    Args:
        logits: f32 [S, V], those given to `sample_filter`. inv_temperature: f32 [S]. filter: its result.
        tokens: i32 [S], drawn. slots: i32 [S], -1 for none.
        pool: f32 [Z, n, V], base-2 log-probabilities; rows may be strided. place: which of the n.

    Raises:
        ContractError: `place` is no place of the pool.
    """
    if pool.ndim == 3 and not 0 <= place < pool.shape[1]:
        raise DRAFT_DISTRIBUTION.error(f"place is {place}, the pool has {pool.shape[1]} places")
    _, _, threshold, last_id, count, _ = filter
    DRAFT_DISTRIBUTION.run(logits, inv_temperature, threshold, last_id, count, tokens, slots, pool, place)


def verify_drafts(
    logits: Tensor,
    inv_temperature: Tensor,
    filter: Filter,
    drafts: Tensor,
    seeds: Tensor,
    positions: Tensor,
    log2q: Tensor | None = None,
    draft_row: Tensor | None = None,
    shared: bool = False,
    *,
    out: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Accept or replace one draft per row, so that the token has the target's distribution.

    Args:
        logits: f32 [L, V], of the target, adjusted. inv_temperature: f32 [L]. filter: result of `sample_filter`.
        drafts: i32 [L], the draft that the row is to confirm; NO_DRAFT for a row behind the last draft.
        seeds: i64 [L], bits of the unsigned seeds. positions: i64 [L], index in the sequence of the token drawn.
        log2q: f32 [Q, V], what drafts were drawn from: the pool of `draft_distribution`, flattened.
        draft_row: i32 [L], row of `log2q`; -1 for a draft that was certain.
        shared: drafter-invariant mode. The drafter used the target's own random numbers, a draft is accepted if the
            target draws it, and the text is that of plain decoding whatever the drafts.

    Returns:
        tokens [L] i32, accepted [L] bool.

    Raises:
        ContractError: shapes or dtypes break the spec, or only one of log2q and draft_row is given.
    """
    if (log2q is None) != (draft_row is None):
        raise VERIFY_DRAFTS.error("log2q and draft_row must be given together or both be None")
    _, max_id, threshold, last_id, count, _ = filter
    edges = (threshold, last_id, count, max_id)
    args = (logits, inv_temperature, *edges, drafts, seeds, positions, log2q, draft_row, shared)
    return cast(tuple[Tensor, Tensor], VERIFY_DRAFTS.run(*args, out))


def accept_prefix(
    tokens: Tensor,
    accepted: Tensor,
    begin: Tensor,
    rows: Tensor,
    width: int,
    drafts: Tensor | None = None,
    golden: Tensor | None = None,
    stop_ids: Tensor | None = None,
    *,
    out: tuple[Tensor, ...] | None = None,
) -> Emitted:
    """What each sequence of a step has gained: its accepted drafts and one token more.

    Args:
        tokens: i32 [L], accepted: bool [L], from `verify_drafts`.
        begin: i32 [S], first row of each sequence. rows: i32 [S], how many it has. width: most rows of a sequence.
        drafts: i32 [L], golden: i32 [L], tokens that are forced, -1 for none.
        stop_ids: i32 [S, C], -1 padded.

    Raises:
        ContractError: shapes or dtypes break the spec, or only one of drafts and golden is given.
    """
    if (drafts is None) != (golden is None):
        raise ACCEPT_PREFIX.error("drafts and golden must be given together or both be None")
    return Emitted(*ACCEPT_PREFIX.run(tokens, accepted, drafts, golden, begin, rows, stop_ids, width, out))
