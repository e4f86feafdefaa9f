"""Device code of the mirror layout: which token a row stands for, found by counting the rows of the sequences before.

A sequence of q rows is cut into 2 * RANKS pieces of `piece_of(q)`; rank r owns pieces r and 2 * RANKS - 1 - r. With one
rank the layout is the packed order.
"""

from __future__ import annotations

import triton.language as tl

from .jit import jit


@jit
def piece_of(q, RANKS: tl.constexpr):
    """Rows of a piece; those of the whole sequence with one rank, whose second piece is then not there."""
    return q if RANKS == 1 else (q + 2 * RANKS - 1) // (2 * RANKS)


@jit
def local_rows(q, RANKS: tl.constexpr):
    """Rows of a rank, padding included."""
    return q if RANKS == 1 else 2 * piece_of(q, RANKS)


@jit
def token_of(place, q, rank, RANKS: tl.constexpr):
    """Token of a rank's local row of a sequence; padding where it is not below q."""
    piece = piece_of(q, RANKS)
    late = (2 * RANKS - 1 - rank) * piece + place - piece
    return place if RANKS == 1 else tl.where(place < piece, rank * piece + place, late)


@jit
def home_of(token, q, RANKS: tl.constexpr):
    """Rank of a token, and whether it is in the rank's late piece."""
    number = token // tl.maximum(piece_of(q, RANKS), 1)
    late = number >= RANKS
    return tl.where(late, 2 * RANKS - 1 - number, number), late


@jit
def kept_of(q, keep, number, RANKS: tl.constexpr):
    """Of the last `keep` of q tokens: those in piece `number`, and the first of them."""
    piece = piece_of(q, RANKS)
    first = tl.maximum(q - keep, number * piece)
    return tl.maximum(tl.minimum(q, (number + 1) * piece) - first, 0), first


@jit
def kept_by(q, keep, rank, RANKS: tl.constexpr):
    """Of the last `keep` of q tokens: those of a rank."""
    early, _ = kept_of(q, keep, rank, RANKS)
    late, _ = kept_of(q, keep, 2 * RANKS - 1 - rank, RANKS)
    return early if RANKS == 1 else early + late


@jit
def find_owner(row, s, count, other, owner, begin, aside, before, aside_before):
    """One block of sequences s in the search for the sequence that each row belongs to.

    count: rows of each sequence in the layout of `row`; other: in another layout. owner: the row's sequence, -1 until
    it is found. begin, aside: its first row in either layout. before, aside_before: rows of the blocks before.
    """
    start = before + tl.cumsum(count, 0) - count
    start_aside = aside_before + tl.cumsum(other, 0) - other
    here = (row[:, None] >= start[None, :]) & (row[:, None] < (start + count)[None, :])
    owner = tl.maximum(owner, tl.max(tl.where(here, s[None, :], -1), 1))
    begin += tl.sum(tl.where(here, start[None, :], 0), 1)
    aside += tl.sum(tl.where(here, start_aside[None, :], 0), 1)
    return owner, begin, aside, before + tl.sum(count, 0), aside_before + tl.sum(other, 0)


