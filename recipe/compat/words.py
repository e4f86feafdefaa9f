"""The enumerations, in the original's spelling. Each value knows what it is in the plain API."""

from __future__ import annotations

from enum import Enum

from .. import options, special_tokens, versions
from ..stream import chunks


class Word(Enum):
    """Base of the enumerations. Values print as `Enumeration.Value`; their numbers are those of the original."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    def __int__(self) -> int:
        number: int = self.value
        return number

    @property
    def _screaming(self) -> str:
        """The name in the spelling of constants, as the plain enumerations have it."""
        return "".join(f"_{letter}" if letter.isupper() else letter for letter in self.name).lstrip("_").upper()


class SpecialToken(Word):
    """A kind of special token."""

    Bos = 0
    Eos = 1
    ThinkingStart = 2
    ThinkingEnd = 3
    System = 4
    User = 5
    Assistant = 6
    LatestReminder = 7
    Dsml = 8
    Image = 9
    Ref = 10
    RefEnd = 11
    Box = 12
    BoxEnd = 13
    Point = 14
    PointEnd = 15
    Polygon = 16
    PolygonEnd = 17

    @property
    def plain(self) -> special_tokens.SpecialToken:
        return special_tokens.SpecialToken[self._screaming]

    def default_str(self) -> str:
        """The default spelling."""
        return self.plain.value


class WebSearchBehavior(Word):
    """What to do with web search of a protocol's own service."""

    Drop = 0
    Reject = 1

    @property
    def plain(self) -> options.WebSearchBehavior:
        return options.WebSearchBehavior[self._screaming]


class ReasoningContentBehavior(Word):
    """What to do about reasoning that the history of a thinking conversation lacks."""

    FillEmpty = 0
    Reject = 1

    @property
    def plain(self) -> options.ReasoningContentBehavior:
        return options.ReasoningContentBehavior[self._screaming]


class ModelVersion(Word):
    """The model version that a conversation is for."""

    DeepseekV4Pro = 0
    DeepseekV41Flash = 1

    @property
    def plain(self) -> versions.ModelVersion:
        return versions.model_version(self.name)


class ThinkingInitialStage(Word):
    """Where the output of a thinking conversation begins."""

    ReasoningStart = 0
    ReasoningContinuation = 1
    ContentContinuation = 2

    @property
    def plain(self) -> options.ThinkingInitialStage:
        return options.ThinkingInitialStage[self._screaming]

    def starts_in_reasoning(self) -> bool:
        """Whether the output begins with reasoning."""
        return self.plain.starts_in_reasoning


class InferenceFinishReason(Word):
    """Why the engine stopped."""

    Stop = 0
    Length = 1
    ContentFilter = 2

    @property
    def plain(self) -> chunks.FinishReason:
        return chunks.FinishReason[self._screaming]


def stage_of(plain: options.ThinkingInitialStage | None) -> ThinkingInitialStage | None:
    return next((stage for stage in ThinkingInitialStage if stage.plain is plain), None)
