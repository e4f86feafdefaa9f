"""What makes the events of a stream. Each serves one stream."""

from __future__ import annotations

from typing import Any

from ..events import chat, messages, responses
from ..protocols.responses import echo
from . import arguments as check
from .errors import translated
from .wrapped import Wrapped


class ChatCompletionChunkGenerator(Wrapped[chat.ChatChunkGenerator]):
    """Makes the chunks of one completion."""

    __slots__ = ()


class ResponsesEcho(Wrapped[echo.ResponsesEcho]):
    """Settings of a request as its responses repeat them; those of a request that says nothing, if made directly."""

    __slots__ = ()

    def __init__(self) -> None:
        self._plain = echo.ResponsesEcho()

    @property
    def instructions(self) -> str | None:
        return self._plain.instructions

    @property
    def max_output_tokens(self) -> int | None:
        return self._plain.max_output_tokens

    @property
    def temperature(self) -> float:
        """As requested, or 1.0."""
        return self._plain.temperature

    @property
    def top_p(self) -> float:
        """As requested, or 1.0."""
        return self._plain.top_p

    @property
    def top_logprobs(self) -> int:
        """As requested, or 0."""
        return self._plain.top_logprobs

    @property
    def user(self) -> str | None:
        return self._plain.user


class ResponsesChunkGenerator(Wrapped[responses.ResponsesChunkGenerator]):
    """Makes the events of one response."""

    __slots__ = ()

    def with_namespace_tool_map(self, namespace_tool_map: dict[str, tuple[str, str]]) -> ResponsesChunkGenerator:
        """A generator that splits these names; consumes the one that it is made of."""
        names = {
            check.text("namespace_tool_map", name): _pair(parts)
            for name, parts in check.instance("namespace_tool_map", namespace_tool_map, dict).items()
        }
        with translated():
            return ResponsesChunkGenerator._of(self._plain.with_namespace_tool_map(names))

    def with_echo(self, echo: ResponsesEcho) -> ResponsesChunkGenerator:
        """A generator whose responses repeat these settings; consumes the one that it is made of."""
        settings = check.instance("echo", echo, ResponsesEcho)._plain
        with translated():
            return ResponsesChunkGenerator._of(self._plain.with_echo(settings))


def _pair(parts: Any) -> tuple[str, str]:
    name = "namespace_tool_map"
    pair = check.instance(name, parts, tuple)
    if len(pair) != 2:
        raise ValueError(f"expected tuple of length 2, but got tuple of length {len(pair)}")
    return check.text(name, pair[0]), check.text(name, pair[1])


class MessagesChunkGenerator(Wrapped[messages.MessagesChunkGenerator]):
    """Makes the events of one message."""

    __slots__ = ()

    def __init__(self, id: str, model: str, thinking_mode: bool) -> None:
        self._plain = messages.MessagesChunkGenerator(
            check.text("id", id), check.text("model", model), thinking=check.flag("thinking_mode", thinking_mode)
        )

    def with_signature(self, signature: str) -> MessagesChunkGenerator:
        """A generator that signs thinking blocks with this; consumes the one that it is made of."""
        given = check.text("signature", signature)
        with translated():
            return MessagesChunkGenerator._of(self._plain.with_signature(given))
