"""What is compiled ahead of the experts' linear layers: 48 experts, at the released widths."""

from __future__ import annotations

from collections.abc import Iterator

from .compile_list import CompileCase
from .grouped import FEW, plan_launch, product_launch, row_tile
from .linear_launches import unpack_launch

EXPERTS = 48
SHAPES = {"w13": (4608, 5120), "w2": (5120, 2304)}
ROWS = (16, 48, 96, 128, 256)
"""Rows of an expert, one for each tile."""


def cases() -> Iterator[CompileCase]:
    """Every tile for both weights; rows that are gathered for the first, and lie packed for the second."""
    for mean in ROWS:
        rows = mean * EXPERTS
        tile = row_tile(rows, EXPERTS)
        yield plan_launch(rows, EXPERTS).case(f"tiles of {tile}", {"offsets_ptr": "*i32", "plan_ptr": "*i32"})
        for name, (n, k) in SHAPES.items():
            x8 = tile <= FEW
            types: dict[str, str | None] = {
                "x_ptr": "*u8" if x8 else "*bf16", "xs_ptr": "*u8" if x8 else None, "w_ptr": "*u8", "ws_ptr": "*u8",
                "source_ptr": "*i32" if name == "w13" else None, "offsets_ptr": "*i32", "plan_ptr": "*i32",
                "out_ptr": "*bf16",
            }  # fmt: skip
            yield product_launch(rows, EXPERTS, n, k, True).case(f"{name}, tiles of {tile}", types)
            native = types | {"x_ptr": "*u8", "xs_ptr": "*u8"}
            yield product_launch(rows, EXPERTS, n, k, False, True).case(
                f"{name}, tiles of {tile}, native", native, archs=("sm_100",)
            )
    types = {"code_ptr": "*u8", "scale_ptr": "*u8", "out_ptr": "*bf16", "rows": "i32"}
    for k in sorted(k for _, k in SHAPES.values()):
        yield unpack_launch(1, k, 1, True).case(f"experts' rows of {k}", types)


COMPILES = list(cases())
