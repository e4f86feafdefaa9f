"""Sizes of images in pixels, and the tokens they take.

An image is cut into patches of 14 pixels, three by three of which make one token; every row of tokens ends with a
token of its own, and two more enclose the image.
"""

from __future__ import annotations

import math

PATCH = 14
TOKEN = 3 * PATCH  # pixels of a token's side
MIN_PIXELS = 544 * 544
MAX_TOKENS = 1024
MAX_SIDE = 16380
"""Longest side of what is sent on: the last multiple of the patch that a WebP file can hold (16383)."""


def image_tokens(width: int, height: int) -> int:
    """Tokens of an image of `width` × `height` pixels as it is, without fitting."""
    return _tokens(width, height)


def _tokens(width: float, height: float) -> int:
    return math.ceil(height / TOKEN) * (math.ceil(width / TOKEN) + 1) + 2


def low_detail_size(width: int, height: int, limit: int) -> tuple[int, int]:
    """The size that an image of detail `low` is scaled down to first: longer side at most `limit` pixels."""
    longer = max(width, height)
    if longer <= limit:
        return width, height
    scale = limit / longer
    return max(1, math.floor(width * scale + 0.5)), max(1, math.floor(height * scale + 0.5))


def fitted_size(width: int, height: int) -> tuple[int, int]:
    """The size in pixels, multiples of the patch, that an image is fitted to: at least 544² pixels, at most 1,024
    tokens.

    Args:
        width, height: pixels, at least 0. An image without pixels stays one.
    """
    while True:
        width, height = _grown(width, height, limit=None)
        fitted = _up(width), _up(height)
        if _tokens(*fitted) <= MAX_TOKENS:
            return fitted
        width, height = _shrunk(width, height)
        if width * height >= MIN_PIXELS:
            return width, height
        # A strip whose few columns were rounded down by a patch has to grow again; it is far from too much then.


def output_size(width: int, height: int, detail: str, low_detail_max_dimension_px: int) -> tuple[int, int]:
    """The size in pixels of a preprocessed image.

    As `fitted_size`, after the scaling of detail `low`; a side longer than `MAX_SIDE` is shortened to it, and the
    image grown again to the least number of pixels.
    """
    if detail == "low":
        width, height = low_detail_size(width, height, low_detail_max_dimension_px)
    width, height = fitted_size(width, height)
    longer = max(width, height)
    if longer <= MAX_SIDE:
        return width, height
    scale = MAX_SIDE / longer
    width, height = (max(1, min(MAX_SIDE, math.floor(side * scale))) for side in (width, height))
    width, height = _grown(width, height, limit=MAX_SIDE)
    return _up(width), _up(height)


def fitted_tokens(width: int, height: int) -> int:
    """Tokens of an image once it is fitted."""
    return _tokens(*fitted_size(width, height))


def _up(side: int) -> int:
    return -(-side // PATCH) * PATCH


def _grown(width: int, height: int, limit: int | None) -> tuple[int, int]:
    """Scaled up until the patches cover `MIN_PIXELS`; rounding down may take several rounds."""
    if width == 0 or height == 0 or width * height >= MIN_PIXELS:
        return width, height
    while True:
        scale = math.sqrt(MIN_PIXELS / (width * height))
        wider, higher = max(1, math.floor(width * scale)), max(1, math.floor(height * scale))
        if limit is not None:
            wider, higher = min(limit, wider), min(limit, higher)
        unchanged = (wider, higher) == (width, height)
        width, height = wider, higher
        if unchanged or _up(width) * _up(height) >= MIN_PIXELS:
            return width, height


def _shrunk(width: int, height: int) -> tuple[int, int]:
    """Scaled down to `MAX_TOKENS`: as many columns of tokens as solve columns · ratio · (columns + 1) = room, where
    ratio is that of height to width and room leaves out the two enclosing tokens. Where that makes less than one
    column or row, one of them takes the whole room."""
    room = MAX_TOKENS - 2
    if width == 0:  # only the height can be too much then
        return TOKEN, room // 2 * TOKEN
    # In this order of operations; others round differently where a result is a whole number.
    ratio = height / width
    exact = (-1 + math.sqrt(1 + 4 * room / ratio)) / 2
    columns, rows = math.floor(exact), math.floor(exact * ratio)
    if columns == 0:
        return TOKEN, room // 2 * TOKEN
    if rows == 0:
        return (room - 1) * TOKEN, TOKEN
    scale = min(TOKEN * rows / height, TOKEN * columns / width)
    return math.floor(width * scale) // PATCH * PATCH, math.floor(height * scale) // PATCH * PATCH
