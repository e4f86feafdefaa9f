"""Events of the three protocols, and the responses that they add up to."""

from __future__ import annotations

from typing import Any, ClassVar

from ..events.base import Event
from ..events.side import Response, event_side
from ..stream.usage import PromptUsage
from . import arguments as check
from .errors import translated
from .wrapped import Wrapped


class _Event(Wrapped[Event]):
    """One event. Accumulating it consumes it."""

    __slots__ = ()

    def to_json(self) -> str:
        """Compact JSON. Raises `RuntimeError` when the event was accumulated."""
        with translated():
            return self._plain.to_json()


class ChatCompletionChunk(_Event):
    """A chunk of a completion."""

    __slots__ = ()


class ResponsesStreamEvent(_Event):
    """An event of a response."""

    __slots__ = ()


class MessagesStreamEvent(_Event):
    """An event of a message."""

    __slots__ = ()


class _Response:
    """A response that is accumulated from the events of a stream."""

    __slots__ = ("_plain",)

    _protocol: ClassVar[str]
    _plain: Response

    def __init__(self, id: str, model: str, created: int, prompt_tokens: int, prompt_cache_hit_tokens: int) -> None:
        usage = PromptUsage(
            prompt_tokens=check.unsigned("prompt_tokens", prompt_tokens, check.U64),
            prompt_cache_hit_tokens=check.unsigned("prompt_cache_hit_tokens", prompt_cache_hit_tokens, check.U64),
        )
        time = check.unsigned("created", created, check.U64)
        side = event_side(self._protocol)
        self._plain = side.response(check.text("id", id), check.text("model", model), time, usage)

    def _add(self, event: Any, kind: type[_Event]) -> None:
        given = check.instance("chunk", event, kind)
        with translated():
            self._plain.accumulate(given._plain)

    def to_json(self) -> str:
        """Compact JSON of the response so far."""
        return self._plain.to_json()


def _sse_name(event: object, kind: type[_Event]) -> str | None:
    given = check.instance("chunk", event, kind)
    with translated():
        given._plain.check()
        return given._plain.sse_name


class ChatCompletionResponse(_Response):
    """A completion."""

    __slots__ = ()

    _protocol = "chat"

    def accumulate(self, chunk: ChatCompletionChunk) -> None:
        """Add a chunk; consumes it."""
        self._add(chunk, ChatCompletionChunk)

    @staticmethod
    def sse_event_name(chunk: ChatCompletionChunk) -> str | None:
        """The name of the server-sent event: None."""
        return _sse_name(chunk, ChatCompletionChunk)

    @staticmethod
    def sse_done_data() -> str | None:
        """The data of the last message of an event stream."""
        return event_side("chat").sse_done


class ResponsesResponse(_Response):
    """A response."""

    __slots__ = ()

    _protocol = "responses"

    def accumulate(self, chunk: ResponsesStreamEvent) -> None:
        """Add an event; consumes it."""
        self._add(chunk, ResponsesStreamEvent)

    @staticmethod
    def sse_event_name(chunk: ResponsesStreamEvent) -> str | None:
        """The name of the server-sent event."""
        return _sse_name(chunk, ResponsesStreamEvent)

    @staticmethod
    def sse_done_data() -> str | None:
        """None: there is no last message."""
        return event_side("responses").sse_done


class MessagesResponse(_Response):
    """A message."""

    __slots__ = ()

    _protocol = "messages"

    def accumulate(self, chunk: MessagesStreamEvent) -> None:
        """Add an event; consumes it."""
        self._add(chunk, MessagesStreamEvent)

    @staticmethod
    def sse_event_name(chunk: MessagesStreamEvent) -> str | None:
        """The name of the server-sent event."""
        return _sse_name(chunk, MessagesStreamEvent)

    @staticmethod
    def sse_done_data() -> str | None:
        """None: there is no last message."""
        return event_side("messages").sse_done
