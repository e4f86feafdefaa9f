"""What is compiled ahead of sparse attention in Triton: the released widths, and what has to compile beside them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from . import attention_kernels as device
from .attention import JOIN_OPTIONS, MOST_PARTS, ROWS_OPTIONS, constants_of
from .compile_list import CompileCase

_POINTERS = {"fresh_ptr": "*u8", "ring_ptr": "*u8", "pages_ptr": "*u8", "first_ptr": "*i32", "last_ptr": "*i32",
             "seq_ptr": "*i32", "start_ptr": "*i32", "begin_ptr": "*i32", "state_ptr": "*i32", "table_ptr": "*i32",
             "indices_ptr": "*i32", "q_ptr": "*bf16", "out_ptr": "*bf16", "sink_ptr": "*fp32", "tops_ptr": "*fp32",
             "sums_ptr": "*fp32", "places_ptr": "*i64"}  # fmt: skip
_NUMBERS = {"heads": "i32", "ring_size": "i32", "columns": "i32", "parts": "i32", "scale": "fp32", "fresh_row": "i64",
            "ring_state": "i64", "ring_row": "i64", "page_row": "i64"}  # fmt: skip
_ODD = ("q_ptr", "fresh_ptr", "ring_ptr", "pages_ptr")


def case(kernel: Any, label: str, constants: dict[str, Any], odd: bool = False, slow: bool = False) -> CompileCase:
    """A binary of a kernel. `odd`: of what lies at odd addresses."""
    kinds = kernel.kinds
    types = {k: f"{v}:1" if odd and k in _ODD else v for k, v in (_POINTERS | _NUMBERS).items() if k in kinds}
    if not constants.get("SELECTED"):  # what is absent is another tensor, of the sequences
        types |= {name: "*i32" for name in ("pages_ptr",) if name in kinds}
    chosen = {k: v for k, v in constants.items() if kinds.get(k) == "constexpr"}
    options = JOIN_OPTIONS if kernel is device.join_parts else ROWS_OPTIONS
    return CompileCase(kernel, types, chosen, label=label, slow=slow, **options)


def shape(
    window: int = 128,
    selected: int = 512,
    ratio: int = 1,
    record: str = "fp4_16",
    d: int = 512,
    align: tuple[int, int] = (16, 16),
) -> dict[str, Any]:
    """The constants of a call. `align`: of window records and of entries."""
    return {
        **constants_of(d, window, selected, ratio, record),
        "ALIGN": align[0],
        "PAGE_ALIGN": align[1] if selected else 1,
        "MOST": MOST_PARTS,
    }


def cases() -> Iterator[CompileCase]:
    """64 heads of 512 channels: windows, those of draft blocks, 512 entries; then other widths and odd addresses."""
    released = {
        "fp4_16, ratio 1": shape(),
        "fp4_16, ratio 2": shape(ratio=2),
        "fp8_32, ratio 1": shape(record="fp8_32"),
        "window": shape(selected=0),
    }
    for label, constants in released.items():
        yield case(device.sparse_attention_rows, label, constants)
        yield case(device.sparse_attention_parts, label, constants, slow=True)
    yield case(device.join_parts, "", shape())
    yield case(device.sparse_attention_rows, "window of a draft block", shape(window=133, selected=0))
    yield case(device.sparse_attention_rows, "odd addresses", shape(align=(1, 1)), odd=True)
    for d, align in ((288, (1, 2)), (64, (2, 4))):
        yield case(device.sparse_attention_rows, f"{d} channels", shape(70, 70, 2, "fp4_16", d, align))


COMPILES = list(cases())
