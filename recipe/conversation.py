"""A conversation as the templates see it: messages, tools and how to answer. Nothing here knows a protocol.

Every class is immutable and compares by value. Sequences are stored as tuples. Text must be free of lone surrogates,
since it becomes UTF-8 in the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, TypeAlias, TypeVar, cast, get_args

from .errors import InvalidArgumentError, InvalidTypeError
from .json_text import JsonValue, from_python
from .special_tokens import SpecialToken

Role: TypeAlias = Literal["system", "user", "assistant", "tool", "latest_reminder"]
ToolChoice: TypeAlias = Literal["auto", "none", "required"]
ReasoningEffort: TypeAlias = Literal["low", "high", "xhigh", "max"]
ResponseFormat: TypeAlias = Literal["text", "json_object", "json_schema", "regex"]
ImageDetail: TypeAlias = Literal["low", "high", "original", "auto"]
ImageSourceKind: TypeAlias = Literal["data_url", "url", "bytes"]
Range: TypeAlias = tuple[int, int]
"""A half-open range of code points."""

DEFAULT_IMAGE_TOKEN: str = SpecialToken.IMAGE.value

_T = TypeVar("_T")


def _check_word(parameter: str, value: object, allowed: Sequence[str]) -> None:
    if value not in allowed:
        *others, last = (f'"{word}"' for word in allowed)
        comma = "," if len(others) > 1 else ""
        raise InvalidArgumentError(f'invalid {parameter} "{value}"; expected {", ".join(others)}{comma} or {last}')


def _check_text(parameter: str, value: object) -> None:
    if not isinstance(value, str):
        raise InvalidTypeError(f"{parameter} is a {type(value).__name__}; expected str")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise InvalidArgumentError(f"{parameter} has a lone surrogate at position {error.start}") from None


def _as_tuple(parameter: str, values: Iterable[_T] | None, kind: type[_T]) -> tuple[_T, ...]:
    if isinstance(values, (str, bytes)):
        raise InvalidTypeError(f"{parameter} is a {type(values).__name__}; expected a sequence of {kind.__name__}")
    result = tuple(values or ())
    for index, value in enumerate(result):
        if not isinstance(value, kind):
            raise InvalidTypeError(f"{parameter}[{index}] is a {type(value).__name__}; expected {kind.__name__}")
    return result


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the assistant made. `arguments` is any text; a JSON object is what models write."""

    id: str
    name: str
    arguments: str

    def __post_init__(self) -> None:
        for name in ("id", "name", "arguments"):
            _check_text(name, getattr(self, name))


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A function that the model may call. Its schema is copied, and not normalised.

    Args:
        parameters: JSON Schema of the arguments.
        strict: whether the arguments have to satisfy the schema.
        defer_loading: the tool is known, but not shown until a message brings it.
    """

    name: str
    description: str | None = None
    parameters: JsonValue = None
    strict: bool | None = None
    defer_loading: bool = False

    def __post_init__(self) -> None:
        _check_text("name", self.name)
        if self.description is not None:
            _check_text("description", self.description)
        object.__setattr__(self, "parameters", from_python(self.parameters))


@dataclass(frozen=True, slots=True)
class ImageSource:
    """Where an image comes from. Made by `from_data_url`, `from_url` or `from_bytes`.

    Args:
        kind: what `value` is.
        value: a data URL (base64 or percent-encoded), a URL to fetch, or the encoded bytes.
        path: the place in the request that errors name, such as `messages.0.content[1]`; empty when there is none.
    """

    kind: ImageSourceKind
    value: str | bytes = field(repr=False)
    detail: ImageDetail = "high"
    path: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        _check_word("kind", self.kind, get_args(ImageSourceKind))
        _check_word("detail", self.detail, get_args(ImageDetail))
        if isinstance(self.value, str) == (self.kind == "bytes"):
            raise InvalidTypeError(f"an image source of kind {self.kind} cannot hold {type(self.value).__name__}")

    @classmethod
    def from_data_url(cls, data_url: str, detail: ImageDetail = "high", *, path: str = "") -> ImageSource:
        return cls("data_url", data_url, detail, path=path)

    @classmethod
    def from_url(cls, url: str, detail: ImageDetail = "high", *, path: str = "") -> ImageSource:
        return cls("url", url, detail, path=path)

    @classmethod
    def from_bytes(cls, data: bytes, detail: ImageDetail = "high", *, path: str = "") -> ImageSource:
        return cls("bytes", data, detail, path=path)

    @property
    def data_url(self) -> str | None:
        return cast(str, self.value) if self.kind == "data_url" else None

    @property
    def url(self) -> str | None:
        return cast(str, self.value) if self.kind == "url" else None

    @property
    def data(self) -> bytes | None:
        return cast(bytes, self.value) if self.kind == "bytes" else None


def find_placeholders(content: str, count: int, image_token: str = DEFAULT_IMAGE_TOKEN) -> tuple[Range, ...]:
    """Ranges of the first `count` occurrences of `image_token` in `content`; fewer when there are fewer."""
    if not image_token:
        raise InvalidArgumentError("image_token must not be empty")
    ranges: list[Range] = []
    start = 0
    while len(ranges) < count and (start := content.find(image_token, start)) >= 0:
        ranges.append((start, start + len(image_token)))
        start += len(image_token)
    return tuple(ranges)


def join_parts(
    parts: Iterable[str | ImageSource], *, separator: str = "\n\n", image_token: str = DEFAULT_IMAGE_TOKEN
) -> tuple[str, tuple[ImageSource, ...], tuple[Range, ...]]:
    """Content of text and images in a row: the text, the sources, and the ranges of their placeholders.

    The ranges are those of the images, whatever the text spells: a text part that reads like the image token stays
    text.
    """
    pieces: list[str] = []
    sources: list[ImageSource] = []
    ranges: list[Range] = []
    position = 0
    for part in parts:
        if pieces:
            position += len(separator)
        if isinstance(part, str):
            pieces.append(part)
        else:
            pieces.append(image_token)
            sources.append(part)
            ranges.append((position, position + len(image_token)))
        position += len(pieces[-1])
    return separator.join(pieces), tuple(sources), tuple(ranges)


@dataclass(frozen=True, slots=True)
class Message:
    """Base of the messages. What belongs to another role reads as its neutral value."""

    role: ClassVar[Role]
    content: str

    @property
    def reasoning_content(self) -> str | None:
        return None

    @property
    def tool_calls(self) -> tuple[ToolCall, ...] | None:
        return None

    @property
    def tool_call_id(self) -> str | None:
        return None

    @property
    def prefix(self) -> bool:
        return False

    @property
    def image_sources(self) -> tuple[ImageSource, ...]:
        return ()

    @property
    def placeholders(self) -> tuple[Range, ...]:
        """Ranges of `content` that stand for the images."""
        return ()

    def __post_init__(self) -> None:
        _check_text("content", self.content)


FIRST_OCCURRENCES: tuple[Range, ...] = ((-1, -1),)
"""Says that the placeholders are the first occurrences of the image token, one per image source."""


def _settle_images(message: SystemMessage | UserMessage | ToolMessage) -> None:
    if message.image_sources == () == message.placeholders:
        return
    sources = _as_tuple("image_sources", message.image_sources, ImageSource)
    content, placeholders = message.content, tuple(message.placeholders)
    if placeholders == FIRST_OCCURRENCES:
        placeholders = find_placeholders(content, len(sources), message.image_token)
    else:
        end = 0
        for start, stop in placeholders:
            if not end <= start < stop <= len(content):
                raise InvalidArgumentError(f"placeholders: {(start, stop)} overlaps, is out of order or out of bounds")
            end = stop
        if len(placeholders) > len(sources):
            raise InvalidArgumentError(f"placeholders: {len(placeholders)} of them for {len(sources)} image sources")
    object.__setattr__(message, "image_sources", sources)
    object.__setattr__(message, "placeholders", placeholders)


@dataclass(frozen=True, slots=True)
class SystemMessage(Message):
    """Instructions, and tools that become known at this point. Images as in `UserMessage`."""

    role: ClassVar[Role] = "system"
    image_sources: tuple[ImageSource, ...] = ()
    tools: tuple[ToolDefinition, ...] | None = None
    placeholders: tuple[Range, ...] = field(default=FIRST_OCCURRENCES, kw_only=True)
    image_token: str = field(default=DEFAULT_IMAGE_TOKEN, kw_only=True, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_text("content", self.content)
        _settle_images(self)
        if self.tools is not None:
            object.__setattr__(self, "tools", _as_tuple("tools", self.tools, ToolDefinition))


@dataclass(frozen=True, slots=True)
class UserMessage(Message):
    """What the user says.

    Args:
        placeholders: ranges of `content` that stand for the images, ascending, at most one per source. Left out, they
            are the first occurrences of `image_token`; with fewer occurrences than sources the sources are kept, and
            the prompt holds fewer placeholders. All other text is plain, whatever it spells.
        image_token: spelling of the image token in `content`.
    """

    role: ClassVar[Role] = "user"
    image_sources: tuple[ImageSource, ...] = ()
    placeholders: tuple[Range, ...] = field(default=FIRST_OCCURRENCES, kw_only=True)
    image_token: str = field(default=DEFAULT_IMAGE_TOKEN, kw_only=True, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_text("content", self.content)
        _settle_images(self)


@dataclass(frozen=True, slots=True)
class AssistantMessage(Message):
    """What the model said, or, with `prefix`, the beginning of what it is to say next."""

    role: ClassVar[Role] = "assistant"
    reasoning_content: str | None = None
    tool_calls: tuple[ToolCall, ...] | None = None
    prefix: bool = False

    def __post_init__(self) -> None:
        _check_text("content", self.content)
        if self.reasoning_content is not None:
            _check_text("reasoning_content", self.reasoning_content)
        if self.tool_calls is not None:
            object.__setattr__(self, "tool_calls", _as_tuple("tool_calls", self.tool_calls, ToolCall))


@dataclass(frozen=True, slots=True)
class ToolMessage(Message):
    """What a tool returned. Images as in `UserMessage`."""

    role: ClassVar[Role] = "tool"
    tool_call_id: str | None = None
    image_sources: tuple[ImageSource, ...] = ()
    placeholders: tuple[Range, ...] = field(default=FIRST_OCCURRENCES, kw_only=True)
    image_token: str = field(default=DEFAULT_IMAGE_TOKEN, kw_only=True, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_text("content", self.content)
        if self.tool_call_id is not None:
            _check_text("tool_call_id", self.tool_call_id)
        _settle_images(self)


@dataclass(frozen=True, slots=True)
class LatestReminder(Message):
    """Additional instructions next to the latest turn."""

    role: ClassVar[Role] = "latest_reminder"


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages, tools, and how to answer.

    `response_schema` makes the response format `json_schema`, `response_regex` makes it `regex`; they exclude each
    other and `json_object`.
    """

    messages: tuple[Message, ...] = ()
    thinking_mode: bool = field(default=True, kw_only=True)
    tools: tuple[ToolDefinition, ...] = field(default=(), kw_only=True)
    tool_choice: ToolChoice = field(default="auto", kw_only=True)
    reasoning_effort: ReasoningEffort | None = field(default=None, kw_only=True)
    response_format: ResponseFormat = field(default="text", kw_only=True)
    response_schema: JsonValue = field(default=None, kw_only=True)
    response_regex: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "messages", _as_tuple("messages", self.messages, Message))
        object.__setattr__(self, "tools", _as_tuple("tools", self.tools, ToolDefinition))
        _check_word("tool_choice", self.tool_choice, get_args(ToolChoice))
        if self.reasoning_effort is not None:
            _check_word("reasoning_effort", self.reasoning_effort, get_args(ReasoningEffort))
        object.__setattr__(self, "response_schema", from_python(self.response_schema))
        object.__setattr__(self, "response_format", self._settled_format())

    def _settled_format(self) -> ResponseFormat:
        schema, regex = self.response_schema is not None, self.response_regex is not None
        if self.response_format == "json_schema" and schema and not regex:
            return "json_schema"  # as a copy of such a conversation has it
        if self.response_format == "regex" and regex and not schema:
            return "regex"
        _check_word("response_format", self.response_format, ("text", "json_object"))
        if schema and regex:
            raise InvalidArgumentError("response_schema and response_regex cannot be combined")
        if self.response_format == "json_object" and (schema or regex):
            raise InvalidArgumentError(
                'response_format "json_object" cannot be combined with response_schema or response_regex'
            )
        return "json_schema" if schema else "regex" if regex else self.response_format

    @property
    def tools_in_effect(self) -> bool:
        """Whether the model is told of tools: there are some, and the choice is not none."""
        return bool(self.tools) and self.tool_choice != "none"
