"""Definitions of the exact ops that move bytes: slots, windows, records, rows between ranks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ...ops.layouts import LAYOUTS
from .expected import Bits, bits
from .formats import Bytes, Floats, decode


@bits("copy_slots")
def copy_slots(pool: Tensor, pairs: Tensor) -> Sequence[Bits]:
    after = pool.clone()
    for source, target in pairs.tolist():
        if target != -1:
            after[target] = 0 if source == -1 else pool[source]
    return (Bits(after),)


@bits("ring_move")
def ring_move(
    source: Tensor, target: Tensor, source_slot: Tensor, target_slot: Tensor, begin: Tensor, end: Tensor
) -> Sequence[Bits]:
    after, lists = target.clone(), (x.tolist() for x in (source_slot, target_slot, begin, end))
    for a, z, first, last in zip(*lists, strict=True):
        for p in range(first, last) if z != -1 else ():
            after[z, p % after.shape[1]] = source[a, p % source.shape[1]]
    return (Bits(after),)


def record(page: Bytes, slot: int, entries: int, channels: int, name: str) -> Bytes:
    """Bytes of one record, data then scales, in a page of `entries` slots."""
    layout = LAYOUTS[name]
    data, scale = layout.data_bytes(channels), layout.scale_bytes(channels)
    first = slot * (data + scale) if layout.interleaved else slot * data
    second = first + data if layout.interleaved else entries * data + slot * scale
    return np.concatenate((page[first : first + data], page[second : second + scale]))


def values(record: Bytes, name: str) -> Floats:
    """Channels of one record; power-of-two scales have a NaN."""
    layout = LAYOUTS[name]
    found: Floats = decode(record[None], name)[0]
    if layout.scale == "e8m0":
        found[np.repeat(record[-layout.scale_bytes(len(found)) :] == 255, layout.group)] = np.nan
    return found


@bits("load_records")
def load_records(pages: Tensor, plan: Tensor, rows: int, entries: int, channels: int, name: str) -> Sequence[Bits]:
    keys = np.zeros((rows, channels))
    for page, begin, end, first in plan.tolist():
        for i, slot in enumerate(range(begin, end) if page != -1 else ()):
            keys[first + i] = values(record(pages[page].numpy(), slot, entries, channels, name), name)
    return (Bits(torch.from_numpy(keys).float().bfloat16()),)  # fp32 is exact, or infinite


def physical(expert: int, token: int, table: Tensor | None, own: int) -> int:
    """The physical expert that a slot of a token goes to; -1 for none."""
    if table is None:
        return expert
    if not 0 <= expert < len(table):
        return -1
    row: list[int] = table[expert].tolist()
    replicas = row[: row.index(-1)] if -1 in row else row
    return replicas[(own + token) % len(replicas)] if replicas else -1


@bits("moe_dispatch")
def moe_dispatch(
    xq: Tensor,
    xs: Tensor,
    experts: Tensor,
    weights: Tensor,
    table: Tensor | None,
    ranks: int,
    per_rank: int,
    own: int,
    capacity: int,
    returns: int,
) -> Sequence[Bits]:
    slots = experts.shape[1]
    codes = torch.zeros((ranks, capacity, xq.shape[1]), dtype=torch.uint8)
    scales = torch.zeros((ranks, capacity, xs.shape[1]), dtype=torch.uint8)
    send = torch.full((ranks, capacity, slots), -1, dtype=torch.int32)
    send_weights = torch.zeros((ranks, capacity, slots))
    counts = torch.zeros((ranks, 2), dtype=torch.int32)
    position = torch.full(experts.shape, -1, dtype=torch.int32)
    load = torch.zeros(ranks * per_rank, dtype=torch.int32)
    sent = torch.zeros((ranks, capacity, 1), dtype=torch.bool)
    for t, row in enumerate(experts.tolist()):
        ids = [physical(e, t, table, own) for e in row]
        for r in range(ranks):
            mine = [j for j, e in enumerate(ids) if r * per_rank <= e < (r + 1) * per_rank]
            place, fits = int(counts[r, 0]), bool(mine) and int(counts[r, 0]) < capacity
            if fits:
                sent[r, place], codes[r, place], scales[r, place] = True, xq[t].view(torch.uint8), xs[t]
            for j in mine:
                if fits:
                    send[r, place, j], send_weights[r, place, j] = ids[j] - r * per_rank, weights[t, j]
                if fits and counts[r, 1] < returns:
                    position[t, j] = r * returns + int(counts[r, 1])
                counts[r, 1] += 1
                load[ids[j]] += 1
            counts[r, 0] += bool(mine)
    rows = (Bits(codes.view(xq.dtype), sent), Bits(scales, sent))
    return *rows, *map(Bits, (send, send_weights, counts, position, load))


@bits("moe_return")
def moe_return(y: Tensor, position: Tensor, ranks: int, returns: int) -> Sequence[Bits]:
    back = torch.zeros((ranks, returns, y.shape[1]), dtype=y.dtype)
    used = torch.zeros((ranks, returns, 1), dtype=torch.bool)
    for r, part in enumerate(position.reshape(ranks, -1).tolist()):
        wanted = [entry for entry in part if entry >= 0][:returns]
        back[r, : len(wanted)], used[r, : len(wanted)] = y[wanted], True
    return (Bits(back, used),)
