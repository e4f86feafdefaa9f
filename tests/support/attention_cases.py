"""Sparse attention at real widths: random calls with poison in everything unread, and a float64 oracle."""

from __future__ import annotations

import torch
from torch import Tensor

from deepinfer.backends.reference.attention import dequantize_records, selected_records, window_records
from deepinfer.ops.layouts import LAYOUTS, entries_per_page

D = 512
POISON = 0xFF  # a NaN as an e4m3 code, as an e4m3 scale and as an e8m0 scale


def records(generator: torch.Generator, shape: tuple[int, ...], record: str, device: str) -> Tensor:
    """Random records: finite codes, scales that keep values near 1."""
    layout = LAYOUTS[record]
    codes = torch.randint(0, 256, (*shape, layout.data_bytes(D)), generator=generator, device=device, dtype=torch.uint8)
    if layout.bits == 8:
        codes = torch.where((codes & 127) > 0x5F, codes & 0xBF, codes)  # |code| up to 2^5
        low, high = 119, 126
    else:
        low, high = 0x10, 0x30
    size = (*shape, layout.scale_bytes(D))
    scales = torch.randint(low, high, size, generator=generator, device=device, dtype=torch.uint8)
    return torch.cat([codes, scales], -1)


def make(
    sequences: int,
    rows_each: int,
    *,
    window: int = 128,
    selected: int = 512,
    context: int = 4096,
    ratio: int = 1,
    record: str = "fp4_16",
    heads: int = 64,
    seed: int = 0,
    device: str = "cuda",
    short: bool = False,
    padding: int = 0,
    poison: bool = True,
    page_stride: int | None = None,
) -> list[object]:
    """Arguments of one call, in spec order.

    Args:
        short: let sequences have any length down to one, so that windows and selections have holes.
        poison: fill what no row asks for with NaN codes.
        padding: rows without a sequence at the end.
    """
    g = torch.Generator(device=device).manual_seed(seed)

    def integers(low: int, high: int, *shape: int) -> Tensor:
        return torch.randint(low, max(high, low + 1), shape, generator=g, device=device, dtype=torch.int32)

    rows = sequences * rows_each
    total = rows + padding
    length = integers(1, context, sequences) if short else torch.full((sequences,), context, device=device).int()
    start = (length - rows_each).clamp(min=0)
    ring_slots = window + 6
    entries = entries_per_page(ratio)
    pages_each = -(-(context + rows_each) // (entries * ratio)) + 1
    row_seq = torch.arange(sequences, device=device, dtype=torch.int32).repeat_interleave(rows_each)
    last = start.repeat_interleave(rows_each) + torch.arange(rows_each, device=device, dtype=torch.int32).repeat(
        sequences
    )
    pad = torch.full((padding,), -1, device=device, dtype=torch.int32)
    fresh = records(g, (total,), "fp8_32", device)
    fresh[rows:] = POISON
    state = torch.randperm(sequences + 2, generator=g, device=device)[:sequences].int()
    ring = torch.full((sequences + 2, ring_slots, 528), POISON, device=device, dtype=torch.uint8)
    filled = records(g, (sequences, ring_slots), "fp8_32", device)
    slot = torch.arange(ring_slots, device=device)
    age = (start[:, None].long() - 1 - slot) % ring_slots  # of the newest position of that slot
    visible = (age < window) & (age < start[:, None])
    ring[state.long()] = torch.where(visible[..., None], filled, POISON).to(torch.uint8) if poison else filled
    args: list[object] = [
        torch.randn((total, heads, D), generator=g, device=device).to(torch.bfloat16),
        fresh,
        ring,
        torch.randn(heads, generator=g, device=device),
        torch.zeros(total, device=device, dtype=torch.int32),
        torch.cat([last, torch.zeros_like(pad)]),
        torch.cat([row_seq, pad]),
        start,
        torch.arange(sequences, device=device, dtype=torch.int32) * rows_each,
        state,
    ]
    if not selected:
        return [*args, None, None, None, window, 0, D**-0.5, record]
    layout = LAYOUTS[record]
    section = layout.page_bytes(D, ratio)
    count = sequences * pages_each
    stride = page_stride or section + 512
    whole = torch.full((count + 1, stride), POISON, device=device, dtype=torch.uint8)
    pages = whole[:, 256 : 256 + section]
    pages[:count] = records(g, (count, entries), record, device).flatten(1)
    table = torch.randperm(count, generator=g, device=device).int().view(sequences, pages_each)
    visible_entries = ((last + 1) // ratio).long()
    score = torch.rand((rows, context // ratio + rows_each), generator=g, device=device)
    there = torch.arange(score.shape[1], device=device) < visible_entries[:, None]
    best = torch.where(there, score, -1.0).topk(min(selected, score.shape[1]), dim=1)
    chosen = torch.where(best.values >= 0, best.indices, 1 << 30).sort(1).values
    chosen = torch.where(chosen == 1 << 30, -1, chosen).int()
    indices = torch.full((total, selected), -1, device=device, dtype=torch.int32)
    indices[:rows, : chosen.shape[1]] = chosen
    return [*args, pages, table, indices, window, ratio, D**-0.5, record]


def oracle(args: list[object]) -> Tensor:
    """float64 [T, h, d] of the same call."""
    q, fresh, ring, sink, first, last, row_seq, start, begin, state, pages, table, indices = args[:13]
    window, ratio, scale, record = args[13:]
    out = torch.zeros(q.shape, dtype=torch.float64, device=q.device)
    for i in range(q.shape[0]):
        part = slice(i, i + 1)
        live = row_seq[part] >= 0
        sequence = row_seq[part].clamp(min=0).long()
        found, there = window_records(
            fresh, ring, first[part].long(), last[part].long(), live, sequence, start, begin, state, window
        )
        keys, present = [dequantize_records(found, "fp8_32", D)], [there]
        if pages is not None:
            found, there = selected_records(pages, table, indices[part].long(), live, sequence, ratio)
            keys.append(dequantize_records(found, record, D))
            present.append(there)
        key = torch.cat(keys, 1)[0].double()
        key = key[torch.cat(present, 1)[0]]
        if not key.shape[0]:
            continue
        score = q[i].double() @ key.T * scale
        top = score.amax(-1, keepdim=True)
        weight = torch.exp(score - top)
        out[i] = weight @ key / (weight.sum(-1, keepdim=True) + torch.exp(sink.double()[:, None] - top))
    return out
