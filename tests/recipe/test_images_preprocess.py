"""Decoding and re-encoding: what becomes of each kind of file, hostile files, pixels against the other codec."""

from __future__ import annotations

import io
import random
import struct
import warnings
import zlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from deepinfer import recipe
from deepinfer.recipe import ImageError
from deepinfer.recipe.errors import InvalidArgumentError
from deepinfer.recipe.images import ImagePreprocessor, PreprocessOptions
from deepinfer.recipe.images.resample import resize_cubic, shrink_area

np = pytest.importorskip("numpy")
Image = pytest.importorskip("PIL.Image", reason="needs the images extra")

WIDTH, HEIGHT = 616, 490  # fitted to itself: nothing is scaled
MEAN_ERROR, WORST_ERROR = 1.0, 16  # levels of 255, where the decoders differ; measured: 0.0 and 0 for most files


def save(image: Any, kind: str = "PNG", **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def picture(width: int, height: int, seed: int = 0) -> Any:
    """Something smooth, with colours."""
    noise = np.random.default_rng(seed).integers(0, 256, (max(2, height // 16), max(2, width // 16), 3), dtype=np.uint8)
    return Image.fromarray(noise).resize((width, height), Image.Resampling.BICUBIC)


def halves(left: Any, right: Any, mode: str) -> Any:
    image = Image.new(mode, (WIDTH, HEIGHT), left)
    image.paste(right, (WIDTH // 2, 0, WIDTH, HEIGHT))
    return image


def decoded(data: bytes, **options: Any) -> Any:
    image = ImagePreprocessor().preprocess(data, PreprocessOptions(**options))
    assert image.data[:4] + image.data[8:16] == b"RIFFWEBPVP8 "  # lossy, no alpha
    pixels = np.asarray(Image.open(io.BytesIO(image.data)).convert("RGB")).astype(int)
    assert pixels.shape == (image.height, image.width, 3)
    return pixels


def ends(pixels: Any) -> list[int]:
    """A pixel on the left and one on the right."""
    return [*pixels[HEIGHT // 2, 60], *pixels[HEIGHT // 2, WIDTH - 60]]


PALETTE = [0, 0, 0, 255, 0, 0, 0, 255, 0] + [0] * 759


def palette_image() -> Any:
    image = halves(1, 2, "P")
    image.putpalette(PALETTE)
    return image


def exif(orientation: int) -> Any:
    found = Image.Exif()
    found[0x112] = orientation
    return found


RED_BLUE = halves((255, 0, 0), (0, 0, 255), "RGB")
FILES = {
    "rgb": (save(RED_BLUE), [255, 0, 0, 0, 0, 255]),
    "gray": (save(halves(60, 200, "L")), [60] * 3 + [200] * 3),
    "gray, alpha": (save(halves((60, 128), (200, 255), "LA")), [157] * 3 + [200] * 3),
    "bits": (save(halves(0, 1, "1")), [0] * 3 + [255] * 3),
    "alpha": (save(halves((255, 0, 0, 128), (0, 0, 255, 0), "RGBA")), [254, 126, 126, 253, 253, 253]),
    "palette": (save(palette_image()), [255, 0, 0, 0, 255, 0]),
    "palette, one clear": (save(palette_image(), transparency=1), [253, 253, 253, 0, 255, 0]),
    "palette, alpha": (
        save(palette_image(), transparency=bytes([255, 128, 0]) + b"\xff" * 253),
        [254, 126, 126, 253, 253, 253],
    ),
    "rgb, one clear": (save(RED_BLUE, transparency=(255, 0, 0)), [253, 253, 253, 0, 0, 255]),
    "gray, one clear": (save(halves(60, 200, "L"), transparency=60), [60] * 3 + [200] * 3),
    "gray 16": (
        save(Image.fromarray(np.full((HEIGHT, WIDTH), 25900, np.uint16))),
        [101] * 6,
    ),
    "gray 16, one clear": (
        save(Image.fromarray(np.full((HEIGHT, WIDTH), 25900, np.uint16)), transparency=25900),
        [101] * 6,
    ),
    "jpeg gray": (save(halves(60, 200, "L"), "JPEG"), [60] * 3 + [200] * 3),
    "jpeg cmyk": (save(halves((255, 0, 0, 0), (0, 0, 255, 50), "CMYK"), "JPEG"), [0, 255, 255, 205, 205, 0]),
    "jpeg turned": (save(RED_BLUE, "JPEG", exif=exif(6)), [254, 0, 0, 0, 0, 254]),
    "png turned": (save(RED_BLUE, exif=exif(3)), [255, 0, 0, 0, 0, 255]),
    "webp alpha": (
        save(halves((255, 0, 0, 128), (0, 0, 255, 0), "RGBA"), "WEBP", lossless=True, exact=True),
        [254, 126, 126, 253, 253, 253],
    ),
    "webp frames": (
        save(RED_BLUE, "WEBP", save_all=True, append_images=[halves(0, 0, "RGB")], lossless=True),
        [255, 0, 0, 0, 0, 255],
    ),
    "apng": (save(RED_BLUE, save_all=True, append_images=[halves(0, 0, "RGB")]), [255, 0, 0, 0, 0, 255]),
    "gif frames": (
        save(palette_image(), "GIF", save_all=True, append_images=[palette_image().rotate(180)]),
        [255, 0, 0, 0, 255, 0],
    ),
    "gif, one clear": (save(palette_image(), "GIF", transparency=1), [253, 253, 253, 0, 255, 0]),
    "trailing bytes": (save(RED_BLUE) + b"trailing", [255, 0, 0, 0, 0, 255]),
}


@pytest.mark.parametrize(("data", "expected"), FILES.values(), ids=FILES)
def test_kinds_of_files(data: bytes, expected: list[int]) -> None:
    assert np.abs(np.array(ends(decoded(data))) - expected).max() <= 4


@pytest.mark.parametrize("name", FILES)
def test_kinds_of_files_equal_the_other_codec(wheel: ModuleType, name: str) -> None:
    compare(wheel, FILES[name][0])


def compare(wheel: ModuleType, data: bytes, **options: Any) -> bool:
    """Whether the bytes are the same; fails when the pixels differ by more than the stated error."""
    ours = ImagePreprocessor().preprocess(data, PreprocessOptions(**options))
    theirs = wheel.OpenCvImagePreprocessor().preprocess(
        data, wheel.PreprocessOptions(options.get("detail", "high"), 8192, 512)
    )
    assert (ours.width, ours.height) == (theirs.width, theirs.height)
    mine, other = (np.asarray(Image.open(io.BytesIO(x)).convert("RGB")).astype(int) for x in (ours.data, theirs.data))
    error = np.abs(mine - other)
    assert error.mean() <= MEAN_ERROR and error.max() <= WORST_ERROR
    return bool(ours.data == theirs.data)


def test_scaled_pictures_equal_the_other_codec(wheel: ModuleType) -> None:
    rng = random.Random(4)
    same = 0
    for seed in range(10):
        size = rng.randint(1, 900), rng.randint(1, 900)
        same += compare(wheel, save(picture(*size, seed)), detail=rng.choice(["low", "high"]))
    assert same >= 8  # byte for byte; the rest within the stated error


@pytest.mark.parametrize("kind", ["JPEG", "GIF", "WEBP"])
def test_photographs_equal_the_other_codec(wheel: ModuleType, kind: str) -> None:
    image = picture(1100, 700)
    compare(wheel, save(image.convert("P") if kind == "GIF" else image, kind))


def test_the_image_is_centred_on_gray() -> None:
    pixels = decoded(save(Image.new("RGB", (640, 480), "white")))
    assert pixels.shape == (490, 644, 3)  # 644 x 483 of them are the image
    light = (pixels.min(axis=2) > 190).all(axis=1)
    assert [int(light[:10].argmax()), int(light[::-1].argmax())] == [4, 3]
    assert abs(pixels[0, 0] - 127).max() <= 2


def test_low_detail_loses_what_is_fine() -> None:
    fine = Image.new("L", (1024, 1024))
    fine.putdata([255 * ((x ^ y) & 1) for y in range(1024) for x in range(1024)])
    assert np.ptp(decoded(save(fine), detail="low")) <= 4  # each pixel is the mean of an area
    assert np.ptp(decoded(save(fine))) > 100


def test_cubic_weights_reach_beyond_the_neighbours() -> None:
    edge = np.zeros((1, 8, 3), np.uint8)
    edge[:, 4:] = 200
    scaled = resize_cubic(edge, 16, 1)[0, :, 0]
    # 200 times the weights on the right of the edge, 0.25 and 0.75 between the pixels: 0.2266 and 1.1055.
    assert scaled.tolist() == [0, 0, 0, 0, 0, 0, 0, 45, 155, 221, 207, 200, 200, 200, 200, 200]


def test_area_is_the_mean_of_what_a_pixel_covers() -> None:
    row = np.array([[[0], [100], [200]]], np.uint8)
    assert shrink_area(row, 2, 1)[0, :, 0].tolist() == [33, 167]  # (0 + 100 / 2) / 1.5, (100 / 2 + 200) / 1.5
    assert shrink_area(np.array([[[0], [1]], [[1], [0]]], np.uint8), 1, 1).item() == 1  # halves round up


def test_large_pictures_are_cut_into_bands_without_seams() -> None:
    tall = np.arange(3000, dtype=np.uint16)[:, None, None].repeat(3, axis=2) // 12
    scaled = resize_cubic(tall.astype(np.uint8), 2, 1500)
    assert np.abs(np.diff(scaled[:, 0, 0].astype(int))).max() <= 1


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(width: int, height: int, *chunks: bytes) -> bytes:
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + b"".join(chunks) + chunk(b"IEND", b"")


BOMB_TEXT = chunk(b"zTXt", b"k\0\0" + zlib.compress(bytes(1 << 26)))
HOSTILE = {
    "pixels that are not there": (png(8192, 8192, chunk(b"IDAT", zlib.compress(b""))), "EmptyImage"),
    "60000 x 60000": (png(60000, 60000, chunk(b"IDAT", zlib.compress(b""))), "ImageDimensionsTooLarge"),
    "no width": (png(0, 10), "Decode"),
    "gif 65535 x 65535": (b"GIF89a\xff\xff\xff\xff\0\0\0" + b";", "Decode"),
    "gif canvas": (b"GIF89a\xff\xff\xff\xff\0\0\0,\0\0\0\0\1\0\1\0\0\2\2D\1\0;", "ImageDimensionsTooLarge"),
    "webp that is a bitmap": (b"RIFF\x20\0\0\0WEBPBM" + bytes(30), "Decode"),
    "bmp": (save(picture(10, 10), "BMP"), "UnsupportedMediaType"),
    "tiff": (save(picture(10, 10), "TIFF"), "UnsupportedMediaType"),
    "svg": (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "UnsupportedMediaType"),
    "eps in a png's clothes": (b"\x89PNG%!PS-Adobe-3.0 EPSF-3.0\n", "Decode"),
    "nothing": (b"", "EmptyImage"),
    "compressed text": (png(2, 2, BOMB_TEXT, chunk(b"IDAT", zlib.compress(bytes(14)))), "Decode"),
}


@pytest.mark.parametrize(("data", "kind"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_files(data: bytes, kind: str) -> None:
    with pytest.raises(ImageError, match=r"^image\[0\]: You have uploaded an unsupported image") as found:
        ImagePreprocessor().preprocess(data, PreprocessOptions())
    assert found.value.kind == kind and not found.value.is_retryable


def test_flipped_bytes_raise_nothing_but_image_errors() -> None:
    rng = random.Random(8)
    for kind in ("PNG", "JPEG", "GIF", "WEBP"):
        image = picture(40, 30)
        whole = save(image.convert("P") if kind == "GIF" else image, kind)
        for _ in range(20):
            broken = bytearray(whole)
            for _ in range(rng.randint(1, 8)):
                broken[rng.randrange(len(broken))] = rng.randrange(256)
            try:
                ImagePreprocessor().preprocess(bytes(broken), PreprocessOptions("low", 512, 64))
            except ImageError as error:
                assert not error.is_retryable


def test_a_side_at_the_limit_passes_and_one_beyond_does_not() -> None:
    options = PreprocessOptions("high", 100, 100)
    ImagePreprocessor().preprocess(save(Image.new("1", (100, 50))), options)
    with pytest.raises(ImageError) as found:
        ImagePreprocessor().preprocess(save(Image.new("1", (50, 101))), options)
    assert found.value.kind == "ImageDimensionsTooLarge"


def test_options_are_checked() -> None:
    with pytest.raises(InvalidArgumentError, match='invalid detail "zz"; expected "low", "high"'):
        PreprocessOptions("zz")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="max_dimension_px is -1"):
        PreprocessOptions("high", -1)


def test_warning_filters_of_the_process_stay_as_they_are() -> None:
    """They belong to all threads, so that nothing here may change them, even for a while."""
    for name in ("images/preprocess.py", "requests/regex_check.py"):
        assert "warnings" not in (Path(recipe.__file__).parent / name).read_text().replace("filters of warnings", "")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ImageError) as caught:
            decoded(png(9500, 9500))
    assert caught.value.kind == "ImageDimensionsTooLarge"
