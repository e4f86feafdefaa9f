"""Row metadata and tokens of a step."""

from __future__ import annotations

import torch
from torch import Tensor

from ...hal.registry import kernel
from ...ops.spec import SPECS
from .common import check_index, finish


@kernel("step_metadata", version=0, backend="reference")
def step_metadata(
    query_len: Tensor, key_len: Tensor, valid_start: Tensor, ratios: Tensor, rows: int, out: tuple[Tensor, ...] | None
) -> tuple[Tensor, ...]:
    check_lengths("step_metadata", query_len, key_len, rows)
    if ratios.numel() and int(ratios.min()) < 1:
        raise SPECS["step_metadata"].error(f"ratios hold {int(ratios.min())}, must be at least 1")
    count, device = query_len.long(), query_len.device
    begin = count.cumsum(0) - count
    start = key_len - query_len
    row_seq = torch.full((rows,), -1, dtype=torch.int32, device=device)
    positions = torch.zeros((rows,), dtype=torch.int32, device=device)
    sequence = torch.repeat_interleave(torch.arange(len(count), device=device), count)
    row = torch.arange(len(sequence), device=device)
    row_seq[row] = sequence.to(torch.int32)
    first_key = torch.zeros_like(positions)
    first_key[row] = valid_start[sequence]
    positions[row] = (start.long()[sequence] + row - begin[sequence]).to(torch.int32)
    entries = (positions.long() + 1) // ratios.unsqueeze(1)
    visible = torch.where(row_seq >= 0, entries, 0).to(torch.int32)
    return finish((positions, row_seq, first_key, start, key_len.clone(), begin.to(torch.int32), visible), out)


def check_lengths(op: str, query_len: Tensor, key_len: Tensor, rows: int) -> None:
    """Refuse lengths that are negative, rows beyond a sequence, and more rows than the step holds."""
    check_index(op, "query_len", query_len, rows + 1)
    if bool((key_len < query_len).any()):
        raise SPECS[op].error("key_len is smaller than query_len; a sequence's rows are its last positions")
    if (total := int(query_len.sum())) > rows:
        raise SPECS[op].error(f"query_len sums to {total}, must be at most the {rows} rows")


@kernel("step_tokens", version=0, backend="reference")
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
    op, rows, device = "step_tokens", positions.shape[0], positions.device
    ngrams = torch.full((rows, size), -1, dtype=torch.int32, device=device)
    live = torch.nonzero(row_seq >= 0).squeeze(1)
    sequence = check_index(op, "row_seq", row_seq[live], seq_start.shape[0])
    start = seq_start.long()[sequence].unsqueeze(1)
    place = positions.long()[live].unsqueeze(1) - torch.arange(size, device=device)
    owner = sequence.unsqueeze(1).expand_as(place)
    on_device = slot[owner] >= 0
    in_step, before = place >= start, (place >= 0) & (place < start)
    offset = place - start

    def put(where: Tensor, source: Tensor, *index: tuple[str, Tensor]) -> None:
        bounds = [check_index(op, name, at[where], n) for (name, at), n in zip(index, source.shape, strict=True)]
        row, column = torch.nonzero(where, as_tuple=True)
        ngrams[live[row], column] = source[tuple(bounds)]

    put(in_step & ~on_device, fresh, ("fresh_begin + row", fresh_begin.long()[owner] + offset))
    put(on_device & (offset == 0), last_token, ("slot", slot[owner]))
    put(on_device & (offset > 0), drafts, ("slot", slot[owner]), ("row of a sequence, in drafts,", offset - 1))
    if skip.numel():
        check_index(op, "skip", skip, 2**31)
    past = skip.long()[owner] - offset - 1
    put(before & (past < history.shape[1]), history, ("row_seq", owner), ("skip + distance", past))
    tokens = ngrams[:, 0].clone()
    return finish((tokens, ngrams, tokens >= vocab), out)
