"""What the templates share: the prompt, its pieces, and the parts that differ by spelling only."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Protocol, TypeAlias

from ..conversation import Conversation, ImageSource, Message, Range, ToolCall, ToolDefinition
from ..errors import InvalidJsonError
from ..json_text import JsonValue, parse_json, print_json
from ..special_tokens import SpecialToken, SpecialTokens
from ..versions import ModelVersion


@dataclass(frozen=True, slots=True)
class Special:
    """A piece of a prompt that is one token, whatever text stands around it."""

    text: str


Pieces: TypeAlias = "list[str | Special]"
"""A prompt or a part of one: plain text and special tokens in a row."""


@dataclass(frozen=True)
class Prompt:
    """A rendered prompt. Made by `from_pieces`.

    Attributes:
        pieces: plain text and special tokens in a row. No piece is empty, and no two texts stand side by side.
        image_sources: the images, in the order of the messages that hold them.
    """

    pieces: tuple[str | Special, ...]
    image_sources: tuple[ImageSource, ...]

    @classmethod
    def from_pieces(cls, pieces: Iterable[str | Special], image_sources: Iterable[ImageSource] = ()) -> Prompt:
        """Joins texts that stand side by side. Empty pieces leave no trace."""
        joined: list[str | Special] = []
        texts: list[str] = []
        for piece in pieces:
            if isinstance(piece, str):
                texts.append(piece)
            elif piece.text:
                if text := "".join(texts):
                    joined.append(text)
                texts.clear()
                joined.append(piece)
        if text := "".join(texts):
            joined.append(text)
        return cls(tuple(joined), tuple(image_sources))

    @cached_property
    def text(self) -> str:
        """The whole prompt."""
        return "".join(piece if isinstance(piece, str) else piece.text for piece in self.pieces)

    @cached_property
    def special_ranges(self) -> tuple[Range, ...]:
        """Code point ranges of `text`, ascending and disjoint, each one special token. All else is plain text."""
        ranges: list[Range] = []
        position = 0
        for piece in self.pieces:
            if isinstance(piece, str):
                position += len(piece)
            else:
                ranges.append((position, position := position + len(piece.text)))
        return tuple(ranges)


class Template(Protocol):
    """Renders the prompts of one model version."""

    @property
    def version(self) -> ModelVersion: ...

    @property
    def markup(self) -> ToolMarkup:
        """The tags of tool calls, for grammars that constrain the output."""
        ...

    def render(self, conversation: Conversation, special_tokens: SpecialTokens) -> Prompt: ...


def content_pieces(message: Message) -> Pieces:
    """The content of a message. Only the placeholders of its images are special."""
    content = message.content
    if not message.placeholders:
        return [content]
    pieces: Pieces = []
    position = 0
    for start, stop in message.placeholders:
        pieces += (content[position:start], Special(content[start:stop]))
        position = stop
    pieces.append(content[position:])
    return pieces


GROUNDING = (
    SpecialToken.REF,
    SpecialToken.REF_END,
    SpecialToken.BOX,
    SpecialToken.BOX_END,
    SpecialToken.POINT,
    SpecialToken.POINT_END,
    SpecialToken.POLYGON,
    SpecialToken.POLYGON_END,
)
"""Tokens with which the model points into images. It writes them itself, so the history repeats them as tokens."""


class Marks:
    """The special tokens of templates as pieces. `marks_of` makes them once for each set of spellings."""

    def __init__(self, special_tokens: SpecialTokens) -> None:
        self.bos = Special(special_tokens.bos)
        self.eos = Special(special_tokens.eos)
        self.thinking_start = Special(special_tokens.thinking_start)
        self.thinking_end = Special(special_tokens.thinking_end)
        self.system = Special(special_tokens.system)
        self.user = Special(special_tokens.user)
        self.assistant = Special(special_tokens.assistant)
        self.latest_reminder = Special(special_tokens.latest_reminder)
        self.dsml = Special(special_tokens.dsml)
        spellings = sorted(filter(None, map(special_tokens.token, GROUNDING)), key=len)
        self._grounding = re.compile(f"({'|'.join(map(re.escape, spellings))})") if spellings else None
        self._grounding_start = os.path.commonprefix(spellings)

    def assistant_text(self, text: str) -> Pieces:
        """Content or reasoning of an assistant message: grounding tokens are tokens, and all other text is plain."""
        if self._grounding is None or self._grounding_start not in text:
            return [text]
        return [Special(part) if index % 2 else part for index, part in enumerate(self._grounding.split(text))]


@lru_cache(maxsize=16)
def marks_of(special_tokens: SpecialTokens) -> Marks:
    return Marks(special_tokens)


# --- tools -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolMarkup:
    """How a version spells the tags of calls, each after the DSML token, and how it prints doubles."""

    calls: str
    invoke: str
    parameter: str
    python_floats: bool
    empty_line_for_none: bool
    """An empty line stands where parameters or tools would, if there are none."""

    def open_calls(self, marks: Marks) -> Pieces:
        """The beginning of a block of calls, after which the first call follows."""
        return ["\n\n<", marks.dsml, f"{self.calls}>\n"]

    def calls_block(self, calls: Sequence[ToolCall], marks: Marks) -> Pieces:
        """A block with all calls of a message, blank line before it included."""
        dsml = marks.dsml
        pieces = self.open_calls(marks)
        for call in calls:
            pieces += ("<", dsml, f'{self.invoke} name="{call.name}">\n')
            parameters = call_parameters(call.arguments)
            for name, value in parameters:
                is_string = isinstance(value, str)
                text = value if isinstance(value, str) else self.print_json(value)
                head = f'{self.parameter} name="{name}" string="{"true" if is_string else "false"}">'
                pieces += ("<", dsml, f"{head}{text}</", dsml, f"{self.parameter}>\n")
            if not parameters and self.empty_line_for_none:
                pieces.append("\n")
            pieces += ("</", dsml, f"{self.invoke}>\n")
        pieces += ("</", dsml, f"{self.calls}>")
        return pieces

    def tools_block(self, tools: Sequence[ToolDefinition], marks: Marks) -> Pieces:
        """What tells the model of its tools and of how to call them. Deferred tools are left out."""
        lines = self.tool_lines(tool for tool in tools if not tool.defer_loading)
        fill: dict[str, str | Special] = {
            "dsml": marks.dsml,
            "think": marks.thinking_start,
            "/think": marks.thinking_end,
            "calls": self.calls,
            "invoke": self.invoke,
            "parameter": self.parameter,
            "tools": f"{lines}\n" if lines or self.empty_line_for_none else "",
        }
        return [fill[part] if index % 2 else part for index, part in enumerate(_TOOLS_PARTS)]

    def tool_lines(self, tools: Iterable[ToolDefinition]) -> str:
        """One line of JSON for each tool."""
        return "\n".join(
            self.print_json({"name": tool.name, "description": tool.description or "", "parameters": tool.parameters})
            for tool in tools
        )

    def print_json(self, value: JsonValue) -> str:
        return print_json(value, python_floats=self.python_floats)


def call_parameters(arguments: str) -> list[tuple[str, JsonValue]]:
    """Names and values of a call's arguments. What is not a JSON object becomes one parameter of this name."""
    try:
        value = parse_json(arguments)
    except InvalidJsonError:
        value = None
    return list(value.items()) if isinstance(value, dict) else [("arguments", arguments)]


