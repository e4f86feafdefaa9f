"""Where the tokens of an image stand in a sequence.

A span is START, then for each row of tokens the row and a NEW_LINE, then END. In the id stream it is one id
vocab_size + 2, then ids vocab_size + 1: ids from the vocabulary's size on are image tokens, which is what routing and
the n-gram memories look at. Which embedding a place takes follows from the image's plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ...hal import errors
from .resize import ResizePlan

if TYPE_CHECKING:
    import torch

    from ..batch import SequenceSlice

IntArray = npt.NDArray[np.int32]

PAD, IMAGE = 1, 2
"""Ids above the vocabulary: of a span's further tokens, and of its first."""
MARKS = ("start", "newline", "end")
"""Learned vectors, in the order of `marks` of `ops.scatter_embeds`."""
TEXT = -1


@dataclass(frozen=True)
class ImageSpan:
    """One image of a sequence.

    Attributes:
        start: position of its first token.
        plan: of the image.
        embeds: bf16 [token_rows * token_columns, D], from `VisionTower.encode`.
    """

    start: int
    plan: ResizePlan
    embeds: torch.Tensor

    @property
    def end(self) -> int:
        """The position behind its last token."""
        return self.start + self.plan.tokens


@dataclass(frozen=True)
class ImageRows:
    """The rows of a step that take an embedding of an image; see `ops.scatter_embeds`.

    Attributes:
        values: bf16 [V, D]. source: int32 [T].
    """

    values: torch.Tensor
    source: torch.Tensor


def image_tokens(plan: ResizePlan) -> IntArray:
    """Source of each token of a span, int32 [tokens]: s >= 0 is embedding s of the image, -2 - m is mark m."""
    start, newline, end = (-2 - mark for mark in range(len(MARKS)))
    grid = np.full((plan.token_rows, plan.token_columns + 1), newline, np.int32)
    grid[:, :-1] = np.arange(plan.token_rows * plan.token_columns, dtype=np.int32).reshape(plan.token_rows, -1)
    return np.concatenate(([start], grid.ravel(), [end])).astype(np.int32)


def expand_prompt(
    ids: IntArray, plans: Sequence[ResizePlan], image_token_id: int, vocab_size: int
) -> tuple[IntArray, list[int]]:
    """Replace every placeholder by the span of the image that it stands for, in order.

    Args:
        ids: int32 [n], the prompt with one `image_token_id` per image.
        plans: of the images.

    Returns:
        The ids with spans, int32, and the position of each span.

    Raises:
        InvalidArgumentError: there are not as many placeholders as images.
    """
    places = np.flatnonzero(ids == image_token_id)
    if len(places) != len(plans):
        raise errors.InvalidArgumentError(
            "multi_modal_data",
            f"{len(plans)} images for {len(places)} placeholders",
            f"one image per placeholder (token {image_token_id}) of the prompt",
        )
    parts: list[IntArray] = []
    starts: list[int] = []
    done, length = 0, 0
    for place, plan in zip(places.tolist(), plans, strict=True):
        span = np.full(plan.tokens, vocab_size + PAD, np.int32)
        span[0] = vocab_size + IMAGE
        parts += [ids[done:place], span]
        starts.append(length + place - done)
        length += place - done + plan.tokens
        done = place + 1
    return np.concatenate((*parts, ids[done:])).astype(np.int32), starts


def image_rows(slices: Sequence[SequenceSlice], vocab_size: int, rows: int, device: torch.device) -> ImageRows | None:
    """The image rows of a step of `rows` rows; None where no image of the slices lies in it.

    A step may hold a part of a span: only the embeddings of that part are taken.

    Raises:
        InvalidArgumentError: a span covers ids that are no image tokens, or has too few embeddings.
    """
    source = np.full(rows, TEXT, np.int32)
    import torch  # processes that only decode images do without

    values: list[torch.Tensor] = []
    count, begin = 0, 0
    for number, part in enumerate(slices):
        for span in part.images:
            first, last = max(span.start, part.start), min(span.end, part.end)
            if first >= last:
                continue
            _check(f"slices[{number}].images", part, span, vocab_size)
            own = image_tokens(span.plan)[first - span.start : last - span.start]
            patches = own[own >= 0]
            if patches.size:
                low = int(patches[0])
                own = np.where(own >= 0, own - low + count, own)
                values.append(span.embeds[low : int(patches[-1]) + 1])
                count += patches.size
            source[begin + first - part.start : begin + last - part.start] = own
        begin += part.end - part.start
    if (source == TEXT).all():
        return None
    width = next(span.embeds.shape[1] for part in slices for span in part.images)
    joined = torch.cat(values) if values else torch.empty((0, width), dtype=torch.bfloat16, device=device)
    return ImageRows(joined.to(device), torch.from_numpy(source).to(device))


def _check(name: str, part: SequenceSlice, span: ImageSpan, vocab_size: int) -> None:
    covered = part.tokens[span.start : span.end]
    first, further = vocab_size + IMAGE, vocab_size + PAD
    if len(covered) < span.plan.tokens or covered[0] != first or (covered[1:] != further).any():
        raise errors.InvalidArgumentError(
            name,
            f"a span at {span.start} over {covered[:4].tolist()}…",
            f"a span over {first}, {further}, {further}, …",
        )
    need = span.plan.token_rows * span.plan.token_columns
    if span.embeds.ndim != 2 or span.embeds.shape[0] != need:
        raise errors.InvalidArgumentError(f"{name}.embeds", tuple(span.embeds.shape), f"{need} rows")
