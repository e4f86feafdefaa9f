"""Moving cache bytes between pages, slots and rings."""

from __future__ import annotations

import torch
from torch import Tensor

from ...hal.registry import Signature, kernel
from ...ops.layouts import FP4_16, FP8_32, LAYOUTS
from ...ops.spec import SPECS
from .common import check_index, finish
from .formats import dequantize_fp4_e4m3, dequantize_fp4_pow2, dequantize_fp8

COLUMNS = 1 << 22
"""Bytes of a row copied at a time: bounds scratch memory."""


@kernel("copy_slots", version=0, backend="reference")
def copy_slots(pool: Tensor, pairs: Tensor, out: None) -> None:
    op, slots = "copy_slots", pool.shape[0]
    source, target = pairs[pairs[:, 1] != -1].long().unbind(1)
    copied = source != -1
    check_index(op, "target of pairs", target, slots)
    check_index(op, "source of pairs", source[copied], slots)
    _check_distinct(op, "target of pairs", target)
    if bool(torch.isin(source[copied], target).any()):
        raise SPECS[op].error("pairs have a target that is a source as well; what it would hold hangs on the order")
    for first in range(0, pool.shape[1], COLUMNS):
        part = pool[:, first : first + COLUMNS]
        part[target[~copied]] = 0
        part[target[copied]] = part[source[copied]]


def _check_distinct(op: str, name: str, index: Tensor) -> None:
    if index.unique().numel() < index.numel():
        raise SPECS[op].error(f"{name} repeats; its entries must be distinct")


@kernel("ring_move", version=0, backend="reference")
def ring_move(
    source: Tensor, target: Tensor, source_slot: Tensor, target_slot: Tensor, begin: Tensor, end: Tensor, out: None
) -> None:
    op, used = "ring_move", target_slot != -1
    first, count = begin[used].long(), (end[used].long() - begin[used].long()).clamp(min=0)
    check_index(op, "begin", first, 2**31)
    check_index(op, "end - begin", count, min(source.shape[1], target.shape[1]) + 1)
    into = check_index(op, "target_slot", target_slot[used], target.shape[0])
    _check_distinct(op, "target_slot", into)
    item = torch.repeat_interleave(torch.arange(len(count), device=count.device), count)
    place = torch.arange(len(item), device=count.device) - (count.cumsum(0) - count)[item]
    position = first[item] + place
    origin = check_index(op, "source_slot", source_slot[used].long()[item], source.shape[0])
    target[into[item], position % target.shape[1]] = source[origin, position % source.shape[1]]


def whole_records(signature: Signature) -> str | None:
    """Channels come in the groups of the record."""
    layout, channels = LAYOUTS[signature.scalars["record"]], signature.scalars["channels"]
    return None if channels % layout.group == 0 else f"channels must be a multiple of {layout.group}, got {channels}"


@kernel("load_records", version=0, backend="reference", supports=whole_records)
def load_records(
    pages: Tensor, plan: Tensor, rows: int, entries: int, channels: int, record: str, out: Tensor | None
) -> Tensor:
    op, layout = "load_records", LAYOUTS[record]
    keys = torch.zeros((rows, channels), dtype=torch.bfloat16, device=pages.device)
    page, begin, end, first = plan[plan[:, 2] > plan[:, 1]].long().unbind(1)
    check_index(op, "begin of plan", begin, entries)
    check_index(op, "end of plan", end, entries + 1)
    check_index(op, "last row of plan", first + end - begin - 1, rows)
    check_index(op, "first row of plan", first, rows)
    count = end - begin
    piece = torch.repeat_interleave(torch.arange(len(count), device=count.device), count)
    place = torch.arange(len(piece), device=count.device) - (count.cumsum(0) - count)[piece]
    row = first[piece] + place
    _check_distinct(op, "row of plan", row)
    present = page[piece] != -1
    piece, row, slot = piece[present], row[present], (begin[piece] + place)[present]
    origin = check_index(op, "page of plan", page[piece], pages.shape[0])
    if layout.interleaved:
        taken = pages.unflatten(1, (entries, -1))[origin, slot]
        data, scale = taken.split((layout.data_bytes(channels), layout.scale_bytes(channels)), dim=1)
    else:
        border = entries * layout.data_bytes(channels)
        data, scale = (p.unflatten(1, (entries, -1))[origin, slot] for p in (pages[:, :border], pages[:, border:]))
    dequantize = {FP8_32.name: dequantize_fp8, FP4_16.name: dequantize_fp4_e4m3}.get(record, dequantize_fp4_pow2)
    keys[row] = dequantize(data.contiguous(), scale.contiguous()).to(torch.bfloat16)
    return finish(keys, out)
