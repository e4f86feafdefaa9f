"""Building blocks of samples for ops that read or write caches: step metadata, records and pages.

Bytes that an op must not read are filled with codes that decode to NaN or to large numbers, pages and rings are strided
views with foreign bytes around them, page ids and state slots are shuffled, and page 0 and slot 0 stay unused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .layouts import FP8_32, PAGE_TOKENS, RecordLayout, entries_per_page

Bytes = npt.NDArray[np.uint8]
POISON = 0xFF
"""NaN as an E4M3 code and as an E8M0 scale, -6 twice as a pair of E2M1 codes."""


@dataclass(frozen=True)
class Step:
    """Metadata of one step, as the model builds it; see `ops/kv.py` for the meaning of each tensor."""

    spans: tuple[tuple[int, int], ...]
    device: torch.device
    positions: Tensor
    row_seq: Tensor
    seq_start: Tensor
    seq_end: Tensor
    row_begin: Tensor
    state_slot: Tensor
    block_table: Tensor
    pages: int
    slots: int

    @property
    def rows(self) -> int:
        """Rows of the step, padding included."""
        return self.positions.shape[0]

    def visible(self, ratio: int) -> Tensor:
        """i32 [T]: entries that each row may see."""
        return torch.where(self.row_seq >= 0, (self.positions + 1) // ratio, 0).int()


def make_step(
    rng: np.random.Generator, device: torch.device, spans: Sequence[tuple[int, int]], padding: int = 0
) -> Step:
    """A step of sequences at positions [start, end) each, with `padding` rows at the end, at odd positions: an even
    one would give zeros in `compress_pool` without being padding."""

    def ints(values: Sequence[int] | npt.NDArray[np.int64]) -> Tensor:
        return torch.tensor(np.asarray(values, dtype=np.int32), device=device)

    lengths = [end - start for start, end in spans]
    used = [-(-end // PAGE_TOKENS) for _, end in spans]
    ids = rng.permutation(sum(used) + 2) + 1
    table = np.full((len(spans), max(used, default=0) + 1), -1)
    for s, count in enumerate(used):
        table[s, :count] = ids[sum(used[:s]) : sum(used[:s]) + count]
    return Step(
        tuple(spans),
        device,
        ints([p for start, end in spans for p in range(start, end)] + [1] * padding),
        ints([s for s, n in enumerate(lengths) for _ in range(n)] + [-1] * padding),
        ints([start for start, _ in spans]),
        ints([end for _, end in spans]),
        ints(np.concatenate(([0], np.cumsum(lengths)))[: len(spans)]),
        ints(rng.permutation(len(spans) + 1)[: len(spans)] + 1),
        ints(table),
        sum(used) + 3,
        len(spans) + 2,
    )


def records(rng: np.random.Generator, layout: RecordLayout, shape: Sequence[int], channels: int) -> Bytes:
    """Random records [*shape, record bytes] whose values are of the order of 1: data, then scales."""
    data = rng.integers(0, 256, (*shape, layout.data_bytes(channels)), dtype=np.uint8)
    scale_shape = (*shape, layout.scale_bytes(channels))
    if layout.bits == 8:
        data = np.where((data & 0x7F) > 0x6F, data & 0x8F, data).astype(np.uint8)  # up to +-120
        scale = rng.integers(119, 123, scale_shape, dtype=np.uint8)
    elif layout.scale == "e4m3":
        scale = rng.integers(0x20, 0x38, scale_shape, dtype=np.uint8)  # 1/8 .. 1
    else:
        scale = rng.integers(124, 128, scale_shape, dtype=np.uint8)
    return np.concatenate((data, scale), axis=-1)


def window_ring(rng: np.random.Generator, step: Step, slots: int, channels: int) -> Tensor:
    """Ring [Z, slots, record] as it is before the step, poison where no position has been; rows strided."""
    width = FP8_32.record_bytes(channels)
    ring = np.full((step.slots, slots, width + 32), POISON, dtype=np.uint8)
    for s, (start, _) in enumerate(step.spans):
        past = np.arange(max(0, start - slots), start)
        ring[int(step.state_slot[s]), past % slots, :width] = records(rng, FP8_32, past.shape, channels)
    return torch.from_numpy(ring).to(step.device)[:, :, :width]


def compressor_ring(rng: np.random.Generator, step: Step, slots: int, channels: int) -> Tensor:
    """Ring f32 [Z, slots, 2, channels] as it is before the step, NaN where no position has been."""
    ring = np.full((step.slots, slots, 2, channels), np.nan, dtype=np.float32)
    for s, (start, _) in enumerate(step.spans):
        past = np.arange(max(0, start - slots), start)
        ring[int(step.state_slot[s]), past % slots] = rng.standard_normal((past.size, 2, channels))
    return torch.from_numpy(ring).to(step.device)


def empty_pages(step: Step, layout: RecordLayout, channels: int, ratio: int) -> Tensor:
    """One owner's section [P, bytes] of pages full of poison, with 96 foreign bytes before and 32 behind each."""
    width = layout.page_bytes(channels, ratio)
    whole = np.full((step.pages, 96 + width + 32), POISON, dtype=np.uint8)
    return torch.from_numpy(whole).to(step.device)[:, 96 : 96 + width]


