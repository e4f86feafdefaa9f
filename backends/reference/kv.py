"""Cache records: packing, storing in rings and pages, and pooling two tokens into one compressed entry."""

from __future__ import annotations

import torch
from torch import Tensor

from ...hal.registry import kernel
from ...ops.layouts import FP4_16, FP4_32_INDEX, entries_per_page
from .common import check_index, finish, widths
from .formats import quantize_fp4_e4m3, quantize_fp4_pow2, quantize_fp8
from .rope import rotate

_INT32_MAX = 2**31 - 1


@kernel("window_pack", version=0, backend="reference", supports=widths(rotary="d", d=32))
def window_pack(kv: Tensor, positions: Tensor, table: Tensor, out: Tensor | None) -> Tensor:
    return finish(pack_record(rotate(kv, positions, table, op="window_pack"), "fp8_32"), out)


@kernel("window_store", version=0, backend="reference")
def window_store(
    records: Tensor, ring: Tensor, positions: Tensor, row_seq: Tensor, seq_end: Tensor, state_slot: Tensor, out: None
) -> None:
    _store_last_rows("window_store", records, ring, positions, row_seq, seq_end, state_slot)


@kernel("compress_pool", version=0, backend="reference")
def compress_pool(
    value: Tensor,
    gate: Tensor,
    ring: Tensor,
    positions: Tensor,
    row_seq: Tensor,
    seq_start: Tensor,
    state_slot: Tensor,
    out: Tensor | None,
) -> Tensor:
    pooled = torch.zeros(value.shape, dtype=torch.bfloat16, device=value.device)
    row = torch.nonzero((row_seq >= 0) & (positions % 2 == 1)).squeeze(1)
    if row.numel() == 0:
        return finish(pooled, out)
    sequence = check_index("compress_pool", "row_seq", row_seq[row], seq_start.shape[0])
    partner = check_index("compress_pool", "positions", positions[row], _INT32_MAX + 1) - 1
    in_step = (partner >= seq_start[sequence]).unsqueeze(1)
    slot = check_index("compress_pool", "state_slot", state_slot[sequence], ring.shape[0])
    stored = ring[slot, partner % ring.shape[1]]
    before = (row - 1).clamp(min=0)
    gate0 = torch.where(in_step, gate[before], stored[:, 0])
    value0 = torch.where(in_step, value[before], stored[:, 1])
    gate1, value1 = gate[row], value[row]
    top = torch.maximum(gate0, gate1)
    weight0, weight1 = torch.exp(gate0 - top), torch.exp(gate1 - top)
    total = weight0 + weight1
    pooled[row] = ((weight0 / total) * value0 + (weight1 / total) * value1).to(torch.bfloat16)
    return finish(pooled, out)


@kernel("compressor_ring_store", version=0, backend="reference")
def compressor_ring_store(
    value: Tensor,
    gate: Tensor,
    ring: Tensor,
    positions: Tensor,
    row_seq: Tensor,
    seq_end: Tensor,
    state_slot: Tensor,
    out: None,
) -> None:
    _store_last_rows(
        "compressor_ring_store", torch.stack((gate, value), dim=1), ring, positions, row_seq, seq_end, state_slot
    )


@kernel("compressed_store", version=0, backend="reference", supports=widths(rotary="d"))
def compressed_store(
    latent: Tensor,
    pages: Tensor,
    positions: Tensor,
    row_seq: Tensor,
    block_table: Tensor,
    table: Tensor,
    ratio: int,
    record: str,
    out: None,
) -> None:
    row, page, slot = _entry_rows("compressed_store", pages, positions, row_seq, block_table, ratio)
    rotated = rotate(latent[row], positions[row] + 1 - ratio, table, op="compressed_store")
    pages.unflatten(1, (entries_per_page(ratio), -1))[page, slot] = pack_record(rotated, record)


@kernel("index_key_store", version=0, backend="reference", supports=widths(rotary="di", di=32))
def index_key_store(
    key: Tensor,
    pages: Tensor,
    positions: Tensor,
    row_seq: Tensor,
    block_table: Tensor,
    table: Tensor,
    ratio: int,
    out: None,
) -> None:
    row, page, slot = _entry_rows("index_key_store", pages, positions, row_seq, block_table, ratio)
    codes, scale = quantize_fp4_pow2(rotate(key[row], positions[row] + 1 - ratio, table, op="index_key_store").float())
    data_plane, scale_plane = index_planes(pages, key.shape[1], ratio)
    data_plane[page, slot] = codes
    scale_plane[page, slot] = scale


def pack_record(x: Tensor, record: str) -> Tensor:
    """Quantise bf16 [..., d] into interleaved records, uint8 [..., record bytes]."""
    quantize = quantize_fp4_e4m3 if record == FP4_16.name else quantize_fp8
    codes, scale = quantize(x.float())
    return torch.cat((codes.view(torch.uint8), scale), dim=-1)


def index_planes(pages: Tensor, channels: int, ratio: int) -> tuple[Tensor, Tensor]:
    """Views of a planar index section [P, bytes]: codes [P, E, channels/2] and scales [P, E, channels/32]."""
    entries = entries_per_page(ratio)
    border = entries * FP4_32_INDEX.data_bytes(channels)
    data, scale = pages[:, :border], pages[:, border:]
    return data.unflatten(1, (entries, -1)), scale.unflatten(1, (entries, -1))


def _store_last_rows(
    op: str, rows: Tensor, ring: Tensor, positions: Tensor, row_seq: Tensor, seq_end: Tensor, state_slot: Tensor
) -> None:
    """Write the last R rows of each sequence to slot `position % R` of its ring [Z, R, ...]."""
    slots = ring.shape[1]
    sequence = check_index(op, "row_seq", row_seq.clamp(min=0), max(1, seq_end.shape[0]))
    if seq_end.numel() == 0:
        return
    keep = torch.nonzero((row_seq >= 0) & (positions >= seq_end[sequence] - slots)).squeeze(1)
    slot = check_index(op, "state_slot", state_slot[sequence[keep]], ring.shape[0])
    position = check_index(op, "positions", positions[keep], _INT32_MAX + 1)
    ring[slot, position % slots] = rows[keep]


def _entry_rows(
    op: str, pages: Tensor, positions: Tensor, row_seq: Tensor, block_table: Tensor, ratio: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Rows that complete an entry, and the page and slot of each; int64."""
    row = torch.nonzero((row_seq >= 0) & ((positions + 1) % ratio == 0)).squeeze(1)
    entry = (positions[row].long() + 1) // ratio - 1
    entries = entries_per_page(ratio)
    sequence = check_index(op, "row_seq", row_seq[row], block_table.shape[0])
    column = check_index(op, "positions, in pages,", entry // entries, block_table.shape[1])
    page = check_index(op, "block_table", block_table[sequence, column], pages.shape[0])
    return row, page, entry % entries
