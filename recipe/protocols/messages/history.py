"""The messages of a Messages request as those of a conversation."""

from __future__ import annotations

import binascii
from base64 import b64encode
from collections.abc import Mapping, Sequence

from ...conversation import (
    AssistantMessage,
    ImageSource,
    Message,
    SystemMessage,
    ToolCall,
    ToolDefinition,
    ToolMessage,
    UserMessage,
    join_parts,
)
from ...errors import ConversionError
from ...json_text import print_json
from ...options import ConversionOptions, WebSearchBehavior
from ...requests.images import BASE64_FILE_ADVICE, UNSUPPORTED_IMAGE_TEXT, check_url_length, is_web_url, quoted
from ...versions import ModelVersion
from .body import (
    Base64Source,
    Block,
    DocumentBlock,
    FileSource,
    ImageBlock,
    MessageBody,
    ReferenceBlock,
    ServerToolUseBlock,
    TextBlock,
    ThinkingBlock,
    ToolAdditionBlock,
    ToolResultBlock,
    ToolUseBlock,
    WebSearchResultBlock,
)


class Pairing:
    """Checks that every tool_use has its tool_result at the start of the next message."""

    def __init__(self) -> None:
        self.open: list[str] = []
        self.message = 0
        """Index of the message with the open tool_use blocks."""
        self.answered: set[str] = set()

    def _unanswered(self, place: str) -> ConversionError:
        return ConversionError(
            f"{place}`tool_use` ids were found without `tool_result` blocks immediately after: {', '.join(self.open)}. "
            "Each `tool_use` block must have a corresponding `tool_result` block in the next message."
        )

    def begin_message(self, index: int, role: str) -> None:
        self.answered = set()
        if self.open and role != "user":
            raise self._unanswered(f"messages.{index}: ")

    def use(self, index: int, position: int, id: str) -> None:
        if id in self.open:
            raise ConversionError(f"messages.{index}.content.{position}: `tool_use` ids must be unique")
        self.open.append(id)
        self.message = index

    def other_content(self, index: int, position: int) -> None:
        """Content that may not come between a tool_use and its result."""
        if self.open:
            raise self._unanswered(f"messages.{index}.{position}: " if index == self.message else f"messages.{index}: ")

    def result(self, index: int, position: int, id: str) -> None:
        if id in self.answered:
            raise ConversionError(
                f"messages.{index}.content.{position}: each tool_use must have a single result. "
                f"Found multiple `tool_result` blocks with id: {id}"
            )
        if id not in self.open:
            raise ConversionError(
                f"unexpected `messages.{index}.content.{position}: tool_use_id` found in `tool_result` blocks: {id}. "
                "Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
            )
        self.open.remove(id)
        self.answered.add(id)

    def end(self) -> None:
        """The end of a user message, or of all messages."""
        if self.open:
            raise self._unanswered(f"messages.{self.message}:")


