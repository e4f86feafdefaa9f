"""From an encoded image to what the inference engine is sent: lossy WebP of a fitted size.

The steps: the format is told from the first bytes; size limits are checked before any pixel is decoded; the first
frame is decoded as it is stored (EXIF orientation is not applied); transparency is composited on nearly white; the
image is scaled into the fitted size keeping its aspect ratio, centred on gray; and encoded with quality 90.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, get_args

from ..conversation import ImageDetail
from ..errors import ImageError, InvalidArgumentError
from .limits import LIMITS, unusable
from .resize import fitted_tokens, low_detail_size, output_size

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image

GRAY = 127  # around the image
WHITE = 253  # behind transparency: not quite white, as the model has seen it
QUALITY = 90
_BAND = 128  # rows
_SIGNATURES = (("PNG", b"\x89PNG"), ("JPEG", b"\xff\xd8\xff"), ("GIF", b"GIF"))


def sniff(data: bytes) -> str | None:
    """The format that the first bytes tell: PNG, JPEG, GIF, WEBP; None for any other."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "WEBP"
    return next((name for name, signature in _SIGNATURES if data.startswith(signature)), None)


@dataclass(frozen=True, slots=True)
class ImageInfo:
    """A preprocessed image: the encoded bytes, and width and height in pixels."""

    data: bytes = field(repr=False)
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class MultiModalData:
    """Images in the order of their placeholders in a prompt."""

    images: Sequence[ImageInfo] = ()

    def is_empty(self) -> bool:
        return not self.images

    def image_token_adjustment(self) -> int:
        """Tokens that the images take beyond the one placeholder each has in the prompt."""
        return sum(fitted_tokens(image.width, image.height) - 1 for image in self.images)


@dataclass(frozen=True, slots=True)
class PreprocessOptions:
    """How one image is preprocessed.

    Args:
        detail: `low` scales down first; the others are alike.
        max_dimension_px: longer side that is allowed, in pixels.
        low_detail_max_dimension_px: longer side that detail `low` scales down to, in pixels.

    Raises:
        InvalidArgumentError: an unknown detail, or a negative size.
    """

    detail: ImageDetail = "high"
    max_dimension_px: int = LIMITS.max_dimension_px
    low_detail_max_dimension_px: int = LIMITS.low_detail_max_dimension_px

    def __post_init__(self) -> None:
        if self.detail not in get_args(ImageDetail):
            words = get_args(ImageDetail)
            allowed = ", ".join(f'"{word}"' for word in words[:-1])
            raise InvalidArgumentError(f'invalid detail "{self.detail}"; expected {allowed}, or "{words[-1]}"')
        for name in ("max_dimension_px", "low_detail_max_dimension_px"):
            if getattr(self, name) < 0:
                raise InvalidArgumentError(f"{name} is {getattr(self, name)}; it must not be negative")


class ImagePreprocessor:
    """Preprocesses encoded images with Pillow and numpy."""

    def preprocess(self, data: bytes, options: PreprocessOptions, *, where: str = "image[0]") -> ImageInfo:
        """The image in `data`, re-encoded.

        Args:
            where: the image's place, for the error.

        Raises:
            ImageError: of kind EmptyImage, UnsupportedMediaType, ImageDimensionsTooLarge or Decode, not retryable.
        """
        if not data:
            raise unusable("EmptyImage", where)
        kind = sniff(data)
        if kind is None:
            raise unusable("UnsupportedMediaType", where)
        pixels = _decode(data, kind, options.max_dimension_px, where)
        return _encode(_fit(pixels, options))


def _decode(data: bytes, kind: str, max_dimension_px: int, where: str) -> NDArray[np.uint8]:
    """Pixels of the first frame, [height, width, 3] in RGB."""
    from PIL import Image

    try:
        # Pillow warns of images with more pixels than a square of the default limit has. Nothing silences it here,
        # since the filters of warnings belong to the whole process, other threads too.
        image = Image.open(io.BytesIO(data), formats=(kind,))
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise unusable("ImageDimensionsTooLarge", where) from error
    except Exception as error:  # what a broken file raises differs from format to format
        raise _broken("Decode", where, error) from error
    with image:
        if max(image.size) > max_dimension_px:
            raise unusable("ImageDimensionsTooLarge", where)
        try:
            if kind == "PNG" and not _is_whole_png(data):
                raise EOFError("no end of the file's chunks")
            return _pixels(image)
        except Exception as error:
            raise _broken("EmptyImage" if kind in ("PNG", "WEBP") else "Decode", where, error) from error


