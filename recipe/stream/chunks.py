"""What the engine says, one chunk at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from ..errors import InvalidArgumentError
from .logprobs import TokenLogprob
from .usage import PromptUsage


class FinishReason(Enum):
    """Why the engine stopped."""

    STOP = "stop"
    LENGTH = "length"
    CONTENT_FILTER = "content_filter"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyChunk:
    """The prompt is processed. The first one before any output counts.

    Args:
        prompt_usage: token counts of the prompt.
        system_fingerprint: what Chat Completions reports under this name.
    """

    prompt_usage: PromptUsage | None = None
    system_fingerprint: str | None = None


@dataclass(frozen=True, slots=True)
class TextChunk:
    """Output as text.

    Args:
        content: special tokens are recognised by their spelling.
        token_count: number of tokens that it accounts for.

    Raises:
        InvalidArgumentError: half of a surrogate pair, or a negative count.
    """

    content: str
    token_count: int = 0

    def __post_init__(self) -> None:
        if self.token_count < 0:
            raise InvalidArgumentError(f"token_count is {self.token_count}; the allowed range is [0, 2^32)")
        if not self.content.isascii():
            try:
                self.content.encode()
            except UnicodeEncodeError as error:
                message = f"content holds half of a surrogate pair at index {error.start}; allowed is any Unicode text"
                raise InvalidArgumentError(message) from None


@dataclass(frozen=True, slots=True)
class TokensChunk:
    """Output as token ids.

    Args:
        token_ids: special tokens are recognised by their ids only.
        logprobs: one for each id, or None.
    """

    token_ids: Sequence[int]
    logprobs: Sequence[TokenLogprob] | None = None


@dataclass(frozen=True, slots=True)
class FinishChunk:
    """The engine stopped."""

    reason: FinishReason


InferenceChunk: TypeAlias = "ReadyChunk | TextChunk | TokensChunk | FinishChunk"
