"""Sizes and token counts of images: the rules, the recorded examples, and equality with the other codec."""

from __future__ import annotations

import io
import random
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepinfer.recipe.images.preprocess import ImageInfo, MultiModalData
from deepinfer.recipe.images.resize import (
    MAX_SIDE,
    MAX_TOKENS,
    MIN_PIXELS,
    PATCH,
    fitted_size,
    fitted_tokens,
    image_tokens,
    low_detail_size,
    output_size,
)

SIDES = st.integers(1, 8192) | st.integers(1, 20) | st.integers(8000, 1 << 32)


@pytest.mark.parametrize(
    ("size", "fitted", "tokens"),
    [
        ((10, 10), (546, 546), 184),
        ((20, 10), (770, 392), None),
        ((640, 480), (644, 490), 206),
        ((1024, 768), (1036, 770), 496),
        ((1920, 1080), (1708, 966), 968),
        ((5000, 4000), (1470, 1176), 1010),
        ((353, 1), (10570, 28), None),
        ((4473, 3528), (1428, 1134), 947),  # the number of rows is a whole number before rounding
        ((330, 70959), (42, 9772), 468),  # a strip that has to grow again after it shrank
        ((1, 1561), (42, 21462), 1024),  # less than one column is left
        ((8191, 1), (42882, 42), 1024),
    ],
)
def test_examples(size: tuple[int, int], fitted: tuple[int, int], tokens: int | None) -> None:
    assert fitted_size(*size) == fitted
    if tokens is not None:
        assert fitted_tokens(*size) == tokens


@pytest.mark.parametrize(
    ("size", "detail", "low", "expected"),
    [
        ((2000, 500), "low", 512, (1092, 280)),
        ((3000, 1000), "low", 1024, (1036, 350)),
        ((5, 1024), "low", 512, (42, 7112)),  # 2.5 pixels round to 3
        ((9, 1024), "low", 512, (56, 5516)),
        ((1, 1300), "high", 512, (28, MAX_SIDE)),
        ((1, 2000), "high", 512, (42, MAX_SIDE)),
        ((2000, 1), "high", 512, (MAX_SIDE, 28)),
        ((8191, 1), "high", 512, (MAX_SIDE, 28)),
        ((44, 21462), "high", 512, (42, MAX_SIDE)),
    ],
)
def test_output_examples(size: tuple[int, int], detail: str, low: int, expected: tuple[int, int]) -> None:
    assert output_size(*size, detail, low) == expected


@given(SIDES, SIDES)
def test_what_is_fitted_stays_within_the_bounds(width: int, height: int) -> None:
    fitted = fitted_size(width, height)
    assert fitted[0] % PATCH == 0 == fitted[1] % PATCH
    assert fitted[0] * fitted[1] >= MIN_PIXELS
    assert image_tokens(*fitted) == fitted_tokens(width, height) <= MAX_TOKENS


@given(SIDES, SIDES)
def test_fitting_twice_changes_nothing_within_the_longest_side(width: int, height: int) -> None:
    fitted = fitted_size(width, height)
    assert fitted_size(*fitted) == fitted


@given(SIDES, SIDES, st.sampled_from(["low", "high", "auto", "original"]), st.integers(1, 2048))
def test_output_fits_a_webp_file(width: int, height: int, detail: str, low: int) -> None:
    size = output_size(width, height, detail, low)
    assert max(size) <= MAX_SIDE and min(size) >= PATCH
    assert size[0] * size[1] >= MIN_PIXELS


@given(SIDES, SIDES, st.integers(1, 2048))
def test_low_detail_keeps_the_aspect_ratio(width: int, height: int, low: int) -> None:
    scaled = low_detail_size(width, height, low)
    assert max(scaled) <= max(low, 1)
    if max(width, height) > low:
        assert max(scaled) == low
        assert abs(scaled[0] * height - scaled[1] * width) <= max(width, height)


def test_an_image_without_pixels_has_tokens() -> None:
    assert [fitted_tokens(*size) for size in ((0, 0), (0, 1), (1, 0), (0, 43), (0, 60000), (60000, 0))] == [
        2, 3, 2, 4, 1024, 2,
    ]  # fmt: skip


def test_adjustment_counts_what_the_placeholders_do_not() -> None:
    images = MultiModalData([ImageInfo(b"", 100, 100), ImageInfo(b"", 640, 480)])
    assert images.image_token_adjustment() == 388
    assert MultiModalData().image_token_adjustment() == 0
    assert MultiModalData().is_empty() and not images.is_empty()


def _side(rng: random.Random, bits: float) -> int:
    return int(2 ** rng.uniform(0, bits))


def test_tokens_equal_the_other_codec(wheel: ModuleType) -> None:
    rng = random.Random(20)
    sizes = [(_side(rng, 17), _side(rng, 17)) for _ in range(50_000)]
    # Sizes whose number of rows or columns is whole before rounding.
    sizes += [((1022 - n) * k, n * n * k) for n in range(1, 400) for k in (1, 3)]
    sizes += [(n * (n + 1) * k, 1022 * k) for n in range(1, 1000) for k in (1, 2)]
    for width, height in sizes:
        theirs = wheel.MultiModalData([wheel.ImageInfo(b"", width, height)]).image_token_adjustment()
        assert fitted_tokens(width, height) == theirs + 1, (width, height)


def test_sizes_equal_the_other_codec(wheel: ModuleType) -> None:
    pytest.importorskip("PIL", reason="needs the images extra")
    rng = random.Random(21)
    preprocessor = wheel.OpenCvImagePreprocessor()
    for i in range(60):
        width, height = (_side(rng, 11), _side(rng, 11)) if i % 3 else (_side(rng, 4), _side(rng, 13))
        if rng.random() < 0.5:
            width, height = height, width
        detail, low = rng.choice(["low", "high", "auto", "original"]), rng.choice([512, 512, 100, 1024, 1])
        options = wheel.PreprocessOptions(detail, 8192, low)
        theirs = preprocessor.preprocess(_black(width, height), options)
        assert output_size(width, height, detail, low) == (theirs.width, theirs.height), (width, height, detail, low)


def _black(width: int, height: int) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.new("1", (width, height)).save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()
