"""Images of a conversation: sources, limits, safe downloads, sizes and re-encoding.

Sizes and token counts need nothing beyond the standard library. Decoding needs Pillow and numpy, downloads need httpx:
both come with the extra `images`, and are imported when they are first used.
"""

from __future__ import annotations

from .addresses import DestinationFilter, any_address, public_address, within
from .fetch import ImageFetcher
from .limits import LIMITS, ImageLimits, ImageQuota
from .preprocess import ImageInfo, ImagePreprocessor, MultiModalData, PreprocessOptions
from .resize import fitted_size, image_tokens, output_size
from .resolve import ImageResolver

__all__ = [
    "LIMITS",
    "DestinationFilter",
    "ImageFetcher",
    "ImageInfo",
    "ImageLimits",
    "ImagePreprocessor",
    "ImageQuota",
    "ImageResolver",
    "MultiModalData",
    "PreprocessOptions",
    "any_address",
    "fitted_size",
    "image_tokens",
    "output_size",
    "public_address",
    "within",
]
