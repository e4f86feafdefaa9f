"""Resize plans: known sizes of the released configuration, and what holds for every size."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepinfer.hal.errors import InvalidArgumentError
from deepinfer.model.config import ModelConfig, VisionConfig
from deepinfer.model.vision.resize import plan_resize
from deepinfer.recipe.images import fitted_size, image_tokens
from released import RELEASED

VISION = ModelConfig.from_dict(RELEASED).vision
PATCH, MERGE, MOST = 14, 3, 1024

# size -> canvas, tokens across and down, tokens of the span
KNOWN = {
    (100, 100): ((546, 546), (13, 13), 184),
    (640, 480): ((644, 490), (16, 12), 206),
    (1024, 768): ((1036, 770), (25, 19), 496),
    (1280, 720): (None, (31, 18), 578),
    (1920, 1080): ((1708, 966), (41, 23), 968),
    (4000, 3000): ((1512, 1134), (36, 27), 1001),
    (4000, 50): ((4872, 70), (116, 2), 236),
    (1, 100000): ((42, 21462), (1, 511), 1024),
}
SIDES = st.one_of(st.integers(1, 3000), st.integers(1, 200_000))


def with_ratio(ratio: float | None) -> VisionConfig:
    return replace(VISION, max_wh_ratio=ratio)


def test_the_released_configuration() -> None:
    assert (VISION.patch_size, VISION.downsample_ratio, VISION.max_image_tokens) == (PATCH, MERGE, MOST)
    assert VISION.min_pixels == 544**2 and VISION.max_wh_ratio is None


@pytest.mark.parametrize("size", KNOWN)
def test_known_sizes(size: tuple[int, int]) -> None:
    plan, (canvas, tokens, total) = plan_resize(*size, VISION), KNOWN[size]
    assert canvas is None or (plan.width, plan.height) == canvas
    assert (plan.token_columns, plan.token_rows) == tokens and plan.tokens == total
    assert not plan.stretched


@settings(max_examples=300, deadline=None)
@given(SIDES, SIDES, st.sampled_from([4, 5, 7, 20, 64, 1024]), st.sampled_from([None, 1, 1.5, 200.0]))
def test_every_plan_is_whole_patches_within_the_token_limit(
    width: int, height: int, most: int, ratio: float | None
) -> None:
    vision = replace(VISION, max_image_tokens=most, max_wh_ratio=ratio)
    plan = plan_resize(width, height, vision)
    assert 0 < plan.tokens <= most
    assert plan.tokens == plan.token_rows * (plan.token_columns + 1) + 2
    assert plan.columns >= 1 and plan.rows >= 1
    assert (plan.width, plan.height) == (plan.columns * PATCH, plan.rows * PATCH)
    assert (plan.token_columns, plan.token_rows) == (math.ceil(plan.columns / MERGE), math.ceil(plan.rows / MERGE))
    assert max(plan.columns, plan.rows) <= (most - 2) * MERGE, "places of the rotary table"
    assert plan.stretched == (ratio is not None and width >= ratio * height)


@settings(max_examples=300, deadline=None)
@given(st.integers(60, 3000), st.integers(60, 3000))
def test_ordinary_images_keep_their_shape_and_size(width: int, height: int) -> None:
    plan = plan_resize(width, height, VISION)
    area = width * height
    # Rounding moves a side by less than a patch, and the other one with the aspect ratio.
    scale = min(plan.width / width, plan.height / height)
    longer = PATCH * (1 + max(width / height, height / width))
    assert plan.width - width * scale < longer and plan.height - height * scale < longer
    if area >= VISION.min_pixels and plan.tokens < MOST - 200:
        assert 0 <= plan.width - width < PATCH and 0 <= plan.height - height < PATCH, "only rounded up"
    if area < VISION.min_pixels:
        assert plan.width >= width and plan.height >= height and plan.width * plan.height > 0.98 * VISION.min_pixels


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 8192), st.integers(1, 8192))
def test_what_the_codec_sends_is_taken_as_it_is(width: int, height: int) -> None:
    """The codec fits images before they are sent: its sizes must be fixed points, with the tokens it counted."""
    fitted = fitted_size(width, height)
    plan = plan_resize(*fitted, VISION)
    assert (plan.width, plan.height) == fitted and plan.tokens == image_tokens(*fitted)


def test_wide_images_are_stretched_over_the_greatest_ratio() -> None:
    plan = plan_resize(4000, 500, with_ratio(2))
    assert plan.stretched and (plan.width, plan.height) == (1008, 504)
    assert plan_resize(1000, 500, with_ratio(2)).stretched, "the ratio itself already is"
    assert not plan_resize(999, 500, with_ratio(2)).stretched


@pytest.mark.parametrize("size", [(0, 5), (5, 0), (-1, 5)])
def test_images_without_pixels_are_refused(size: tuple[int, int]) -> None:
    with pytest.raises(InvalidArgumentError, match="image size"):
        plan_resize(*size, VISION)
