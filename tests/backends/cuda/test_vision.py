"""The vision tower but its products: every byte of a pixel, cut images, rotated heads, merged patches, embeddings."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from cuda_calls import assert_kept, run, sample
from cuda_family import family_tests
from deepinfer.ops.required import IN_PLACE

OPS = {
    "image_patches": "gaps, padding",
    "silu_mul": "zero row",
    "image_rope": "NaN, infinite",
    "merge_patches": "edges of a grid",
    "scatter_embeds": "every kind",
}
"""Ops, and the sample of each that has its edges."""
EMPTY = {
    "image_patches": "no images",
    "silu_mul": "0 rows",
    "image_rope": "0 rows",
    "merge_patches": "from no patches",
    "scatter_embeds": "no rows",
}


test_samples, test_no_rows, test_every_required_call = family_tests(OPS, EMPTY)


def test_every_byte() -> None:
    assert_kept("image_patches", sample("image_patches", "every value").args)


def test_real_patches() -> None:
    place, pixels, images, patch = sample("image_patches", "real patches").args
    assert_kept("image_patches", (place[:4].contiguous(), pixels, images, patch))


@pytest.mark.parametrize(("rows", "heads", "width"), [(3, 3, 20), (2, 16, 64)])
def test_heads(rows: int, heads: int, width: int) -> None:
    torch.manual_seed(width)
    qkv = torch.randn(rows, 3, heads, width).bfloat16()
    place = torch.randint(0, 9, (rows, 3), dtype=torch.int32)
    assert_kept("image_rope", (qkv, place, torch.randn(9, width // 4, 2)), IN_PLACE)


@pytest.mark.parametrize(("channels", "patches"), [(1100, 4), (33, 9), (1, 1)])
def test_merged_in_tiles_and_tails(channels: int, patches: int) -> None:
    torch.manual_seed(channels)
    source = torch.randint(-1, 6, (3, patches), dtype=torch.int32)
    assert_kept("merge_patches", (torch.randn(5, channels).bfloat16(), source))


def test_streams_in_place_and_in_tiles() -> None:
    x, values, marks, source = (torch.randn(4, 2, 1050), torch.randn(2, 1050), torch.randn(3, 1050), [-4, 1, -1, -2])
    args = (*(t.bfloat16() for t in (x, values, marks)), torch.tensor(source, dtype=torch.int32))
    assert_kept("scatter_embeds", args, IN_PLACE)
    assert run("scatter_embeds", *args)[0].shape == x.shape
