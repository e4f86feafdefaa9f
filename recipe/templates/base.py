"""What the templates share: the prompt, its pieces, and the parts that differ by spelling only."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
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


@dataclass(frozen=True, slots=True)
class Prompt:
    """A rendered prompt.

    Attributes:
        text: the whole prompt.
        special_ranges: code point ranges of `text`, ascending and disjoint, each one special token. All other text is
            plain, whatever it spells.
        image_sources: the images, in the order of the messages that hold them.
    """

    text: str
    special_ranges: tuple[Range, ...]
    image_sources: tuple[ImageSource, ...]

    @classmethod
    def from_pieces(cls, pieces: Iterable[str | Special], image_sources: Iterable[ImageSource] = ()) -> Prompt:
        """Joins the pieces. Empty ones leave no trace."""
        texts: list[str] = []
        ranges: list[Range] = []
        position = 0
        for piece in pieces:
            if isinstance(piece, str):
                texts.append(piece)
                position += len(piece)
            elif piece.text:
                texts.append(piece.text)
                ranges.append((position, position + len(piece.text)))
                position += len(piece.text)
        return cls("".join(texts), tuple(ranges), tuple(image_sources))


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


def assistant_text(text: str, special_tokens: SpecialTokens) -> Pieces:
    """Content or reasoning of an assistant message, where grounding tokens are tokens and all other text is plain."""
    grounding = _grounding_pattern(special_tokens)
    if grounding is None:
        return [text]
    return [Special(part) if index % 2 else part for index, part in enumerate(grounding.split(text))]


@lru_cache(maxsize=16)
def _grounding_pattern(special_tokens: SpecialTokens) -> re.Pattern[str] | None:
    spellings = sorted(filter(None, map(special_tokens.token, GROUNDING)), key=len)
    return re.compile(f"({'|'.join(map(re.escape, spellings))})") if spellings else None


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

    def open_calls(self, special_tokens: SpecialTokens) -> Pieces:
        """The beginning of a block of calls, after which the first call follows."""
        return ["\n\n<", Special(special_tokens.dsml), f"{self.calls}>\n"]

    def calls_block(self, calls: Sequence[ToolCall], special_tokens: SpecialTokens) -> Pieces:
        """A block with all calls of a message, blank line before it included."""
        dsml = Special(special_tokens.dsml)
        pieces = self.open_calls(special_tokens)
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

    def tools_block(self, tools: Sequence[ToolDefinition], special_tokens: SpecialTokens) -> Pieces:
        """What tells the model of its tools and of how to call them. Deferred tools are left out."""
        lines = self.tool_lines(tool for tool in tools if not tool.defer_loading)
        fill: dict[str, str | Special] = {
            "dsml": Special(special_tokens.dsml),
            "think": Special(special_tokens.thinking_start),
            "/think": Special(special_tokens.thinking_end),
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


def opening(conversation: Conversation, messages: Sequence[Message], special_tokens: SpecialTokens) -> Pieces:
    """The end of a prompt: the beginning of the assistant's turn, unless the last message already is one."""
    if messages and messages[-1].prefix:
        return []
    think = special_tokens.thinking_start if conversation.thinking_mode else special_tokens.thinking_end
    return [Special(special_tokens.assistant), Special(think)]


def is_call_required(conversation: Conversation) -> bool:
    """Whether the prompt opens a block of calls, so that the model can only call."""
    return bool(conversation.tools) and conversation.tool_choice == "required"
