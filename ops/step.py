"""What a step's kernels need to know about its rows, made on the device from a few numbers per sequence.

The host need not know where a sequence stands: lengths, the token drawn last and the drafts may be results of the step
before, still on their way. A step holds `rows` rows, as many as a captured graph has; rows of a sequence are
consecutive, sequences follow one another, and what is left is padding.

There is no op that writes store slots, window offsets or block tables per row: `kv`, `index` and `attention` take a
row's sequence and position and find the rest, in registers, from one table row per sequence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor

from . import step_samples as samples
from .kv import POSITIONS, ROW_SEQ, SEQ_START
from .numerics import Exact
from .spec import BOOL, I32, Cost, define, result, scalar, tensor


class RowMetadata(NamedTuple):
    """Who and where the rows of a step are.

    Attributes:
        positions: i32 [rows], 0 on padding rows.
        row_seq: i32 [rows], sequence of the row, -1 on padding rows.
        first_key: i32 [rows], oldest position whose window key is valid; 0 on padding rows.
        seq_start, seq_end: i32 [S], first position of the step, and one past the last.
        row_begin: i32 [S], first row.
        visible: i32 [R, rows], compressed entries that a row may see, per ratio; 0 on padding rows.
    """

    positions: Tensor
    row_seq: Tensor
    first_key: Tensor
    seq_start: Tensor
    seq_end: Tensor
    row_begin: Tensor
    visible: Tensor


class StepTokens(NamedTuple):
    """Tokens of a step's rows: i32 [T]; i32 [T, size], newest first; bool [T], image rows."""

    tokens: Tensor
    ngrams: Tensor
    image: Tensor


STEP_METADATA = define(
    "step_metadata",
    version=0,
    family="step",
    args=[
        tensor("query_len", "S", I32),
        tensor("key_len", "S", I32),
        tensor("valid_start", "S", I32),
        tensor("ratios", "R", I32),
        scalar("rows", int, static=False),
    ],
    outs=[
        result("positions", "rows", I32),
        result("row_seq", "rows", I32),
        result("first_key", "rows", I32),
        result("seq_start", "S", I32),
        result("seq_end", "S", I32),
        result("row_begin", "S", I32),
        result("visible", "R rows", I32),
    ],
    dynamic="S rows",
    semantics="""Sequence s has q = query_len[s] >= 0 rows, the last of its k = key_len[s] >= q positions.
        row_begin[s] = sum of query_len before s; seq_start[s] = k - q; seq_end[s] = k, for sequences without rows
        too. Row row_begin[s] + j, j < q, has position k - q + j, row_seq s, first_key valid_start[s], the oldest
        position whose window key holds (its last_key, in `sparse_attention`, is its position), and visible[i] =
        (position + 1) // ratios[i], ratios >= 1. Rows from the sum of query_len on are padding: position 0, row_seq
        -1, first_key 0, visible 0. The sum is at most rows. S may be 0 (all rows are padding), rows may be 0. Lengths
        that break this are refused where they can be seen; elsewhere the values are unspecified and nothing else is
        written.""",
    numerics=Exact(),
    cost=lambda d: Cost(flops=0, bytes=24 * d["S"] + 4 * d["R"] + 4 * (3 + d["R"]) * d["rows"]),
    samples=samples.step_metadata,
)


def _token_cost(d: Mapping[str, int]) -> Cost:
    # A row reads its own token once, from one of two places; what lies before the step is read once a sequence.
    own = min(d["T"], d["F"] + d["Z"] * (1 + d["n"]))
    past = min(d["size"] - 1, d["H"]) * min(d["S"], d["T"])
    return Cost(flops=0, bytes=d["T"] * (8 + 4 + 4 * d["size"] + 1) + 4 * (4 * d["S"] + own + past))


STEP_TOKENS = define(
    "step_tokens",
    version=0,
    family="step",
    args=[
        POSITIONS,
        ROW_SEQ,
        SEQ_START,
        tensor("slot", "S", I32),
        tensor("fresh", "F", I32),
        tensor("fresh_begin", "S", I32),
        tensor("last_token", "Z", I32),
        tensor("drafts", "Z n", I32),
        tensor("history", "S H", I32),
        tensor("skip", "S", I32),
        scalar("vocab", int, low=1),
        scalar("size", int, low=1),
    ],
    outs=[result("tokens", "T", I32), result("ngrams", "T size", I32), result("image", "T", BOOL)],
    dynamic="T S F Z",
    semantics="""The row at position p of sequence s is its row j = p - seq_start[s] of this step. Its token is
        fresh[fresh_begin[s] + j] where slot[s] is -1, else last_token[slot[s]] for j = 0 and drafts[slot[s], j-1] for
        1 <= j <= n: sequences of a prompt and of a decode step may mix, and what a sequence does not use of these is
        not read. ngrams[t, r] is the token at position p - r: of the sequence's own row if p - r >= seq_start[s];
        else of history[s], which lists tokens before seq_start, newest first, after skip[s] >= 0 entries that are
        passed over (drafts that were not accepted): with d = seq_start[s] - (p - r), history[s, skip[s] + d - 1]. -1
        where p - r < 0, whatever the list holds there, or where it ends. ngrams[t, 0] is tokens[t]. image[t] =
        tokens[t] >= vocab. Padding rows: -1, -1 throughout, false. Tokens are passed on as they are, -1 and ids of
        images included; `engram_hash` cuts n-grams at images. Z, n, F and H may be 0.""",
    numerics=Exact(),
    cost=_token_cost,
    samples=samples.step_tokens,
)


def step_metadata(
    query_len: Tensor,
    key_len: Tensor,
    valid_start: Tensor,
    ratios: Tensor,
    rows: int,
    *,
    out: tuple[Tensor, ...] | None = None,
) -> RowMetadata:
    """Positions, owners and visible keys of a step's rows, from a few numbers per sequence.

    Args:
        query_len: i32 [S], rows of each sequence. key_len: i32 [S], its length with them.
        valid_start: i32 [S], oldest position whose window key is valid, 0 unless a replay began later.
        ratios: i32 [R], compression ratios. rows: rows of the step, padding included.
    """
    return RowMetadata(*STEP_METADATA.run(query_len, key_len, valid_start, ratios, rows, out))


def step_tokens(
    positions: Tensor,
    row_seq: Tensor,
    seq_start: Tensor,
    slot: Tensor,
    fresh: Tensor,
    fresh_begin: Tensor,
    last_token: Tensor,
    drafts: Tensor,
    history: Tensor,
    skip: Tensor,
    vocab: int,
    size: int,
    *,
    out: tuple[Tensor, Tensor, Tensor] | None = None,
) -> StepTokens:
    """Token ids and n-grams of a step's rows, from the host or from what the step before left on the device.

    Args:
        positions, row_seq: i32 [T]. seq_start: i32 [S], see `step_metadata`.
        slot: i32 [S], where a sequence's last token and drafts lie on the device; -1: it takes `fresh` tokens.
        fresh: i32 [F], tokens from the host. fresh_begin: i32 [S], where those of a sequence begin.
        last_token: i32 [Z]. drafts: i32 [Z, n].
        history: i32 [S, H], tokens before `seq_start`, newest first, -1 where there are none.
        skip: i32 [S], newest entries of the history to pass over.
        vocab: ids from here on are images. size: columns of an n-gram, the token itself included.
    """
    args = (positions, row_seq, seq_start, slot, fresh, fresh_begin, last_token, drafts, history, skip, vocab, size)
    return StepTokens(*STEP_TOKENS.run(*args, out))
