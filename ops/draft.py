"""Drafting with DSpark: what the draft layers read, and what becomes of their output.

A step of the backbone leaves taps (`draft_tap`), from which every draft layer's window ring is kept up to date with ops
of the other families. Once the step's own token is known, `draft_inputs` lays out a block of rows per sequence behind
it; the draft layers run on those with `sparse_attention`, whose rows see one another here. Then, place by place,
`draft_logits` corrects the logits by the token before, the sampling ops draw from them, and at the end
`draft_confidence` and `draft_store` keep what verification and row planning want to know.
"""

from __future__ import annotations

from typing import NamedTuple, cast

from torch import Tensor

from . import draft_samples as samples
from .numerics import Accumulated, Exact
from .spec import BF16, BOOL, F32, I32, I64, Cost, WeightHandle, define, handle, result, scalar, tensor

CONFIDENCE_CLAMP = 60.0
"""Largest absolute argument of the sigmoid."""


class DraftRows(NamedTuple):
    """Rows of a draft pass, `block` per sequence; padding where a sequence does not draft.

    Attributes:
        ids: i32 [S*block], the drawn token, then the noise token; -1 on padding rows.
        positions: i32 [S*block], 0 on padding rows.
        row_seq: i32 [S*block], -1 on padding rows.
        first_key, last_key: i32 [S*block], as `sparse_attention` takes them.
        seq_start, row_begin: i32 [S], position and number of the block's first row.
        draws: i64 [block, S], index in the whole sequence of the token that a place draws.
    """

    ids: Tensor
    positions: Tensor
    row_seq: Tensor
    first_key: Tensor
    last_key: Tensor
    seq_start: Tensor
    row_begin: Tensor
    draws: Tensor


DRAFT_TAP = define(
    "draft_tap",
    version=0,
    family="draft",
    args=[
        tensor("x", "T m D", BF16),
        tensor("taps", "T n D", BF16, mutable=True),
        scalar("place", int, static=False),
    ],
    outs=[],
    dynamic="T",
    semantics="""taps[t, place] = bf16(fp32(1/m) * sum_j x[t, j]), the sum in fp32, j ascending; 0 <= place < n. Nothing
        else of taps is read or written. Accumulated, not rounded: streams of opposite sign may cancel.""",
    numerics=Accumulated("m"),
    cost=lambda d: Cost(flops=d["T"] * d["m"] * d["D"], bytes=2 * d["T"] * d["D"] * (d["m"] + 1)),
    samples=samples.draft_tap,
)

DRAFT_INPUTS = define(
    "draft_inputs",
    version=0,
    family="draft",
    args=[
        tensor("tokens", "S", I32),
        tensor("base", "S", I32),
        tensor("accepted", "S", I32),
        tensor("valid_start", "S", I32),
        scalar("block", int, low=1),
        scalar("window", int, low=1),
        scalar("noise", int),
    ],
    outs=[
        result("ids", "S*block", I32),
        result("positions", "S*block", I32),
        result("row_seq", "S*block", I32),
        result("first_key", "S*block", I32),
        result("last_key", "S*block", I32),
        result("seq_start", "S", I32),
        result("row_begin", "S", I32),
        result("draws", "block S", I64),
    ],
    dynamic="S",
    semantics="""A = base + accepted is the last position of sequence s whose keys are in the caches; tokens[s] stands
        at A+1 and has not been computed. Row s*block + j is position A+1+j: ids = tokens[s] for j = 0, else noise;
        row_seq = s; first_key = max(A-window+1, valid_start, 0); last_key = A+block, so that every row of the block
        sees the same keys: `window` of them up to A, and the block. seq_start = A+1, row_begin = s*block, draws[j, s] =
        A+2+j. base < 0: the sequence does not draft. Its rows are padding (ids -1, positions 0, row_seq -1, first_key
        and last_key 0), seq_start and draws 0, row_begin as ever; the other arguments are not looked at. A+block+1 must
        stay below 2**31.""",
    numerics=Exact(),
    cost=lambda d: Cost(flops=0, bytes=d["S"] * (24 + 28 * d["block"])),
    samples=samples.draft_inputs,
)

DRAFT_LOGITS = define(
    "draft_logits",
    version=0,
    family="draft",
    args=[
        tensor("base", "S V", F32, layout="rows"),
        tensor("tokens", "S", I32),
        tensor("embed", "N r", BF16),
        handle("head", weight=("V r", BF16)),
    ],
    outs=[result("logits", "S V", F32)],
    dynamic="S",
    semantics="""logits[s, v] = base[s, v] + sum_k embed[tokens[s], k] * head[v, k], products and sum in fp32: a bigram
        correction of low rank. A token outside [0, N) adds nothing and reads no embedding (0 * head is added: NaN or
        infinity in the head shows). base may have any row stride.""",
    numerics=Accumulated("r+1", output="fp32"),
    cost=lambda d: Cost(
        flops=2.0 * d["S"] * d["V"] * d["r"],
        bytes=8 * d["S"] * d["V"] + 4 * d["S"] + 2 * (d["V"] + min(d["S"], d["N"])) * d["r"],
    ),
    samples=samples.draft_logits,
)

