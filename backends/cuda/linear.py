"""Linear layers: FP8 weights, FP8 weights by groups, bf16 weights. The kernels are in `linear_kernels.py`.

A call goes one of three ways, by its rows; on SM90 calls with few rows go another (`linear_sm90.py`):

* few rows: codes of weights and rows become bf16 in registers, on their way to the matrix unit;
* more: rows of x become bf16 first, once, and weights in registers;
* many: both become bf16 first, and a plain product follows. Of bf16 weights that is the whole way.

Where a weight has too few outputs to fill a GPU, K is cut into parts of a length that its shape alone decides; they are
summed side by side, or one after the other, and added in order. So all ways add the same numbers in the same order:
sixteen channels in a step of the matrix unit, steps in order. That a step has the same bits in every shape of tile is
no promise of anybody's; tests hold it on the GPU.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...hal.registry import Signature
from ...ops.spec import WeightHandle
from . import grouped_sm90, linear_sm90, linear_wide_sm90, vision_attention  # noqa: F401  (register)
from .jit import INTERPRETED
from .linear_fp8 import fp8_prepare, launcher, run, sizes_of, whole_blocks, whole_groups
from .linear_fp8 import scratch as fp8_scratch
from .linear_launches import BF16_FEW, BLOCKS, add_launch, aligned, few_launch, many_launch, packed_launch, part_of
from .register import kernel

# ---- FP8 weights ----------------------------------------------------------------------------------------------------


_FP8: dict[str, Any] = {"version": 0, "layout": BLOCKS, "prepare": fp8_prepare, "workspace": fp8_scratch}
kernel("linear_fp8", supports=whole_groups, **_FP8)(launcher(run, __name__))
kernel("linear_fp8_grouped", supports=whole_blocks, **_FP8)(launcher(run, __name__))


def native_scratch(xq: Tensor, xs: Tensor, weight: WeightHandle) -> int:
    """Scratch of the native kernels: parts."""
    groups, n, k = sizes_of(weight.tensors)
    parts = -(-k // part_of(groups * n, k))
    return 4 * parts * xq.shape[0] * groups * n if parts > 1 else 0


def run_native(
    xq: Tensor, xs: Tensor, weights: tuple[Tensor, ...], out: Tensor, workspace: Tensor | None, groups: int
) -> None:
    """On a matrix unit that takes codes with block scales; arguments of `linear_fp8.run`."""
    rows, (n, k) = xq.shape[0], weights[0].shape[-2:]
    if not out.numel():
        return
    parts = -(-k // part_of(groups * n, k))
    size = 4 * parts * rows * groups * n if parts > 1 else 0
    if workspace is None:
        workspace = torch.empty(size, dtype=torch.uint8, device=xq.device)
    y = workspace[:size].view(torch.float32) if size else out
    codes, scale = (w.view(torch.uint8) for w in weights)
    packed_launch(rows, groups, n, k, False, True, True)(xq.view(torch.uint8), xs, codes, scale, y, rows)
    if size:
        add_launch(out.numel(), n, parts, False)(y, None, None, out, out.numel())


# In the interpreter, which has no chip, they come last, so that the others are what runs there.
_NATIVE: dict[str, Any] = {
    "version": 0, "name": "native", "priority": -1 if INTERPRETED else 1, "archs": ("sm_100",), "prepare": aligned,
    "workspace": native_scratch,
}  # fmt: skip
linear_fp8_native = kernel("linear_fp8", supports=whole_groups, **_NATIVE)(launcher(run_native, __name__))
linear_fp8_grouped_native = kernel("linear_fp8_grouped", supports=whole_blocks, **_NATIVE)(
    launcher(run_native, __name__)
)


# ---- bf16 weights ---------------------------------------------------------------------------------------------------


def _parts_scratch(rows: int, n: int, k: int) -> int:
    parts = -(-k // part_of(n, k))
    return 4 * parts * rows * n if parts > 1 and rows <= BF16_FEW else 0


def bf16_scratch(x: Tensor, weight: WeightHandle, *rest: Any) -> int:
    """Scratch of `linear_bf16` and `vision_linear`."""
    return _parts_scratch(x.shape[0], *weight.tensors[0].shape)


def some(signature: Signature) -> str | None:
    """Something to sum."""
    return None if signature.dims["K"] else "K must not be 0"


@kernel("linear_bf16", version=0, supports=some, prepare=aligned, workspace=bf16_scratch)
def linear_bf16(
    x: Tensor, weight: WeightHandle, fp32_out: bool, out: Tensor | None, workspace: Tensor | None = None
) -> Tensor:
    if out is None:
        kind = torch.float32 if fp32_out else torch.bfloat16
        out = torch.empty((x.shape[0], weight.tensors[0].shape[0]), dtype=kind, device=x.device)
    _bf16(x, weight.tensors[0], None, None, False, out, workspace)
    return out


@kernel("vision_linear", version=0, supports=some, prepare=aligned, workspace=bf16_scratch)
def vision_linear(
    x: Tensor,
    weight: WeightHandle,
    bias: Tensor | None,
    residual: Tensor | None,
    activation: str,
    out: Tensor | None,
    workspace: Tensor | None = None,
) -> Tensor:
    if out is None:
        out = torch.empty((x.shape[0], weight.tensors[0].shape[0]), dtype=torch.bfloat16, device=x.device)
    _bf16(x, weight.tensors[0], bias, residual, activation == "gelu", out, workspace)
    return out


def _bf16(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    residual: Tensor | None,
    gelu: bool,
    out: Tensor,
    workspace: Tensor | None,
) -> None:
    rows, (n, k) = x.shape[0], weight.shape
    if not out.numel():
        return
    part = part_of(n, k)
    parts = -(-k // part)
    if rows > BF16_FEW:
        many_launch(rows, 1, n, k, part, gelu)(x, weight, bias, residual, out, rows)
    elif parts == 1:
        few_launch(rows, n, k, part, gelu)(x, weight, bias, residual, out, rows)
    else:
        if workspace is None:
            workspace = torch.empty(_parts_scratch(rows, n, k), dtype=torch.uint8, device=x.device)
        y = workspace[: 4 * parts * out.numel()].view(torch.float32)
        few_launch(rows, n, k, part, False)(x, weight, None, None, y, rows)
        add_launch(out.numel(), n, parts, gelu)(y, bias, residual, out, out.numel())
