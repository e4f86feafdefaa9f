"""What the events of every protocol have in common."""

from __future__ import annotations

import secrets
import string
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from json.encoder import encode_basestring
from typing import Any, Generic, TypeVar

from ..errors import ConsumedError
from ..json_text import print_json
from ..stream.chunks import FinishReason, ReadyChunk
from ..stream.logprobs import Logprobs
from ..stream.usage import Usage

_LETTERS = string.ascii_letters + string.digits

quoted = encode_basestring
"""A text as a JSON string."""


class Event:
    """One event of a stream. Serves once: accumulating it consumes it.

    Attributes:
        sse_name: the name of the server-sent event; None for an unnamed one.
    """

    __slots__ = ("_is_spent",)

    _is_spent: bool

    @property
    def sse_name(self) -> str | None:
        return None

    def to_json(self) -> str:
        """Compact JSON, made when asked for.

        Raises:
            ConsumedError: the event was accumulated.
        """
        self.check()
        return self.json()

    def json(self) -> str:
        raise NotImplementedError

    def check(self) -> None:
        """Raise `ConsumedError` if the event was accumulated."""
        if self._is_spent:
            raise ConsumedError("protocol chunk has been consumed")

    def consume(self) -> None:
        """Mark the event as accumulated. Raises `ConsumedError` if it was before."""
        self.check()
        self._is_spent = True


EventT = TypeVar("EventT", bound=Event)


@dataclass(frozen=True, slots=True)
class End:
    """How the output ended.

    Args:
        reason: why the engine stopped; STOP, too, when a stop sequence came or the input just ended.
        made_calls: calls were made and the engine said that it stopped: without a finish chunk there is no telling
            whether the last call is complete.
        stop_sequence: the stop sequence that came.
    """

    reason: FinishReason
    made_calls: bool
    stop_sequence: str | None
    usage: Usage


class ChunkGenerator(ABC, Generic[EventT]):
    """Turns one stream's output into events of a protocol, in the order of the calls. Serves one stream.

    Args:
        id: of the response.
        model: name that the response reports.
        thinking: whether the conversation is a thinking one.
    """

    def __init__(self, id: str, model: str, *, thinking: bool) -> None:
        self.id = id
        self.model = model
        self.thinking = thinking
        self.created = int(time.time())
        self._is_spent = False

    def consume(self) -> None:
        """Mark the generator as used. Raises `ConsumedError` if it was before."""
        if self._is_spent:
            raise ConsumedError("chunk generator has been consumed")
        self._is_spent = True

    @abstractmethod
    def begin(self, ready: ReadyChunk, out: list[EventT]) -> None:
        """The stream begins; called once, first."""

    @abstractmethod
    def content(self, text: str, logprobs: Logprobs | None, out: list[EventT]) -> None:
        """A piece of the answer."""

    @abstractmethod
    def reasoning(self, text: str, logprobs: Logprobs | None, out: list[EventT]) -> None:
        """A piece of the reasoning."""

    @abstractmethod
    def call(self, index: int, id: str, name: str, out: list[EventT]) -> None:
        """A tool call begins."""

    @abstractmethod
    def arguments(self, text: str, out: list[EventT]) -> None:
        """A piece of the last call's arguments."""

    @abstractmethod
    def end(self, end: End, out: list[EventT]) -> None:
        """The stream ends; called once, last."""


def call_id(index: int, *, without_reasoning: bool) -> str:
    """A new id of the call at `index`.

    Args:
        without_reasoning: the call came without any reasoning although the conversation is a thinking one; the id
            carries it, so that the next request tells.
    """
    letters = "".join(secrets.choice(_LETTERS) for _ in range(20))
    mark = "ET_" if without_reasoning else ""
    return f"call_{index:02}_{mark}{letters}{secrets.randbelow(10000):04}"


def compact(value: Any) -> str:
    """Compact JSON of a value."""
    return print_json(value, compact=True)


def logprobs_json(logprobs: Logprobs | None) -> list[Any] | None:
    """What is left of the log probabilities of a piece."""
    return None if logprobs is None else logprobs.take()
