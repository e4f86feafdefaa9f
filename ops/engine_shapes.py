"""Calls of any shape for the families step, moves, sampling_rows, exchange and mirror."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from .layer_samples import activations, ints, normal
from .layouts import LAYOUTS
from .mirror_samples import room
from .moe_samples import routes
from .move_samples import page_bytes, strided_bytes
from .shapes import Pick, Range, Spans, shape
from .step_samples import token_args

Rng = np.random.Generator
Args = tuple[Any, ...]
Pieces = Sequence[Sequence[int]]

SPANS = Spans(most=6, start=300, length=60)
PADDING = Range(0, 9)
F32, I64 = torch.float32, torch.int64


def _spread(rng: Rng, count: int, total: int) -> list[int]:
    """`count` numbers from 0 to `total`."""
    return [int(n) for n in rng.integers(0, total + 1, count)]


@shape("step_metadata", spans=SPANS, idle=Range(0, 3), padding=PADDING)
def step_metadata(rng: Rng, device: torch.device, *, spans: Pieces, idle: int, padding: int) -> Args:
    pairs = [(a, b) for a, b in spans] + [(int(n), int(n)) for n in rng.integers(0, 99, idle)]
    order = rng.permutation(len(pairs))
    starts, ends = ([pairs[i][side] for i in order] for side in (0, 1))
    query = [b - a for a, b in zip(starts, ends, strict=True)]
    valid = [int(rng.integers(0, a + 1)) for a in starts]
    return *(ints(x, device) for x in (query, ends, valid, [1, 2])), sum(query) + padding


@shape("step_tokens", spans=SPANS, n=Range(0, 7), size=Range(1, 5), padding=PADDING)
def step_tokens(rng: Rng, device: torch.device, *, spans: Pieces, n: int, size: int, padding: int) -> Args:
    return token_args(rng, device, [(a, b) for a, b in spans], n, size, padding, 100)


@shape("copy_slots", slots=Range(2, 300), width=Range(1, 300), pairs=Range(0, 150), clear=Pick((False, True)))
def copy_slots(rng: Rng, device: torch.device, *, slots: int, width: int, pairs: int, clear: bool) -> Args:
    count = min(pairs, slots // 2)
    order = rng.permutation(slots)
    source = rng.choice(order[count:], count) if count else order[:0]
    source = np.where(clear & (rng.random(count) < 0.3), -1, source)
    target = np.where(rng.random(count) < 0.1, -1, order[:count])
    return strided_bytes(rng, device, slots, width), ints(np.stack((source, target), axis=1), device)


@shape("ring_move", slots=Range(1, 60), long=Range(1, 20), short=Range(1, 20), width=Range(1, 60), items=Range(0, 60))
def ring_move(rng: Rng, device: torch.device, *, slots: int, long: int, short: int, width: int, items: int) -> Args:
    items = min(items, slots)
    end = rng.integers(0, 90, items)
    begin = np.maximum(0, end - rng.integers(0, min(long, short) + 1, items))
    rings = (strided_bytes(rng, device, slots, n, width) for n in (long, short))
    lists = (rng.integers(0, slots, items), rng.permutation(slots)[:items], begin, end)
    return *rings, *(ints(x, device) for x in lists)


@shape(
    "load_records",
    record=Pick(tuple(LAYOUTS)),
    pages=Range(1, 9),
    entries=Range(1, 70),
    groups=Range(1, 5),
    pieces=Range(0, 12),
)
def load_records(
    rng: Rng, device: torch.device, *, record: str, pages: int, entries: int, groups: int, pieces: int
) -> Args:
    channels, plan, rows = 32 * groups, np.zeros((pieces, 4), np.int64), 0
    for piece in plan:
        begin, end = sorted(_spread(rng, 2, entries))
        piece[:] = rng.integers(-1, pages), begin, end, rows
        rows += end - begin + int(rng.integers(0, 2))
    view = strided_bytes(rng, device, pages, entries * LAYOUTS[record].record_bytes(channels))
    view.copy_(torch.from_numpy(page_bytes(rng, LAYOUTS[record], pages, entries, channels)))
    return view, ints(plan, device), rows, entries, channels, record


@shape("expand_params", rows=Range(0, 300), requests=Range(1, 60))
def expand_params(rng: Rng, device: torch.device, *, rows: int, requests: int) -> Args:
    parameters = [ints(rng.integers(0, 99, requests), device, dtype) for dtype in (torch.int32, I64, I64, I64, I64)]
    owner, offset = ints(rng.integers(-1, requests, rows), device), ints(rng.integers(0, 9, rows), device)
    return owner, offset, normal(rng, device, requests, dtype=F32).abs(), *parameters


@shape("mask_rows", requests=Range(1, 40), most=Range(0, 7), width=Range(1, 300), masks=Range(0, 90))
def mask_rows(rng: Rng, device: torch.device, *, requests: int, most: int, width: int, masks: int) -> Args:
    first = np.concatenate(([0], np.cumsum(rng.integers(0, most + 1, requests))))
    logits = normal(rng, device, int(first[-1]), width, dtype=F32)
    words = ints(rng.integers(-(2**31), 2**31, (masks, -(-width // 32))), device)
    lists = (rng.integers(-1, requests, masks), rng.integers(-1, most + 2, masks), first)
    return logits, words, *(ints(x, device) for x in lists)


@shape("lookup_candidates", rows=Range(0, 60), k=Range(0, 150), wanted=Range(0, 150), others=Range(1, 200))
def lookup_candidates(rng: Rng, device: torch.device, *, rows: int, k: int, wanted: int, others: int) -> Args:
    ids = np.array([rng.permutation(k + others)[:k] for _ in range(rows)], np.int64).reshape(rows, k)
    ids[rng.random((rows, k)) < 0.1] = -1
    asked = ints(rng.integers(-1, k + others, (rows, wanted)), device)
    return ints(ids, device), normal(rng, device, rows, k, dtype=F32), asked


@shape(
    "moe_dispatch",
    rows=Range(0, 300),
    k=Range(1, 6),
    ranks=Range(1, 6),
    per_rank=Range(1, 8),
    groups=Range(1, 3),
    replicas=Range(0, 3),
    short=Pick((False, True)),
)
def moe_dispatch(
    rng: Rng, device: torch.device, *, rows: int, k: int, ranks: int, per_rank: int, groups: int, replicas: int,
    short: bool,
) -> Args:  # fmt: skip
    experts = max(k, ranks * per_rank)
    chosen = ints(routes(rng, rows, k, experts), device)
    chosen[torch.from_numpy(rng.random((rows, k)) < 0.1).to(device)] = -1
    table = None
    if replicas:
        lists = np.sort(rng.integers(-1, ranks * per_rank, (experts, replicas)), axis=1)[:, ::-1].copy()
        table = ints(lists, device)
    capacity, returns = (rows // 2, rows * k // 3) if short else (rows, rows * min(k, per_rank))
    if replicas:
        returns = rows * k  # two slots of a token may meet in one expert
    scalars = (ranks, per_rank, int(rng.integers(0, ranks)), capacity, returns)
    return (
        *activations(rng, device, rows, 32 * groups),
        chosen,
        normal(rng, device, rows, k, dtype=F32),
        table,
        *scalars,
    )


@shape("moe_return", capacity=Range(0, 70), k=Range(1, 6), ranks=Range(1, 6), width=Range(1, 100), room=Range(0, 150))
def moe_return(rng: Rng, device: torch.device, *, capacity: int, k: int, ranks: int, width: int, room: int) -> Args:
    local = rng.random((ranks * capacity, k)) < 0.5
    position = np.full(local.shape, -1)
    position[local] = rng.permutation(int(local.sum()))
    return normal(rng, device, int(local.sum()), width), ints(position, device), ranks, room


@shape("mirror_rows", spans=Spans(most=6, start=300, length=90), ranks=Range(1, 6), padding=PADDING)
def mirror_rows(rng: Rng, device: torch.device, *, spans: Pieces, ranks: int, padding: int) -> Args:
    query, key = [b - a for a, b in spans], [b for _, b in spans]
    valid = [int(rng.integers(0, a + 1)) for a, _ in spans]
    scalars = (ranks, int(rng.integers(0, ranks)), room(query, ranks) + padding, sum(query) + padding)
    return *(ints(x, device) for x in (query, key, valid, [1, 2])), *scalars


@shape("replay_rows", spans=Spans(most=6, start=0, length=90), ranks=Range(1, 6), padding=PADDING)
def replay_rows(rng: Rng, device: torch.device, *, spans: Pieces, ranks: int, padding: int) -> Args:
    query = [b - a for a, b in spans]
    keep = [int(rng.integers(0, q + 1)) for q in query]
    scalars = (ranks, int(rng.integers(0, ranks)), sum(keep) + padding, room(keep, ranks) + padding)
    return ints(query, device), ints(keep, device), *scalars
