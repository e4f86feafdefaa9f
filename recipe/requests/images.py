"""Images in requests: which sources a request may name. The images themselves are looked at later."""

from __future__ import annotations

from ..conversation import ImageDetail, ImageSource
from ..errors import ConversionError
from .data_urls import read_data_url

MAX_URL_BYTES = 8192
MEDIA_TYPES = frozenset({"image/png", "image/jpeg", "image/jpg", "image/gif", "image/webp"})
UNSUPPORTED_IMAGE_TEXT = "[Unsupported Image]"
"""What stands for an image where the model version has none."""

UNSUPPORTED_MEDIA_TYPE = (
    "You have uploaded an unsupported image. Please make sure your image is valid and has one of the following "
    "formats: webp, png, jpeg, and gif."
)
UNSUPPORTED_FILE_TYPE = (
    "You have uploaded an unsupported file. Please make sure your file is valid and has one of the following "
    "formats: webp, png, jpeg, and gif."
)
BASE64_FILE_ADVICE = "file_id is not supported. Pass the image as a base64 data url instead."
BASE64_ADVICE = "Consider passing file data directly with base64 data url instead."


def is_web_url(url: str) -> bool:
    return url[:4].lower() == "http" and url[:4].isascii()


_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0"}


def quoted(text: str) -> str:
    """Text in quotes, with escapes for what cannot be seen."""
    return '"' + "".join(_ESCAPES.get(c) or (c if c.isprintable() else f"\\u{{{ord(c):x}}}") for c in text) + '"'


def check_url_length(url: str, what: str) -> None:
    length = len(url.encode())
    if length > MAX_URL_BYTES:
        raise ConversionError(
            f"{what}external link length {length} too long, max link length {MAX_URL_BYTES}. {BASE64_ADVICE}"
        )


def image_from_url(url: str, detail: ImageDetail, path: str) -> ImageSource:
    """The source for a web URL, whose length the caller has checked, or for a base64 data URL.

    Raises:
        ConversionError: the URL is neither, not of an image type, or not base64.
    """
    if is_web_url(url):
        return ImageSource.from_url(url, detail, path=path)
    data = read_data_url(url) if ";base64," in url else None
    if data is None:
        raise ConversionError(f"{path}: Unsupported image_url format")
    if data.media_type not in MEDIA_TYPES:
        raise ConversionError(f"{path}: {UNSUPPORTED_MEDIA_TYPE}")
    if not data.is_decodable():
        raise ConversionError(f"{path}: Invalid base64 data")
    return ImageSource.from_data_url(url, detail, path=path)
