"""What is compiled ahead of the moves: the released records, rings and pages."""

from __future__ import annotations

from ...ops.layouts import FP4_16, FP8_32
from . import moves_kernels
from .compile_list import CompileCase
from .kv import rows_per_program
from .moves import CHUNK

RINGS = ((134, 134), (268, 134), (134, 268))
"""Slots of the rings that windows are carried between: of decoding, and those that keep tokens to replay."""

COMPILES = [
    *(
        CompileCase(
            moves_kernels.copy_slots_kernel,
            {"pool_ptr": "*u8", "pairs_ptr": "*i32", "slots": "i32", "stride": "i64"},
            {"WIDTH": width, "ALIGN": 16, "CHUNK": CHUNK},
            label=label,
        )
        for label, width in (("pages", 114048), ("states", 3128928))
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
                "BLOCK": rows_per_program(528),
            },
            label=f"{source} to {target}",
        )  # fmt: skip
        for source, target in RINGS
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
                "BLOCK": rows_per_program(512),
            },
            label=f"{layout.name}, {entries} entries",
        )  # fmt: skip
        for layout, entries in ((FP4_16, 128), (FP4_16, 64), (FP8_32, 128), (FP8_32, 134))
    ),
]
