"""The messages of a Chat Completions request as those of a conversation."""

from __future__ import annotations

from typing import cast

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
from ...requests.images import UNSUPPORTED_IMAGE_TEXT, check_url_length, image_from_url, is_web_url
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


class History:
    """Turns the messages of a request into those of a conversation, in order."""

    def __init__(self, bodies: list[MessageBody], version: ModelVersion, options: ConversionOptions) -> None:
        self.bodies = bodies
        self.version = version
        self.image_token = options.special_tokens.image
        self.messages: list[Message] = []
        self.answered = 0
        """Bodies before this index that are tool messages have their calls."""

    def read(self) -> list[Message]:
        for index, body in enumerate(self.bodies):
            if isinstance(body, AssistantBody):
                self._assistant(index, body)
            elif isinstance(body, ToolBody):
                self._tool(index, body)
            elif isinstance(body, UserBody):
                text, sources, ranges = self._content(index, body.content)
                self.messages.append(UserMessage(text, sources, placeholders=ranges, image_token=self.image_token))
            elif isinstance(body, SystemBody):
                self._system(index, body)
            else:
                self.messages.append(LatestReminder(body.content))
        return self.messages

    def _system(self, index: int, body: SystemBody) -> None:
        text, sources, ranges = self._content(index, body.content)
        if text:
            self.messages.append(SystemMessage(text, sources, placeholders=ranges, image_token=self.image_token))

    def _assistant(self, index: int, body: AssistantBody) -> None:
        if body.content is None and body.tool_calls is None:
            raise ConversionError("Invalid assistant message: content or tool_calls must be set")
        calls = None
        if body.tool_calls is not None:
            _check_answers(index, body.tool_calls, self.bodies)
            self.answered = index + 1 + len(body.tool_calls)
            calls = tuple(ToolCall(call.id, call.function.name, call.function.arguments) for call in body.tool_calls)
        text, _, _ = self._content(index, body.content or "", images_allowed=False)
        self.messages.append(AssistantMessage(text, body.reasoning_content, calls, body.prefix))

    def _tool(self, index: int, body: ToolBody) -> None:
        if index >= self.answered:
            raise ConversionError(
                "Messages with role 'tool' must be a response to a preceding message with 'tool_calls'"
            )
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
        raise ConversionError(f"{path}: file must have a file_id or file_data")
    url = part.image_url.url
    if is_web_url(url):
        check_url_length(url, f"{path}.image_url.url[{position}]: image_url.url ")
    if not allowed:
        raise ConversionError("Image in assistant message is not supported")
    return image_from_url(url, part.image_url.detail, path)


_UNANSWERED = (
    "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'"
)


def _check_answers(index: int, calls: list[CallBody], bodies: list[MessageBody]) -> None:
    """Check that the n calls of the message at `index` are answered by the next n messages, in any order."""
    if not calls:
        raise ConversionError(
            f"Invalid 'messages[{index}].tool_calls': empty array. "
            "Expected an array with minimum length 1, but got an empty array instead."
        )
    open_ids: set[str] = set()
    for call in calls:
        if call.id in open_ids:
            raise ConversionError(f"Duplicate value for 'tool_call_id' of {call.id} in message[{index}]")
        open_ids.add(call.id)
    first = index + 1
    answers = bodies[first : first + len(calls)]
    if len(answers) < len(calls) or not all(isinstance(answer, ToolBody) for answer in answers):
        raise ConversionError(f"{_UNANSWERED}. (insufficient tool messages following tool_calls message)")
    seen: set[str] = set()
    for position, answer in enumerate(cast("list[ToolBody]", answers), first):
        if answer.tool_call_id in seen:
            raise ConversionError(f"Duplicate value for 'tool_call_id' of {answer.tool_call_id} in message[{position}]")
        if answer.tool_call_id not in open_ids:
            raise ConversionError(
                f"{_UNANSWERED}, The following tool_call_ids did not have response messages: {answer.tool_call_id}"
            )
        seen.add(answer.tool_call_id)
