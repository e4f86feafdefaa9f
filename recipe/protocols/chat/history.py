"""The messages of a Chat Completions request as those of a conversation."""

from __future__ import annotations

from ...conversation import (
    AssistantMessage,
    ImageSource,
    LatestReminder,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
    join_parts,
)
from ...errors import ConversionError
from ...options import ConversionOptions
from ...requests.data_urls import read_data_url
from ...requests.images import (
    BASE64_FILE_ADVICE,
    MEDIA_TYPES,
    UNSUPPORTED_FILE_TYPE,
    UNSUPPORTED_IMAGE_TEXT,
    check_url_length,
    image_from_url,
    is_web_url,
)
from ...versions import ModelVersion
from .body import (
    AssistantBody,
    CallBody,
    Content,
    FilePart,
    ImagePart,
    MessageBody,
    SystemBody,
    TextPart,
    ToolBody,
    UserBody,
)


class _Pairing:
    """Checks that the n calls of a message are answered by the next n messages, in any order."""

    def __init__(self) -> None:
        self.ids: set[str] = set()
        self.answered: set[str] = set()

    def call(self, index: int, calls: list[CallBody]) -> None:
        if not calls:
            raise ConversionError(
                f"Invalid 'messages[{index}].tool_calls': empty array. "
                "Expected an array with minimum length 1, but got an empty array instead."
            )
        self.ids, self.answered = set(), set()
        for call in calls:
            if call.id in self.ids:
                raise _duplicate(call.id, index)
            self.ids.add(call.id)

    @property
    def is_open(self) -> bool:
        return len(self.answered) < len(self.ids)

    def answer(self, index: int, id: str) -> None:
        if not self.is_open:
            raise ConversionError(
                "Messages with role 'tool' must be a response to a preceding message with 'tool_calls'"
            )
        if id in self.answered:
            raise _duplicate(id, index)
        if id not in self.ids:
            raise ConversionError(f"{_UNANSWERED}, The following tool_call_ids did not have response messages: {id}")
        self.answered.add(id)

    def end(self) -> None:
        """The end of the messages that answer, or of all messages."""
        if self.is_open:
            raise ConversionError(f"{_UNANSWERED}. (insufficient tool messages following tool_calls message)")


_UNANSWERED = (
    "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'"
)


def _duplicate(id: str, index: int) -> ConversionError:
    return ConversionError(f"Duplicate value for 'tool_call_id' of {id} in message[{index}]")


class History:
    """Turns the messages of a request into those of a conversation, in order."""

    def __init__(self, bodies: list[MessageBody], version: ModelVersion, options: ConversionOptions) -> None:
        self.bodies = bodies
        self.version = version
        self.image_token = options.special_tokens.image
        self.messages: list[Message] = []
        self.pairing = _Pairing()

    def read(self) -> list[Message]:
        for index, body in enumerate(self.bodies):
            if isinstance(body, ToolBody):
                self._tool(index, body)
                continue
            self.pairing.end()
            if isinstance(body, AssistantBody):
                self._assistant(index, body)
            elif isinstance(body, UserBody):
                text, sources, ranges = self._content(index, body.content)
                self.messages.append(UserMessage(text, sources, placeholders=ranges, image_token=self.image_token))
            elif isinstance(body, SystemBody):
                self._system(index, body)
            else:
                self.messages.append(LatestReminder(body.content))
        self.pairing.end()
        return self.messages

    def _system(self, index: int, body: SystemBody) -> None:
        text, sources, ranges = self._content(index, body.content)
        if text:
            self.messages.append(SystemMessage(text, sources, placeholders=ranges, image_token=self.image_token))

    def _assistant(self, index: int, body: AssistantBody) -> None:
        if body.content is None and body.tool_calls is None:
            raise ConversionError("Invalid assistant message: content or tool_calls must be set")
        text, _, _ = self._content(index, body.content or "", images_allowed=False)
        calls = None
        if body.tool_calls is not None:
            self.pairing.call(index, body.tool_calls)
            calls = tuple(ToolCall(call.id, call.function.name, call.function.arguments) for call in body.tool_calls)
        self.messages.append(AssistantMessage(text, body.reasoning_content, calls, body.prefix))

    def _tool(self, index: int, body: ToolBody) -> None:
        self.pairing.answer(index, body.tool_call_id)
        text, sources, ranges = self._content(index, body.content)
        self.messages.append(
            ToolMessage(text, body.tool_call_id, sources, placeholders=ranges, image_token=self.image_token)
        )

    def _content(
        self, index: int, content: Content, images_allowed: bool = True
    ) -> tuple[str, tuple[ImageSource, ...], tuple[tuple[int, int], ...]]:
        if isinstance(content, str):
            return content, (), ()
        parts: list[str | ImageSource] = []
        for position, part in enumerate(content):
            if isinstance(part, TextPart):
                parts.append(part.text)
            elif not self.version.images:
                parts.append(UNSUPPORTED_IMAGE_TEXT)
            else:
                parts.append(_image(part, index, position, images_allowed))
        return join_parts(parts, image_token=self.image_token)


def _image(part: ImagePart | FilePart, index: int, position: int, allowed: bool) -> ImageSource:
    path = f".messages[{index}]"
    if isinstance(part, FilePart):
        return _file(part, path, allowed)
    url = part.image_url.url
    if is_web_url(url):
        check_url_length(url, f"{path}.image_url.url[{position}]: image_url.url ")
    if not allowed:
        raise ConversionError("Image in assistant message is not supported")
    return image_from_url(url, part.image_url.detail, path)


def _file(part: FilePart, path: str, allowed: bool) -> ImageSource:
    """A file is an image in a base64 data URL."""
    if part.file_id is not None and part.file_data is not None:
        raise ConversionError(f"{path}: file cannot have both file_id and file_data")
    if part.file_id is not None:
        raise ConversionError(f"{path}: {BASE64_FILE_ADVICE}")
    if part.file_data is None:
        raise ConversionError(f"{path}: file must have a file_id or file_data")
    data = read_data_url(part.file_data)
    if data is not None and data.media_type not in MEDIA_TYPES:
        raise ConversionError(f"{path}: {UNSUPPORTED_FILE_TYPE}")
    if data is None or not data.is_decodable():
        raise ConversionError(f"{path}: file_data is not a valid base64 data url")
    if not allowed:
        raise ConversionError("Image in assistant message is not supported")
    return image_from_url(part.file_data, "high", path)
