"""Row metadata and tokens of a step."""

from __future__ import annotations

import torch
import triton.language as tl
from torch import Tensor

from .jit import jit
from .register import kernel
from .sampling import empty_or
from .sampling_compiles import case


@jit
def describe_rows(
    query_ptr, key_ptr, valid_ptr, ratio_ptr, position_ptr, row_seq_ptr, first_ptr, start_ptr, end_ptr, begin_ptr,
    visible_ptr, sequences, rows, RATIOS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """BLOCK rows of a step; the first program writes what belongs to sequences. Grid (blocks of rows, at least 1)."""
    block = tl.program_id(0)
    row = block * BLOCK + tl.arange(0, BLOCK)
    owner = tl.full((BLOCK,), -1, tl.int32)
    before = tl.full((), 0, tl.int32)
    for first in range(0, sequences, BLOCK):
        s = first + tl.arange(0, BLOCK)
        inside = s < sequences
        count = tl.load(query_ptr + s, mask=inside, other=0)
        end = before + tl.cumsum(count, 0)
        begin = end - count
        if block == 0:
            length = tl.load(key_ptr + s, mask=inside, other=0)
            tl.store(start_ptr + s, length - count, mask=inside)
            tl.store(end_ptr + s, length, mask=inside)
            tl.store(begin_ptr + s, begin, mask=inside)
        own = (row[:, None] >= begin[None, :]) & (row[:, None] < end[None, :])
        owner = tl.maximum(owner, tl.max(tl.where(own, s[None, :], -1), 1))
        before += tl.sum(count, 0)
    # The rows of sequences before the owner's, again: cheaper than keeping every begin.
    begin_of = tl.zeros((BLOCK,), tl.int32)
    for first in range(0, sequences, BLOCK):
        s = first + tl.arange(0, BLOCK)
        count = tl.load(query_ptr + s, mask=s < sequences, other=0)
        begin_of += tl.sum(tl.where(s[None, :] < owner[:, None], count[None, :], 0), 1)
    live = owner >= 0
    inside = row < rows
    length = tl.load(key_ptr + owner, mask=live, other=0)
    count = tl.load(query_ptr + owner, mask=live, other=0)
    position = tl.where(live, length - count + (row - begin_of), 0)
    tl.store(position_ptr + row, position, mask=inside)
    tl.store(row_seq_ptr + row, owner, mask=inside)
    tl.store(first_ptr + row, tl.load(valid_ptr + owner, mask=live, other=0), mask=inside)
    for i in range(RATIOS):
        ratio = tl.maximum(tl.load(ratio_ptr + i), 1)
        entries = tl.where(live, (position + 1) // ratio, 0)
        tl.store(visible_ptr + tl.full((), i, tl.int64) * rows + row, entries, mask=inside)


@jit
def gather_tokens(
    position_ptr, row_seq_ptr, start_ptr, slot_ptr, fresh_ptr, fresh_begin_ptr, last_ptr, draft_ptr, history_ptr,
    skip_ptr, token_ptr, ngram_ptr, image_ptr, rows, vocab,
    N: tl.constexpr, H: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Tokens and n-grams of BLOCK rows. Grid (blocks of rows,)."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = row < rows
    position = tl.load(position_ptr + row, mask=inside, other=0).to(tl.int64)
    sequence = tl.load(row_seq_ptr + row, mask=inside, other=-1)
    live = sequence >= 0
    start = tl.load(start_ptr + sequence, mask=live, other=0).to(tl.int64)
    slot = tl.load(slot_ptr + sequence, mask=live, other=-1)
    begin = tl.load(fresh_begin_ptr + sequence, mask=live, other=0).to(tl.int64)
    skip = tl.load(skip_ptr + sequence, mask=live, other=0).to(tl.int64)
    for r in tl.static_range(SIZE):
        j = position - r - start
        there = live & (position >= r)
        token = tl.load(fresh_ptr + begin + j, mask=there & (j >= 0) & (slot < 0), other=-1)
        newest = tl.load(last_ptr + slot, mask=there & (j == 0) & (slot >= 0), other=-1)
        draft = tl.load(
            draft_ptr + slot.to(tl.int64) * N + j - 1, mask=there & (j > 0) & (j <= N) & (slot >= 0), other=-1
        )
        past = skip - j - 1
        old = tl.load(history_ptr + sequence.to(tl.int64) * H + past, mask=there & (j < 0) & (past < H), other=-1)
        device = tl.where(j == 0, newest, draft)
        token = tl.where(j < 0, old, tl.where(slot < 0, token, device))
        tl.store(ngram_ptr + row.to(tl.int64) * SIZE + r, token, mask=inside)
        if r == 0:
            tl.store(token_ptr + row, token, mask=inside)
            tl.store(image_ptr + row, (token >= vocab).to(tl.int1), mask=inside)


@kernel("step_metadata", version=0)
def step_metadata(
    query_len: Tensor, key_len: Tensor, valid_start: Tensor, ratios: Tensor, rows: int, out: tuple[Tensor, ...] | None
) -> tuple[Tensor, ...]:
    sequences, kinds = query_len.shape[0], ratios.shape[0]
    if out is None:
        shapes = [(rows,)] * 3 + [(sequences,)] * 3 + [(kinds, rows)]
        out = tuple(empty_or(None, query_len, shape, torch.int32) for shape in shapes)
    if rows or sequences:
        describe_rows[(max(1, -(-rows // 64)),)](
            query_len, key_len, valid_start, ratios, *out, sequences, rows, RATIOS=kinds, BLOCK=64, num_warps=4
        )
    return out


@kernel("step_tokens", version=0)
def step_tokens(
    positions: Tensor, row_seq: Tensor, seq_start: Tensor, slot: Tensor, fresh: Tensor, fresh_begin: Tensor,
    last_token: Tensor, drafts: Tensor, history: Tensor, skip: Tensor, vocab: int, size: int,
    out: tuple[Tensor, Tensor, Tensor] | None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    rows = positions.shape[0]
    if out is None:
        kinds = (((rows,), torch.int32), ((rows, size), torch.int32), ((rows,), torch.bool))
        tokens, ngrams, image = (empty_or(None, positions, shape, dtype) for shape, dtype in kinds)
        out = (tokens, ngrams, image)
    if rows:
        gather_tokens[(-(-rows // 128),)](
            positions, row_seq, seq_start, slot, fresh, fresh_begin, last_token, drafts, history, skip, *out, rows,
            vocab, N=drafts.shape[1], H=history.shape[1], SIZE=size, BLOCK=128, num_warps=4,
        )  # fmt: skip
    return out


COMPILES = [
    case(describe_rows, types={"position_ptr": "*i32"}, num_warps=4, RATIOS=2, BLOCK=64),
    case(gather_tokens, types={"position_ptr": "*i32"}, num_warps=4, N=5, H=8, SIZE=4, BLOCK=128),
]
