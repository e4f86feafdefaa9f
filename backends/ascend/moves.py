"""Moving cache bytes between pages, slots and rings."""

from __future__ import annotations

import torch
from torch import Tensor

from ...hal.registry import Signature
from ...ops.layouts import LAYOUTS
from .program import Program, flat
from .register import kernel
from .row_bytes import as_bytes

CHUNK, CHANNELS = 32768, 4096
COPY_SLOTS = Program("moves_kernels.py", "copy_slots", chunk=CHUNK)
RING_MOVE = Program("moves_kernels.py", "ring_move", chunk=CHUNK)
LOAD_RECORDS = {
    bits: Program("records_kernels.py", "load_records", needs=("parts_records.py",), bits=bits, most=CHANNELS)
    for bits in (4, 8)
}


def _row(signature: Signature) -> str | None:
    return None if signature.dims["W"] else "rows of at least one byte, got 0"


@kernel("copy_slots", version=0, supports=_row)
def copy_slots(pool: Tensor, pairs: Tensor, out: None) -> None:
    count, width = pairs.shape[0], pool.shape[1]
    pieces = -(-width // CHUNK)
    memory, items = as_bytes(pool), count * pieces
    COPY_SLOTS(
        items,
        POOL=memory,
        PAIRS=pairs,
        stride=pool.stride(0),
        W=width,
        pieces=pieces,
        items=items,
        N=count,
        span=memory.numel(),
    )


def _record(signature: Signature) -> str | None:
    size, short = signature.dims["rec"], min(signature.dims["L"], signature.dims["R"])
    return None if 0 < size <= CHUNK and short else f"rings of slots of 1 to {CHUNK} bytes, got {short} of {size}"


@kernel("ring_move", version=0, supports=_record)
def ring_move(
    source: Tensor, target: Tensor, source_slot: Tensor, target_slot: Tensor, begin: Tensor, end: Tensor, out: None
) -> None:
    count, (long, size), slots = source_slot.shape[0], source.shape[1:], target.shape[1]
    most = min(long, slots)
    there, here = as_bytes(source), as_bytes(target)
    RING_MOVE(
        count * most,
        SOURCE=there,
        TARGET=here,
        FROM=source_slot,
        INTO=target_slot,
        BEGIN=begin,
        END=end,
        from_stride=source.stride(0),
        into_stride=target.stride(0),
        from_pitch=source.stride(1),
        into_pitch=target.stride(1),
        L=long,
        R=slots,
        rec=size,
        most=most,
        items=count * most,
        N=count,
        A=there.numel(),
        Z=here.numel(),
    )


def _channels(signature: Signature) -> str | None:
    channels, group = signature.scalars["channels"], LAYOUTS[signature.scalars["record"]].group
    fits = channels % group == 0 and 0 < channels <= CHANNELS
    return None if fits else f"channels in multiples of {group} up to {CHANNELS}, got {channels}"


@kernel("load_records", version=0, supports=_channels)
def load_records(
    pages: Tensor, plan: Tensor, rows: int, entries: int, channels: int, record: str, out: Tensor | None
) -> Tensor:
    layout, count, memory = LAYOUTS[record], plan.shape[0], as_bytes(pages)
    keys = torch.empty((rows, channels), dtype=torch.bfloat16, device=pages.device) if out is None else out
    keys.zero_()  # rows that the plan does not name
    codes, scales, whole = layout.data_bytes(channels), layout.scale_bytes(channels), layout.record_bytes(channels)
    LOAD_RECORDS[layout.bits](
        count * entries,
        PAGES=memory,
        PLAN=plan,
        Y=flat(keys),
        stride=pages.stride(0),
        code_pitch=whole if layout.interleaved else codes,
        scale_offset=codes if layout.interleaved else entries * codes,
        scale_pitch=whole if layout.interleaved else scales,
        groups=scales,
        shift=layout.group.bit_length() - 1,
        small=int(layout.scale == "e4m3"),
        entries=entries,
        items=count * entries,
        m=rows,
        K=channels,
        N=count,
        span=memory.numel(),
    )
    return keys