DRAFT_CONFIDENCE = define(
    "draft_confidence",
    version=0,
    family="draft",
    args=[
        tensor("hidden", "S n D", BF16),
        tensor("tokens", "S n", I32),
        tensor("embed", "N r", BF16),
        tensor("weight", "D+r", BF16),
        tensor("inv_temperature", "n", F32),
    ],
    outs=[result("confidence", "S n", F32)],
    dynamic="S",
    semantics="""c = sigmoid(x), x = inv_temperature[i] * (sum_k hidden[s, i, k] * weight[k] + sum_k embed[tokens[s, i],
        k] * weight[D+k]) limited to -60 .. 60, all in fp32. tokens[s, i] is the token before the one drawn at place i.
        A token outside [0, N) has an embedding of zeros and reads none. NaN gives NaN.""",
    numerics=Accumulated("D+r", output="fp32"),
    cost=lambda d: Cost(
        flops=2.0 * d["S"] * d["n"] * (d["D"] + d["r"]),
        bytes=d["S"] * d["n"] * (2 * d["D"] + 8)
        + 2 * min(d["S"] * d["n"], d["N"]) * d["r"]
        + 2 * (d["D"] + d["r"])
        + 4 * d["n"],
    ),
    samples=samples.draft_confidence,
)

DRAFT_STORE = define(
    "draft_store",
    version=0,
    family="draft",
    args=[
        tensor("tokens", "S n", I32),
        tensor("confidence", "S n", F32),
        tensor("stop", "S", BOOL, optional=True),
        tensor("slots", "S", I32),
        tensor("pool_tokens", "Z n", I32, mutable=True),
        tensor("pool_confidence", "Z n", F32, mutable=True),
    ],
    outs=[],
    dynamic="S Z",
    semantics="""Row s of tokens and confidence goes to row slots[s] of the pools, bit for bit; confidences of a
        sequence with stop set are written as +0, so that it gets no rows beyond its first in the next step. Slot -1
        writes nothing; other slots are distinct. No other row changes.""",
    numerics=Exact(),
    cost=lambda d: Cost(flops=0, bytes=d["S"] * (16 * d["n"] + 4 + d.get("stop.itemsize", 0))),
    samples=samples.draft_store,
)

CORRECT_Q = define(
    "correct_q",
    version=0,
    family="draft",
    args=[
        tensor("confidence", "Z n", F32),
        tensor("remap", "R", I32),
        scalar("total", int, static=False),
    ],
    outs=[result("q", "R", I32)],
    dynamic="R Z",
    semantics="""Splits `total` rows, R <= total <= R*(n+1), over R sequences by how likely their drafts are to survive.
        Survival s[r, j] = c[0] * … * c[j], fp32, one rounding per product, c = confidence[remap[r]], with NaN and
        negative numbers taken as 0 and numbers above 1 as 1; 0 throughout where remap is -1. The rank of (r, j) is the
        number of pairs with a larger survival, or an equal one and a smaller r*n + j. q[r] = 1 + number of j of rank
        below total - R. Survival does not grow along j, so these are the first drafts of a sequence; the sum of q is
        total.""",
    numerics=Exact(),
    cost=lambda d: Cost(flops=float(d["R"] * d["n"]) ** 2, bytes=8 * d["R"] + 4 * min(d["R"], d["Z"]) * d["n"]),
    samples=samples.correct_q,
)

CORRECT_K = define(
    "correct_k",
    version=0,
    family="draft",
    args=[
        tensor("base", "R", I32),
        tensor("q", "R", I32),
        tensor("remap", "R", I32),
        tensor("assumed", "R", I32),
        tensor("accepted", "Z", I32),
    ],
    outs=[result("k", "R", I32)],
    dynamic="R Z",
    semantics="""k[r] = base[r] + q[r] - (assumed[r] - accepted[remap[r]]): base is the length before this step if all
        `assumed` drafts of the step before were accepted. remap -1: k = base + q, assumed is not looked at.""",
    numerics=Exact(),
    cost=lambda d: Cost(flops=0, bytes=20 * d["R"] + 4 * min(d["R"], d["Z"])),
    samples=samples.correct_k,
)


