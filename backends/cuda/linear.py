"""Linear layers: FP8 weights, FP8 weights by groups, bf16 weights. The kernels are in `linear_kernels.py`.

Weights stay as the contract has them. A call goes one of three ways, by its rows:

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
from . import grouped, vision_attention  # noqa: F401  (register)
from .jit import INTERPRETED
from .linear_launches import (
    BF16_FEW,
    CLEAN_DTYPE,
    FEW,
    GROUP,
    MANY,
    add_launch,
    aligned,
    clean_scale,
    dealt,
    few_launch,
    many_launch,
    packed_launch,
    part_of,
    unpack_launch,
)  # fmt: skip
from .portable_weights import FP8_CLEAN
from .register import kernel

# ---- FP8 weights ----------------------------------------------------------------------------------------------------


def whole_groups(signature: Signature) -> str | None:
    """Channels have scales in groups of 32."""
    k = signature.dims["K"]
    return None if k % GROUP == 0 and k else f"K must be a multiple of {GROUP} and not 0, got {k}"


def whole_blocks(signature: Signature) -> str | None:
    """Scales are for blocks of 32 outputs by 32 channels."""
    n, k = signature.dims["N"], signature.dims["K"]
    return (
        None if n % GROUP == 0 and k % GROUP == 0 and n and k else f"N and K must be multiples of 32, got {n} and {k}"
    )


def fp8_prepare(weight: Tensor, scale: Tensor) -> tuple[Tensor, ...]:
    """Codes as they are, scales marked where the weight is clean."""
    return aligned(weight, clean_scale(scale, FP8_CLEAN, weight))


def _fp8_scratch(rows: int, groups: int, n: int, k: int) -> tuple[int, int, int]:
    """Bytes for unpacked rows, for unpacked weights, for parts."""
    x = 2 * rows * groups * dealt(k) if rows > FEW else 0
    if rows >= MANY:
        return x, 2 * groups * n * dealt(k), 0
    parts = -(-k // part_of(groups * n, k))
    return x, 0, 4 * parts * rows * groups * n if parts > 1 else 0


def fp8_scratch(xq: Tensor, xs: Tensor, weight: WeightHandle) -> int:
    """Scratch of `linear_fp8`."""
    n, k = weight.tensors[0].shape
    return sum(_fp8_scratch(xq.shape[0], 1, n, k))


def grouped_scratch(xq: Tensor, xs: Tensor, weight: WeightHandle) -> int:
    """Scratch of `linear_fp8_grouped`."""
    groups, n, k = weight.tensors[0].shape
    return sum(_fp8_scratch(xq.shape[0], groups, n, k))


@kernel("linear_fp8", version=0, supports=whole_groups, prepare=fp8_prepare, workspace=fp8_scratch)
def linear_fp8(
    xq: Tensor, xs: Tensor, weight: WeightHandle, out: Tensor | None, workspace: Tensor | None = None
) -> Tensor:
    if out is None:
        out = torch.empty((xq.shape[0], weight.tensors[0].shape[0]), dtype=torch.bfloat16, device=xq.device)
    _fp8(xq, xs, weight.tensors, out, workspace, 1)
    return out


@kernel("linear_fp8_grouped", version=0, supports=whole_blocks, prepare=fp8_prepare, workspace=grouped_scratch)
def linear_fp8_grouped(
    xq: Tensor, xs: Tensor, weight: WeightHandle, out: Tensor | None, workspace: Tensor | None = None
) -> Tensor:
    groups, n = weight.tensors[0].shape[:2]
    if out is None:
        out = torch.empty((xq.shape[0], groups, n), dtype=torch.bfloat16, device=xq.device)
    _fp8(xq, xs, weight.tensors, out, workspace, groups)
    return out


def native_scratch(xq: Tensor, xs: Tensor, weight: WeightHandle) -> int:
    """Scratch of the native kernels: parts."""
    *groups, n, k = weight.tensors[0].shape
    outputs = n * (groups[0] if groups else 1)
    parts = -(-k // part_of(outputs, k))
    return 4 * parts * xq.shape[0] * outputs if parts > 1 else 0


# In the interpreter, which has no chip, they come last, so that the others are what runs there.
_NATIVE = {"name": "native", "priority": -1 if INTERPRETED else 1, "archs": ("sm_100",), "prepare": fp8_prepare}


@kernel("linear_fp8", version=0, supports=whole_groups, workspace=native_scratch, **_NATIVE)
def linear_fp8_native(
    xq: Tensor, xs: Tensor, weight: WeightHandle, out: Tensor | None, workspace: Tensor | None = None
) -> Tensor:
    """On a matrix unit that takes codes with block scales."""
    if out is None:
        out = torch.empty((xq.shape[0], weight.tensors[0].shape[0]), dtype=torch.bfloat16, device=xq.device)
    _native(xq, xs, weight.tensors, out, workspace, native_scratch(xq, xs, weight), 1)
    return out


@kernel("linear_fp8_grouped", version=0, supports=whole_blocks, workspace=native_scratch, **_NATIVE)
def linear_fp8_grouped_native(
    xq: Tensor, xs: Tensor, weight: WeightHandle, out: Tensor | None, workspace: Tensor | None = None
) -> Tensor:
    """On a matrix unit that takes codes with block scales."""
    groups, n = weight.tensors[0].shape[:2]
    if out is None:
        out = torch.empty((xq.shape[0], groups, n), dtype=torch.bfloat16, device=xq.device)
    _native(xq, xs, weight.tensors, out, workspace, native_scratch(xq, xs, weight), groups)
    return out


def _native(
    xq: Tensor,
    xs: Tensor,
    weights: tuple[Tensor, ...],
    out: Tensor,
    workspace: Tensor | None,
    size: int,
    groups: int,
) -> None:
    rows, (n, k) = xq.shape[0], weights[0].shape[-2:]
    if not out.numel():
        return
    if workspace is None:
        workspace = torch.empty(size, dtype=torch.uint8, device=xq.device)
    y = workspace[:size].view(torch.float32) if size else out
    codes, scale = (w.view(torch.uint8) for w in weights)
    packed_launch(rows, groups, n, k, False, True, True)(xq.view(torch.uint8), xs, codes, scale, y, rows)
    if size:
        add_launch(out.numel(), n, -(-k // part_of(groups * n, k)), False)(y, None, None, out, out.numel())


def _fp8(
    xq: Tensor, xs: Tensor, weights: tuple[Tensor, ...], out: Tensor, workspace: Tensor | None, groups: int
) -> None:
    weight, scale = weights[0], weights[1].view(torch.uint8)
    clean = weights[1].dtype == CLEAN_DTYPE
    rows, (n, k) = xq.shape[0], weight.shape[-2:]
    if not out.numel():
        return
    x, w = xq.view(torch.uint8), weight.view(torch.uint8)
    sizes = _fp8_scratch(rows, groups, n, k)
    if workspace is None:
        workspace = torch.empty(sum(sizes), dtype=torch.uint8, device=xq.device)
    x_bytes, w_bytes, _ = sizes
    if x_bytes:
        unpacked = workspace[:x_bytes].view(torch.bfloat16)
        unpack_launch(rows * groups, k, 1)(x, xs, unpacked, rows * groups)
        x = unpacked
    if w_bytes:
        wide = workspace[x_bytes : x_bytes + w_bytes].view(torch.bfloat16)
        # Blocks of 32 outputs lie across groups as well, as a group has whole blocks where there are several.
        unpack_launch(groups * n, k, GROUP)(w, scale, wide, groups * n)
        part = part_of(groups * n, k)
        many_launch(rows, groups, n, dealt(k), part, False)(x, wide, None, None, out, rows)
        return
    parts = -(-k // part_of(groups * n, k))
    y = out if parts == 1 else workspace[x_bytes : sum(sizes)].view(torch.float32)
    packed_launch(rows, groups, n, k, clean, not x_bytes)(x, None if x_bytes else xs, w, scale, y, rows)
    if parts > 1:
        add_launch(out.numel(), n, parts, False)(y, None, None, out, out.numel())


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
