"""The engine's chunks, and the processor that turns them into events."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from ..stream import chunks, parser, usage
from . import arguments as check
from .errors import translated
from .generators import ChatCompletionChunkGenerator, MessagesChunkGenerator, ResponsesChunkGenerator
from .options import QUIRKS, ParsingOptions
from .prompts import Tokenizer
from .responses import ChatCompletionChunk, MessagesStreamEvent, ResponsesStreamEvent
from .words import InferenceFinishReason
from .wrapped import Wrapped

_Event: TypeAlias = "ChatCompletionChunk | ResponsesStreamEvent | MessagesStreamEvent"

_EVENTS: dict[type, Any] = {
    ChatCompletionChunkGenerator: ChatCompletionChunk,
    ResponsesChunkGenerator: ResponsesStreamEvent,
    MessagesChunkGenerator: MessagesStreamEvent,
}


class PromptUsage(Wrapped[usage.PromptUsage]):
    """Token counts of the prompt."""

    __slots__ = ()

    def __init__(self, *, prompt_tokens: int = 0, prompt_cache_hit_tokens: int = 0) -> None:
        self._plain = usage.PromptUsage(
            prompt_tokens=check.unsigned("prompt_tokens", prompt_tokens, check.U64),
            prompt_cache_hit_tokens=check.unsigned("prompt_cache_hit_tokens", prompt_cache_hit_tokens, check.U64),
        )

    @property
    def prompt_tokens(self) -> int:
        return self._plain.prompt_tokens

    @property
    def prompt_cache_hit_tokens(self) -> int:
        return self._plain.prompt_cache_hit_tokens


def _logprob(value: object) -> float:
    if not isinstance(value, (int, float)):
        raise TypeError(f"argument 'logprobs': must be real number, not {type(value).__name__}")
    return float(value)


def _pair(value: object) -> tuple[Any, Any]:
    pair = check.instance("logprobs", value, tuple)
    if len(pair) != 2:
        raise ValueError(f"expected tuple of length 2, but got tuple of length {len(pair)}")
    return pair


def _logprobs(values: object) -> list[tuple[float, list[tuple[int, float]]]]:
    result = []
    for value in check.sequence("logprobs", values):
        logprob, alternatives = _pair(value)
        pairs = [_pair(alternative) for alternative in check.sequence("logprobs", alternatives)]
        tops = [(check.unsigned("logprobs", token_id, check.U32), _logprob(value)) for token_id, value in pairs]
        result.append((_logprob(logprob), tops))
    return result


class InferenceChunk(Wrapped[chunks.InferenceChunk]):
    """What the engine says, one chunk at a time. Made by `ready`, `text`, `tokens` or `finish`."""

    __slots__ = ()

    @staticmethod
    def ready(*, prompt_usage: PromptUsage | None = None, system_fingerprint: str | None = None) -> InferenceChunk:
        """The prompt is processed."""
        counts = check.optional("prompt_usage", prompt_usage, PromptUsage)
        fingerprint = check.optional_text("system_fingerprint", system_fingerprint)
        plain = None if counts is None else counts._plain
        return InferenceChunk._of(chunks.ReadyChunk(prompt_usage=plain, system_fingerprint=fingerprint))

    @staticmethod
    def text(content: str, token_count: int = 0) -> InferenceChunk:
        """Output as text, and the number of tokens that it accounts for."""
        given = check.text("content", content)
        return InferenceChunk._of(chunks.TextChunk(given, check.unsigned("token_count", token_count, check.U64)))

    @staticmethod
    def tokens(
        token_ids: Sequence[int],
        logprobs: Sequence[tuple[float, Sequence[tuple[int, float]]]] | None = None,
    ) -> InferenceChunk:
        """Output as token ids, and for each the log probability and those of likely alternatives."""
        ids = [check.unsigned("token_ids", item, check.U32) for item in check.sequence("token_ids", token_ids)]
        return InferenceChunk._of(chunks.TokensChunk(ids, None if logprobs is None else _logprobs(logprobs)))

    @staticmethod
    def finish(finish_reason: InferenceFinishReason) -> InferenceChunk:
        """The engine stopped."""
        reason = check.instance("finish_reason", finish_reason, InferenceFinishReason)
        return InferenceChunk._of(chunks.FinishChunk(reason.plain))

    @property
    def kind(self) -> Literal["ready", "text", "tokens", "finish"]:
        if isinstance(self._plain, chunks.ReadyChunk):
            return "ready"
        if isinstance(self._plain, chunks.TextChunk):
            return "text"
        return "tokens" if isinstance(self._plain, chunks.TokensChunk) else "finish"

    @property
    def content(self) -> str | None:
        return self._plain.content if isinstance(self._plain, chunks.TextChunk) else None

    @property
    def token_ids(self) -> list[int] | None:
        return list(self._plain.token_ids) if isinstance(self._plain, chunks.TokensChunk) else None

    @property
    def finish_reason(self) -> InferenceFinishReason | None:
        if not isinstance(self._plain, chunks.FinishChunk):
            return None
        reason = self._plain.reason
        return next(word for word in InferenceFinishReason if word.plain is reason)

    @property
    def prompt_usage(self) -> PromptUsage | None:
        counts = self._plain.prompt_usage if isinstance(self._plain, chunks.ReadyChunk) else None
        return None if counts is None else PromptUsage._of(counts)

    @property
    def token_count(self) -> int | None:
        return self._plain.token_count if isinstance(self._plain, chunks.TextChunk) else None

    @property
    def system_fingerprint(self) -> str | None:
        return self._plain.system_fingerprint if isinstance(self._plain, chunks.ReadyChunk) else None


class StreamProcessor:
    """Parses one stream. Push each chunk as it comes, then call `finish`."""

    __slots__ = ("_event", "_plain")

    def __init__(
        self,
        generator: ChatCompletionChunkGenerator | ResponsesChunkGenerator | MessagesChunkGenerator,
        options: ParsingOptions,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        given = check.instance("options", options, ParsingOptions)._plain
        vocabulary = check.optional("tokenizer", tokenizer, Tokenizer)
        if type(generator) not in _EVENTS:
            raise TypeError("expected a protocol chunk generator")
        plain: Any = generator._plain
        with translated():
            self._plain: parser.StreamProcessor[Any] = parser.StreamProcessor(
                plain, dataclasses.replace(given, quirks=QUIRKS), None if vocabulary is None else vocabulary._plain
            )
        self._event = _EVENTS[type(generator)]

    @property
    def finished(self) -> bool:
        """Whether the stream ended, and was not closed."""
        return self._plain.finished

    def push(self, chunk: InferenceChunk) -> list[_Event]:
        """The events that a chunk leads to. Raises `RuntimeError` after the end, and on errors, which close."""
        given = check.instance("chunk", chunk, InferenceChunk)._plain
        with translated():
            return [self._event._of(event) for event in self._plain.push(given)]

    def finish(self) -> list[_Event]:
        """No more chunks: the events that are left. Raises `RuntimeError` if the stream is closed."""
        with translated():
            return [self._event._of(event) for event in self._plain.finish()]

    def close(self) -> None:
        """Drop the stream without an end."""
        self._plain.close()
