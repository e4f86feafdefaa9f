"""The shape of a Chat Completions request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from ...conversation import ImageDetail, ToolDefinition
from ...json_text import JsonValue
from ...requests.body import (
    anything,
    array,
    boolean,
    choice,
    optional,
    record,
    required,
    single,
    string,
    string_or,
    tagged,
    unsigned,
    word,
    word_or,
)
from ...requests.common import EFFORTS, THINKING_TYPES
from ...requests.formats import RequestedFormat
from ...requests.tools import AUTO, RequestedChoice


@dataclass(slots=True)
class TextPart:
    text: str


@dataclass(slots=True)
class ImageUrl:
    url: str
    detail: ImageDetail


@dataclass(slots=True)
class ImagePart:
    image_url: ImageUrl


@dataclass(slots=True)
class FilePart:
    file_id: str | None
    file_data: str | None
    filename: str | None


Content: TypeAlias = "str | list[TextPart | ImagePart | FilePart]"


@dataclass(slots=True)
class SystemBody:
    content: Content
    name: str | None


@dataclass(slots=True)
class UserBody:
    content: Content
    name: str | None


@dataclass(slots=True)
class CalledFunction:
    name: str
    arguments: str


@dataclass(slots=True)
class CallBody:
    id: str
    type: str
    function: CalledFunction


@dataclass(slots=True)
class AssistantBody:
    content: Content | None
    reasoning_content: str | None
    name: str | None
    tool_calls: list[CallBody] | None
    prefix: bool


@dataclass(slots=True)
class ToolBody:
    content: Content
    tool_call_id: str


@dataclass(slots=True)
class ReminderBody:
    content: str


MessageBody: TypeAlias = "SystemBody | UserBody | AssistantBody | ToolBody | ReminderBody"


@dataclass(slots=True)
class StreamOptions:
    include_usage: bool


@dataclass(slots=True)
class ChatBody:
    """A request body. Fields as the protocol names them; what it ignores is not here."""

    messages: list[MessageBody]
    model: str
    thinking: bool | None
    reasoning_effort: str | None
    frequency_penalty: float | None
    presence_penalty: float | None
    max_tokens: int | None
    n: int | None
    response_format: RequestedFormat | None
    stop: str | list[str] | None
    stream: bool
    stream_options: StreamOptions | None
    temperature: float | None
    top_p: float | None
    tools: list[ToolDefinition]
    tool_choice: RequestedChoice
    parallel_tool_calls: bool | None
    logprobs: bool
    top_logprobs: int | None
    seed: int | None


def _function(name: str, description: str | None, parameters: JsonValue, strict: bool | None) -> ToolDefinition:
    return ToolDefinition(name, description, parameters, strict)


def _json_schema(schema: JsonValue, name: str | None, strict: bool) -> RequestedFormat:
    return RequestedFormat("json_schema", schema, strict)


_DETAIL = choice("low", "high", "original", "auto")
_PART = tagged(
    "type",
    {
        "text": record(TextPart, text=required(string)),
        "image_url": record(
            ImagePart,
            image_url=required(record(ImageUrl, url=required(string), detail=optional(_DETAIL, "high"))),
        ),
        "file": record(FilePart, file_id=optional(string), file_data=optional(string), filename=optional(string)),
    },
)
_CONTENT = string_or(array(_PART))
_FUNCTION_TYPE = choice("function")
_CALL = record(
    CallBody,
    id=required(string),
    type=required(_FUNCTION_TYPE),
    function=required(record(CalledFunction, name=required(string), arguments=required(string))),
)
_MESSAGE = tagged(
    "role",
    {
        "system": record(SystemBody, content=required(_CONTENT), name=optional(string)),
        "user": record(UserBody, content=required(_CONTENT), name=optional(string)),
        "assistant": record(
            AssistantBody,
            content=optional(_CONTENT),
            reasoning_content=optional(string),
            name=optional(string),
            tool_calls=optional(array(_CALL)),
            prefix=optional(boolean, False),
        ),
        "tool": record(ToolBody, content=required(_CONTENT), tool_call_id=required(string)),
        "latest_reminder": record(ReminderBody, content=required(string)),
    },
)
_FORMAT = tagged(
    "type",
    {
        "text": record(lambda: RequestedFormat()),
        "json_object": record(lambda: RequestedFormat("json_object")),
        "json_schema": record(
            lambda json_schema: json_schema,
            json_schema=required(
                record(_json_schema, schema=required(anything), name=optional(string), strict=optional(boolean, False))
            ),
        ),
        "regex": record(lambda regex: RequestedFormat("regex", regex=regex), regex=required(string)),
    },
)
_TOOL = tagged(
    "type",
    {
        "function": record(
            lambda function: function,
            function=required(
                record(
                    _function,
                    name=required(string),
                    description=optional(string),
                    parameters=optional(anything),
                    strict=optional(boolean),
                )
            ),
        )
    },
)
_NAMED_CHOICE = record(
    lambda type, function: RequestedChoice(name=function),
    type=required(_FUNCTION_TYPE),
    function=required(record(lambda name: name, name=required(string))),
)
_CHOICE_WORDS = {"none": RequestedChoice("none"), "auto": AUTO, "required": RequestedChoice("required")}


BODY = record(
    ChatBody,
    messages=required(array(_MESSAGE)),
    model=required(string),
    frequency_penalty=optional(single),
    logprobs=optional(boolean, False),
    top_logprobs=optional(unsigned(8)),
    max_tokens=optional(unsigned(32)),
    n=optional(unsigned(8)),
    presence_penalty=optional(single),
    seed=optional(unsigned(64)),
    stop=optional(string_or(array(string))),
    stream=optional(boolean, False),
    stream_options=optional(record(StreamOptions, include_usage=optional(boolean, False))),
    temperature=optional(single),
    top_p=optional(single),
    response_format=optional(_FORMAT),
    tools=optional(array(_TOOL), ()),
    tool_choice=optional(word_or(_CHOICE_WORDS, _NAMED_CHOICE), AUTO),
    reasoning_effort=optional(choice(*EFFORTS)),
    thinking=optional(
        record(
            lambda type, budget_tokens: type,
            type=required(word(THINKING_TYPES)),
            budget_tokens=optional(unsigned(64)),
        )
    ),
    parallel_tool_calls=optional(boolean),
)
