"""The shape of a Responses request."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from ...conversation import ImageDetail
from ...json_text import JsonValue
from ...requests.body import (
    Field,
    Reader,
    Reading,
    anything,
    array,
    boolean,
    choice,
    mapping,
    optional,
    record,
    required,
    single,
    string,
    string_or,
    tagged,
    unsigned,
    word_or,
)
from ...requests.common import EFFORTS
from ...requests.formats import RequestedFormat
from ...requests.tools import AUTO, RequestedChoice

# Content


@dataclass(slots=True)
class TextPart:
    text: str


@dataclass(slots=True)
class ImagePart:
    image_url: str | None
    file_id: str | None
    detail: ImageDetail


@dataclass(slots=True)
class FilePart:
    pass


Part: TypeAlias = "TextPart | ImagePart | FilePart"
Content: TypeAlias = "str | list[Part]"

_TEXT = record(TextPart, text=required(string))
_IMAGE = record(
    ImagePart,
    image_url=optional(string),
    file_id=optional(string),
    detail=optional(choice("low", "high", "original", "auto"), "high"),
)
_FILE = record(FilePart)
_CONTENT = string_or(
    array(
        tagged("type", {"input_text": _TEXT, "output_text": _TEXT, "input_image": _IMAGE, "input_file": _FILE}),
    )
)
_OUTPUT = string_or(array(tagged("type", {"input_text": _TEXT, "input_image": _IMAGE, "input_file": _FILE})))

# Tools


@dataclass(slots=True)
class FunctionTool:
    name: str
    description: str | None
    parameters: JsonValue
    strict: bool | None
    type: str = field(default="function", init=False)


@dataclass(slots=True)
class CustomTool:
    name: str
    type: str = field(default="custom", init=False)


@dataclass(slots=True)
class NamespaceTool:
    name: str
    description: str | None
    tools: list[FunctionTool | CustomTool]
    type: str = field(default="namespace", init=False)


@dataclass(slots=True)
class ToolSearchTool:
    execution: Literal["client", "server"] | None
    description: str | None
    parameters: JsonValue
    type: str = field(default="tool_search", init=False)


@dataclass(slots=True)
class UserLocation:
    city: str | None
    country: str | None
    region: str | None
    timezone: str | None


@dataclass(slots=True)
class WebSearchTool:
    type: str
    search_context_size: str | None
    user_location: UserLocation | None


@dataclass(slots=True)
class UnknownTool:
    type: str = field(default="", init=False)


Tool: TypeAlias = "FunctionTool | CustomTool | NamespaceTool | ToolSearchTool | WebSearchTool | UnknownTool"

_DESCRIPTION = optional(string)
_EXECUTION = optional(choice("client", "server"))
_FUNCTION = record(
    FunctionTool,
    name=required(string),
    description=_DESCRIPTION,
    parameters=optional(anything),
    strict=optional(boolean),
)
_CUSTOM = record(CustomTool, name=required(string))
_LOCATION = record(UserLocation, city=_DESCRIPTION, country=_DESCRIPTION, region=_DESCRIPTION, timezone=_DESCRIPTION)


def _web_search(kind: str) -> Reader[Tool]:
    return record(
        lambda **fields: WebSearchTool(kind, **fields),
        search_context_size=optional(choice("low", "medium", "high")),
        user_location=optional(_LOCATION),
    )


WEB_SEARCH_TYPES = ("web_search", "web_search_2025_08_26")
_MEMBER = tagged("type", {"function": _FUNCTION, "custom": _CUSTOM}, numbered=("function", "custom"))
_TOOL_READERS: dict[str, Reader[Tool]] = {
    "function": _FUNCTION,
    "custom": _CUSTOM,
    "namespace": record(
        NamespaceTool,
        name=required(string),
        description=_DESCRIPTION,
        tools=required(array(_MEMBER)),
    ),
    "tool_search": record(
        ToolSearchTool, execution=_EXECUTION, description=_DESCRIPTION, parameters=optional(anything)
    ),
    **{kind: _web_search(kind) for kind in WEB_SEARCH_TYPES},
}
_NUMBERED = ("function", *WEB_SEARCH_TYPES, "namespace", "custom", "tool_search")
_TOOL: Reader[Tool] = tagged("type", _TOOL_READERS, other=record(UnknownTool))
_FOUND_TOOL: Reader[Tool] = tagged("type", _TOOL_READERS, other=record(UnknownTool), numbered=_NUMBERED)


@dataclass(slots=True)
class ToolChoiceBody:
    """A choice as sent, and what it means."""

    sent: JsonValue
    choice: RequestedChoice
    web_search: bool = False


def _named_choice(kind: str) -> Reader[ToolChoiceBody]:
    return record(
        lambda name: ToolChoiceBody({"type": kind, "name": name}, RequestedChoice(name=name)), name=required(string)
    )


def _web_search_choice(kind: str) -> Reader[ToolChoiceBody]:
    return record(lambda: ToolChoiceBody({"type": kind}, AUTO, web_search=True))


_TOOL_CHOICE = word_or(
    {
        "none": ToolChoiceBody("none", RequestedChoice("none")),
        "auto": ToolChoiceBody("auto", AUTO),
        "required": ToolChoiceBody("required", RequestedChoice("required")),
    },
    tagged(
        "type",
        {
            "function": _named_choice("function"),
            "custom": _named_choice("custom"),
            **{kind: _web_search_choice(kind) for kind in WEB_SEARCH_TYPES},
        },
    ),
)

# Items


@dataclass(slots=True)
class MessageItem:
    role: Literal["user", "assistant", "system", "developer"]
    content: Content


@dataclass(slots=True)
class ReasoningItem:
    texts: list[str]


@dataclass(slots=True)
class FunctionCallItem:
    call_id: str
    name: str
    arguments: str
    namespace: str | None


@dataclass(slots=True)
class CustomCallItem:
    call_id: str
    name: str
    input: str


@dataclass(slots=True)
class ToolSearchCallItem:
    call_id: str
    arguments: dict[str, JsonValue]
    execution: str | None


@dataclass(slots=True)
class OutputItem:
    """The output of a function call."""

    call_id: str | None
    output: Content


@dataclass(slots=True)
class CustomOutputItem(OutputItem):
    """The output of a custom call."""


@dataclass(slots=True)
class ToolSearchOutputItem:
    call_id: str
    tools: list[Tool]
    execution: str | None


@dataclass(slots=True)
class UnknownItem:
    pass


Item: TypeAlias = (
    "MessageItem | ReasoningItem | FunctionCallItem | CustomCallItem | ToolSearchCallItem | OutputItem"
    " | ToolSearchOutputItem | UnknownItem"
)

_MESSAGE = record(
    MessageItem, role=required(choice("user", "assistant", "system", "developer")), content=required(_CONTENT)
)
_ITEM: Reader[Item] = tagged(
    "type",
    {
        "message": _MESSAGE,
        "reasoning": record(
            lambda content, encrypted_content: ReasoningItem(content),
            content=optional(array(record(lambda text: text, text=required(string))), ()),
            encrypted_content=optional(string),
        ),
        "function_call": record(
            FunctionCallItem,
            call_id=required(string),
            name=required(string),
            arguments=required(string),
            namespace=optional(string),
        ),
        "custom_tool_call": record(
            CustomCallItem, call_id=required(string), name=required(string), input=required(string)
        ),
        "tool_search_call": record(
            ToolSearchCallItem,
            call_id=required(string),
            arguments=required(mapping(anything)),
            execution=_EXECUTION,
        ),
        "function_call_output": record(OutputItem, call_id=optional(string), output=required(_OUTPUT)),
        "custom_tool_call_output": record(CustomOutputItem, call_id=required(string), output=optional(_OUTPUT, "")),
        "tool_search_output": record(
            ToolSearchOutputItem, call_id=required(string), tools=required(array(_FOUND_TOOL)), execution=_EXECUTION
        ),
    },
    other=record(UnknownItem),
)


def _item(value: JsonValue, reading: Reading) -> Item:
    """An item; without a type it is a message."""
    if isinstance(value, dict) and "type" in value:
        return _ITEM(value, reading)
    return _MESSAGE(value, Reading())


# The whole


@dataclass(slots=True)
class Reasoning:
    effort: str | None = None
    summary: str | None = None
    generate_summary: str | None = None


@dataclass(slots=True)
class FormatBody:
    """A format as sent, and what it means."""

    sent: JsonValue
    format: RequestedFormat


@dataclass(slots=True)
class Text:
    format: FormatBody
    verbosity: str | None = None


def _json_schema(name: str, schema: JsonValue, description: str | None, strict: bool | None) -> FormatBody:
    sent: dict[str, JsonValue] = {"type": "json_schema", "name": name, "schema": schema}
    sent |= {"description": description, "strict": strict}
    return FormatBody(sent, RequestedFormat("json_schema", schema, bool(strict)))


TEXT_FORMAT = FormatBody({"type": "text"}, RequestedFormat())
_FORMAT = tagged(
    "type",
    {
        "text": record(lambda: TEXT_FORMAT),
        "json_schema": record(
            _json_schema,
            name=required(string),
            schema=required(anything),
            description=optional(string),
            strict=optional(boolean),
        ),
        "json_object": record(lambda: FormatBody({"type": "json_object"}, RequestedFormat("json_object"))),
    },
)


@dataclass(slots=True)
class ResponsesBody:
    """A request body. Fields as the protocol names them; what it ignores is not here."""

    model: str
    input: str | list[Item] | None
    instructions: str | None
    tools: list[Tool]
    tool_choice: ToolChoiceBody
    reasoning: Reasoning
    text: Text
    temperature: float | None
    top_p: float | None
    top_logprobs: int | None
    max_output_tokens: int | None
    stream: bool
    user: str | None


_SUMMARY = optional(choice("auto", "concise", "detailed"))
BODY = record(
    ResponsesBody,
    model=required(string),
    input=optional(string_or(array(_item))),
    instructions=optional(string),
    max_output_tokens=optional(unsigned(32)),
    reasoning=optional(
        record(Reasoning, effort=optional(choice(*EFFORTS)), summary=_SUMMARY, generate_summary=_SUMMARY),
        Reasoning(),
    ),
    stream=optional(boolean, False),
    temperature=optional(single),
    text=optional(
        record(
            Text,
            format=Field(_FORMAT, TEXT_FORMAT),  # null is no format
            verbosity=optional(choice("low", "medium", "high")),
        ),
        Text(TEXT_FORMAT),
    ),
    tool_choice=optional(_TOOL_CHOICE, ToolChoiceBody("auto", AUTO)),
    tools=optional(array(_TOOL), ()),
    top_logprobs=optional(unsigned(8)),
    top_p=optional(single),
    user=optional(string),
)
