"""What a request may hold of images, and the errors that say it was too much."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ImageError
from ..requests.images import MAX_URL_BYTES, UNSUPPORTED_MEDIA_TYPE

MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageLimits:
    """Limits of one request.

    Args:
        max_images: images, all resolve calls of the request together.
        max_image_bytes: encoded bytes of one image.
        max_total_bytes: encoded bytes of all images.
        max_url_bytes: bytes of an external URL in UTF-8.
        max_dimension_px: longer side of an image as it comes, in pixels. It also bounds what a small file may unpack
            to: four bytes for each pixel of a square of this side.
        max_total_px: pixels of all images as they come, which bounds the time that decoding takes; None: any number.
            The default is that of 32 images of the largest size.
        low_detail_max_dimension_px: longer side that an image of detail `low` is first scaled down to, in pixels.
    """

    max_images: int = 600
    max_image_bytes: int = 32 * MIB
    max_total_bytes: int = 64 * MIB
    max_url_bytes: int = MAX_URL_BYTES
    max_dimension_px: int = 8192
    max_total_px: int | None = 1 << 31
    low_detail_max_dimension_px: int = 512


LIMITS = ImageLimits()


class ImageQuota:
    """Images, encoded bytes and pixels of the resolve calls of one request that succeeded.

    Hand the same quota to every call of a request. A call that fails adds nothing.
    """

    __slots__ = ("_bytes", "_images", "_pixels")

    def __init__(self) -> None:
        self._images = 0
        self._bytes = 0
        self._pixels = 0

    def image_count(self) -> int:
        """Images so far."""
        return self._images

    def byte_size(self) -> int:
        """Encoded bytes so far."""
        return self._bytes

    def pixel_count(self) -> int:
        """Pixels of the images as they came, so far."""
        return self._pixels

    def add(self, images: int, size: int, pixels: int = 0) -> None:
        """Counts `images` images of `size` bytes and `pixels` pixels together."""
        self._images += images
        self._bytes += size
        self._pixels += pixels


def unusable(kind: str, where: str) -> ImageError:
    """The error of an image that cannot be used, whose text is the same for every reason.

    Args:
        kind: UnsupportedMediaType, InvalidDataUrl, EmptyImage, ImageDimensionsTooLarge or Decode.
        where: the image, such as `messages.0.content[1].image[0]`.
    """
    return ImageError(kind, f"{where}: {UNSUPPORTED_MEDIA_TYPE}")


def image_too_large(where: str, limit: int) -> ImageError:
    return ImageError("ImageTooLarge", f"{where}: image file size exceeds limit {limit // MIB} MB")


def too_many_images(limit: int, got: int) -> ImageError:
    return ImageError("TooManyImages", f"Too many images: max {limit} images per request, got {got}")


def total_too_large(path: str, limit: int, got: int) -> ImageError:
    text = f"Total image size exceeds the limit: max {limit // MIB} MB per request, got {got // MIB} MB"
    return ImageError("TotalSizeTooLarge", _at(path, text))


def too_many_pixels(path: str, limit: int, got: int) -> ImageError:
    text = f"Total image size exceeds the limit: max {limit} pixels per request, got {got}"
    return ImageError("TotalSizeTooLarge", _at(path, text))


def url_too_long(path: str, limit: int, got: int) -> ImageError:
    return ImageError("UrlTooLong", _at(path, f"external link length {got} too long, max link length {limit}"))


def invalid_url(path: str, quoted_url: str) -> ImageError:
    return ImageError("InvalidUrl", _at(path, f"invalid url: {quoted_url}"))


def _at(path: str, text: str) -> str:
    return f"{path}: {text}" if path else text
