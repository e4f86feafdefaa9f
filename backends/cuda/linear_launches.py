"""Launches of `linear_kernels.py`: tiles by rows and widths, and the cut of K into parts, which is no choice.

A launch is data, so that what runs and what is compiled ahead of time are made by the same functions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from . import linear_kernels as device
from .compile_list import CompileCase
from .jit import INTERPRETED

GROUP = 32
FEW = 16
"""Up to so many rows FP8 rows are unpacked by every program that reads them."""
MANY = 256
"""From so many rows on FP8 weights are unpacked first."""
TILE = 128
"""Outputs of a program, as far as the cut into parts goes."""
PROGRAMS = 200
"""Programs that a cut into parts aims at."""
ENOUGH = 64
"""Tiles that are not cut: with half a tile each, they fill a GPU."""
MOST_PARTS = 8
"""Parts of few tiles: blocks that a GPU can have work together."""
WIDE_PARTS = 5
"""Parts of more than `FEW_TILES` tiles: so many blocks fit the groups of multiprocessors that can work together."""
FEW_TILES = 16
PART = 512
"""Fewest channels of a part."""
DEAL = device.DEAL.value
BF16_FEW = 64
"""Up to so many rows outputs take the side of the matrix unit that wants 64."""


def part_of(outputs: int, k: int) -> int:
    """Channels of a part, a multiple of 128: K whole where the outputs alone fill a GPU. By static sizes only: it is
    part of what a weight computes."""
    tiles = -(-outputs // TILE)
    most = MOST_PARTS if tiles <= FEW_TILES else WIDE_PARTS
    parts = max(1, min(-(-PROGRAMS // tiles), k // PART, most)) if tiles < ENOUGH else 1
    return -(-k // (parts * 128)) * 128


@dataclass(frozen=True)
class Launch:
    """One kernel of a call: what a compile list and a launcher both need."""

    kernel: Any
    grid: tuple[int, ...]
    constants: dict[str, Any]
    num_warps: int
    num_stages: int

    def __call__(self, *args: Any) -> None:
        self.kernel[self.grid](
            *args, **self.constants, num_warps=self.num_warps, num_stages=self.num_stages, enable_fp_fusion=True
        )

    def case(self, label: str, types: dict[str, str | None], **options: Any) -> CompileCase:
        """The same, compiled ahead for arguments of these types."""
        return CompileCase(
            self.kernel, types, self.constants, self.num_warps, self.num_stages, label,
            options={"enable_fp_fusion": True}, **options,
        )  # fmt: skip


def _row_tile(rows: int) -> int:
    return 16 if rows <= 16 else 32 if rows <= 32 else 64 if rows <= 64 else 128


def packed_launch(rows: int, groups: int, n: int, k: int, clean: bool, x8: bool, native: bool = False) -> Launch:
    """FP8 weights that are unpacked on the way, or with `native` by the matrix unit itself, as rows in FP8 are."""
    part, tile = part_of(groups * n, k), _row_tile(rows)
    outputs = 64 if tile == 16 and not native else 128
    grid = groups * -(-n // outputs), -(-rows // tile), -(-k // part)
    constants = {"G": groups, "N": n, "K": k, "PART": part, "CLEAN": clean,
                 "BLOCKED": not native and blocked(n, k), "X8": x8, "NATIVE": native,
                 "BLOCK_N": outputs, "BLOCK_T": tile, "BLOCK_K": 128}  # fmt: skip
    return Launch(device.packed_linear, grid, constants, 8 if tile >= 64 else 4, 4 if tile <= 32 else 3)


def unpack_launch(rows: int, k: int, shared: int, fp4: bool = False, blocks: bool = False) -> Launch:
    """FP8 to bf16, dealt, for FP8 weights or for FP4 ones; a row of scales for so many rows."""
    block = min(512, -(-k // DEAL) * DEAL)
    block = 1 << (block - 1).bit_length()
    tile = max(1, 4096 // block)
    return Launch(
        device.unpack_fp8, (-(-rows // tile) * -(-k // block),),
        {"K": k, "WIDTH": dealt(k), "SHARED": shared, "FP4": fp4, "BLOCKED": blocks,
         "BLOCK_T": tile, "BLOCK_K": block}, 4, 1,
    )  # fmt: skip


def few_launch(rows: int, n: int, k: int, part: int, gelu: bool) -> Launch:
    """bf16 weights and few rows."""
    tile = _row_tile(rows)
    outputs = 64 if tile <= 32 else 128
    block = 128 if tile <= 32 or INTERPRETED else 64
    grid = -(-n // outputs), -(-rows // tile), -(-k // part)
    constants = {"N": n, "K": k, "PART": part, "GELU": gelu, "BLOCK_N": outputs, "BLOCK_T": tile, "BLOCK_K": block}
    return Launch(device.few_rows, grid, constants, 4, 4)


def many_launch(rows: int, groups: int, n: int, k: int, part: int, gelu: bool) -> Launch:
    """bf16 weights and many rows."""
    # The interpreter rounds once a product, so there all ways must have products of as many channels.
    tile, outputs, block = 128, 256 if part >= k and n > 128 else 128, 128 if INTERPRETED else 64
    constants = {"G": groups, "N": n, "K": k, "PART": part, "GELU": gelu,
                 "BLOCK_N": outputs, "BLOCK_T": tile, "BLOCK_K": block}  # fmt: skip
    stages = 3 if outputs == 256 or INTERPRETED else 4
    return Launch(device.many_rows, (-(-rows // tile) * -(-n // outputs), groups), constants, 8, stages)


def add_launch(elements: int, n: int, parts: int, gelu: bool) -> Launch:
    """The sum of parts."""
    constants = {"N": n, "PARTS": parts, "GELU": gelu, "BLOCK": 1024}
    return Launch(device.add_parts, (-(-elements // 1024),), constants, 4, 1)


def dealt(k: int) -> int:
    """Channels of an unpacked row."""
    return -(-k // DEAL) * DEAL


BLOCK = device.BLOCK.value
BLOCKS = "blocks of 64"
"""Name of the layout of weights in blocks, and of those that have no whole ones and stay as they are."""


def blocked(n: int, k: int) -> bool:
    """Whether FP8 weights of this size lie in blocks of 64 outputs by 64 channels."""
    return n % BLOCK == 0 and k % BLOCK == 0


def in_blocks(codes: Tensor, across: int) -> Tensor:
    """Bytes [..., N, W] in blocks of 64 rows by `across` bytes, one after the other along W first; the shape stays."""
    *rest, n, width = codes.shape
    cut = codes.view(torch.uint8).reshape(*rest, n // BLOCK, BLOCK, width // across, across)
    return cut.transpose(-3, -2).contiguous().view(codes.dtype).view(codes.shape)


CLEAN_DTYPE = torch.int8
"""Dtype of the scales of a prepared weight that is clean, as `portable_weights.py` says: kernels for it are shorter."""


def clean_scale(scale: Tensor, most: int, codes: Tensor | None = None) -> Tensor:
    """Scale bytes, marked where none is above `most` and no E4M3 code is NaN. Waits for the device: once, at load."""
    broken = scale.numel() and int(scale.max()) > most
    if codes is not None and codes.numel() and not broken:
        broken = bool(((codes.view(torch.uint8) & 0x7F) == 0x7F).any())
    return scale if broken else scale.view(CLEAN_DTYPE)


def aligned(*weights: Tensor) -> tuple[Tensor, ...]:
    """Weights as they are, at addresses that wide loads can take."""
    return tuple(w if w.data_ptr() % 16 == 0 else w.clone() for w in weights)