def pixel_count(data: bytes) -> int:
    """Pixels of the first frame as the head of the file says; 0 when it cannot be told, which decoding refuses."""
    from PIL import Image

    kind = sniff(data)
    if kind is None:
        return 0
    try:
        with Image.open(io.BytesIO(data), formats=(kind,)) as image:
            return image.width * image.height
    except Exception:  # a broken file, or one that is too large
        return 0


def _is_whole_png(data: bytes) -> bool:
    """Whether the chunks go on to the last one. Pillow takes a file that is cut behind its last pixels."""
    start = 8
    while start + 12 <= len(data):
        size = int.from_bytes(data[start : start + 4])
        if data[start + 4 : start + 8] == b"IEND":
            return start + 12 + size <= len(data)
        start += 12 + size
    return False


def _broken(kind: str, where: str, error: Exception) -> ImageError:
    if isinstance(error, ImportError | MemoryError):
        raise error
    return unusable(kind, where)


def _pixels(image: Image) -> NDArray[np.uint8]:
    import numpy as np

    image.load()
    transparent = image.mode in ("RGBA", "LA", "PA") or (image.mode in ("P", "RGB") and "transparency" in image.info)
    width, height = image.size
    result = np.empty((height, width, 3), np.uint8)
    for top in range(0, height, _BAND):  # band by band, so that no second copy of a large image is made
        bottom = min(height, top + _BAND)
        band = image.crop((0, top, width, bottom))
        if band.mode.startswith("I"):  # 16 bits of gray
            gray = (np.asarray(band).astype(np.int64) + 128) // 257
            result[top:bottom] = np.clip(gray, 0, 255)[..., None]
        elif transparent:
            result[top:bottom] = _composited(np.asarray(band.convert("RGBA")))
        else:
            result[top:bottom] = np.asarray(band.convert("RGB"))
    return result


def _composited(pixels: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """RGB of RGBA pixels on `WHITE`."""
    import numpy as np

    alpha = pixels[..., 3:].astype(np.uint32)
    result: NDArray[np.uint32] = (pixels[..., :3] * alpha + (255 - alpha) * WHITE + 127) // 255
    return result


def _fit(pixels: NDArray[np.uint8], options: PreprocessOptions) -> NDArray[np.uint8]:
    """Scaled into the fitted size, aspect ratio kept, and centred on gray."""
    import numpy as np

    from .resample import resize_cubic, shrink_area

    height, width = pixels.shape[:2]
    outer = output_size(width, height, options.detail, options.low_detail_max_dimension_px)
    if options.detail == "low":
        low = low_detail_size(width, height, options.low_detail_max_dimension_px)
        if low != (width, height):
            pixels = shrink_area(pixels, *low)
            width, height = low
    inner = _contained(width, height, *outer)
    result = np.full((outer[1], outer[0], 3), GRAY, np.uint8)
    left, top = round((outer[0] - inner[0]) / 2), round((outer[1] - inner[1]) / 2)
    result[top : top + inner[1], left : left + inner[0]] = resize_cubic(pixels, *inner)
    return result


def _contained(width: int, height: int, outer_width: int, outer_height: int) -> tuple[int, int]:
    """The largest size of the image's aspect ratio within the outer size."""
    ratio, outer_ratio = width / height, outer_width / outer_height
    if ratio > outer_ratio:
        return outer_width, max(1, round(height / width * outer_width))
    if ratio < outer_ratio:
        return max(1, round(ratio * outer_height)), outer_height
    return outer_width, outer_height


def _encode(pixels: NDArray[np.uint8]) -> ImageInfo:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "WEBP", quality=QUALITY)
    return ImageInfo(buffer.getvalue(), pixels.shape[1], pixels.shape[0])