_TOOLS_TEXT = """\
## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by writing a \
"<{dsml}{calls}>" block like the following:

<{dsml}{calls}>
<{dsml}{invoke} name="$TOOL_NAME">
<{dsml}{parameter} name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</{dsml}{parameter}>
...
</{dsml}{invoke}>
<{dsml}{invoke} name="$TOOL_NAME2">
...
</{dsml}{invoke}>
</{dsml}{calls}>

String parameters should be specified as is and set `string="true"`. For all other types (numbers, booleans, arrays, \
objects), pass the value in JSON format and set `string="false"`.

If thinking_mode is enabled (triggered by {think}), you MUST output your complete reasoning inside {think}...{/think} \
BEFORE any tool calls or final response.

Otherwise, output directly after {/think} with tool calls or final response.

### Available Tool Schemas

{tools}
You MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.
"""
_TOOLS_PARTS = re.split(r"\{(.+?)\}", _TOOLS_TEXT)
"""Text and the names of what goes between, in turns."""


# --- format and end ----------------------------------------------------------------------------------------------


def schema_format_text(schema: JsonValue, markup: ToolMarkup) -> str:
    """Asks for an answer that satisfies a JSON Schema."""
    return (
        "## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n"
        f"{markup.print_json(schema)}"
    )


def opening(conversation: Conversation, messages: Sequence[Message], marks: Marks) -> Pieces:
    """The end of a prompt: the beginning of the assistant's turn, unless the last message already is one."""
    if messages and messages[-1].prefix:
        return []
    return [marks.assistant, marks.thinking_start if conversation.thinking_mode else marks.thinking_end]


def is_call_required(conversation: Conversation) -> bool:
    """Whether the prompt opens a block of calls, so that the model can only call."""
    return bool(conversation.tools) and conversation.tool_choice == "required"
