"""Token embedding into the residual streams, and selection of rows."""

from __future__ import annotations

from torch import Tensor

from . import layer_samples as samples
from .numerics import Exact
from .spec import BF16, F32, I32, Cost, define, result, scalar, tensor

EMBED_STREAMS = define(
    "embed_streams",
    version=0,
    family="embed",
    args=[tensor("ids", "T", I32), tensor("weight", "V D", BF16), scalar("streams", int, low=1)],
    outs=[result("x", "T streams D", BF16), result("pending", "T streams", F32)],
    dynamic="T",
    semantics="""Every stream of row t is weight[ids[t]]; pending[t] is one-hot at stream 0. An id outside [0, V)
        gives a zero row (its pending row is one-hot as well) and reads no weight. Zero rows give empty results.""",
    numerics=Exact(),
    cost=lambda d: Cost(
        flops=0,
        bytes=4 * d["T"] + 2 * min(d["T"], d["V"]) * d["D"] + d["T"] * d["streams"] * (2 * d["D"] + 4),
    ),
    samples=samples.embed_streams,
)

GATHER_ROWS = define(
    "gather_rows",
    version=0,
    family="embed",
    args=[tensor("x", "N D", BF16, F32), tensor("rows", "L", I32)],
    outs=[result("y", "L D", BF16, F32)],
    dynamic="N L",
    semantics="""y[l] = x[rows[l]], bit for bit, in the dtype of x. An index outside [0, N) (-1 is the usual one)
        gives a zero row and reads nothing; N may be 0. Indices may repeat. No selected row influences another.""",
    numerics=Exact(),
    cost=lambda d: Cost(flops=0, bytes=4 * d["L"] + (min(d["L"], d["N"]) + d["L"]) * d["D"] * d.get("x.itemsize", 2)),
    samples=samples.gather_rows,
)


def embed_streams(
    ids: Tensor, weight: Tensor, streams: int, *, out: tuple[Tensor, Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """Start the residual streams from token ids.

    Args:
        ids: i32 [T]; ids outside [0, V) give zero rows.
        weight: bf16 [V, D].
        streams: number m of residual streams.

    Returns:
        streams bf16 [T, m, D], all m equal, and the pending mix f32 [T, m], one-hot at stream 0.
    """
    return EMBED_STREAMS.run(ids, weight, streams, out)  # type: ignore[no-any-return]


def gather_rows(x: Tensor, rows: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Select rows.

    Args:
        x: bf16 or f32 [N, D]. rows: i32 [L]; an index outside [0, N) gives a zero row.

    Returns:
        [L, D] in the dtype of x.
    """
    return GATHER_ROWS.run(x, rows, out)  # type: ignore[no-any-return]