def filled_pages(rng: np.random.Generator, step: Step, layout: RecordLayout, channels: int, ratio: int) -> Tensor:
    """As `empty_pages`, with random records for every entry that a row of the step may see."""
    pages = empty_pages(step, layout, channels, ratio).cpu()
    view = pages.numpy()
    entries, data = entries_per_page(ratio), layout.data_bytes(channels)
    planes = view[:, : entries * data], view[:, entries * data :]
    for s, (_, end) in enumerate(step.spans):
        entry = np.arange(end // ratio)
        page = step.block_table[s].cpu().numpy()[entry // entries]
        record = records(rng, layout, entry.shape, channels)
        slot = entry % entries
        if layout.interleaved:
            _scatter(view, page, slot, record)
        else:
            _scatter(planes[0], page, slot, record[:, :data])
            _scatter(planes[1], page, slot, record[:, data:])
    return _to_device(pages, step.device)


def selection(rng: np.random.Generator, step: Step, k: int, ratio: int) -> Tensor:
    """i32 [T, k]: up to k distinct visible entries of each row, ascending, -1 padded; the newest one among them."""
    indices = np.full((step.rows, k), -1, dtype=np.int32)
    for t, seen in enumerate(step.visible(ratio).tolist()):
        if seen:
            older = rng.permutation(seen - 1)[: k - 1]
            indices[t, : older.size + 1] = np.sort(np.append(older, seen - 1))
    return torch.from_numpy(indices).to(step.device)


def rope_table(positions: int, rope_dim: int, device: torch.device) -> Tensor:
    """cos and sin [positions, rope_dim / 2, 2] of plain frequencies; f32."""
    angle = np.arange(positions)[:, None] * 10000.0 ** (-2.0 * np.arange(rope_dim // 2) / rope_dim)
    return torch.from_numpy(np.stack((np.cos(angle), np.sin(angle)), axis=-1).astype(np.float32)).to(device)


def normal(rng: np.random.Generator, device: torch.device, *shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """Standard normal numbers."""
    return torch.from_numpy(rng.standard_normal(shape).astype(np.float32)).to(device, dtype)


def _scatter(section: Bytes, page: npt.NDArray[np.int32], slot: npt.NDArray[np.int64], rows: Bytes) -> None:
    """Write rows [n, width] at `slot * width` of their pages."""
    column = slot[:, None] * rows.shape[1] + np.arange(rows.shape[1])
    section[page[:, None], column] = rows


def _to_device(pages: Tensor, device: torch.device) -> Tensor:
    """Move a strided view, its surroundings included."""
    if device.type == "cpu":
        return pages
    whole = pages.as_strided((pages.shape[0], pages.stride(0)), (pages.stride(0), 1), 0).to(device)
    offset = pages.storage_offset()
    return whole[:, offset : offset + pages.shape[1]]
