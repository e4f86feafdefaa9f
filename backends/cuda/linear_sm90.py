"""FP8 weights and few rows on SM90, in CUDA C++ (`source/linear_sm90.cu`), above the Triton kernels in priority.

A decode step reads weights, so the kernel is made to keep reads on their way: a thread has four or eight units of codes
ahead of it in registers. A block has a tile of outputs and one part of the channels; the blocks of all parts of a tile
are a cluster, which adds them up. More rows, and weights that are not clean, go the Triton way. Bits are the same.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...hal.registry import Signature
from ...ops.spec import WeightHandle
from . import linear_fp8 as triton
from .linear_launches import CLEAN_DTYPE, MOST_PARTS, part_of
from .register import kernel
from .source import SourceKernel

ROWS = (8, 16, 32, 64)
"""Rows of a tile; a call with more goes another way."""
BLOCKS = 132
"""Blocks that fill a GPU if each is alone on its multiprocessor."""
_FACTORS = 4096
"""Bytes of shared memory for scales: 4 for each 32 channels of a part and 32 outputs of a tile."""


def _kernel(rows: int, wide: bool) -> SourceKernel:
    """Two warpgroups a block and two blocks a multiprocessor, or one of one that reads twice as far ahead."""
    space = 98304 if wide else 131072
    defines = {"ROWS": rows, "WARPGROUPS": 2 if wide else 1, "RING": 4 if wide else 8,
               "X_BYTES": space, "RESIDENT": 2 if wide else 1}  # fmt: skip
    return SourceKernel(
        "linear_sm90.cu", "linear", "PPPPPiiiii", threads=256 if wide else 128, shared=space + _FACTORS,
        defines=defines, archs=("sm_90",),
    )  # fmt: skip


KERNELS = {(rows, wide): _kernel(rows, wide) for rows in ROWS for wide in (True, False)}
SOURCES = list(KERNELS.values())


def supported(groups: int, n: int, k: int) -> str | None:
    """Whole tiles of outputs, whole blocks of 64 channels, and scales of a part that fit shared memory."""
    if n % 128 or k % 64 or not n or not k:
        return f"N must be a multiple of 128 and K one of 64, got {n} and {k}"
    part = part_of(groups * n, k)
    if part // 32 * 16 > _FACTORS or -(-k // part) > MOST_PARTS:
        return f"K must be at most {_FACTORS * 2} where it is not cut, got {k} (in {-(-k // part)} parts)"
    return None


def supports(signature: Signature) -> str | None:
    """As `supported` says."""
    return supported(1, signature.dims["N"], signature.dims["K"])


def supports_groups(signature: Signature) -> str | None:
    """As `supported` says."""
    return supported(signature.dims["G"], signature.dims["N"], signature.dims["K"])


def takes(rows: int, weights: tuple[Tensor, ...]) -> bool:
    """Whether a call goes this way."""
    return rows <= ROWS[-1] and weights[1].dtype == CLEAN_DTYPE


def launch(xq: Tensor, xs: Tensor, weights: tuple[Tensor, ...], out: Tensor, groups: int) -> None:
    """y of few rows."""
    rows, (n, k) = xq.shape[0], weights[0].shape[-2:]
    part = part_of(groups * n, k)
    parts = -(-k // part)
    wide = groups * (n // 128) * parts > BLOCKS // 2
    tile = next(most for most in ROWS if rows <= most)
    grid = groups * (n // (128 if wide else 64)), 1, parts
    KERNELS[tile, wide].launch(
        grid, xq.device.index, xq.data_ptr(), xs.data_ptr(), weights[0].data_ptr(), weights[1].data_ptr(),
        out.data_ptr(), rows, groups, n, k, part, cluster=(1, 1, parts) if parts > 1 else None,
    )  # fmt: skip


def _run(
    xq: Tensor, xs: Tensor, weights: tuple[Tensor, ...], out: Tensor, workspace: Tensor | None, groups: int
) -> None:
    if not takes(xq.shape[0], weights):
        triton.run(xq, xs, weights, out, workspace, groups)
    elif out.numel():
        launch(xq, xs, weights, out, groups)


_OPTIONS: dict[str, Any] = {
    "version": 0, "name": "sm90", "priority": 2, "source": "cuda", "archs": ("sm_90",), "prepare": triton.fp8_prepare,
}  # fmt: skip


def scratch(xq: Tensor, xs: Tensor, weight: WeightHandle) -> int:
    """Scratch of `linear_fp8`."""
    return 0 if takes(xq.shape[0], weight.tensors) else triton.fp8_scratch(xq, xs, weight)


def grouped_scratch(xq: Tensor, xs: Tensor, weight: WeightHandle) -> int:
    """Scratch of `linear_fp8_grouped`."""
    return 0 if takes(xq.shape[0], weight.tensors) else triton.grouped_scratch(xq, xs, weight)


@kernel("linear_fp8", supports=supports, workspace=scratch, **_OPTIONS)
def linear_fp8(
    xq: Tensor, xs: Tensor, weight: WeightHandle, out: Tensor | None, workspace: Tensor | None = None
) -> Tensor:
    if out is None:
        out = torch.empty((xq.shape[0], weight.tensors[0].shape[0]), dtype=torch.bfloat16, device=xq.device)
    _run(xq, xs, weight.tensors, out, workspace, 1)
    return out


@kernel("linear_fp8_grouped", supports=supports_groups, workspace=grouped_scratch, **_OPTIONS)
def linear_fp8_grouped(
    xq: Tensor, xs: Tensor, weight: WeightHandle, out: Tensor | None, workspace: Tensor | None = None
) -> Tensor:
    groups, n = weight.tensors[0].shape[:2]
    if out is None:
        out = torch.empty((xq.shape[0], groups, n), dtype=torch.bfloat16, device=xq.device)
    _run(xq, xs, weight.tensors, out, workspace, groups)
    return out
