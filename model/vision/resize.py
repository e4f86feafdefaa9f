"""The size that an image is brought to, and the tokens it takes: a pure function of its width and height.

The canvas is made of whole patches. Patches are merged, `downsample_ratio` by as many, into tokens; each row of tokens
ends in one more, and two enclose the image. Small images are enlarged to `min_pixels`, large ones shrunk until they
take at most `max_image_tokens`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...hal import errors
from ..config import VisionConfig


@dataclass(frozen=True)
class ResizePlan:
    """What becomes of an image.

    Attributes:
        width, height: of the canvas in pixels: whole patches.
        columns, rows: patches.
        token_columns, token_rows: tokens without separators.
        stretched: fill the canvas whatever the aspect ratio, instead of fitting inside.
    """

    width: int
    height: int
    columns: int
    rows: int
    token_columns: int
    token_rows: int
    stretched: bool

    @property
    def tokens(self) -> int:
        """Tokens of the image's span: rows with their ends, start and end."""
        return self.token_rows * (self.token_columns + 1) + 2


def plan_resize(width: int, height: int, vision: VisionConfig) -> ResizePlan:
    """The plan of an image of `width` x `height` pixels.

    Raises:
        InvalidArgumentError: a side is not at least 1.
    """
    if width < 1 or height < 1:
        raise errors.InvalidArgumentError("image size", (width, height), "at least one pixel in each direction")
    ratio = vision.max_wh_ratio
    stretched = ratio is not None and width >= ratio * height
    w: float = width
    h: float = height
    if ratio is not None and w > h * ratio:
        w = h * ratio
    if 0 < w * h < vision.min_pixels:
        factor = math.sqrt(vision.min_pixels / (w * h))
        # A side of a pixel stays one: the factor is above 1.
        w, h = int(w * factor), int(h * factor)
    patch = vision.patch_size
    plan = _plan(math.ceil(w / patch), math.ceil(h / patch), vision, stretched)
    if plan.tokens <= vision.max_image_tokens:
        return plan
    return _plan(*_shrunk(w, h, vision), vision, stretched)


def _plan(columns: int, rows: int, vision: VisionConfig, stretched: bool) -> ResizePlan:
    patch, merge = vision.patch_size, vision.downsample_ratio
    return ResizePlan(
        columns * patch, rows * patch, columns, rows, math.ceil(columns / merge), math.ceil(rows / merge), stretched
    )


def _shrunk(w: float, h: float, vision: VisionConfig) -> tuple[int, int]:
    """Columns and rows of patches within the room that `max_image_tokens` leaves between start and end.

    Token columns x solve x * (h/w) * (x + 1) = room. Where that gives less than one column or row, one of them takes
    the whole room.
    """
    room, merge = vision.max_image_tokens - 2, vision.downsample_ratio
    ratio = h / w
    columns = math.sqrt(room / ratio + 0.25) - 0.5
    rows = columns * ratio
    if columns < 1:
        return merge, room // 2 * merge
    if rows < 1:
        return (room - 1) * merge, merge
    token = vision.patch_size * merge
    scale = min(math.floor(columns) * token / w, math.floor(rows) * token / h)
    return math.floor(w * scale / vision.patch_size), math.floor(h * scale / vision.patch_size)
