"""Definitions of the exact ops that make a step's rows: metadata, tokens, layouts over ranks, sampling parameters."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from .expected import Bits, bits

Place = tuple[int, int]
"""Sequence and token."""


def _i32(values: Sequence[object], *shape: int) -> Bits:
    return Bits(torch.tensor(values, dtype=torch.int32).reshape(shape or (len(values),)))


def complete(position: int, ratio: int) -> int:
    """Entries that a row sees: entry e is complete at position (e + 1) * ratio - 1."""
    return position // ratio + ((position // ratio + 1) * ratio - 1 <= position)


@bits("step_metadata")
def step_metadata(query: Tensor, key: Tensor, valid: Tensor, ratios: Tensor, rows: int) -> Sequence[Bits]:
    starts = (key - query).tolist()
    places = [(s, n) for s, q in enumerate(query.tolist()) for n in range(q)]
    begin = [sum(query.tolist()[:s]) for s in range(len(starts))]
    positions, row_seq, first, visible = _of_rows(places, starts, valid, ratios, rows)
    return positions, row_seq, first, _i32(starts), Bits(key.clone()), _i32(begin), visible


def _of_rows(
    places: Sequence[Place | None], starts: Sequence[int], valid: Tensor, ratios: Tensor, rows: int
) -> tuple[Bits, Bits, Bits, Bits]:
    """Position, sequence, first key and visible entries of rows; padding up to `rows`."""
    found = [*places, *[None] * (rows - len(places))]
    position = [0 if x is None else starts[x[0]] + x[1] for x in found]
    seen = [[0 if x is None else complete(p, r) for x, p in zip(found, position, strict=True)] for r in ratios.tolist()]
    owner = [-1 if x is None else x[0] for x in found]
    return (
        _i32(position),
        _i32(owner),
        _i32([0 if s < 0 else int(valid[s]) for s in owner]),
        _i32(seen, len(seen), rows),
    )


@bits("step_tokens")
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
) -> Sequence[Bits]:
    def token(s: int, p: int) -> int:
        start, place = int(seq_start[s]), int(slot[s])
        if p < 0:
            return -1
        if p < start:
            kept = history[s].tolist()[int(skip[s]) :]
            return int(kept[start - p - 1]) if start - p - 1 < len(kept) else -1
        if place < 0:
            return int(fresh[int(fresh_begin[s]) + p - start])
        return int(last_token[place]) if p == start else int(drafts[place, p - start - 1])

    rows = zip(positions.tolist(), row_seq.tolist(), strict=True)
    grams = [[-1 if s < 0 else token(s, p - r) for r in range(size)] for p, s in rows]
    tokens = [gram[0] for gram in grams]
    image = torch.tensor([t >= vocab for t in tokens], dtype=torch.bool)
    return _i32(tokens), _i32(grams, len(grams), size), Bits(image)


def layout(lengths: Sequence[int], ranks: int, own: int) -> list[Place | None]:
    """What every local row of a rank stands for, None for padding: lists of tokens, cut into pieces."""
    rows: list[Place | None] = []
    for s, q in enumerate(lengths):
        tokens: list[Place | None] = [(s, n) for n in range(q)]
        if ranks > 1:
            size = -(-q // (2 * ranks))
            tokens += [None] * (2 * ranks * size - q)
            pieces = [tokens[i * size : (i + 1) * size] for i in range(2 * ranks)]
            tokens = pieces[own] + pieces[2 * ranks - 1 - own]
        rows += tokens
    return rows


@bits("mirror_rows")
def mirror_rows(
    query: Tensor, key: Tensor, valid: Tensor, ratios: Tensor, ranks: int, own: int, rows: int, total: int
) -> Sequence[Bits]:
    lengths = query.tolist()
    packed = [(s, n) for s, q in enumerate(lengths) for n in range(q)]
    number = {x: i for i, x in enumerate(packed)}
    mine = layout(lengths, ranks, own)
    local = [-1 if x is None else number[x] for x in mine] + [-1] * (rows - len(mine))
    place = {x: r * rows + i for r in range(ranks) for i, x in enumerate(layout(lengths, ranks, r)) if x}
    inverse = [place[x] for x in packed] + [-1] * (total - len(packed))
    return _i32(local), _i32(inverse), *_of_rows(mine, (key - query).tolist(), valid, ratios, rows)


@bits("replay_rows")
def replay_rows(query: Tensor, keep: Tensor, ranks: int, own: int, kept: int, rows: int) -> Sequence[Bits]:
    lengths, keeps = query.tolist(), keep.tolist()

    def going(rank: int) -> list[tuple[int, Place]]:
        """Local rows that go on, and what they are of what goes on."""
        dropped = [q - k for q, k in zip(lengths, keeps, strict=True)]
        found = enumerate(layout(lengths, ranks, rank))
        return [(i, (x[0], x[1] - dropped[x[0]])) for i, x in found if x is not None and x[1] >= dropped[x[0]]]

    mine = [i for i, _ in going(own)]
    place = {x: rank * kept + n for rank in range(ranks) for n, (_, x) in enumerate(going(rank))}
    inverse = [-1 if x is None else place[x] for x in layout(keeps, ranks, own)]
    return _i32(mine + [-1] * (kept - len(mine))), _i32(inverse + [-1] * (rows - len(inverse)))


@bits("expand_params")
def expand_params(request: Tensor, offset: Tensor, *columns: Tensor) -> Sequence[Bits]:
    padding = (np.inf, 0, 1 << 31, 0, 0, 0)
    made = [torch.full(request.shape, value, dtype=c.dtype) for c, value in zip(columns, padding, strict=True)]
    for l, (r, j) in enumerate(zip(request.tolist(), offset.tolist(), strict=True)):
        for column, out in zip(columns, made, strict=True):
            if r >= 0:
                out[l] = column[r]
        if r >= 0:
            made[-1][l] += j
    return [Bits(x) for x in made]


@bits("mask_rows")
def mask_rows(logits: Tensor, words: Tensor, request: Tensor, offset: Tensor, first_row: Tensor) -> Sequence[Bits]:
    after, first = logits.clone(), first_row.tolist()
    for g, (r, j) in enumerate(zip(request.tolist(), offset.tolist(), strict=True)):
        if r >= 0 and 0 <= j < first[r + 1] - first[r]:
            bit = np.unpackbits(words[g].numpy().astype("<i4").view(np.uint8), bitorder="little")
            after[first[r] + j, torch.from_numpy(bit[: logits.shape[1]] == 0)] = -torch.inf
    return (Bits(after),)


@bits("lookup_candidates")
def lookup_candidates(ids: Tensor, values: Tensor, wanted: Tensor) -> Sequence[Bits]:
    found = torch.full(wanted.shape, -torch.inf, dtype=values.dtype)
    for l, row in enumerate(ids.tolist()):
        place = {i: n for n, i in enumerate(row) if i >= 0}
        for j, w in enumerate(wanted[l].tolist()):
            if w in place:
                found[l, j] = values[l, place[w]]
    return (Bits(found),)
