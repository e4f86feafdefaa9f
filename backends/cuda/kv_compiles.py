"""What is compiled ahead of the cache stores and of packed index queries, at the released widths."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...ops.layouts import FP4_16, FP4_32_INDEX, FP8_32
from . import kv, kv_kernels, tuning
from .compile_list import CompileCase

PAIRS = 32
_ROWS = {"positions_ptr": "*i32", "row_seq_ptr": "*i32"}
_RING = {**_ROWS, "seq_end_ptr": "*i32", "state_slot_ptr": "*i32", "rows": "i32", "slots": "i32", "sequences": "i32"}


def _cases(
    tunable: tuning.Tunable, shape: tuple[int, ...], kernel: Any, signature: Any, constants: Any, label: str = ""
) -> Iterator[CompileCase]:
    """One case for all chips, or one for each where tables say different things."""
    for archs, launch in tunable.launches(*shape):
        block = {"BLOCK": launch["BLOCK"]}
        yield CompileCase(
            kernel,
            signature,
            {**constants, **block},
            launch["num_warps"],
            label=tuning.label(label, archs),
            archs=archs,
        )


def _rows(d: int) -> dict[str, Any]:
    return {"D": d, "D_PADDED": d}


def cases() -> Iterator[CompileCase]:
    """Records of rows, entries of pages, rings."""
    for label, layout, d, heads in (("window", FP8_32, 512, 1), ("index queries", FP4_32_INDEX, 128, 32)):
        yield from _cases(
            kv.PACK_ROWS,
            (d, layout.record_bytes(d)),
            kv_kernels.pack_rows_kernel,
            {"x_ptr": "*bf16", "positions_ptr": "*i32", "table_ptr": "*fp32", "out_ptr": "*u8", "rows": "i32"},
            {**_rows(d), "HEADS": heads, "PAIRS": PAIRS, "RECORD": layout.name,
             "CODES": layout.data_bytes(d), "BYTES": layout.record_bytes(d)},
            label,
        )  # fmt: skip
    for layout, d in ((FP4_16, 512), (FP8_32, 512), (FP4_32_INDEX, 128)):
        for ratio in (1, 2):
            yield from _cases(
                kv.STORE_ENTRIES,
                (d, layout.record_bytes(d), ratio),
                kv_kernels.store_entries_kernel,
                {**_ROWS, "x_ptr": "*bf16", "pages_ptr": "*u8", "block_table_ptr": "*i32", "table_ptr": "*fp32",
                 "rows": "i32", "pages": "i32", "table_width": "i32", "page_stride": "i64"},
                {**_rows(d), "RATIO": ratio, "ENTRIES": 128 // ratio, "PLANAR": not layout.interleaved, "PAIRS": PAIRS,
                 "RECORD": layout.name, "CODES": layout.data_bytes(d), "SCALES": layout.scale_bytes(d), "ALIGN": 16},
                f"{layout.name}, ratio {ratio}",
            )  # fmt: skip
    yield from _cases(
        kv.WINDOW_STORE,
        (528,),
        kv_kernels.store_ring_kernel,
        {**_RING, "records_ptr": "*u8", "ring_ptr": "*u8", "slot_stride": "i64", "record_stride": "i64"},
        {"RING": 134, "WIDTH": 528, "WIDTH_PADDED": 1024, "ALIGN": 16},
    )
    pairs = {"value_ptr": "*fp32", "gate_ptr": "*fp32", "ring_ptr": "*fp32"}
    strides = {"slot_stride": "i64", "pair_stride": "i64", "part_stride": "i64"}
    constants = {**_rows(512), "RING": 7, "ALIGN": 4}
    yield from _cases(kv.RING_STORE, (512,), kv_kernels.store_pairs_kernel, {**pairs, **_RING, **strides}, constants)
    pooled = {name: kind for name, kind in _RING.items() if name != "seq_end_ptr"}
    signature = {**pairs, **pooled, **strides, "seq_start_ptr": "*i32", "out_ptr": "*bf16"}
    yield from _cases(kv.COMPRESS_POOL, (512,), kv_kernels.pool_kernel, signature, constants)


COMPILES = list(cases())
