"""Context parallelism: which rows of a prompt a rank computes, and where they are found again after a gather.

Mirror layout: a sequence's q rows are cut into 2*ranks pieces of ceil(q / (2*ranks)); rank r owns pieces r and
2*ranks-1-r, so that every rank has an early and a late one and causal work is even. A rank's rows of all sequences
follow one another, the early piece before the late one, short pieces filled up with padding. With one rank the layout
is the packed order itself.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from . import mirror_samples as samples
from .numerics import Exact
from .spec import I32, Cost, define, result, scalar, tensor


class MirrorRows(NamedTuple):
    """A rank's rows of a step, and the way back.

    Attributes:
        local: i32 [rows], packed row that a local row stands for; -1 padding.
        inverse: i32 [total], place of every packed row among the ranks' rows one after another; -1 padding.
        positions, row_seq, first_key: i32 [rows] and visible: i32 [R, rows], as in `step_metadata`, of local rows.
    """

    local: Tensor
    inverse: Tensor
    positions: Tensor
    row_seq: Tensor
    first_key: Tensor
    visible: Tensor


class ReplayRows(NamedTuple):
    """Rows that go on behind a truncation: i32 [kept], local rows to contribute, -1 padding; i32 [rows], where each row
    of the compact layout lies among the contributions of all ranks, -1 padding."""

    contribution: Tensor
    inverse: Tensor


_LAYOUT = """A sequence of q rows has the local rows h*ps + j, h = 0 and 1, 0 <= j < ps = ceil(q / (2*ranks)), of token
    c*ps + j, c = own for h = 0 and 2*ranks-1-own for h = 1; tokens from q on are padding; sequences follow one another.
    With ranks = 1 its local rows are its q tokens in order. """

MIRROR_ROWS = define(
    "mirror_rows",
    version=0,
    family="mirror",
    args=[
        tensor("query_len", "S", I32),
        tensor("key_len", "S", I32),
        tensor("valid_start", "S", I32),
        tensor("ratios", "R", I32),
        scalar("ranks", int, low=1),
        scalar("own", int, static=False),
        scalar("rows", int, static=False),
        scalar("total", int, static=False),
    ],
    outs=[
        result("local", "rows", I32),
        result("inverse", "total", I32),
        result("positions", "rows", I32),
        result("row_seq", "rows", I32),
        result("first_key", "rows", I32),
        result("visible", "R rows", I32),
    ],
    dynamic="S rows total",
    semantics=_LAYOUT
    + """local[i] is the token's row in packed order (all rows of sequence 0, then 1, ...), -1 for padding and rows
        behind the last sequence. Other outputs of a local row are those of step_metadata for its packed row; padding:
        position 0, row_seq -1, first_key 0, visible 0. inverse[t] is the place of packed row t in the ranks' rows one
        after another, rank * rows + local row, -1 from the sum of query_len on; it does not depend on own. Sequences
        without rows are legal, S may be 0. The local rows are at most `rows`, the packed ones at most `total`; lengths
        as in step_metadata.""",
    numerics=Exact(),
    cost=lambda d: Cost(flops=0, bytes=12 * d["S"] + 4 * d["R"] + 4 * d["total"] + 4 * (4 + d["R"]) * d["rows"]),
    samples=samples.mirror_rows,
)

REPLAY_ROWS = define(
    "replay_rows",
    version=0,
    family="mirror",
    args=[
        tensor("query_len", "S", I32),
        tensor("keep_len", "S", I32),
        scalar("ranks", int, low=1),
        scalar("own", int, static=False),
        scalar("kept", int, static=False),
        scalar("rows", int, static=False),
    ],
    outs=[result("contribution", "kept", I32), result("inverse", "rows", I32)],
    dynamic="S kept rows",
    semantics="""The last keep_len[s] of the query_len[s] rows of each sequence go on (0 <= keep <= query). """
    + _LAYOUT
    + """contribution lists the local rows of rank own, in the layout of query_len, whose tokens go on, ascending, then
        -1. The kept tokens are laid out anew over the ranks, in the layout of keep_len; inverse[i] says where the token
        of local row i of that layout lies in the ranks' contributions one after another, rank * kept + its number
        there; -1 for padding and behind the last sequence. So gather(contributions of all ranks)[inverse] are the rows
        that this rank computes from the boundary on. Every rank's contribution is at most `kept`, the local rows of the
        new layout at most `rows`; a step has at most 2^24 rows.""",
    numerics=Exact(),
    cost=lambda d: Cost(flops=0, bytes=8 * d["S"] + 4 * d["kept"] + 4 * d["rows"]),
    samples=samples.replay_rows,
)


def mirror_rows(
    query_len: Tensor,
    key_len: Tensor,
    valid_start: Tensor,
    ratios: Tensor,
    ranks: int,
    own: int,
    rows: int,
    total: int,
    *,
    out: tuple[Tensor, ...] | None = None,
) -> MirrorRows:
    """A rank's share of a prefill step.

    Args:
        query_len, key_len, valid_start, ratios: as in `step_metadata`.
        ranks: members of the context-parallel group. own: this rank.
        rows: local rows, the same on every rank: at least the sum of 2 * ceil(query_len / (2 * ranks)).
        total: rows of the step in packed order, padding included.

    Raises:
        ContractError: among others, `own` is no rank.
    """
    if not 0 <= own < ranks:
        raise MIRROR_ROWS.error(f"own is {own}, must be a rank from 0 to {ranks - 1}")
    return MirrorRows(*MIRROR_ROWS.run(query_len, key_len, valid_start, ratios, ranks, own, rows, total, out))


def replay_rows(
    query_len: Tensor,
    keep_len: Tensor,
    ranks: int,
    own: int,
    kept: int,
    rows: int,
    *,
    out: tuple[Tensor, Tensor] | None = None,
) -> ReplayRows:
    """What a rank passes on where a truncated prefill drops rows, and where it finds those that it goes on with.

    Args:
        query_len, keep_len: i32 [S]. ranks, own: as in `mirror_rows`.
        kept: room for one rank's contribution. rows: local rows of the layout behind the boundary.

    Raises:
        ContractError: among others, `own` is no rank.
    """
    if not 0 <= own < ranks:
        raise REPLAY_ROWS.error(f"own is {own}, must be a rank from 0 to {ranks - 1}")
    return ReplayRows(*REPLAY_ROWS.run(query_len, keep_len, ranks, own, kept, rows, out))
