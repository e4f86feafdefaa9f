"""FP8 weights with 65 to 256 rows, and the experts' FP4 weights with more than 16 each, on SM90 in CUDA C++.

`source/linear_wide_sm90.cu`: blocks that stay, and bits of the other ways. Calls with other numbers of rows, and
weights that are not clean, go the ways of `linear_sm90.py` and `grouped_sm90.py`.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...hal.registry import Signature
from ...ops.spec import WeightHandle
from . import grouped, grouped_sm90, linear_sm90
from .linear_fp8 import fp8_prepare, launcher, sizes_of
from .linear_launches import BLOCKS, CLEAN_DTYPE, part_of
from .linear_sm90 import PROCESSORS
from .register import kernel
from .source import SourceKernel

LEAST, MOST = 65, 256
"""Rows of a call of FP8 weights."""
MEAN = 192
"""Up to so many rows for each expert, a call goes this way."""
EXPERT_ROWS = 128
"""Most rows of a tile of an expert's."""
FEW_MEAN = 64
"""Up to so many rows for each expert, tiles are of few rows."""
LINE = 128
"""The image of rows begins at a multiple of so many bytes."""
_SHARED = 232448
_UNPACKING = 250
"""Clocks, about, from a unit of codes to its product; one with a row takes 2 for each warpgroup."""