class History:
    """Turns the messages of a request into those of a conversation, in order."""

    def __init__(self, tools: Sequence[ToolDefinition], version: ModelVersion, options: ConversionOptions) -> None:
        self.tools: Mapping[str, ToolDefinition] = {tool.name: tool for tool in tools}
        self.version = version
        self.server_tools = options.messages_web_search is WebSearchBehavior.DROP
        """Whether blocks of server tools are dropped; otherwise they are refused."""
        self.image_token = options.special_tokens.image
        self.messages: list[Message] = []
        self.pairing = Pairing()

    def read(self, bodies: list[MessageBody]) -> list[Message]:
        readers = {"user": self._user, "assistant": self._assistant, "system": self._system}
        for index, body in enumerate(bodies):
            blocks: list[Block] = [TextBlock(body.content)] if isinstance(body.content, str) else body.content
            self.pairing.begin_message(index, body.role)
            if not blocks and body.role != "system":
                raise ConversionError(f"messages.{index}: all messages must have non-empty content")
            readers[body.role](index, blocks)
        self.pairing.end()
        return self.messages

    # Roles

    def _user(self, index: int, blocks: list[Block]) -> None:
        found: list[ToolDefinition] = []
        for position, block in enumerate(blocks):
            _check_place(block, "user", index)
            if isinstance(block, ToolResultBlock):
                self.pairing.result(index, position, block.tool_use_id)
                found += self._result(index, position, block)
                continue
            self.pairing.other_content(index, position)
            path = f"messages.{index}.content[{position}]"
            text, sources, ranges = join_parts([self._part(block, path, path)], image_token=self.image_token)
            self.messages.append(UserMessage(text, sources, placeholders=ranges, image_token=self.image_token))
        self.pairing.end()
        if found and self.version.tools_in_system:
            self.messages.append(SystemMessage("", tools=tuple(found)))

    def _result(self, index: int, position: int, block: ToolResultBlock) -> list[ToolDefinition]:
        """Adds the tool message of a result, and returns the tools that it refers to."""
        path = f"messages.{index}.content.{position}.tool_result"
        found: list[ToolDefinition] = []
        parts: list[str | ImageSource] = []
        content = [TextBlock(block.content)] if isinstance(block.content, str) else block.content
        for place, part in enumerate(content):
            if isinstance(part, ReferenceBlock):
                if part.tool_name not in self.tools:
                    raise ConversionError(
                        f"messages.{index}.content.{position}: tool reference '{part.tool_name}' "
                        "not found in available tools"
                    )
                found.append(self.tools[part.tool_name])
                parts.append(part.tool_name)
            else:
                parts.append(self._part(part, path, f"{path}.content[{place}]"))
        text, sources, ranges = join_parts(parts, image_token=self.image_token)
        self.messages.append(
            ToolMessage(text, block.tool_use_id, sources, placeholders=ranges, image_token=self.image_token)
        )
        return found

    def _assistant(self, index: int, blocks: list[Block]) -> None:
        texts: list[str] = []
        thoughts: list[str] = []
        calls: list[ToolCall] = []
        for position, block in enumerate(blocks):
            _check_place(block, "assistant", index)
            if isinstance(block, ThinkingBlock):
                thoughts.append(block.thinking)
            elif isinstance(block, ToolUseBlock):
                self.pairing.use(index, position, block.id)
                calls.append(ToolCall(block.id, block.name, print_json(block.input)))
            elif isinstance(block, (ServerToolUseBlock, WebSearchResultBlock)):
                if not self.server_tools:
                    raise ConversionError("Unsupported content block: server tools are not supported")
            else:
                self.pairing.other_content(index, position)
                part = self._part(block, f"messages.{index}", f"messages.{index}.content[{position}]")
                if not isinstance(part, str):
                    raise ConversionError("Image in assistant message is unsupported")
                if part or texts:  # leading empty texts vanish
                    texts.append(part)
        reasoning = "\n\n".join(thoughts) if thoughts else None
        self.messages.append(AssistantMessage("\n\n".join(texts), reasoning, tuple(calls) or None))

    def _system(self, index: int, blocks: list[Block]) -> None:
        added: list[ToolDefinition] = []
        parts: list[str | ImageSource] = []
        path = f"messages.{index}"
        for position, block in enumerate(blocks):
            _check_place(block, "system", index)
            if isinstance(block, ToolAdditionBlock):
                if block.name not in self.tools:
                    raise ConversionError(
                        f"{path}.content.{position}: `tool_addition` references unknown tool '{block.name}'"
                    )
                added.append(self.tools[block.name])
            else:
                parts.append(self._part(block, path, f"{path}.content[{position}]"))
        text, sources, ranges = join_parts(parts, image_token=self.image_token)
        if self.version.system_in_place:
            tools = tuple(added) if added and self.version.tools_in_system else None
            self.messages.append(SystemMessage(text, sources, tools, placeholders=ranges, image_token=self.image_token))
        elif text:
            self.messages.append(UserMessage(f"<system-reminder>\n{text}\n</system-reminder>"))

    # Blocks

    def _part(self, block: Block | ReferenceBlock, path: str, place: str) -> str | ImageSource:
        """Text, image or document as a part of a message's content; `place` is what errors name."""
        if isinstance(block, TextBlock):
            return block.text
        if isinstance(block, DocumentBlock):
            return f"[Unsupported document type: {block.media_type}]"
        assert isinstance(block, ImageBlock)
        return _image(block, path, place) if self.version.images else UNSUPPORTED_IMAGE_TEXT


def _check_place(block: Block, role: str, index: int) -> None:
    """Refuse blocks that cannot be in a message of this role."""
    if role != "assistant":
        if isinstance(block, (ToolUseBlock, ServerToolUseBlock)):
            raise ConversionError(f"messages.{index}: `tool_use` blocks can only be in `assistant` messages")
        if isinstance(block, WebSearchResultBlock):
            raise ConversionError(
                f"messages.{index}: `web_search_tool_result` blocks can only be in `assistant` messages"
            )
        if isinstance(block, ThinkingBlock):
            raise ConversionError(f"messages.{index}.content: thinking blocks may only be in `assistant` messages")
    if role != "user" and isinstance(block, ToolResultBlock):
        raise ConversionError(f"messages.{index}: `tool_result` blocks can only be in `user` messages")
    if role != "system" and isinstance(block, ToolAdditionBlock):
        raise ConversionError(f"messages.{index}: `tool_addition` blocks can only be in `system` messages")


def _image(block: ImageBlock, path: str, place: str) -> ImageSource:
    source = block.source
    if isinstance(source, FileSource):
        raise ConversionError(f"{place}: {BASE64_FILE_ADVICE}")
    if isinstance(source, Base64Source):
        if not _is_base64(source.data):
            raise ConversionError(f"{place}: base64 decode error")
        return ImageSource.from_data_url(f"data:{source.media_type};base64,{source.data}", path=path)
    if not is_web_url(source.url):
        raise ConversionError(f"{place}: invalid url: {quoted(source.url)}")
    check_url_length(source.url, f"{place}: ")
    return ImageSource.from_url(source.url, path=path)


def _is_base64(data: str) -> bool:
    """Whether data is base64 in its one canonical form, padding included."""
    try:
        return b64encode(binascii.a2b_base64(data, strict_mode=True)).decode() == data
    except ValueError:
        return False
