"""From an encoded image to the pixels that the tower takes: RGB, 8 bits, scaled into the canvas of its plan.

What an image decodes to, whatever a file may hold besides:

* the first frame of an animation;
* pixels as they are stored: an EXIF orientation is not applied, neither is a colour profile;
* palettes, gray and CMYK turned into RGB as Pillow does it; 16 bits of gray rounded to 8;
* transparency composited on gray level 253, which is what the model has seen behind it.
"""

from __future__ import annotations

import functools
import hashlib
import io
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...hal.errors import ImageError, NotSupportedError
from .resize import ResizePlan

if TYPE_CHECKING:
    from PIL.Image import Image

Pixels = npt.NDArray[np.uint8]

FORMATS = ("PNG", "JPEG", "GIF", "WEBP")
BEHIND = 253
"""Level behind transparency."""
MIB = 1 << 20


@dataclass(frozen=True)
class ImageLimits:
    """What one image may be.

    Attributes:
        max_bytes: encoded bytes.
        max_pixels: width times height as stored, read before any pixel is decoded; bounds what a small file may unpack
            to, up to 16 bytes for each while it is decoded.
    """

    max_bytes: int = 32 * MIB
    max_pixels: int = 8192 * 8192


LIMITS = ImageLimits()


@dataclass(frozen=True)
class FittedImage:
    """An image ready for the tower.

    Attributes:
        pixels: uint8 [height, width, 3], RGB.
        left, top: where they stand on the canvas, in pixels.
        plan: of the image.
    """

    pixels: Pixels
    left: int
    top: int
    plan: ResizePlan

    @functools.cached_property
    def digest(self) -> bytes:
        """16 bytes that name what is encoded: pixels, where they stand, and the plan."""
        digest = hashlib.blake2b(repr((self.pixels.shape, self.left, self.top, self.plan)).encode(), digest_size=16)
        digest.update(np.ascontiguousarray(self.pixels))
        return digest.digest()


def image_size(data: bytes, limits: ImageLimits = LIMITS, *, name: str = "image") -> tuple[int, int]:
    """Width and height in pixels, from the header alone.

    Raises:
        ImageError: see `decode_image`.
    """
    with _open(data, limits, name) as image:
        size: tuple[int, int] = image.size
        return size


def decode_image(data: bytes, limits: ImageLimits = LIMITS, *, name: str = "image") -> Pixels:
    """Decode a PNG, JPEG, GIF or WebP file.

    Args:
        data: the file. limits: bytes and pixels allowed.
        name: what the error calls the image.

    Returns:
        uint8 [height, width, 3], RGB.

    Raises:
        ImageError: not bytes, empty, too large, of no known format, truncated or broken.
        NotSupportedError: Pillow is not installed.
    """
    with _open(data, limits, name) as image:
        try:
            if image.format == "PNG" and not _has_end(data):
                raise EOFError("the file ends before its last chunk")
            return _rgb(image)
        except (ImportError, MemoryError):
            raise
        except Exception as error:  # what a broken file raises differs from format to format
            raise ImageError(name, f"{len(data)} bytes of {image.format} ({error})", "a whole image") from error


def fit_image(pixels: Pixels, plan: ResizePlan) -> FittedImage:
    """Scale an image into its canvas: inside it with its aspect ratio kept, or over all of it where the plan says so.

    Args:
        pixels: uint8 [height, width, 3].
    """
    pil, ops = _pillow()
    source, canvas = pil.fromarray(pixels), (plan.width, plan.height)
    cubic = pil.Resampling.BICUBIC
    if plan.stretched:
        scaled = source.resize(canvas, cubic)
    else:
        try:
            scaled = ops.contain(source, canvas, cubic)
        except ValueError:  # some versions of Pillow refuse a side that rounds to nothing, others make it
            scaled = None
        if scaled is None or 0 in scaled.size:
            scaled = source.resize(canvas, cubic)
    # round() takes halves to even numbers, as the model's preprocessing does.
    left, top = round((plan.width - scaled.width) / 2), round((plan.height - scaled.height) / 2)
    return FittedImage(np.array(scaled, dtype=np.uint8), left, top, plan)


def _pillow() -> tuple[Any, Any]:
    """PIL.Image and PIL.ImageOps."""
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise NotSupportedError("images", "they need Pillow: install the extra `images`") from None
    return Image, ImageOps


def _open(data: bytes, limits: ImageLimits, name: str) -> Image:
    """The image with its header read and nothing else."""
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise ImageError(name, data, "the bytes of a file")
    if not 0 < len(data) <= limits.max_bytes:
        raise ImageError(name, f"{len(data)} bytes", f"1 to {limits.max_bytes} bytes")
    pil, _ = _pillow()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pil.DecompressionBombWarning)  # the limit here is stated, and an error
        try:
            image: Image = pil.open(io.BytesIO(data), formats=FORMATS)
        except pil.DecompressionBombError:
            raise ImageError(name, "an image too large to open", f"at most {limits.max_pixels} pixels") from None
        except (ImportError, MemoryError):
            raise
        except Exception:  # a broken header may raise anything
            first = bytes(data[:8])
            raise ImageError(name, f"{len(data)} bytes that begin with {first!r}", ", ".join(FORMATS)) from None
    width, height = image.size
    if width * height > limits.max_pixels:
        image.close()
        raise ImageError(name, f"{width} x {height} pixels", f"at most {limits.max_pixels} pixels")
    return image


def _has_end(data: bytes) -> bool:
    """Whether the chunks of a PNG go on to IEND. Pillow takes a file that is cut behind its last pixels."""
    place = 8
    while place + 12 <= len(data):
        if data[place + 4 : place + 8] == b"IEND":
            return True
        place += 12 + int.from_bytes(data[place : place + 4], "big")
    return False


def _rgb(image: Image) -> Pixels:
    image.load()
    if image.mode.startswith("I"):  # gray of 16 bits
        return _rounded(np.asarray(image))
    transparent = image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info
    if not transparent:
        return np.array(image.convert("RGB"))
    return _composite(np.asarray(image.convert("RGBA")))


def _rounded(gray: npt.NDArray[np.integer[Any]]) -> Pixels:
    """RGB of 16 bits of gray, row by row to bound the memory."""
    made = np.empty((*gray.shape, 3), np.uint8)
    for source, target in zip(gray, made, strict=True):
        target[:] = ((source.astype(np.int64) + 128) // 257).clip(0, 255)[:, None]
    return made


def _composite(pixels: Pixels) -> Pixels:
    """RGB of RGBA pixels over the level `BEHIND`, row by row to bound the memory."""
    made = np.empty((*pixels.shape[:2], 3), np.uint8)
    for source, target in zip(pixels, made, strict=True):
        alpha = source[:, 3:].astype(np.uint32)
        target[:] = (source[:, :3] * alpha + (255 - alpha) * BEHIND + 127) // 255
    return made
