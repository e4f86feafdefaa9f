"""Rows of a rank in the mirror layout, and rows that go on behind a truncation."""

from __future__ import annotations

import torch
from torch import Tensor

from .program import Program, flat
from .register import kernel

THREADS = 256
MIRROR_ROWS = Program("mirror_kernels.py", "mirror_rows", threads=THREADS)
REPLAY_ROWS = Program("mirror_kernels.py", "replay_rows", threads=THREADS)


@kernel("mirror_rows", version=0)
def mirror_rows(
    query_len: Tensor,
    key_len: Tensor,
    valid_start: Tensor,
    ratios: Tensor,
    ranks: int,
    own: int,
    rows: int,
    total: int,
    out: tuple[Tensor, ...] | None,
) -> tuple[Tensor, ...]:
    if out is None:
        shapes = ((rows,), (total,), (rows,), (rows,), (rows,), (ratios.shape[0], rows))
        out = tuple(torch.empty(shape, dtype=torch.int32, device=query_len.device) for shape in shapes)
    blocks = -(-max(rows, total) // THREADS)
    names = ("LOCAL", "INVERSE", "POSITION", "OWNER", "FIRST", "VISIBLE")
    MIRROR_ROWS(
        blocks,
        COUNT=flat(query_len),
        LENGTH=flat(key_len),
        VALID=flat(valid_start),
        RATIO=flat(ratios),
        **{name: flat(value) for name, value in zip(names, out, strict=True)},
        ranks=ranks,
        own=own,
        blocks=blocks,
        Q=query_len.shape[0],
        R=ratios.shape[0],
        m=rows,
        M=total,
    )
    return out


@kernel("replay_rows", version=0)
def replay_rows(
    query_len: Tensor, keep_len: Tensor, ranks: int, own: int, kept: int, rows: int, out: tuple[Tensor, Tensor] | None
) -> tuple[Tensor, Tensor]:
    if out is None:
        device = query_len.device
        out = (
            torch.empty((kept,), dtype=torch.int32, device=device),
            torch.empty((rows,), dtype=torch.int32, device=device),
        )
    blocks = -(-max(kept, rows) // THREADS)
    REPLAY_ROWS(
        blocks,
        COUNT=flat(query_len),
        KEEP=flat(keep_len),
        CONTRIBUTION=flat(out[0]),
        INVERSE=flat(out[1]),
        ranks=ranks,
        own=own,
        blocks=blocks,
        Q=query_len.shape[0],
        K=kept,
        m=rows,
    )
    return out
