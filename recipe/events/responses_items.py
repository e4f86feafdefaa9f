"""The items of a response: what their events and their final form say."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from ..errors import InvalidJsonError
from ..json_text import parse_json

_STRING_PART = re.compile(r'(?:[^"\\]|\\u[0-9a-fA-F]{4}|\\[^u])*')

_SPACE = re.compile(r"[ \t\n\f\r]+")
_LONGEST_ESCAPE = len("\\u0000")


def _unescaped(text: str) -> str:
    """The text that a part of a JSON string stands for; as it is, if it stands for none."""
    if "\\" not in text:
        return text
    try:
        value = str(json.loads(f'"{text}"', strict=False))
    except json.JSONDecodeError:
        return text
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class Item:
    """An item that is being written.

    Args:
        prefix: what its id begins with.
        index: its place in the output.

    Attributes:
        delta_name: type of the events of its pieces; empty if it has none.
        has_parts: whether its text is a part of a content list.
        has_logprobs: whether the events of its pieces have log probabilities.
    """

    delta_name = ""
    has_parts = False
    has_logprobs = False

    def __init__(self, prefix: str, index: int) -> None:
        self.id = f"{prefix}_{index}"
        self.index = index
        self._pieces: list[str] = []
        self._logprobs: list[Any] = []

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._pieces)

    def add(self, piece: str, logprobs: list[Any] | None) -> None:
        self._pieces.append(piece)
        if logprobs:
            self._logprobs += logprobs

    def begun(self) -> dict[str, Any]:
        """The item as it begins."""
        raise NotImplementedError

    def part(self) -> dict[str, Any] | None:
        """The part that its text goes to, as it begins."""
        return None

    def read_arguments(self, text: str) -> Iterator[str]:
        """The pieces that a piece of a call's arguments leads to."""
        yield text

    def last_pieces(self) -> Iterator[str]:
        """Pieces that were waiting for more."""
        return iter(())

    def done(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """(type, fields of its own) of the events that end its text."""
        return iter(())

    def ended(self, status: str) -> dict[str, Any]:
        """The item when it is done."""
        raise NotImplementedError


class Reasoning(Item):
    """Reasoning text."""

    delta_name = "response.reasoning_text.delta"
    has_parts = True

    def __init__(self, prefix: str, index: int, encrypted: str) -> None:
        super().__init__(prefix, index)
        self._encrypted = encrypted

    def _item(self, status: str, content: list[Any]) -> dict[str, Any]:
        return {
            "type": "reasoning",
            "id": self.id,
            "status": status,
            "content": content,
            "summary": [],
            "encrypted_content": self._encrypted,
        }

    def begun(self) -> dict[str, Any]:
        return self._item("in_progress", [])

    def part(self) -> dict[str, Any]:
        return {"type": "reasoning_text", "text": self.text}

    def done(self) -> Iterator[tuple[str, dict[str, Any]]]:
        yield "response.reasoning_text.done", {"text": self.text}
        yield "response.content_part.done", {"part": self.part()}

    def ended(self, status: str) -> dict[str, Any]:
        return self._item(status, [self.part()])


class Message(Item):
    """Text of the answer. `phase` is commentary when a call follows."""

    delta_name = "response.output_text.delta"
    has_parts = True
    has_logprobs = True
    phase = "final_answer"

    def _item(self, status: str, content: list[Any]) -> dict[str, Any]:
        return {
            "type": "message",
            "id": self.id,
            "status": status,
            "role": "assistant",
            "phase": self.phase,
            "content": content,
        }

    def begun(self) -> dict[str, Any]:
        return self._item("in_progress", [])

    def part(self) -> dict[str, Any]:
        return {"type": "output_text", "annotations": [], "logprobs": list(self._logprobs), "text": self.text}

    def done(self) -> Iterator[tuple[str, dict[str, Any]]]:
        yield "response.output_text.done", {"logprobs": list(self._logprobs), "text": self.text}
        yield "response.content_part.done", {"part": self.part()}

    def ended(self, status: str) -> dict[str, Any]:
        return self._item(status, [self.part()])


class Call(Item):
    """A call of a function, its namespace apart if it has one."""

    delta_name = "response.function_call_arguments.delta"

    def __init__(self, prefix: str, index: int, call_id: str, name: str, local: tuple[str, str] | None) -> None:
        super().__init__(prefix, index)
        self._call_id = call_id
        self._name: dict[str, str] = {"name": name}
        if local is not None:
            self._name = {"name": local[1], "namespace": local[0]}

    def begun(self) -> dict[str, Any]:
        return self.ended("in_progress")

    def done(self) -> Iterator[tuple[str, dict[str, Any]]]:
        yield "response.function_call_arguments.done", {"arguments": self.text}

    def ended(self, status: str) -> dict[str, Any]:
        head = {"type": "function_call", "id": self.id, "status": status, "call_id": self._call_id}
        return {**head, **self._name, "arguments": self.text}


class CustomCall(Item):
    """A call of a custom tool, whose input is plain text: the string parameter `input`, if it comes first.

    ASCII white space may stand where JSON lets white space stand.

    Other arguments become the input as they are, lest they are lost.
    """

    delta_name = "response.custom_tool_call_input.delta"

    _EXPECTED = '{"input":"'
    _SPACES = (1, 8, 9)  # places in what is expected where there may be white space

    def __init__(self, prefix: str, index: int, call_id: str, name: str) -> None:
        super().__init__(prefix, index)
        self._call_id = call_id
        self._name = name
        self._waiting: list[str] = []  # arguments that may still begin as expected
        self._met = 0  # characters of what is expected that they have
        self._escape = ""  # an escape that is not complete
        self._state = "waiting"  # then "text", then "over"; or "raw"

    def read_arguments(self, text: str) -> Iterator[str]:
        if not text:
            return
        if self._state == "text":
            yield from self._read_text(text)
        elif self._state == "raw":
            yield text
        elif self._state == "waiting":
            self._waiting.append(text)
            end = self._expect(text)
            if self._met == len(self._EXPECTED):
                self._state = "text"
                self._waiting.clear()
                yield from self._read_text(text[end:])
            elif end < len(text):
                self._state = "raw"
                yield "".join(self._waiting)

    def _expect(self, text: str) -> int:
        """Reads on in what is expected; how much of the text was read."""
        end = 0
        while self._met < len(self._EXPECTED):
            if self._met in self._SPACES and (space := _SPACE.match(text, end)):
                end = space.end()
            if text[end : end + 1] != self._EXPECTED[self._met]:
                break
            self._met += 1
            end += 1
        return end

    def _read_text(self, text: str) -> Iterator[str]:
        """The text that a part of a JSON string stands for, up to the quote that ends the string."""
        text = self._escape + text
        match = _STRING_PART.match(text)
        end = match.end() if match else 0
        self._escape = text[end:]
        if self._escape.startswith('"') or len(self._escape) >= _LONGEST_ESCAPE:
            self._state = "over"  # or it never becomes an escape
        if end:
            yield _unescaped(text[:end])

    def last_pieces(self) -> Iterator[str]:
        if self._state == "waiting" and self._waiting:
            yield "".join(self._waiting)

    def begun(self) -> dict[str, Any]:
        return self.ended("in_progress")

    def done(self) -> Iterator[tuple[str, dict[str, Any]]]:
        yield "response.custom_tool_call_input.done", {"input": self.text}

    def ended(self, status: str) -> dict[str, Any]:
        return {
            "type": "custom_tool_call",
            "id": self.id,
            "status": status,
            "call_id": self._call_id,
            "name": self._name,
            "input": self.text,
        }


class ToolSearch(Item):
    """A search for tools that the client runs. Its arguments are an object and come when they are complete."""

    def __init__(self, prefix: str, index: int, call_id: str) -> None:
        super().__init__(prefix, index)
        self._call_id = call_id

    def _item(self, status: str, arguments: Any) -> dict[str, Any]:
        return {
            "type": "tool_search_call",
            "id": self.id,
            "status": status,
            "call_id": self._call_id,
            "execution": "client",
            "arguments": arguments,
        }

    def begun(self) -> dict[str, Any]:
        return self._item("in_progress", {})

    def ended(self, status: str) -> dict[str, Any]:
        if status == "completed":
            try:
                return self._item(status, parse_json(self.text))
            except InvalidJsonError:
                pass
        return self._item("incomplete" if status == "completed" else status, {})
