"""What the templates share: the prompt, its pieces, and the parts that differ by spelling only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from ..conversation import Conversation, ImageSource, Range
from ..special_tokens import SpecialTokens
from ..versions import ModelVersion


@dataclass(frozen=True, slots=True)
class Special:
    """A piece of a prompt that is one token, whatever text stands around it."""

    text: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """A rendered prompt.

    Attributes:
        text: the whole prompt.
        special_ranges: code point ranges of `text`, ascending and disjoint, each one special token. All other text is
            plain, whatever it spells.
        image_sources: the images, in the order of the messages that hold them.
    """

    text: str
    special_ranges: tuple[Range, ...]
    image_sources: tuple[ImageSource, ...]

    @classmethod
    def from_pieces(cls, pieces: Iterable[str | Special], image_sources: Iterable[ImageSource] = ()) -> Prompt:
        """Joins the pieces. Empty ones leave no trace."""
        texts: list[str] = []
        ranges: list[Range] = []
        position = 0
        for piece in pieces:
            if isinstance(piece, str):
                texts.append(piece)
                position += len(piece)
            elif piece.text:
                texts.append(piece.text)
                ranges.append((position, position + len(piece.text)))
                position += len(piece.text)
        return cls("".join(texts), tuple(ranges), tuple(image_sources))


class Template(Protocol):
    """Renders the prompts of one model version."""

    @property
    def version(self) -> ModelVersion: ...

    def render(self, conversation: Conversation, special_tokens: SpecialTokens) -> Prompt: ...
