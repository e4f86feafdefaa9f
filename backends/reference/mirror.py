"""Rows of a rank in the mirror layout, and rows that go on behind a truncation."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ...hal.registry import kernel
from ...ops.spec import SPECS
from .common import check_index, finish
from .step import check_lengths

MOST_ROWS = 1 << 24
"""Rows of a step: as the specification says. Every row is laid out here, also those that do not go on."""


class Layout(NamedTuple):
    """Local rows of one rank, int64: sequence, token, and whether the row stands for one."""

    sequence: Tensor
    token: Tensor
    live: Tensor

    @classmethod
    def of(cls, lengths: Tensor, ranks: int, own: int) -> Layout:
        """The layout of sequences of the given lengths, int64 [S]."""
        piece = (lengths + 2 * ranks - 1) // (2 * ranks)
        count = lengths if ranks == 1 else 2 * piece
        sequence = torch.repeat_interleave(torch.arange(len(count), device=count.device), count)
        place = torch.arange(len(sequence), device=count.device) - (count.cumsum(0) - count)[sequence]
        if ranks == 1:
            return cls(sequence, place, torch.ones_like(place, dtype=torch.bool))
        ps = piece[sequence]
        token = torch.where(place < ps, own * ps + place, (2 * ranks - 1 - own) * ps + place - ps)
        return cls(sequence, token, token < lengths[sequence])


def _padded(op: str, name: str, values: Tensor, size: int) -> Tensor:
    """int32 [size]: the values, then -1."""
    if len(values) > size:
        raise SPECS[op].error(f"{name} is {size}, must be at least the {len(values)} that the lengths give")
    whole = torch.full((size,), -1, dtype=torch.int32, device=values.device)
    whole[: len(values)] = values.to(torch.int32)
    return whole


@kernel("mirror_rows", version=0, backend="reference")
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
    op, count = "mirror_rows", query_len.long()
    check_lengths(op, query_len, key_len, total)
    begin = count.cumsum(0) - count
    inverse = torch.full((total,), -1, dtype=torch.int32, device=count.device)
    for rank in range(ranks):
        sequence, token, live = Layout.of(count, ranks, rank)
        place = rank * rows + torch.arange(len(token), device=count.device)
        inverse[(begin[sequence] + token)[live]] = place[live].to(torch.int32)
    sequence, token, live = Layout.of(count, ranks, own)
    local = _padded(op, "rows", torch.where(live, begin[sequence] + token, -1), rows)
    row_seq = _padded(op, "rows", torch.where(live, sequence, -1), rows)
    owner, there = row_seq.clamp(min=0).long(), row_seq >= 0
    positions, first_key = torch.zeros((2, rows), dtype=torch.int32, device=count.device)
    if len(count):
        first = key_len.long() - count - begin
        positions = torch.where(there, first[owner] + local, 0).to(torch.int32)
        first_key = torch.where(there, valid_start[owner], 0)
    visible = torch.where(there, (positions.long() + 1) // ratios.unsqueeze(1), 0).to(torch.int32)
    return finish((local, inverse, positions, row_seq, first_key, visible), out)


@kernel("replay_rows", version=0, backend="reference")
def replay_rows(
    query_len: Tensor, keep_len: Tensor, ranks: int, own: int, kept: int, rows: int, out: tuple[Tensor, Tensor] | None
) -> tuple[Tensor, Tensor]:
    op, count, keep = "replay_rows", query_len.long(), keep_len.long()
    check_index(op, "query_len", query_len, MOST_ROWS + 1)
    check_index(op, "sum of query_len", count.sum(), MOST_ROWS + 1)
    check_index(op, "keep_len", keep_len, MOST_ROWS + 1)
    if bool((keep > count).any()):
        raise SPECS[op].error("keep_len is larger than query_len; a sequence keeps rows that it has")
    begin = count.cumsum(0) - count
    found = torch.full((int(count.sum()),), -1, dtype=torch.long, device=count.device)
    contribution = found.new_zeros(0)
    for rank in range(ranks):
        sequence, token, live = Layout.of(count, ranks, rank)
        goes_on = torch.nonzero(live & (token >= (count - keep)[sequence])).squeeze(1)
        found[(begin[sequence] + token)[goes_on]] = rank * kept + torch.arange(len(goes_on), device=count.device)
        padded = _padded(op, "kept", goes_on, kept)  # every rank's has to fit, for all know where theirs lie
        contribution = padded if rank == own else contribution
    sequence, token, live = Layout.of(keep, ranks, own)
    place = (begin + count - keep)[sequence] + token
    inverse = torch.full_like(token, -1)
    inverse[live] = found[place[live]]
    return finish((contribution, _padded(op, "rows", inverse, rows)), out)
