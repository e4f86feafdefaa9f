"""What files decode to, pixel by pixel, and how files are refused that are no whole image."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
import tracemalloc
import zlib
from typing import Any

import numpy as np
import pytest

from deepinfer.hal.errors import ImageError, InvalidArgumentError
from deepinfer.model.vision.decode import BEHIND, LIMITS, ImageLimits, decode_image, fit_image, image_size
from deepinfer.model.vision.resize import ResizePlan
from timing import seconds

Image = pytest.importorskip("PIL.Image", reason="needs the images extra")

RED, GREEN, BLUE = (255, 0, 0), (0, 255, 0), (0, 0, 255)


def saved(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def of(array: Any, mode: str | None = None) -> Image.Image:
    image = Image.fromarray(np.asarray(array, np.uint8))
    return image if mode is None else image.convert(mode)


def rgb(data: bytes) -> list[Any]:
    pixels = decode_image(data)
    assert pixels.dtype == np.uint8 and pixels.shape[2] == 3 and pixels.flags.c_contiguous
    return pixels.tolist()


# ---- pixels ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_rgb_is_what_it_is(kind: str) -> None:
    stored = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    assert np.array_equal(decode_image(saved(of(stored), kind, lossless=True)), stored)


def test_gray_and_palettes_become_rgb() -> None:
    assert rgb(saved(of([[0, 100], [200, 255]]))) == [[[0] * 3, [100] * 3], [[200] * 3, [255] * 3]]
    assert rgb(saved(of([[0, 255]]).convert("1"))) == [[[0] * 3, [255] * 3]]
    palette = Image.new("P", (3, 1))
    palette.putpalette([*RED, *GREEN, *BLUE])
    palette.putdata([2, 0, 1])
    for kind in ("PNG", "GIF"):
        assert rgb(saved(palette, kind)) == [[[*BLUE], [*RED], [*GREEN]]]


def test_sixteen_bits_of_gray_are_rounded_to_eight() -> None:
    """257 levels make one; 128 above a level rounds down, 129 up."""
    levels = [0, 128, 129, 257 * 100 + 128, 257 * 100 + 129, 65535]
    image = Image.fromarray(np.array([levels], np.uint16))
    assert [pixel[0] for pixel in rgb(saved(image))[0]] == [0, 0, 1, 100, 101, 255]


def test_cmyk_is_converted_without_a_profile() -> None:
    """A JPEG of CMYK: no ink is white, all black ink is black, cyan ink takes the red away."""
    inks = np.zeros((8, 24, 4), np.uint8)
    inks[:, 8:16, 3], inks[:, 16:, 0] = 255, 255
    data = saved(Image.fromarray(inks, "CMYK"), "JPEG", quality=100, subsampling=0)
    pixels = decode_image(data)
    assert [pixels[4, x].tolist() for x in (4, 12, 20)] == [[255] * 3, [0] * 3, [0, 255, 255]]


def test_an_exif_orientation_is_not_applied() -> None:
    stored = np.zeros((2, 3, 3), np.uint8)
    stored[0, 0] = RED
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees to view
    data = saved(of(stored), exif=exif)
    assert Image.open(io.BytesIO(data)).getexif()[0x0112] == 6
    assert np.array_equal(decode_image(data), stored) and image_size(data) == (3, 2)


def test_transparency_is_composited() -> None:
    """Each of the three ways that a file may say it: a channel, a palette's entry, a colour."""
    assert BEHIND == 253
    image = Image.new("RGBA", (3, 1))
    image.putdata([(10, 20, 30, 255), (10, 20, 30, 0), (0, 255, 100, 128)])
    half = [(value * 128 + 127 * BEHIND + 127) // 255 for value in (0, 255, 100)]
    assert rgb(saved(image)) == [[[10, 20, 30], [BEHIND] * 3, half]]
    gray = Image.new("LA", (2, 1))
    gray.putdata([(7, 255), (7, 0)])
    assert rgb(saved(gray)) == [[[7] * 3, [BEHIND] * 3]]
    palette = Image.new("P", (2, 1))
    palette.putpalette([*RED, *GREEN])
    palette.putdata([0, 1])
    assert rgb(saved(palette, transparency=1)) == [[[*RED], [BEHIND] * 3]]
    assert rgb(saved(of([[RED, GREEN]]), transparency=RED)) == [[[BEHIND] * 3, [*GREEN]]]


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP"])
def test_an_animation_is_its_first_frame(kind: str) -> None:
    frames = [Image.new("RGB", (4, 3), colour) for colour in (BLUE, RED, GREEN)]
    options = {"lossless": True} if kind == "WEBP" else {}
    data = saved(frames[0], kind, save_all=True, append_images=frames[1:], duration=10, **options)
    assert getattr(Image.open(io.BytesIO(data)), "n_frames", 1) == 3
    assert rgb(data) == [[[*BLUE]] * 4] * 3


# ---- what is no whole image -----------------------------------------------------------------------------------------


def noise(kind: str) -> bytes:
    pixels = np.random.default_rng(1).integers(0, 256, (60, 70, 3), dtype=np.uint8)
    return saved(of(pixels), kind)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP"])
@pytest.mark.parametrize("part", [0.2, 0.5, 0.9, 0.99])
def test_a_truncated_file_is_one_clear_error(kind: str, part: float) -> None:
    data = noise(kind)
    assert decode_image(data).shape == (60, 70, 3)
    with pytest.raises(ImageError, match=r"^picture: got .*allowed: (a whole image|PNG, JPEG, GIF, WEBP)"):
        decode_image(data[: int(len(data) * part)], name="picture")


def test_a_png_cut_behind_its_pixels_is_truncated() -> None:
    data = noise("PNG")
    for cut in (1, 4, 12):
        with pytest.raises(ImageError):
            decode_image(data[:-cut])


@pytest.mark.parametrize(
    "data", [b"", b"x", b"\x89PNG\r\n\x1a\n", b"BM" + bytes(60), b"GIF89a", b"<svg/>", None, "text"]
)
def test_what_is_no_image_is_refused(data: Any) -> None:
    with pytest.raises(ImageError) as caught:
        decode_image(data)
    assert isinstance(caught.value, InvalidArgumentError)


@pytest.mark.parametrize("kind", ["BMP", "TIFF", "ICO", "PPM"])
def test_other_formats_are_refused(kind: str) -> None:
    with pytest.raises(ImageError, match="PNG, JPEG, GIF, WEBP"):
        decode_image(saved(of(np.zeros((16, 16, 3))), kind))


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP"])
def test_spoilt_bytes_are_an_image_or_the_one_error(kind: str) -> None:
    rng, data = np.random.default_rng(2), noise(kind)
    for _ in range(60):
        spoilt = bytearray(data)
        for place in rng.integers(0, len(data), 3):
            spoilt[place] = rng.integers(0, 256)
        try:
            decode_image(bytes(spoilt))
        except ImageError:
            pass


def bomb(width: int, height: int) -> bytes:
    """A PNG of zeros: 1,000 times smaller than its pixels, written without making them."""
    packer = zlib.compressobj(9)
    row = bytes(width // 8 + 2)
    body = b"".join(packer.compress(row) for _ in range(height)) + packer.flush()

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def test_bombs_are_told_by_their_header() -> None:
    data = bomb(20_000, 20_000)
    assert len(data) < 100_000
    small = bomb(9000, 9000)

    def refused() -> None:
        with pytest.raises(ImageError, match="20000 x 20000 pixels|too large to open.*67108864"):
            decode_image(data)
        with pytest.raises(ImageError, match="9000 x 9000 pixels'; allowed: at most 67108864 pixels"):
            image_size(small)

    assert seconds(refused) < 2.0


def test_limits_are_the_last_values_that_pass() -> None:
    data = noise("PNG")
    assert decode_image(data, ImageLimits(len(data), 60 * 70)).shape == (60, 70, 3)
    with pytest.raises(ImageError, match=f"got '{len(data)} bytes'; allowed: 1 to {len(data) - 1} bytes"):
        decode_image(data, ImageLimits(len(data) - 1, 60 * 70))
    with pytest.raises(ImageError, match="70 x 60 pixels"):
        decode_image(data, ImageLimits(len(data), 60 * 70 - 1))
    assert (LIMITS.max_bytes, LIMITS.max_pixels) == (32 << 20, 8192**2)


@pytest.mark.parametrize("shape", [(1024, 1024), (1024, 1024, 4)], ids=["gray of 16 bits", "with alpha"])
def test_decoding_holds_few_bytes_per_pixel_beside_pillow(shape: tuple[int, ...]) -> None:
    """What the limit of pixels lets in has to fit into memory: no array of wide integers over the whole image."""
    data = saved(Image.fromarray(np.zeros(shape, np.uint16 if len(shape) == 2 else np.uint8)))
    decode_image(data)
    tracemalloc.start()
    try:
        decode_image(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= 9 * 1024 * 1024


def test_without_pillow_the_message_names_the_extra() -> None:
    script = (
        "import sys; sys.modules['PIL'] = None\n"
        "from deepinfer.model.vision import decode_image\n"
        "from deepinfer.hal.errors import NotSupportedError\n"
        "try: decode_image(b'GIF89a')\n"
        "except NotSupportedError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "install the extra `images`" in done.stdout


# ---- fitting --------------------------------------------------------------------------------------------------------


def plan(width: int, height: int, stretched: bool = False) -> ResizePlan:
    return ResizePlan(width, height, width // 14, height // 14, 1, 1, stretched)


def test_an_image_of_the_canvas_size_is_untouched() -> None:
    pixels = np.random.default_rng(3).integers(0, 256, (28, 42, 3), dtype=np.uint8)
    fitted = fit_image(pixels, plan(42, 28))
    assert np.array_equal(fitted.pixels, pixels) and (fitted.left, fitted.top) == (0, 0)


@pytest.mark.parametrize(
    ("size", "inner", "place"),
    [
        ((10, 10), (28, 28), (7, 0)),
        ((40, 10), (42, 10), (0, 9)),  # 10.5 rounds to 10
        ((100, 26), (42, 11), (0, 8)),  # 8.5 to the even 8
        ((100, 22), (42, 9), (0, 10)),  # 9.5 to the even 10
        ((1000, 1), (42, 28), (0, 0)),  # a side of nothing: the whole canvas
    ],
)
def test_images_fit_inside_and_stand_in_the_middle(
    size: tuple[int, int], inner: tuple[int, int], place: tuple[int, int]
) -> None:
    fitted = fit_image(np.full((size[1], size[0], 3), 9, np.uint8), plan(42, 28))
    assert fitted.pixels.shape == (inner[1], inner[0], 3) and (fitted.left, fitted.top) == place
    assert (fitted.pixels == 9).all()


def test_a_stretched_image_fills_its_canvas() -> None:
    fitted = fit_image(np.zeros((10, 40, 3), np.uint8), plan(42, 28, stretched=True))
    assert fitted.pixels.shape == (28, 42, 3) and (fitted.left, fitted.top) == (0, 0)


def test_scaling_is_cubic() -> None:
    """A step enlarged by a cubic filter overshoots on both sides; by a linear one it does not."""
    pixels = np.full((14, 14, 3), 100, np.uint8)
    pixels[:, 7:] = 150
    row = fit_image(pixels, plan(42, 42)).pixels[20, :, 0]
    assert row.min() < 100 and row.max() > 150 and row[0] == 100 and row[-1] == 150