def draft_tap(x: Tensor, taps: Tensor, place: int) -> None:
    """Keep the mean of the residual streams for the draft layers.

    Args:
        x: bf16 [T, m, D], streams at the entry of a tapped layer.
        taps: bf16 [T, n, D], written at `place`. As [T, n*D] it is the input of the draft layers' main projection.
        place: the layer's place among the tapped ones.

    Raises:
        ContractError: `place` is no place of `taps`.
    """
    if taps.ndim == 3 and not 0 <= place < taps.shape[1]:
        raise DRAFT_TAP.error(f"place is {place}, taps have {taps.shape[1]} places")
    DRAFT_TAP.run(x, taps, place)


def draft_inputs(
    tokens: Tensor,
    base: Tensor,
    accepted: Tensor,
    valid_start: Tensor,
    block: int,
    window: int,
    noise: int,
    *,
    out: tuple[Tensor, ...] | None = None,
) -> DraftRows:
    """Rows of the draft pass behind the tokens just drawn.

    Args:
        tokens: i32 [S], drawn last, the first input of the block.
        base: i32 [S], position of the sequence's first row in the step that drew it (of a prompt: its last row); -1 for
            sequences that do not draft.
        accepted: i32 [S], drafts of that step that were accepted (of a prompt: 0).
        valid_start: i32 [S], first position whose window keys may be seen.
        block: rows per sequence, the number of drafts. window: the model's window. noise: id of the other inputs.
    """
    return DraftRows(*DRAFT_INPUTS.run(tokens, base, accepted, valid_start, block, window, noise, out))


def draft_logits_prepare(weight: Tensor) -> WeightHandle:
    """Prepare the bigram head bf16 [V, r]."""
    return DRAFT_LOGITS.prepare(weight)


def draft_logits(
    base: Tensor, tokens: Tensor, embed: Tensor, head: WeightHandle, *, out: Tensor | None = None
) -> Tensor:
    """Logits of one place, corrected by the token before it.

    Args:
        base: f32 [S, V], logits of the draft layers; rows may be strided.
        tokens: i32 [S]. embed: bf16 [N, r]. head: from `draft_logits_prepare`.

    Returns:
        f32 [S, V].
    """
    return cast(Tensor, DRAFT_LOGITS.run(base, tokens, embed, head, out))


def draft_confidence(
    hidden: Tensor,
    tokens: Tensor,
    embed: Tensor,
    weight: Tensor,
    inv_temperature: Tensor,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """How sure the drafter is that a draft survives, given that those before it do.

    Args:
        hidden: bf16 [S, n, D], collapsed streams before the final norm.
        tokens: i32 [S, n], the token before each draft. embed: bf16 [N, r], the bigram embedding.
        weight: bf16 [D+r]. inv_temperature: f32 [n], one per place.

    Returns:
        f32 [S, n], 0 to 1.
    """
    return cast(Tensor, DRAFT_CONFIDENCE.run(hidden, tokens, embed, weight, inv_temperature, out))


def draft_store(
    tokens: Tensor,
    confidence: Tensor,
    stop: Tensor | None,
    slots: Tensor,
    pool_tokens: Tensor,
    pool_confidence: Tensor,
) -> None:
    """Keep drafts and confidences where the next step finds them.

    Args:
        tokens: i32 [S, n]. confidence: f32 [S, n]. stop: bool [S], sequences that drew a stop token.
        slots: i32 [S], -1 for none. pool_tokens: i32 [Z, n]. pool_confidence: f32 [Z, n].
    """
    DRAFT_STORE.run(tokens, confidence, stop, slots, pool_tokens, pool_confidence)


def correct_q(confidence: Tensor, remap: Tensor, total: int, *, out: Tensor | None = None) -> Tensor:
    """Rows per sequence for a given total, the likeliest drafts first.

    Args:
        confidence: f32 [Z, n], by slot or by place in the step before. remap: i32 [R], row of it, -1 for none.
        total: rows of the step.

    Returns:
        i32 [R], 1 to n + 1.

    Raises:
        ContractError: `total` cannot be split so.
    """
    if confidence.ndim == 2 and remap.ndim == 1:
        sequences, drafts = remap.shape[0], confidence.shape[1]
        if not sequences <= total <= sequences * (drafts + 1):
            raise CORRECT_Q.error(f"total is {total}, must lie in {sequences}..{sequences * (drafts + 1)}")
    return cast(Tensor, CORRECT_Q.run(confidence, remap, total, out))


def correct_k(
    base: Tensor, q: Tensor, remap: Tensor, assumed: Tensor, accepted: Tensor, *, out: Tensor | None = None
) -> Tensor:
    """Lengths after a step planned before the step before it was known.

    Args:
        base: i32 [R], length before this step, all drafts in flight taken as accepted. q: i32 [R], rows.
        remap: i32 [R], row of `accepted`, -1 where nothing was in flight.
        assumed: i32 [R], drafts in flight. accepted: i32 [Z], drafts accepted, by slot or by place.

    Returns:
        i32 [R].
    """
    return cast(Tensor, CORRECT_K.run(base, q, remap, assumed, accepted, out))
