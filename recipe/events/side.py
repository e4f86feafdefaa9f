"""The event side of a protocol, and those that there are: the `EVENTS` of the modules here and in `protocols`.

A protocol that needs little is one module of `protocols` with both its `PROTOCOL` and its `EVENTS`.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any
from typing import Protocol as TypingProtocol

from .. import protocols
from ..errors import InvalidArgumentError
from ..requests.converted import ConversationRequest
from ..stream.usage import PromptUsage
from .base import ChunkGenerator


class Response(TypingProtocol):
    """A response that is accumulated from the events of a stream."""

    def accumulate(self, event: Any, /) -> None:
        """Add an event; consumes it. Raises `ConsumedError` if it was accumulated before."""

    def to_dict(self) -> dict[str, Any]:
        """The response so far."""

    def to_json(self) -> str:
        """Compact JSON of the response so far."""


@dataclass(frozen=True, slots=True)
class EventSide:
    """How a protocol answers.

    Args:
        name: of the protocol.
        generator: (converted request, id of the response, name of the model) to what makes its events.
        response: (id, name of the model, creation time in seconds, token counts of the prompt) to an empty response.
        sse_done: data of the last message of an event stream; None if there is none.
    """

    name: str
    generator: Callable[[ConversationRequest, str, str], ChunkGenerator[Any]]
    response: Callable[[str, str, int, PromptUsage], Response]
    sse_done: str | None


@cache
def event_sides() -> Mapping[str, EventSide]:
    """The event side of every protocol, by its name."""
    found: dict[str, EventSide] = {}
    for name in (__package__ or "", protocols.__name__):
        package = import_module(name)
        for module in sorted(pkgutil.iter_modules(package.__path__), key=lambda module: module.name):
            side = getattr(import_module(f"{name}.{module.name}"), "EVENTS", None)
            if side is not None:
                found[side.name] = side
    return found


def event_side(name: str) -> EventSide:
    """The event side of the protocol of this name.

    Raises:
        InvalidArgumentError: there is none.
    """
    if name not in event_sides():
        raise InvalidArgumentError(f"protocol {name!r} has no events; those that have: {', '.join(event_sides())}")
    return event_sides()[name]
