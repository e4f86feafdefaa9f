"""What is compiled ahead of attention within an image, at the released widths."""

from __future__ import annotations

from .vision_attention import launch

_TYPES: dict[str, str | None] = {
    **{f"{name}_ptr": "*bf16" for name in ("q", "k", "v", "out")},
    "begin_ptr": "*i32",
    "end_ptr": "*i32",
    "rows": "i32",
    "heads": "i32",
    "scale": "fp32",
    **{f"{name}_{kind}": "i64" for name in ("q", "k", "v") for kind in ("row", "head")},
}

COMPILES = [launch(1, 16, 64, 8).case("16 heads of 64", _TYPES)]
