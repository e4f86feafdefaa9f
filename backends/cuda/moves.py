"""Moving cache bytes between pages, slots and rings. The kernels are in `moves_kernels.py`."""

from __future__ import annotations

import torch
from torch import Tensor

from ...hal.registry import Signature
from ...ops.layouts import LAYOUTS
from . import moves_kernels as device
from . import tuning
from .kv import WIDEST, by_rows, whole_rows
from .register import kernel
from .strides import alignment, power_of_two

COPY_SLOTS = tuning.Tunable(
    "copy_slots",
    ("BYTES",),
    default=lambda shape: {"CHUNK": 8192, "num_warps": 4},
    candidates=lambda shape: [
        {"CHUNK": chunk, "num_warps": warps} for chunk in (2048, 4096, 8192, 16384) for warps in (2, 4, 8)
    ],
)
"""CHUNK: bytes of a row that a program copies."""
RING_MOVE = by_rows("ring_move", "BYTES")
LOAD_RECORDS = by_rows("load_records", "D", "BYTES")


@kernel("copy_slots", version=0)
def copy_slots(pool: Tensor, pairs: Tensor, out: None) -> None:
    slots, width = pool.shape
    launch = COPY_SLOTS.choose(pool.device, width)
    parts = -(-width // launch["CHUNK"])
    if not pairs.shape[0] or not parts:
        return
    align = alignment(pool)
    device.copy_slots_kernel[(pairs.shape[0] * parts,)](
        pool, pairs, slots, pool.stride(0) // align, WIDTH=width, ALIGN=align, **launch
    )


@kernel("ring_move", version=0, supports=whole_rows("rec"))
def ring_move(
    source: Tensor, target: Tensor, source_slot: Tensor, target_slot: Tensor, begin: Tensor, end: Tensor, out: None
) -> None:
    items, width = source_slot.shape[0], source.shape[2]
    most = min(source.shape[1], target.shape[1])
    if not items or not most or not source.shape[0] or not target.shape[0]:
        return
    launch = RING_MOVE.choose(source.device, width)
    parts = -(-most // launch["BLOCK"])
    align = min(alignment(source, dims=2), alignment(target, dims=2))
    device.ring_move_kernel[(items * parts,)](
        source,
        target,
        source_slot,
        target_slot,
        begin,
        end,
        source.shape[0],
        target.shape[0],
        *(stride // align for x in (source, target) for stride in x.stride()[:2]),
        SOURCE_RING=source.shape[1],
        TARGET_RING=target.shape[1],
        WIDTH=width,
        WIDTH_PADDED=power_of_two(width),
        ALIGN=align,
        **launch,
    )


def whole_records(signature: Signature) -> str | None:
    """Channels come in the groups of the record, and a program takes a record whole."""
    group, channels = LAYOUTS[signature.scalars["record"]].group, signature.scalars["channels"]
    if channels % group or channels > WIDEST:
        return f"channels must be a multiple of {group} up to {WIDEST}, got {channels}"
    return None


@kernel("load_records", version=0, supports=whole_records)
def load_records(
    pages: Tensor, plan: Tensor, rows: int, entries: int, channels: int, record: str, out: Tensor | None
) -> Tensor:
    if out is None:
        out = torch.empty((rows, channels), dtype=torch.bfloat16, device=pages.device)
    if not rows:
        return out
    layout, align = LAYOUTS[record], alignment(pages)
    launch = LOAD_RECORDS.choose(pages.device, channels, layout.record_bytes(channels))
    device.load_records_kernel[(-(-rows // launch["BLOCK"]),)](
        pages,
        plan,
        out,
        rows,
        pages.shape[0],
        plan.shape[0],
        pages.stride(0) // align,
        ENTRIES=entries,
        PLANAR=not layout.interleaved,
        D=channels,
        D_PADDED=power_of_two(channels),
        RECORD=record,
        CODES=layout.data_bytes(channels),
        SCALES=layout.scale_bytes(channels),
        ALIGN=align,
        **launch,
    )
    return out
