"""What is compiled ahead of the index scores: 32 heads of 128 channels, pages of whole layers, both ratios."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from . import index, index_kernels
from .compile_list import CompileCase

_SIZES: dict[str, Any] = {"HEADS": 32, "HEADS_PADDED": 32, "CODES": 64, "CODES_PADDED": 64}
_TENSORS = {
    "query_ptr": "*bf16",
    "weight_ptr": "*bf16",
    "pages_ptr": "*u8",
    "visible_ptr": "*i32",
    "row_seq_ptr": "*i32",
    "table_ptr": "*i32",
    "out_ptr": "*bf16",
}


def _options(launch: dict[str, int]) -> tuple[dict[str, Any], dict[str, int]]:
    """Constants and launch options of a launch."""
    options = {name: launch[name] for name in ("num_warps", "num_stages")}
    return {name: value for name, value in launch.items() if name not in options}, options


def cases() -> Iterator[CompileCase]:
    """The unpacked query, then every form of scores."""
    yield CompileCase(
        index_kernels.unpack_query_kernel,
        {"query_ptr": "*u8", "out_ptr": "*bf16", "count": "i32"},
        {**_SIZES, "BLOCK": 32},
    )
    integers = {"lanes": "i32", "table_width": "i32", "page_stride": "i64"}
    for ratio in (1, 2):
        pages = {**_SIZES, "ENTRIES": 128 // ratio, "ALIGN": 16}
        for label, block_size in (("all", 0), ("blocks", 8)):
            constants, options = _options(index.ROW_LAUNCH)
            yield CompileCase(
                index_kernels.score_rows_kernel,
                {**_TENSORS, "blocks_ptr": "*i32", "parts": "i32", **integers},
                {**pages, **constants, "BLOCK_SIZE": block_size},
                **options,
                label=f"{label}, ratio {ratio}",
            )
        for label, launch in (("few rows", index.FEW_LAUNCH), ("many rows", index.MANY_LAUNCH)):
            constants, options = _options(launch)
            yield CompileCase(
                index_kernels.score_keys_kernel,
                {**_TENSORS, "rows": "i32", "tiles": "i32", **integers},
                {**pages, **constants},
                **options,
                label=f"{label}, ratio {ratio}",
            )


COMPILES = list(cases())