@jit
def mirror_kernel(
    query_ptr, key_ptr, valid_ptr, ratio_ptr, local_ptr, inverse_ptr, position_ptr, row_seq_ptr, first_ptr, visible_ptr,
    sequences, own, rows, total, RATIOS: tl.constexpr, RANKS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """BLOCK local rows; behind those, BLOCK packed rows and where they lie."""
    blocks = (rows + BLOCK - 1) // BLOCK
    packed = tl.program_id(0) >= blocks
    row = (tl.program_id(0) - tl.where(packed, blocks, 0)) * BLOCK + tl.arange(0, BLOCK)
    owner = tl.full((BLOCK,), -1, tl.int32)
    begin = tl.zeros((BLOCK,), tl.int32)
    aside = tl.zeros((BLOCK,), tl.int32)
    before = tl.full((), 0, tl.int32)
    aside_before = tl.full((), 0, tl.int32)
    for first in range(0, sequences, BLOCK):
        s = first + tl.arange(0, BLOCK)
        q = tl.load(query_ptr + s, mask=s < sequences, other=0)
        local = local_rows(q, RANKS)
        count, other = tl.where(packed, q, local), tl.where(packed, local, q)
        owner, begin, aside, before, aside_before = find_owner(
            row, s, count, other, owner, begin, aside, before, aside_before
        )
    found = owner >= 0
    q = tl.load(query_ptr + owner, mask=found, other=0)
    if packed:
        token = row - begin
        rank, late = home_of(token, q, RANKS)
        piece = piece_of(q, RANKS)
        place = token % tl.maximum(piece, 1) + tl.where(late, piece, 0)
        tl.store(inverse_ptr + row, tl.where(found, rank * rows + aside + place, -1), mask=row < total)
    else:
        token = token_of(row - begin, q, own, RANKS)
        live = found & (token < q)
        key = tl.load(key_ptr + owner, mask=live, other=0)
        position = tl.where(live, key - q + token, 0)
        inside = row < rows
        tl.store(local_ptr + row, tl.where(live, aside + token, -1), mask=inside)
        tl.store(position_ptr + row, position, mask=inside)
        tl.store(row_seq_ptr + row, tl.where(live, owner, -1), mask=inside)
        tl.store(first_ptr + row, tl.load(valid_ptr + owner, mask=live, other=0), mask=inside)
        for i in range(RATIOS):
            ratio = tl.maximum(tl.load(ratio_ptr + i), 1)
            entries = tl.where(live, (position + 1) // ratio, 0)
            tl.store(visible_ptr + tl.full((), i, tl.int64) * rows + row, entries, mask=inside)


@jit
def replay_kernel(
    query_ptr, keep_ptr, contribution_ptr, inverse_ptr, sequences, own, kept, rows,
    RANKS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """BLOCK rows of the contribution; behind those, BLOCK rows of the new layout and where they come from."""
    blocks = (kept + BLOCK - 1) // BLOCK
    new = tl.program_id(0) >= blocks
    row = (tl.program_id(0) - tl.where(new, blocks, 0)) * BLOCK + tl.arange(0, BLOCK)
    owner = tl.full((BLOCK,), -1, tl.int32)
    begin = tl.zeros((BLOCK,), tl.int32)
    aside = tl.zeros((BLOCK,), tl.int32)
    before = tl.full((), 0, tl.int32)
    aside_before = tl.full((), 0, tl.int32)
    for first in range(0, sequences, BLOCK):
        s = first + tl.arange(0, BLOCK)
        q = tl.load(query_ptr + s, mask=s < sequences, other=0)
        keep = tl.load(keep_ptr + s, mask=s < sequences, other=0)
        count = tl.where(new, local_rows(keep, RANKS), kept_by(q, keep, own, RANKS))
        owner, begin, aside, before, aside_before = find_owner(
            row, s, count, local_rows(q, RANKS), owner, begin, aside, before, aside_before
        )
    found = owner >= 0
    q = tl.load(query_ptr + owner, mask=found, other=0)
    keep = tl.load(keep_ptr + owner, mask=found, other=0)
    piece = piece_of(q, RANKS)
    if new:
        token = token_of(row - begin, keep, own, RANKS)
        live = found & (token < keep)
        token += q - keep
        rank, late = home_of(token, q, RANKS)
        early, first_early = kept_of(q, keep, rank, RANKS)
        _, first_late = kept_of(q, keep, 2 * RANKS - 1 - rank, RANKS)
        place = tl.where(late, early + token - first_late, token - first_early)
        # What the token's rank contributes of the sequences before; ranks differ from row to row.
        for first in range(0, sequences, BLOCK):
            s = first + tl.arange(0, BLOCK)
            other = tl.load(query_ptr + s, mask=s < sequences, other=0)[None, :]
            some = tl.load(keep_ptr + s, mask=s < sequences, other=0)[None, :]
            count = kept_by(other, some, rank[:, None], RANKS)
            place += tl.sum(tl.where(s[None, :] < owner[:, None], count, 0), 1)
        tl.store(inverse_ptr + row, tl.where(live, rank * kept + place, -1), mask=row < rows)
    else:
        number = row - begin
        early, first_early = kept_of(q, keep, own, RANKS)
        _, first_late = kept_of(q, keep, 2 * RANKS - 1 - own, RANKS)
        is_early = number < early
        place = tl.where(
            is_early,
            first_early - own * piece + number,
            piece + first_late - (2 * RANKS - 1 - own) * piece + number - early,
        )
        tl.store(contribution_ptr + row, tl.where(found, aside + place, -1), mask=row < kept)
