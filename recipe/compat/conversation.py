"""Conversations and what they are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeVar, cast

from .. import conversation as plain
from ..conversation import ImageDetail, ImageSourceKind, ReasoningEffort, ResponseFormat, Role, ToolChoice
from ..json_text import from_python
from . import arguments as check
from .errors import translated
from .wrapped import Wrapped, debug, debug_optional

_MessageT = TypeVar("_MessageT", bound=plain.Message)


class ToolCall(Wrapped[plain.ToolCall]):
    """A call that the assistant made, and its arguments."""

    __slots__ = ()

    def __init__(self, id: str, name: str, arguments: str) -> None:
        texts = (check.text("id", id), check.text("name", name), check.text("arguments", arguments))
        self._plain = plain.ToolCall(*texts)

    @property
    def id(self) -> str:
        return self._plain.id

    @property
    def name(self) -> str:
        return self._plain.name

    @property
    def arguments(self) -> str:
        """Any text; a JSON object is what models write."""
        return self._plain.arguments

    def __repr__(self) -> str:
        return f"ToolCall(id={debug(self.id)}, name={debug(self.name)}, arguments={debug(self.arguments)})"


class ToolDefinition(Wrapped[plain.ToolDefinition]):
    """A function that the model may call. Its schema is not normalised."""

    __slots__ = ()

    def __init__(
        self,
        name: str,
        description: str | None = None,
        parameters: Any = None,
        strict: bool | None = None,
        defer_loading: bool = False,
    ) -> None:
        with translated():
            self._plain = plain.ToolDefinition(
                check.text("name", name),
                check.optional_text("description", description),
                parameters,
                None if strict is None else check.flag("strict", strict),
                check.flag("defer_loading", defer_loading),
            )

    @property
    def name(self) -> str:
        return self._plain.name

    @property
    def description(self) -> str | None:
        return self._plain.description

    @property
    def parameters(self) -> Any:
        """JSON Schema of the arguments, a copy."""
        return from_python(self._plain.parameters)

    @property
    def strict(self) -> bool | None:
        return self._plain.strict

    @property
    def defer_loading(self) -> bool:
        return self._plain.defer_loading

    def __repr__(self) -> str:
        strict = "None" if self.strict is None else f"Some({str(self.strict).lower()})"
        return (
            f"ToolDefinition(name={debug(self.name)}, description={debug_optional(self.description)}, strict={strict})"
        )


class ImageSource(Wrapped[plain.ImageSource]):
    """Base of the image sources."""

    __slots__ = ()

    @property
    def kind(self) -> ImageSourceKind:
        return self._plain.kind

    @property
    def detail(self) -> ImageDetail:
        return self._plain.detail

    @property
    def data_url(self) -> str | None:
        return self._plain.data_url

    @property
    def url(self) -> str | None:
        return self._plain.url

    @property
    def data(self) -> bytes | None:
        return self._plain.data

    @property
    def path(self) -> str:
        """The place in the request that errors name; empty when there is none."""
        return self._plain.path

    def _set(self, kind: ImageSourceKind, value: str | bytes, detail: object, path: object) -> None:
        word = cast(ImageDetail, check.text("detail", detail))
        with translated():
            self._plain = plain.ImageSource(kind, value, word, path=check.text("path", path))

    def _debug(self, value: str) -> str:
        return f'{type(self).__name__}({value}, detail="{self.detail}", path={debug(self.path)})'


class DataUrlImageSource(ImageSource):
    """An image as a data URL, base64 or percent-encoded."""

    __slots__ = ()

    def __init__(self, data_url: str, detail: ImageDetail = "high", *, path: str = "") -> None:
        self._set("data_url", check.text("data_url", data_url), detail, path)

    def __repr__(self) -> str:
        return self._debug(debug(self.data_url))


class UrlImageSource(ImageSource):
    """An image to fetch."""

    __slots__ = ()

    def __init__(self, url: str, detail: ImageDetail = "high", *, path: str = "") -> None:
        self._set("url", check.text("url", url), detail, path)

    def __repr__(self) -> str:
        return self._debug(debug(self.url))


class BytesImageSource(ImageSource):
    """An image as its encoded bytes."""

    __slots__ = ()

    def __init__(self, data: bytes, detail: ImageDetail = "high", *, path: str = "") -> None:
        self._set("bytes", check.octets("data", data), detail, path)

    def __repr__(self) -> str:
        return self._debug(f"<{len(self.data or b'')} bytes>")


_SOURCES: dict[str, type[ImageSource]] = {
    "data_url": DataUrlImageSource,
    "url": UrlImageSource,
    "bytes": BytesImageSource,
}


def image_sources_of(sources: Sequence[plain.ImageSource]) -> list[ImageSource]:
    return [_SOURCES[source.kind]._of(source) for source in sources]


def plain_sources(name: str, sources: object) -> tuple[plain.ImageSource, ...]:
    return tuple(source._plain for source in check.instances(name, sources, ImageSource))


def _plain_tools(tools: object) -> tuple[plain.ToolDefinition, ...]:
    return tuple(tool._plain for tool in check.instances("tools", tools, ToolDefinition))


class Message(Wrapped[plain.Message]):
    """Base of the messages. What belongs to another role reads as its neutral value."""

    __slots__ = ()

    @property
    def role(self) -> Role:
        return self._plain.role

    @property
    def content(self) -> str:
        return self._plain.content

    @property
    def reasoning_content(self) -> str | None:
        return self._plain.reasoning_content

    @property
    def tool_calls(self) -> list[ToolCall] | None:
        calls = self._plain.tool_calls
        return None if calls is None else [ToolCall._of(call) for call in calls]

    @property
    def tool_call_id(self) -> str | None:
        return self._plain.tool_call_id

    @property
    def image_sources(self) -> list[ImageSource]:
        return image_sources_of(self._plain.image_sources)

    @property
    def prefix(self) -> bool:
        """Whether an assistant message is to be continued."""
        return self._plain.prefix

    def _debug(self, *fields: str) -> str:
        return f"{type(self).__name__}({', '.join((debug(self.content), *fields))})"


def _images(image_sources: object, image_token: object) -> dict[str, Any]:
    """Keyword arguments of the plain messages that can have images."""
    result: dict[str, Any] = {}
    if image_sources is not None:
        result["image_sources"] = plain_sources("image_sources", image_sources)
    if image_token is not None:
        result["image_token"] = check.text("image_token", image_token)
    return result


class SystemMessage(Message):
    """Instructions, and tools that become known at this point."""

    __slots__ = ()

    def __init__(
        self,
        content: str,
        image_sources: Sequence[ImageSource] | None = None,
        tools: Sequence[ToolDefinition] | None = None,
        *,
        image_token: str | None = None,
    ) -> None:
        content = check.text("content", content)
        images = _images(image_sources, image_token)
        with translated():
            self._plain = plain.SystemMessage(content, tools=None if tools is None else _plain_tools(tools), **images)

    @property
    def tools(self) -> list[ToolDefinition] | None:
        tools = cast(plain.SystemMessage, self._plain).tools
        return None if tools is None else [ToolDefinition._of(tool) for tool in tools]

    def __repr__(self) -> str:
        return self._debug()


class UserMessage(Message):
    """What the user says.

    The first occurrences of `image_token` in `content`, one per image source, stand for the images.
    """

    __slots__ = ()

    def __init__(
        self,
        content: str,
        image_sources: Sequence[ImageSource] | None = None,
        *,
        image_token: str | None = None,
    ) -> None:
        content = check.text("content", content)
        images = _images(image_sources, image_token)
        with translated():
            self._plain = plain.UserMessage(content, **images)

    def __repr__(self) -> str:
        return self._debug(f"image_sources={len(self._plain.image_sources)}")


class AssistantMessage(Message):
    """What the model said, or, with `prefix`, the beginning of what it is to say."""

    __slots__ = ()

    def __init__(
        self,
        content: str,
        reasoning_content: str | None = None,
        tool_calls: Sequence[ToolCall] | None = None,
        prefix: bool = False,
    ) -> None:
        calls = None if tool_calls is None else check.instances("tool_calls", tool_calls, ToolCall)
        self._plain = plain.AssistantMessage(
            check.text("content", content),
            check.optional_text("reasoning_content", reasoning_content),
            None if calls is None else tuple(call._plain for call in calls),
            check.flag("prefix", prefix),
        )

    def __repr__(self) -> str:
        reasoning = f"reasoning_content={self.reasoning_content is not None}"
        return self._debug(reasoning, f"tool_calls={len(self._plain.tool_calls or ())}", f"prefix={self.prefix}")


class ToolMessage(Message):
    """What a tool returned. Images as in `UserMessage`."""

    __slots__ = ()

    def __init__(
        self,
        content: str,
        tool_call_id: str | None = None,
        image_sources: Sequence[ImageSource] | None = None,
        *,
        image_token: str | None = None,
    ) -> None:
        content, id = check.text("content", content), check.optional_text("tool_call_id", tool_call_id)
        images = _images(image_sources, image_token)
        with translated():
            self._plain = plain.ToolMessage(content, id, **images)

    def __repr__(self) -> str:
        id, sources = debug_optional(self.tool_call_id), len(self._plain.image_sources)
        return self._debug(f"tool_call_id={id}", f"image_sources={sources}")


class LatestReminderMessage(Message):
    """Additional instructions next to the latest turn."""

    __slots__ = ()

    def __init__(self, content: str) -> None:
        self._plain = plain.LatestReminder(check.text("content", content))

    def __repr__(self) -> str:
        return self._debug()


_MESSAGES: dict[str, type[Message]] = {
    "system": SystemMessage,
    "user": UserMessage,
    "assistant": AssistantMessage,
    "tool": ToolMessage,
    "latest_reminder": LatestReminderMessage,
}


class Conversation(Wrapped[plain.Conversation]):
    """Messages, tools, and how to answer."""

    __slots__ = ()

    def __init__(
        self,
        messages: Sequence[Message] | None = None,
        *,
        thinking_mode: bool = True,
        tools: Sequence[ToolDefinition] | None = None,
        tool_choice: ToolChoice = "auto",
        reasoning_effort: ReasoningEffort | None = None,
        response_format: Literal["text", "json_object"] = "text",
        response_schema: Any | None = None,
        response_regex: str | None = None,
    ) -> None:
        given = [] if messages is None else check.instances("messages", messages, Message)
        words = (check.text("tool_choice", tool_choice), check.text("response_format", response_format))
        effort = check.optional_text("reasoning_effort", reasoning_effort)
        if response_format in ("json_schema", "regex"):  # the plain class takes them in copies
            raise ValueError(f'invalid response_format "{response_format}"; expected "text" or "json_object"')
        with translated():
            self._plain = plain.Conversation(
                tuple(message._plain for message in given),
                thinking_mode=check.flag("thinking_mode", thinking_mode),
                tools=() if tools is None else _plain_tools(tools),
                tool_choice=cast(ToolChoice, words[0]),
                reasoning_effort=cast("ReasoningEffort | None", effort),
                response_format=cast(ResponseFormat, words[1]),
                response_schema=response_schema,
                response_regex=check.optional_text("response_regex", response_regex),
            )

    @property
    def messages(self) -> list[Message]:
        return [_MESSAGES[message.role]._of(message) for message in self._plain.messages]

    @property
    def thinking_mode(self) -> bool:
        return self._plain.thinking_mode

    @property
    def tools(self) -> list[ToolDefinition]:
        return [ToolDefinition._of(tool) for tool in self._plain.tools]

    @property
    def tool_choice(self) -> ToolChoice:
        return self._plain.tool_choice

    @property
    def reasoning_effort(self) -> ReasoningEffort | None:
        return self._plain.reasoning_effort

    @property
    def response_format(self) -> ResponseFormat:
        return self._plain.response_format

    @property
    def response_schema(self) -> Any | None:
        """The schema of the format `json_schema`, a copy."""
        return from_python(self._plain.response_schema)

    @property
    def response_regex(self) -> str | None:
        return self._plain.response_regex

    def __repr__(self) -> str:
        return (
            f"Conversation(messages={len(self._plain.messages)}, thinking_mode={self.thinking_mode}, "
            f'tools={len(self._plain.tools)}, tool_choice="{self.tool_choice}", '
            f'reasoning_effort={debug_optional(self.reasoning_effort)}, response_format="{self.response_format}")'
        )
