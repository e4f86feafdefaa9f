"""Framing of events for a `text/event-stream` body."""

from __future__ import annotations

from typing import Protocol


class _Named(Protocol):
    @property
    def sse_name(self) -> str | None: ...

    def to_json(self) -> str: ...


def frame(event: _Named) -> str:
    """One event: a line with its name if it has one, a line with its JSON, an empty line."""
    name = event.sse_name
    return message(event.to_json()) if name is None else f"event: {name}\n{message(event.to_json())}"


def message(data: str) -> str:
    """A message without a name; data of several lines is one line each."""
    return "".join(f"data: {line}\n" for line in data.split("\n")) + "\n"
