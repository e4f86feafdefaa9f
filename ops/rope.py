"""Rotary position embedding."""

from __future__ import annotations

from torch import Tensor

from . import layer_samples as samples
from .numerics import Accumulated
from .spec import BF16, F32, I32, Cost, define, result, scalar, tensor

ROPE = define(
    "rope",
    version=0,
    family="rope",
    args=[
        tensor("x", "T h d", BF16),
        tensor("positions", "T", I32),
        tensor("table", "M F 2", F32),
        scalar("inverse", bool),
    ],
    outs=[result("y", "T h d", BF16)],
    dynamic="T M",
    semantics="""The last 2F channels are F adjacent pairs (a, b), turned by the angle of the row's position: (a*cos -
        b*sin, a*sin + b*cos) in fp32, one rounding to bf16; `inverse` negates sin. The other channels are copied bit
        for bit. table[p, i] = (cos, sin). Positions must lie in [0, M), those of padding rows too. 2F <= d. A fused
        multiply-add is allowed. Accumulated, not rounded: the two products may cancel, and the fp32 error is relative
        to them, so it can be many units in the last place of a small result.""",
    numerics=Accumulated("2"),
    cost=lambda d: Cost(
        flops=6 * d["T"] * d["h"] * d["F"],
        bytes=4 * d["T"] * (d["h"] * d["d"] + 1) + 8 * min(d["T"], d["M"]) * d["F"],
    ),
    samples=samples.rope,
)


def rope(x: Tensor, positions: Tensor, table: Tensor, inverse: bool, *, out: Tensor | None = None) -> Tensor:
    """Rotate the last channels of every head.

    Args:
        x: bf16 [T, h, d]. positions: i32 [T]. table: f32 [M, dr/2, 2], (cos, sin) per position and pair.
        inverse: turn back, as attention outputs are.

    Returns:
        bf16 [T, h, d].
    """
    return ROPE.run(x, positions, table, inverse, out)  # type: ignore[no-any-return]
