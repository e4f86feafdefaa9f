"""Token embedding into the residual streams, and selection of rows."""

from __future__ import annotations

import torch
from torch import Tensor

from ...hal.registry import Signature
from .program import Program
from .register import kernel
from .row_bytes import as_bytes

CHUNK = 32768
STREAMS = 64
GATHER_ROWS = Program("embed_kernels.py", "gather_rows", chunk=CHUNK)
EMBED_STREAMS = Program("embed_kernels.py", "embed_streams", chunk=CHUNK)


def _wide(signature: Signature) -> str | None:
    return None if signature.dims["D"] else "D of at least 1, got 0"


def _streams(signature: Signature) -> str | None:
    streams = signature.scalars["streams"]
    return _wide(signature) if streams <= STREAMS else f"up to {STREAMS} streams, got {streams}"


@kernel("gather_rows", version=0, supports=_wide)
def gather_rows(x: Tensor, rows: Tensor, out: Tensor | None) -> Tensor:
    count, width = rows.shape[0], x.shape[1] * x.element_size()
    y = torch.empty((count, x.shape[1]), dtype=x.dtype, device=x.device) if out is None else out
    pieces = -(-width // CHUNK)
    items = count * pieces
    GATHER_ROWS(items, X=as_bytes(x), R=rows, Y=as_bytes(y), pieces=pieces, items=items, N=x.shape[0], L=count, W=width)
    return y


@kernel("embed_streams", version=0, supports=_streams)
def embed_streams(
    ids: Tensor, weight: Tensor, streams: int, out: tuple[Tensor, Tensor] | None
) -> tuple[Tensor, Tensor]:
    rows, width = ids.shape[0], weight.shape[1]
    if out is None:
        out = (
            torch.empty((rows, streams, width), dtype=torch.bfloat16, device=weight.device),
            torch.empty((rows, streams), dtype=torch.float32, device=weight.device),
        )
    pieces = -(-2 * width // CHUNK)
    items = rows * pieces
    EMBED_STREAMS(
        items,
        X=as_bytes(weight),
        I=ids,
        Y=as_bytes(out[0]),
        H=out[1],
        pieces=pieces,
        items=items,
        N=weight.shape[0],
        L=rows,
        M=streams,
        W=2 * width,
    )
    return out