class Tile(NamedTuple):
    """Warpgroups of a block, of 64 outputs each, and rows; weights of eight bits or of four."""

    warpgroups: int
    rows: int
    bits: int = 8

    @property
    def outputs(self) -> int:
        """Outputs."""
        return 64 * self.warpgroups

    @property
    def sums(self) -> int:
        """Bytes of the tile's sums in shared memory."""
        return 4 * self.rows * (self.outputs + 4)

    @property
    def stage(self) -> int:
        """Bytes of 64 channels of all rows, and of the codes."""
        return 128 * self.rows + self.warpgroups * 512 * self.bits

    @property
    def rest(self) -> int:
        """Bytes beside the stages and their barriers: sums, and scales of four bits with theirs."""
        return self.sums + (4 * (512 * self.warpgroups + 16) if self.bits == 4 else 0)

    @property
    def stages(self) -> int:
        """As many as there is room for."""
        return min(10, (_SHARED - 1024 - self.rest) // (self.stage + 16))

    @property
    def shared(self) -> int:
        """Bytes: stages, two barriers for each, the rest."""
        return self.stages * (self.stage + 16) + self.rest

    @property
    def clocks(self) -> int:
        """Of 64 channels: products one after the other, or a product and its unpacking where too few take turns."""
        return max(2 * self.rows * self.warpgroups, 2 * self.rows + _UNPACKING)

    def down(self, rows: int) -> int:
        """Tiles of so many rows."""
        return -(-rows // self.rows)


TILES = (Tile(2, 64), Tile(2, 96), Tile(2, 128), Tile(4, 64))
"""Of FP8 weights. Four warpgroups have 112 registers a thread, which more rows would spill."""


@functools.cache
def tile_of(rows: int, groups: int, n: int, k: int) -> Tile:
    """The tile of a call: the least time by `clocks` and the blocks of a multiprocessor; the largest of equals."""
    parts = linear_sm90.parts_of(groups, n, k)

    def cost(tile: Tile) -> tuple[int, int]:
        blocks = groups * n // tile.outputs * tile.down(rows) * parts
        return -(-blocks // PROCESSORS) * tile.clocks, -tile.outputs * tile.rows

    return min((tile for tile in TILES if n % tile.outputs == 0), key=cost)


def _defines(tile: Tile) -> dict[str, int]:
    return {"ROWS": tile.rows, "WARPGROUPS": tile.warpgroups, "STAGES": tile.stages}


@functools.cache
def source(tile: Tile) -> SourceKernel:
    """The product of FP8 weights."""
    return SourceKernel(
        "linear_wide_sm90.cu", "linear", "PPPPiiiiii", threads=128 * (tile.warpgroups + 1), shared=tile.shared,
        defines=_defines(tile), archs=("sm_90",),
    )  # fmt: skip


IMAGE = SourceKernel("linear_wide_sm90.cu", "image", "PPPiiii", threads=128, archs=("sm_90",))


@functools.cache
def experts(tile: Tile) -> SourceKernel:
    """The product of the experts' weights."""
    return SourceKernel(
        "linear_wide_sm90.cu", "grouped", "PPPPPiiii", threads=128 * (tile.warpgroups + 1), shared=tile.shared,
        defines={"FP4": 1} | _defines(tile), archs=("sm_90",),
    )  # fmt: skip


FEW_EXPERT_ROWS, MANY_EXPERT_ROWS = Tile(4, 64, 4), Tile(2, EXPERT_ROWS, 4)
PACKED_IMAGE = SourceKernel(
    "linear_wide_sm90.cu", "packed_image", "PPPPPiiii", threads=128, defines={"FP4": 1}, archs=("sm_90",)
)
SOURCES = [*map(source, TILES), IMAGE, experts(FEW_EXPERT_ROWS), experts(MANY_EXPERT_ROWS), PACKED_IMAGE]


# ---- FP8 weights ----------------------------------------------------------------------------------------------------


def takes(rows: int, weights: tuple[Tensor, ...]) -> bool:
    """Whether a call goes this way."""
    return LEAST <= rows <= MOST and weights[1].dtype == CLEAN_DTYPE


def _image_bytes(rows: int, groups: int, n: int, k: int) -> int:
    tile = tile_of(rows, groups, n, k)
    return 2 * tile.down(rows) * tile.rows * groups * k + LINE


def scratch(xq: Tensor, xs: Tensor, weight: WeightHandle) -> int:
    """Scratch of `linear_fp8` and `linear_fp8_grouped`."""
    if takes(xq.shape[0], weight.tensors):
        return _image_bytes(xq.shape[0], *sizes_of(weight.tensors))
    return linear_sm90.scratch(xq, xs, weight)


def run(
    xq: Tensor, xs: Tensor, weights: tuple[Tensor, ...], out: Tensor, workspace: Tensor | None, groups: int
) -> None:
    """As `linear_fp8.run`."""
    rows, (n, k), device = xq.shape[0], weights[0].shape[-2:], xq.device.index
    if not takes(rows, weights):
        linear_sm90.run(xq, xs, weights, out, workspace, groups)
        return
    if workspace is None:
        workspace = torch.empty(_image_bytes(rows, groups, n, k), dtype=torch.uint8, device=xq.device)
    image = -(-workspace.data_ptr() // LINE) * LINE
    tile, part, parts = tile_of(rows, groups, n, k), part_of(groups * n, k), linear_sm90.parts_of(groups, n, k)
    lines = tile.down(rows) * tile.rows
    halves = 2 * lines * groups * (k // 64)
    IMAGE.launch(
        (-(-halves // 128), 1, 1), device, xq.data_ptr(), xs.data_ptr(), image, rows, lines, groups, k, early=True
    )
    tiles = groups * n // tile.outputs * tile.down(rows)
    source(tile).launch(
        (min(tiles, max(1, PROCESSORS // parts)), 1, parts), device, image, weights[0].data_ptr(),
        weights[1].data_ptr(), out.data_ptr(), rows, lines, groups, n, k, part,
        cluster=(1, 1, parts) if parts > 1 else None, early=True,
    )  # fmt: skip


_OPTIONS: dict[str, Any] = {
    "version": 0, "name": "sm90_wide", "priority": 3, "source": "cuda", "archs": ("sm_90",), "layout": BLOCKS,
}  # fmt: skip
_FP8: dict[str, Any] = _OPTIONS | {"prepare": fp8_prepare, "workspace": scratch}
kernel("linear_fp8", supports=linear_sm90.supports, **_FP8)(launcher(run, __name__))
kernel("linear_fp8_grouped", supports=linear_sm90.supports_groups, **_FP8)(launcher(run, __name__))


# ---- experts --------------------------------------------------------------------------------------------------------


def supports(signature: Signature) -> str | None:
    """Whole tiles of outputs; 256 channels at a time."""
    n, k = signature.dims["N"], 2 * signature.dims["H"]
    if n % FEW_EXPERT_ROWS.outputs or k % 256 or not n or not k:
        return f"N must be a multiple of {FEW_EXPERT_ROWS.outputs} and channels of 256, got {n} and {k}"
    return None


def takes_experts(rows: int, weights: tuple[Tensor, ...]) -> bool:
    """Whether a call goes this way."""
    experts = weights[0].shape[0]
    return grouped_sm90.MEAN * experts < rows <= MEAN * experts and weights[1].dtype == CLEAN_DTYPE


def expert_tile(rows: int, count: int) -> Tile:
    """The tile for so many experts: one is to hold most experts' rows, since each unpacks the weights."""
    return FEW_EXPERT_ROWS if rows <= FEW_MEAN * count else MANY_EXPERT_ROWS


def expert_lines(rows: int) -> int:
    """Rows of an image: a tile reads whole 32 rows from its first one on, wherever that is."""
    return rows + EXPERT_ROWS


def expert_scratch(xq: Tensor, xs: Tensor, weight: WeightHandle, source_row: Tensor | None, offsets: Tensor) -> int:
    """Scratch of `grouped_linear`."""
    rows = (xq if source_row is None else source_row).shape[0]
    if takes_experts(rows, weight.tensors):
        return 2 * expert_lines(rows) * xq.shape[1] + LINE
    return grouped_sm90.scratch(xq, xs, weight, source_row, offsets)


@kernel("grouped_linear", supports=supports, prepare=grouped.prepare, workspace=expert_scratch, **_OPTIONS)
def grouped_linear(
    xq: Tensor,
    xs: Tensor,
    handle: WeightHandle,
    source_row: Tensor | None,
    offsets: Tensor,
    out: Tensor | None,
    workspace: Tensor | None = None,
) -> Tensor:
    rows = (xq if source_row is None else source_row).shape[0]
    weight, scale = handle.tensors
    if not takes_experts(rows, handle.tensors):
        return grouped_sm90.grouped_linear(xq, xs, handle, source_row, offsets, out, workspace)
    (count, n), k, device = weight.shape[:2], xq.shape[1], xq.device.index
    if out is None:
        out = torch.empty((rows, n), dtype=torch.bfloat16, device=xq.device)
    if not xq.shape[0]:
        return out
    if workspace is None:
        size = expert_scratch(xq, xs, handle, source_row, offsets)
        workspace = torch.empty(size, dtype=torch.uint8, device=xq.device)
    image, lines = -(-workspace.data_ptr() // LINE) * LINE, expert_lines(rows)
    PACKED_IMAGE.launch(
        (-(-2 * rows * (k // 64) // 128), 1, 1), device, xq.data_ptr(), xs.data_ptr(),
        0 if source_row is None else source_row.data_ptr(), offsets.data_ptr(), image, rows, lines, count, k,
        early=True,
    )  # fmt: skip
    tile = expert_tile(rows, count)
    tiles = grouped.tiles_of(rows, count, tile.rows) * (n // tile.outputs)
    experts(tile).launch(
        (min(tiles, PROCESSORS), 1, 1), device, image, weight.data_ptr(), scale.data_ptr(), offsets.data_ptr(),
        out.data_ptr(), lines, count, n, k, early=True,
    )  # fmt: skip
    return out
