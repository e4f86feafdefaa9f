"""Attention over window keys and selected compressed entries, with a sink.

The order of every sum is fixed by a row's own keys (see `ops/attention.py`): keys sit in fixed slots, slots form tiles
of 64, and a row gives the same bits alone, in any batch and at any chunk border. Two passes: all scores and their exact
maximum first, then exponentials and products tile by tile.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...hal.registry import kernel
from ...ops.attention import KEY_TILE
from ...ops.layouts import FP4_16, FP8_32, entries_per_page
from .common import check_index, finish, tree_sum, widths
from .formats import dequantize_fp4_e4m3, dequantize_fp8
from .tiles import pad_rows

OP = "sparse_attention"
CHUNK_ELEMENTS = 16 << 20
"""Key channels expanded to fp32 at once: bounds scratch memory, changes no bit."""


@kernel("sparse_attention", version=1, backend="reference", supports=widths(d=32))
def sparse_attention(
    q: Tensor,
    fresh: Tensor,
    ring: Tensor,
    sink: Tensor,
    first_key: Tensor,
    last_key: Tensor,
    row_seq: Tensor,
    seq_start: Tensor,
    row_begin: Tensor,
    state_slot: Tensor,
    pages: Tensor | None,
    block_table: Tensor | None,
    indices: Tensor | None,
    window: int,
    ratio: int,
    scale: float,
    record: str,
    out: Tensor | None,
) -> Tensor:
    result = torch.zeros_like(q)
    rows, _, d = q.shape
    if seq_start.numel() == 0:
        return finish(result, out)
    selected = 0 if indices is None else indices.shape[1]
    slots = _tiled(window) + _tiled(selected)
    step = max(1, CHUNK_ELEMENTS // (slots * d))
    for first in range(0, rows, step):
        part = slice(first, min(first + step, rows))
        live = row_seq[part] >= 0
        sequence = check_index(OP, "row_seq", row_seq[part].clamp(min=0), seq_start.shape[0])
        count = live.shape[0]
        keys = torch.zeros((count, slots, d), device=q.device)
        present = torch.zeros((count, slots), dtype=torch.bool, device=q.device)
        records, there = window_records(
            fresh,
            ring,
            first_key[part].long(),
            last_key[part].long(),
            live,
            sequence,
            seq_start,
            row_begin,
            state_slot,
            window,
        )
        keys[:, :window], present[:, :window] = dequantize_records(records, FP8_32.name, d), there
        if indices is not None and selected:
            assert pages is not None and block_table is not None
            records, there = selected_records(pages, block_table, indices[part].long(), live, sequence, ratio)
            place = slice(_tiled(window), _tiled(window) + selected)
            keys[:, place], present[:, place] = dequantize_records(records, record, d), there
        result[part] = attend(q[part], keys, present, sink, scale)
    return finish(result, out)


def attend(q: Tensor, keys: Tensor, present: Tensor, sink: Tensor, scale: float) -> Tensor:
    """The softmax and its sums over slots already gathered.

    Args:
        q: bf16 [n, h, d]. keys: fp32 [n, slots, d], slots a multiple of 64. present: bool [n, slots].
        sink: fp32 [h]. scale: factor of q.k.

    Returns:
        bf16 [n, h, d]; zeros for rows without a present slot.
    """
    heads = q.shape[1]
    tiles = keys.split(KEY_TILE, dim=1)
    # Heads are padded to 16 so that a library picks one kernel whatever their number: shards of heads agree too.
    padded = pad_rows(q)
    score = torch.cat([_by_row(padded, tile.transpose(1, 2)) for tile in tiles], dim=2)[:, :heads] * scale
    score = torch.where(present.unsqueeze(1), score, -torch.inf)
    top = score.amax(-1, keepdim=True)
    weight = torch.exp(score - top)
    tile_sums = tree_sum(weight.unflatten(2, (-1, KEY_TILE)))
    rounded = pad_rows(weight.to(torch.bfloat16))
    total = torch.zeros_like(top)
    value = torch.zeros_like(padded)
    for i, tile in enumerate(tiles):
        total = total + tile_sums[:, :, i]
        value = value + _by_row(rounded[:, :, i * KEY_TILE : (i + 1) * KEY_TILE], tile)
    value = value[:, :heads] / (total + torch.exp(sink.unsqueeze(1) - top))
    return torch.where(present.any(1)[:, None, None], value, 0.0).to(torch.bfloat16)


def _by_row(a: Tensor, b: Tensor) -> Tensor:
    """fp32 [n, M, N] of [n, M, K] and [n, K, N], one product of one shape per row of the batch.

    A GPU's library picks its batched kernel by the number of products too: seen on an H200, where a row alone and the
    same row among four differed in the last bit.
    """
    out = a.new_empty((a.shape[0], a.shape[1], b.shape[2]))
    for x, y, z in zip(a, b, out, strict=True):
        torch.mm(x, y, out=z)
    return out


def window_records(
    fresh: Tensor,
    ring: Tensor,
    first_key: Tensor,
    last_key: Tensor,
    live: Tensor,
    sequence: Tensor,
    seq_start: Tensor,
    row_begin: Tensor,
    state_slot: Tensor,
    window: int,
) -> tuple[Tensor, Tensor]:
    """Records [n, window, bytes] of positions last_key-window+1 .. last_key of each row, oldest first, and which exist.

    Those before first_key do not. Positions of this step come from `fresh`, older ones from the ring. Slots that do
    not exist hold zeros: nothing that was not asked for can reach a sum.
    """
    key = last_key.unsqueeze(1) + torch.arange(1 - window, 1, device=last_key.device)
    present = (key >= first_key.clamp(min=0).unsqueeze(1)) & live.unsqueeze(1)
    since_start = key - seq_start[sequence].unsqueeze(1)
    in_step = present & (since_start >= 0)
    in_ring = present & (since_start < 0)
    row = torch.where(in_step, row_begin[sequence].unsqueeze(1) + since_start, 0)
    check_index(OP, "row_begin + position - seq_start", row, max(1, fresh.shape[0]))
    state = torch.where(live, state_slot[sequence], 0)
    check_index(OP, "state_slot", state, ring.shape[0])
    slot = torch.where(in_ring, key % ring.shape[1], 0)
    records = torch.where(in_step.unsqueeze(2), fresh[row], ring[state.long().unsqueeze(1), slot])
    return torch.where(present.unsqueeze(2), records, 0), present


def selected_records(
    pages: Tensor, block_table: Tensor, indices: Tensor, live: Tensor, sequence: Tensor, ratio: int
) -> tuple[Tensor, Tensor]:
    """Records [n, K, bytes] of the selected entries through the block table, and which exist (index >= 0)."""
    entries = entries_per_page(ratio)
    present = (indices >= 0) & live.unsqueeze(1)
    entry = torch.where(present, indices, 0)
    column = check_index(OP, "indices, in pages,", entry // entries, max(1, block_table.shape[1]))
    page = torch.where(present, block_table[sequence.unsqueeze(1), column], 0)
    if present.any():
        check_index(OP, "block_table", page, pages.shape[0])
    records = pages.unflatten(1, (entries, -1))[page.long(), entry % entries]
    return torch.where(present.unsqueeze(2), records, 0), present


def dequantize_records(records: Tensor, record: str, channels: int) -> Tensor:
    """fp32 [..., channels] of interleaved records; exact."""
    if record == FP4_16.name:
        border = FP4_16.data_bytes(channels)
        return dequantize_fp4_e4m3(records[..., :border], records[..., border:])
    border = FP8_32.data_bytes(channels)
    return dequantize_fp8(records[..., :border], records[..., border:])


def _tiled(slots: int) -> int:
    """Slots rounded up to whole tiles."""
    return -(-slots // KEY_TILE) * KEY_TILE
