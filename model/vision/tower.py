"""The image tower: patches through a ViT, merged and projected to the width of the text model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from ... import ops
from ...ops.spec import WeightHandle
from ..config import VisionConfig
from .decode import FittedImage
from .resize import ResizePlan

NORM_EPS = 1e-6
PATCHES_AT_ONCE = 1 << 14
"""Patches of one pass; images are taken together up to there. Changes no bit, since a patch depends on its image."""


@dataclass(frozen=True)
class LinearWeights:
    """A linear layer: weight prepared for `ops.vision_linear`, bias bf16 [N] or None."""

    weight: WeightHandle
    bias: torch.Tensor | None

    def __call__(self, x: torch.Tensor, residual: torch.Tensor | None = None, activation: str = "none") -> torch.Tensor:
        return ops.vision_linear(x, self.weight, self.bias, residual, activation)


@dataclass(frozen=True)
class BlockWeights:
    """One block. w1 holds gate, then up; norms are bf16 [Vh]."""

    norm1: torch.Tensor
    wqkv: LinearWeights
    wo: LinearWeights
    norm2: torch.Tensor
    w1: LinearWeights
    w2: LinearWeights


@dataclass(frozen=True)
class VisionWeights:
    """The tower and the projector.

    Attributes:
        patch_embed: [Vh, 3 p p]. blocks: in order. norm: bf16 [Vh].
        project1, project2: the two layers of the projector.
        marks: bf16 [3, D], the learned vectors of `spans.MARKS`.
        table: fp32 [P, d/4, 2], cosine and sine of rows and columns.
    """

    patch_embed: LinearWeights
    blocks: Sequence[BlockWeights]
    norm: torch.Tensor
    project1: LinearWeights
    project2: LinearWeights
    marks: torch.Tensor
    table: torch.Tensor


class VisionTower:
    """Encodes images. An image's embeddings depend on that image alone, whatever is encoded with it."""

    def __init__(self, config: VisionConfig, weights: VisionWeights, device: torch.device) -> None:
        self.config = config
        self.weights = weights
        self.device = device

    @property
    def marks(self) -> torch.Tensor:
        """bf16 [3, D], the learned vectors of `spans.MARKS`."""
        return self.weights.marks

    def encode(self, images: Sequence[FittedImage]) -> list[torch.Tensor]:
        """Embeddings of images, in order: bf16 [token_rows * token_columns, D] each, row by row."""
        embeds: list[torch.Tensor] = []
        for group in _groups(images):
            rows = self._run(group)
            embeds += rows.split([image.plan.token_rows * image.plan.token_columns for image in group])
        return embeds

    def _run(self, images: Sequence[FittedImage]) -> torch.Tensor:
        """All embeddings of some images, one after the other."""
        config, weights = self.config, self.weights
        plans = [image.plan for image in images]
        place, begin, end = (self._put(array) for array in patch_places(plans))
        pixels = np.concatenate([image.pixels.reshape(-1) for image in images])
        x = ops.image_patches(place, self._put(pixels), self._put(described(images)), config.patch_size)
        x = weights.patch_embed(x)
        heads = (config.num_attention_heads, config.hidden_size // config.num_attention_heads)
        for block in weights.blocks:
            qkv = block.wqkv(ops.rms_norm(x, block.norm1, NORM_EPS)).view(-1, 3, *heads)
            qkv = ops.image_rope(qkv, place, weights.table)
            o = ops.image_attention(*qkv.unbind(1), begin, end, heads[1] ** -0.5)
            x = block.wo(o.view(-1, config.hidden_size), x)
            hidden = ops.silu_mul(block.w1(ops.rms_norm(x, block.norm2, NORM_EPS)))
            x = block.w2(hidden, x)
        x = ops.rms_norm(x, weights.norm, NORM_EPS)
        merged = ops.merge_patches(x, self._put(merge_sources(plans, config.downsample_ratio)))
        return weights.project2(weights.project1(merged, activation="gelu"))

    def _put(self, array: npt.NDArray[np.generic]) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device)


def most_patches(vision: VisionConfig) -> int:
    """The most patches along a side of an image."""
    return (vision.max_image_tokens - 2) * vision.downsample_ratio


def described(images: Sequence[FittedImage]) -> npt.NDArray[np.int64]:
    """`images` of `ops.image_patches` for pixels that lie one after the other."""
    rows, offset = [], 0
    for image in images:
        height, width = image.pixels.shape[:2]
        rows.append((offset, width, height, image.left, image.top))
        offset += image.pixels.size
    return np.array(rows, dtype=np.int64)


def patch_places(
    plans: Sequence[ResizePlan],
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Image, row and column of every patch, int32 [T, 3], and the range of patches of its image, int32 [T] each."""
    counts = np.array([plan.rows * plan.columns for plan in plans])
    ends = np.cumsum(counts)
    grids = [np.indices((plan.rows, plan.columns)).reshape(2, -1).T for plan in plans]
    image = np.repeat(np.arange(len(plans)), counts)
    place = np.column_stack((image, np.concatenate(grids)))
    bounds = (np.repeat(ends - counts, counts), np.repeat(ends, counts))
    return place.astype(np.int32), bounds[0].astype(np.int32), bounds[1].astype(np.int32)


def merge_sources(plans: Sequence[ResizePlan], merge: int) -> npt.NDArray[np.int32]:
    """Patches of every token, int32 [tokens, merge * merge], row by row; -1 beyond the right and the lower edge."""
    parts, first = [], 0
    for plan in plans:
        grid = np.full((plan.token_rows * merge, plan.token_columns * merge), -1, np.int32)
        count = plan.rows * plan.columns
        grid[: plan.rows, : plan.columns] = first + np.arange(count, dtype=np.int32).reshape(plan.rows, plan.columns)
        blocks = grid.reshape(plan.token_rows, merge, plan.token_columns, merge).swapaxes(1, 2)
        parts.append(blocks.reshape(-1, merge * merge))
        first += count
    return np.concatenate(parts)


def _groups(images: Sequence[FittedImage]) -> Iterator[list[FittedImage]]:
    """Images in order, cut where a pass is full."""
    group: list[FittedImage] = []
    patches = 0
    for image in images:
        count = image.plan.rows * image.plan.columns
        if group and patches + count > PATCHES_AT_ONCE:
            yield group
            group, patches = [], 0
        group.append(image)
        patches += count
    if group:
        yield group
