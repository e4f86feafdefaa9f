"""The experts' linear layers: FP8 rows times FP4 weights, rows packed by expert. Kernels: `grouped_kernels.py`.

How many rows an expert has only the device knows. So one small kernel lists the tiles of rows there are, and the
product is launched with a program for every tile that there could be; those without a tile end at once. Experts without
rows have no tile. Sums run over all of K from 0, as `linear_kernels.py` says.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...hal.registry import Signature
from ...ops.spec import WeightHandle
from . import grouped_kernels as device
from .jit import INTERPRETED
from .linear_launches import (
    BLOCK,
    BLOCKS,
    CLEAN_DTYPE,
    GROUP,
    Launch,
    aligned,
    clean_scale,
    dealt,
    in_blocks,
    unpack_launch,
)  # fmt: skip
from .portable_weights import FP4_CLEAN
from .register import kernel
from .strides import power_of_two

SCALES = device.SCALES.value
FEW = 16
"""Tiles of so many rows unpack their FP8 rows themselves; for larger ones all rows are unpacked first."""


def whole_groups(signature: Signature) -> str | None:
    """Channels have scales in groups of 32, that is 16 packed bytes."""
    packed = signature.dims["H"]
    return None if 2 * packed % GROUP == 0 and packed else f"rows must hold a multiple of 16 packed bytes, got {packed}"


def row_tile(rows: int, experts: int) -> int:
    """Rows of a tile, by how many an expert has if all are used. Bits do not depend on it."""
    mean = rows / max(1, experts)
    return next((tile for most, tile in ((16, 16), (48, 32), (96, 64), (192, 128)) if mean <= most), 256)


def tiles_of(rows: int, experts: int, tile: int) -> int:
    """Tiles that there can be: of each expert with rows one may be partial."""
    return rows // tile + min(experts, rows)


def product_launch(rows: int, experts: int, n: int, k: int, clean: bool, native: bool = False) -> Launch:
    """The product."""
    tile = row_tile(rows, experts)
    constants = {
        "N": n,
        "K": k,
        "CLEAN": clean,
        "BLOCKED": not native and blocked(n, k),
        "X8": native or tile <= FEW,
        "NATIVE": native,
        "BLOCK_N": 128,
        "BLOCK_T": tile,
        "BLOCK_K": 128,
    }
    grid = (tiles_of(rows, experts, tile) * -(-n // 128),)
    return Launch(device.grouped_linear_tiles, grid, constants, 8 if tile >= 128 else 4, 3)


def plan_launch(rows: int, experts: int) -> Launch:
    """The list of tiles."""
    constants = {"E": experts, "SPAN": power_of_two(experts), "BLOCK_T": row_tile(rows, experts)}
    return Launch(device.plan_tiles, (1,), constants, 4, 1)


def blocked(n: int, k: int) -> bool:
    """Whether weights of this size lie in blocks: codes of 64 outputs by 64 channels, scales of 64 by 256."""
    return n % BLOCK == 0 and k % (GROUP * SCALES) == 0


def prepare(weight: Tensor, scale: Tensor) -> tuple[Tensor, ...]:
    """Codes and scales in blocks where they fill them, scales marked where all are clean. Waits for the device."""
    if blocked(weight.shape[1], 2 * weight.shape[2]):
        weight, scale = in_blocks(weight, BLOCK // 2), in_blocks(scale, SCALES)
    weight, scale = aligned(weight, scale)
    return weight, clean_scale(scale, FP4_CLEAN)


def _scratch(x_rows: int, rows: int, experts: int, k: int) -> tuple[int, int]:
    """Bytes for unpacked rows, for the list of tiles."""
    tile = row_tile(rows, experts)
    return 0 if tile <= FEW else 2 * x_rows * dealt(k), 4 * (1 + 2 * tiles_of(rows, experts, tile))


def scratch(xq: Tensor, xs: Tensor, weight: WeightHandle, source_row: Tensor | None, offsets: Tensor) -> int:
    """Scratch of `grouped_linear`."""
    rows = (xq if source_row is None else source_row).shape[0]
    return sum(_scratch(xq.shape[0], rows, weight.tensors[0].shape[0], xq.shape[1]))


@kernel("grouped_linear", version=0, supports=whole_groups, layout=BLOCKS, prepare=prepare, workspace=scratch)
def grouped_linear(
    xq: Tensor,
    xs: Tensor,
    handle: WeightHandle,
    source_row: Tensor | None,
    offsets: Tensor,
    out: Tensor | None,
    workspace: Tensor | None = None,
) -> Tensor:
    weight, scale = handle.tensors[0], handle.tensors[1].view(torch.uint8)
    clean = handle.tensors[1].dtype == CLEAN_DTYPE
    rows, (experts, n), (x_rows, k) = (xq if source_row is None else source_row).shape[0], weight.shape[:2], xq.shape
    if out is None:
        out = torch.empty((rows, n), dtype=torch.bfloat16, device=xq.device)
    if not out.numel() or not experts or not x_rows:
        return out
    x_bytes, plan_bytes = _scratch(x_rows, rows, experts, k)
    if workspace is None:
        workspace = torch.empty(x_bytes + plan_bytes, dtype=torch.uint8, device=xq.device)
    plan = workspace[x_bytes : x_bytes + plan_bytes].view(torch.int32)
    plan_launch(rows, experts)(offsets, plan)
    x = xq.view(torch.uint8)
    if x_bytes:
        unpacked = workspace[:x_bytes].view(torch.bfloat16)
        unpack_launch(x_rows, k, 1, True)(x, xs, unpacked, x_rows)
        x = unpacked
    product_launch(rows, experts, n, k, clean)(
        x, None if x_bytes else xs, weight, scale, source_row, offsets, plan, out
    )  # fmt: skip
    return out


def native_scratch(xq: Tensor, xs: Tensor, weight: WeightHandle, source_row: Tensor | None, offsets: Tensor) -> int:
    """Scratch of the native kernel: the list of tiles."""
    rows = (xq if source_row is None else source_row).shape[0]
    return _scratch(0, rows, weight.tensors[0].shape[0], xq.shape[1])[1]


# In the interpreter, which has no chip, it comes last, so that the other is what runs there.
@kernel(
    "grouped_linear", version=0, name="native", priority=-1 if INTERPRETED else 1, archs=("sm_100",),
    supports=whole_groups, prepare=aligned, workspace=native_scratch,
)  # fmt: skip
def grouped_linear_native(
    xq: Tensor,
    xs: Tensor,
    handle: WeightHandle,
    source_row: Tensor | None,
    offsets: Tensor,
    out: Tensor | None,
    workspace: Tensor | None = None,
) -> Tensor:
    """On a matrix unit that takes codes with block scales."""
    weight, scale = handle.tensors[0], handle.tensors[1].view(torch.uint8)
    rows, (experts, n), (x_rows, k) = (xq if source_row is None else source_row).shape[0], weight.shape[:2], xq.shape
    if out is None:
        out = torch.empty((rows, n), dtype=torch.bfloat16, device=xq.device)
    if not out.numel() or not experts or not x_rows:
        return out
    size = native_scratch(xq, xs, handle, source_row, offsets)
    if workspace is None:
        workspace = torch.empty(size, dtype=torch.uint8, device=xq.device)
    plan = workspace[:size].view(torch.int32)
    plan_launch(rows, experts)(offsets, plan)
    product_launch(rows, experts, n, k, False, True)(
        xq.view(torch.uint8), xs, weight, scale, source_row, offsets, plan, out
    )  # fmt: skip
    return out
