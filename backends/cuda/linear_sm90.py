"""FP8 weights and few rows on SM90, in CUDA C++ (`source/linear_sm90.cu`), above the Triton kernels in priority.

A decode step reads weights, so the kernel is made to keep reads on their way: a thread has four or eight units of codes
ahead of it in registers. A block has a tile of outputs and one part of the channels; the blocks of all parts of a tile
are a cluster, which adds them up. Kernels are launched early: the first codes of a weight are on their way before what
came before in the stream has ended, so nobody writes a prepared weight in place while there are calls. More rows, and
weights that are not clean, go the Triton way. Bits are the same.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from ...hal.registry import Signature
from ...ops.spec import WeightHandle
from . import linear_fp8 as triton
from .linear_launches import BLOCKS, CLEAN_DTYPE, MOST_PARTS, part_of
from .register import kernel
from .source import SourceKernel

ROWS = (8, 16, 32, 64)
"""Rows of a tile; a call with more goes another way."""
PROCESSORS = 132
"""Blocks that fill a GPU if each is alone on its multiprocessor."""
DIRECT = 8
"""Up to so many rows every block turns them into bf16 itself; else a kernel before does it for all."""
DIRECT_IN_PARTS = 16
"""The same where channels are cut: clusters find less room while that kernel runs."""
BROAD = 32
"""From so many rows on a block has 256 outputs, where there are enough, so that fewer blocks read the rows."""
_FACTORS = 8192
"""Bytes of shared memory for scales: 4 for each 32 channels of a part and 32 outputs of a tile of up to 256."""
_BARRIERS = 64
_LINE = 128
_SPACE = {1: 196608, 2: 98304, 4: 196608}
"""Bytes of shared memory for rows, by a block's warpgroups, of 64 outputs each: two blocks of two warpgroups share a
multiprocessor. One warpgroup alone reads twice as far ahead."""


@functools.cache
def source(rows: int, warpgroups: int, image: bool) -> SourceKernel:
    """The product with a tile of so many rows."""
    space = _SPACE[warpgroups]
    defines = {"ROWS": rows, "WARPGROUPS": warpgroups, "RING": 8 if warpgroups == 1 else 4, "IMAGE": int(image),
               "X_BYTES": space, "RESIDENT": 2 if warpgroups == 2 else 1}  # fmt: skip
    return SourceKernel(
        "linear_sm90.cu", "linear", "PPPPPiiiii", threads=128 * warpgroups, shared=space + _FACTORS + _BARRIERS,
        defines=defines, archs=("sm_90",),
    )  # fmt: skip


@functools.cache
def image_source(rows: int) -> SourceKernel:
    """The kernel that makes the image of rows."""
    return SourceKernel("linear_sm90.cu", "image", "PPPiii", threads=128, defines={"ROWS": rows}, archs=("sm_90",))


def tile_of(rows: int) -> int:
    """Rows of the tile."""
    return next(most for most in ROWS if rows <= most)


def warpgroups_of(rows: int, groups: int, n: int, parts: int) -> int:
    """Warpgroups of a block, whose outputs are all of one group."""
    if groups * n // 128 * parts <= PROCESSORS // 2:
        return 1
    return 4 if rows >= BROAD and n % 256 == 0 else 2


def images(rows: int, parts: int) -> bool:
    """Whether an image is made of a call's rows."""
    return rows > (DIRECT if parts == 1 else DIRECT_IN_PARTS)


SOURCES = [
    source(tile, count, images(tile, parts))
    for tile in ROWS
    for count in (1, 2, 4)
    for parts in (1, 2)
    if (count < 4 or tile >= BROAD) and (parts == 1 or images(tile, 1) != images(tile, 2))
]
SOURCES += [image_source(tile) for tile in ROWS if images(tile, 1)]


def supported(groups: int, n: int, k: int) -> str | None:
    """Whole tiles of outputs, whole blocks of 64 channels, and scales of a part that fit shared memory."""
    if n % 128 or k % 64 or not n or not k:
        return f"N must be a multiple of 128 and K one of 64, got {n} and {k}"
    part = part_of(groups * n, k)
    if part // 32 * 32 > _FACTORS or -(-k // part) > MOST_PARTS:
        return f"K must be at most {_FACTORS} where it is not cut, got {k} (in {-(-k // part)} parts)"
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


def parts_of(groups: int, n: int, k: int) -> int:
    """Parts of a weight's channels."""
    return -(-k // part_of(groups * n, k))


def image_bytes(rows: int, groups: int, n: int, k: int) -> int:
    """Bytes of scratch for the image of a call's rows, which begins at a multiple of `_LINE` in it."""
    return 2 * tile_of(rows) * groups * k + _LINE if images(rows, parts_of(groups, n, k)) else 0


def launch(xq: Tensor, xs: Tensor, weights: tuple[Tensor, ...], out: Tensor, image: Tensor | None, groups: int) -> None:
    """y of few rows. image: scratch of `image_bytes`."""
    rows, (n, k), device = xq.shape[0], weights[0].shape[-2:], xq.device.index
    part = part_of(groups * n, k)
    parts = parts_of(groups, n, k)
    tile, x = tile_of(rows), xq.data_ptr()
    if image is not None:
        x = -(-image.data_ptr() // _LINE) * _LINE
        turns = 2 * tile * groups * (k // 64)
        image_source(tile).launch(
            (-(-turns // 128), 1, 1), device, xq.data_ptr(), xs.data_ptr(), x, rows, groups, k, early=True
        )
    count = warpgroups_of(tile, groups, n, parts)
    source(tile, count, image is not None).launch(
        (groups * n // (64 * count), 1, parts), device, x, xs.data_ptr(), weights[0].data_ptr(),
        weights[1].data_ptr(), out.data_ptr(), rows, groups, n, k, part,
        cluster=(1, 1, parts) if parts > 1 else None, early=True,
    )  # fmt: skip


def run(
    xq: Tensor, xs: Tensor, weights: tuple[Tensor, ...], out: Tensor, workspace: Tensor | None, groups: int
) -> None:
    """As `linear_fp8.run`."""
    if not takes(xq.shape[0], weights):
        triton.run(xq, xs, weights, out, workspace, groups)
    elif out.numel():
        size = image_bytes(xq.shape[0], groups, *weights[0].shape[-2:])
        if size and workspace is None:
            workspace = torch.empty(size, dtype=torch.uint8, device=xq.device)
        launch(xq, xs, weights, out, workspace if size else None, groups)


def scratch(xq: Tensor, xs: Tensor, weight: WeightHandle) -> int:
    """Scratch of `linear_fp8` and `linear_fp8_grouped`."""
    if not takes(xq.shape[0], weight.tensors):
        return triton.scratch(xq, xs, weight)
    return image_bytes(xq.shape[0], *triton.sizes_of(weight.tensors))


_OPTIONS: dict[str, Any] = {
    "version": 0, "name": "sm90", "priority": 2, "source": "cuda", "archs": ("sm_90",), "layout": BLOCKS,
    "prepare": triton.fp8_prepare, "workspace": scratch,
}  # fmt: skip
kernel("linear_fp8", supports=supports, **_OPTIONS)(triton.launcher(run, __name__))
kernel("linear_fp8_grouped", supports=supports_groups, **_OPTIONS)(triton.launcher(run, __name__))
