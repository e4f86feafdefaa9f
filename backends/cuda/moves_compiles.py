"""What is compiled ahead of the moves: the released records, rings and pages."""

from __future__ import annotations

from ...ops.layouts import FP4_16, FP8_32
from . import moves, moves_kernels, tuning
from .compile_list import CompileCase

RINGS = ((134, 134), (268, 134), (134, 268))
"""Slots of the rings that windows are carried between: of decoding, and those that keep tokens to replay."""

COMPILES = [
    *(
        CompileCase(
            moves_kernels.copy_slots_kernel,
            {"pool_ptr": "*u8", "pairs_ptr": "*i32", "slots": "i32", "stride": "i64"},
            {"WIDTH": width, "ALIGN": 16, "CHUNK": launch["CHUNK"]},
            num_warps=launch["num_warps"],
            label=tuning.label(label, archs),
            archs=archs,
        )
        for label, width in (("pages", 114048), ("states", 3128928))
        for archs, launch in moves.COPY_SLOTS.launches(width)
    ),
    *(
        CompileCase(
            moves_kernels.ring_move_kernel,
            {
                "source_ptr": "*u8",
                "target_ptr": "*u8",
                "source_slot_ptr": "*i32",
                "target_slot_ptr": "*i32",
                "begin_ptr": "*i32",
                "end_ptr": "*i32",
                "sources": "i32",
                "targets": "i32",
                "source_stride": "i64",
                "source_step": "i64",
                "target_stride": "i64",
                "target_step": "i64",
            },
            {
                "SOURCE_RING": source,
                "TARGET_RING": target,
                "WIDTH": 528,
                "WIDTH_PADDED": 1024,
                "ALIGN": 16,
                "BLOCK": launch["BLOCK"],
            },
            num_warps=launch["num_warps"],
            label=tuning.label(f"{source} to {target}", archs),
            archs=archs,
        )  # fmt: skip
        for source, target in RINGS
        for archs, launch in moves.RING_MOVE.launches(528)
    ),
    *(
        CompileCase(
            moves_kernels.load_records_kernel,
            {
                "pages_ptr": "*u8",
                "plan_ptr": "*i32",
                "out_ptr": "*bf16",
                "rows": "i32",
                "pages": "i32",
                "pieces": "i32",
                "page_stride": "i64",
            },
            {
                "ENTRIES": entries,
                "PLANAR": False,
                "D": 512,
                "D_PADDED": 512,
                "RECORD": layout.name,
                "CODES": layout.data_bytes(512),
                "SCALES": layout.scale_bytes(512),
                "ALIGN": 16,
                "BLOCK": launch["BLOCK"],
            },
            num_warps=launch["num_warps"],
            label=tuning.label(f"{layout.name}, {entries} entries", archs),
            archs=archs,
        )  # fmt: skip
        for layout, entries in ((FP4_16, 128), (FP4_16, 64), (FP8_32, 128), (FP8_32, 134))
        for archs, launch in moves.LOAD_RECORDS.launches(512, layout.record_bytes(512))
    ),
]
