"""What is compiled ahead of sparse attention in Triton, at the released widths."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...ops.layouts import FP4_16, FP8_32
from . import attention_kernels as device
from .attention import PART
from .compile_list import CompileCase

_POINTERS = {"fresh_ptr": "*u8", "ring_ptr": "*u8", "pages_ptr": "*u8", "first_ptr": "*i32", "last_ptr": "*i32",
             "seq_ptr": "*i32", "start_ptr": "*i32", "begin_ptr": "*i32", "state_ptr": "*i32", "table_ptr": "*i32",
             "indices_ptr": "*i32", "q_ptr": "*bf16", "out_ptr": "*bf16", "sink_ptr": "*fp32", "keys_ptr": "*bf16",
             "scores_ptr": "*fp32", "places_ptr": "*i64"}  # fmt: skip
_NUMBERS = {"heads": "i32", "rows": "i32", "ring_size": "i32", "columns": "i32", "entries_at": "i32", "lines": "i32",
            "pool": "i32", "scale": "fp32", "fresh_row": "i64", "ring_state": "i64", "ring_row": "i64",
            "page_row": "i64"}  # fmt: skip


def cases() -> Iterator[CompileCase]:
    """The released model: 64 heads of 512 channels; windows without entries, and 512 entries of both ratios."""

    def case(
        kernel: Any, label: str, constants: dict[str, Any], warps: int, stages: int, **options: Any
    ) -> CompileCase:
        kinds = kernel.kinds
        types = {k: v for k, v in (_POINTERS | _NUMBERS).items() if k in kinds}
        chosen = {k: v for k, v in constants.items() if kinds.get(k) == "constexpr"}
        return CompileCase(kernel, types, chosen, warps, stages, label, **options)

    for record in (FP4_16, FP8_32):
        fp4 = record is FP4_16
        for ratio in (1, 2) if fp4 else (1,):
            constants = {"D": 512, "WIDTH": 512, "HEADS": 64, "WINDOW": 128, "SELECTED": 512, "SPAN": 512,
                         "ENTRIES": 128 // ratio, "RECORD": record.record_bytes(512), "FP4": fp4, "CHUNK": PART,
                         "ALIGN": 8, "PAGE_ALIGN": 4 if fp4 else 8, "UNPACKED": False}  # fmt: skip
            label = f"{record.name}, ratio {ratio}"
            yield case(device.find_keys, label, constants, 2, 3)
            if ratio == 1:
                yield case(device.sparse_attention_rows, record.name, constants, 8, 2)
                yield case(device.sum_tiles, record.name, constants, 4, 4, archs=("sm_90",))
            yield case(device.score_tiles, label, constants, 8, 1, archs=("sm_90",), slow=True)
            yield case(device.unpack_pages, label, constants, 8, 1, archs=("sm_90",))
    unpacked = {**constants, "UNPACKED": True}
    yield case(device.find_keys, "unpacked", unpacked, 2, 3, archs=("sm_90",))
    yield case(device.sparse_attention_rows, "unpacked", unpacked, 8, 2, archs=("sm_90",), slow=True)
    yield case(device.unpack_window, "", constants, 8, 1, archs=("sm_90",))
    yield case(
        device.sparse_attention_rows, "window of a draft block",
        {**constants, "WINDOW": 133, "SELECTED": 0, "SPAN": 1, "FP4": True, "PAGE_ALIGN": 1}, 8, 2,
    )  # fmt: skip


COMPILES = list(cases())
