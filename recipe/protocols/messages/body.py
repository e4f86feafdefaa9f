"""The shape of a Messages request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from ...json_text import JsonValue
from ...requests.body import (
    Field,
    Reader,
    Reading,
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
)
from ...requests.common import EFFORTS, THINKING_TYPES
from ...requests.tools import AUTO, RequestedChoice

# Blocks


@dataclass(slots=True)
class TextBlock:
    text: str


@dataclass(slots=True)
class Base64Source:
    media_type: str
    data: str


@dataclass(slots=True)
class UrlSource:
    url: str


@dataclass(slots=True)
class FileSource:
    file_id: str


ImageSourceBody: TypeAlias = "Base64Source | UrlSource | FileSource"


@dataclass(slots=True)
class ImageBlock:
    source: ImageSourceBody


@dataclass(slots=True)
class DocumentBlock:
    media_type: str


@dataclass(slots=True)
class ThinkingBlock:
    thinking: str


@dataclass(slots=True)
class ToolUseBlock:
    id: str
    name: str
    input: JsonValue


@dataclass(slots=True)
class ReferenceBlock:
    tool_name: str


ResultPart: TypeAlias = "TextBlock | ImageBlock | DocumentBlock | ReferenceBlock"


@dataclass(slots=True)
class ToolResultBlock:
    tool_use_id: str
    content: str | list[ResultPart]


@dataclass(slots=True)
class ServerToolUseBlock:
    pass


@dataclass(slots=True)
class WebSearchResultBlock:
    pass


@dataclass(slots=True)
class ToolAdditionBlock:
    name: str


Block: TypeAlias = (
    "TextBlock | ImageBlock | DocumentBlock | ThinkingBlock | ToolUseBlock | ToolResultBlock"
    " | ServerToolUseBlock | WebSearchResultBlock | ToolAdditionBlock"
)

_MEDIA_TYPES = {f"image/{kind}": f"image/{kind}" for kind in ("jpeg", "png", "gif", "webp")}
_TEXT = record(TextBlock, text=required(string))
_IMAGE = record(
    ImageBlock,
    source=required(
        tagged(
            "type",
            {
                "base64": record(
                    Base64Source,
                    media_type=required(word({**_MEDIA_TYPES, "image/jpg": "image/jpeg"})),
                    data=required(string),
                ),
                "url": record(UrlSource, url=required(string)),
                "file": record(FileSource, file_id=required(string)),
            },
            numbered=("base64", "url", "file"),
        )
    ),
)
_DOCUMENT = record(
    lambda source: DocumentBlock(source),
    source=required(record(lambda media_type: media_type, media_type=optional(string, "unknown"))),
)
_RESULT_CONTENT = string_or(
    array(
        tagged(
            "type",
            {
                "text": _TEXT,
                "image": _IMAGE,
                "document": _DOCUMENT,
                "tool_reference": record(ReferenceBlock, tool_name=required(string)),
            },
        )
    )
)
_BLOCK: Reader[Block] = tagged(
    "type",
    {
        "text": _TEXT,
        "image": _IMAGE,
        "document": _DOCUMENT,
        "thinking": record(
            lambda thinking, signature: ThinkingBlock(thinking),
            thinking=required(string),
            signature=optional(string),
        ),
        "server_tool_use": record(
            lambda id, name, input: ServerToolUseBlock(),
            id=required(string),
            name=required(string),
            input=required(anything),
        ),
        "tool_use": record(ToolUseBlock, id=required(string), name=required(string), input=required(anything)),
        "tool_result": record(
            lambda tool_use_id, content, is_error: ToolResultBlock(tool_use_id, content),
            tool_use_id=required(string),
            content=optional(_RESULT_CONTENT, ""),
            is_error=optional(boolean),
        ),
        "web_search_tool_result": record(
            lambda tool_use_id, content: WebSearchResultBlock(),
            tool_use_id=required(string),
            content=required(anything),
        ),
        "tool_addition": record(
            lambda tool: ToolAdditionBlock(tool),
            tool=required(tagged("type", {"tool_reference": record(lambda name: name, name=required(string))})),
        ),
    },
)


@dataclass(slots=True)
class MessageBody:
    role: Literal["user", "assistant", "system"]
    content: str | list[Block]


_MESSAGE = record(
    MessageBody, role=required(choice("user", "assistant", "system")), content=required(string_or(array(_BLOCK)))
)

# Tools


@dataclass(slots=True)
class ServerTool:
    """A tool that the protocol's own service would run: anything with a type."""

    type: str
    name: str


@dataclass(slots=True)
class ClientTool:
    name: str
    description: str | None
    input_schema: JsonValue
    defer_loading: bool


_CLIENT_TOOL = record(
    ClientTool,
    name=required(string),
    description=optional(string),
    input_schema=Field(anything, None),
    defer_loading=optional(boolean, False),
)
_SERVER_TOOL = record(ServerTool, type=required(string), name=optional(string, "web_search"))


def _tool(value: JsonValue, reading: Reading) -> ServerTool | ClientTool:
    if isinstance(value, dict) and "type" in value:
        return _SERVER_TOOL(value, reading)
    return _CLIENT_TOOL(value, reading)


_PARALLEL = optional(boolean)
_TOOL_CHOICE = tagged(
    "type",
    {
        "auto": record(lambda disable_parallel_tool_use: AUTO, disable_parallel_tool_use=_PARALLEL),
        "any": record(lambda disable_parallel_tool_use: AUTO, disable_parallel_tool_use=_PARALLEL),
        "tool": record(
            lambda name, disable_parallel_tool_use: RequestedChoice(name=name),
            name=required(string),
            disable_parallel_tool_use=_PARALLEL,
        ),
        "none": record(lambda: RequestedChoice("none")),
    },
)

# The whole


@dataclass(slots=True)
class MessagesBody:
    """A request body. Fields as the protocol names them; what it ignores is not here."""

    model: str
    messages: list[MessageBody]
    max_tokens: int | None
    metadata: str | None
    output_config: str | None
    stop_sequences: list[str] | None
    stream: bool
    system: str | list[str] | None
    temperature: float | None
    thinking: bool | None
    tool_choice: RequestedChoice
    tools: list[ServerTool | ClientTool]
    top_p: float | None


BODY = record(
    MessagesBody,
    model=required(string),
    messages=required(array(_MESSAGE)),
    system=optional(string_or(array(tagged("type", {"text": record(lambda text: text, text=required(string))})))),
    max_tokens=optional(unsigned(32)),
    temperature=optional(single),
    top_p=optional(single),
    stop_sequences=optional(array(string)),
    stream=optional(boolean, False),
    tools=optional(array(_tool), ()),
    tool_choice=optional(_TOOL_CHOICE, AUTO),
    thinking=optional(
        record(
            lambda type, budget_tokens: type,
            type=required(word(THINKING_TYPES)),
            budget_tokens=optional(unsigned(64)),
        )
    ),
    output_config=optional(record(lambda effort: effort, effort=optional(choice(*EFFORTS)))),
    metadata=optional(record(lambda user_id: user_id, user_id=optional(string))),
)
