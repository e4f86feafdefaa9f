"""Row metadata and tokens of a step."""

from __future__ import annotations

import torch
from torch import Tensor

from .program import Program, flat
from .register import kernel

THREADS = 256
STEP_METADATA = Program("step_kernels.py", "step_metadata", threads=THREADS)
STEP_TOKENS = Program("step_kernels.py", "step_tokens", threads=THREADS)


@kernel("step_metadata", version=0)
def step_metadata(
    query_len: Tensor, key_len: Tensor, valid_start: Tensor, ratios: Tensor, rows: int, out: tuple[Tensor, ...] | None
) -> tuple[Tensor, ...]:
    count = query_len.shape[0]
    if out is None:
        sizes = (rows, rows, rows, count, count, count)
        made = [torch.empty((size,), dtype=torch.int32, device=query_len.device) for size in sizes]
        out = (*made, torch.empty((ratios.shape[0], rows), dtype=torch.int32, device=query_len.device))
    blocks = -(-max(rows, count) // THREADS)
    names = ("POSITION", "OWNER", "FIRST", "START", "END", "BEGIN", "VISIBLE")
    STEP_METADATA(
        blocks,
        COUNT=flat(query_len),
        LENGTH=flat(key_len),
        VALID=flat(valid_start),
        RATIO=flat(ratios),
        **{name: flat(value) for name, value in zip(names, out, strict=True)},
        blocks=blocks,
        m=rows,
        Q=count,
        R=ratios.shape[0],
    )
    return out


@kernel("step_tokens", version=0)
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
    out: tuple[Tensor, Tensor, Tensor] | None,
) -> tuple[Tensor, Tensor, Tensor]:
    rows, device = positions.shape[0], positions.device
    if out is None:
        out = (
            torch.empty((rows,), dtype=torch.int32, device=device),
            torch.empty((rows, size), dtype=torch.int32, device=device),
            torch.empty((rows,), dtype=torch.bool, device=device),
        )
    read = {
        "START": seq_start,
        "SLOT": slot,
        "FRESH": fresh,
        "FIRST": fresh_begin,
        "LAST": last_token,
        "DRAFT": drafts,
        "HISTORY": history,
        "SKIP": skip,
    }
    STEP_TOKENS(
        rows * size,
        AT=positions,
        OWNER=row_seq,
        **{name: flat(value) for name, value in read.items()},
        TOKEN=out[0],
        GRAM=out[1],
        IMAGE=out[2].view(torch.uint8),
        vocab=vocab,
        size=size,
        drafts=drafts.shape[1],
        past=history.shape[1],
        items=rows * size,
        m=rows,
        Q=seq_start.shape[0],
        F=fresh.shape[0],
        Z=last_token.shape[0],
        D=drafts.numel(),
        H=history.numel(),
        G=rows * size,
    )
    return out
