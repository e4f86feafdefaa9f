"""The input items of a Responses request as the messages of a conversation."""

from __future__ import annotations

from ...conversation import (
    AssistantMessage,
    ImageSource,
    Message,
    Range,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
    join_parts,
)
from ...errors import ConversionError
from ...json_text import print_json
from ...options import ConversionOptions
from ...requests.common import empty_string
from ...requests.images import (
    BASE64_FILE_ADVICE,
    UNSUPPORTED_IMAGE_TEXT,
    check_url_length,
    image_from_url,
    is_web_url,
)
from ...versions import ModelVersion
from .body import (
    Content,
    CustomCallItem,
    CustomOutputItem,
    FilePart,
    FunctionCallItem,
    ImagePart,
    Item,
    MessageItem,
    OutputItem,
    ReasoningItem,
    TextPart,
    ToolSearchCallItem,
    ToolSearchOutputItem,
    UnknownTool,
)
from .tools import TOOL_SEARCH, ToolTable, found_tools_as_json

UNSUPPORTED_DOCUMENT_TEXT = "[Unsupported Document]"


class _Turn:
    """What gathers into one assistant message, with the outputs of its calls and the tools that these bring."""

    def __init__(self) -> None:
        self.reasoning: list[str] = []
        self.texts: list[str] = []
        self.has_message = False
        self.calls: list[ToolCall] = []
        self.call_ids: set[str] = set()
        self.outputs: dict[str, ToolMessage] = {}
        self.systems: list[SystemMessage] = []

    @property
    def waits(self) -> bool:
        """Whether a call has no output yet."""
        return len(self.outputs) < len(self.calls)

    def messages(self) -> list[Message]:
        """The messages of the turn: calls sorted by id, outputs in the order of their calls.

        Raises:
            ConversionError: a call has no output.
        """
        for call in self.calls:
            if call.id not in self.outputs:
                raise ConversionError(f"No tool output found for tool call {call.id}.")
        reasoning = "\n".join(self.reasoning)
        if not (self.calls or self.has_message or reasoning):
            return []
        text = "\n\n".join(self.texts)
        calls = tuple(sorted(self.calls, key=lambda call: call.id.encode()))
        message = AssistantMessage(text, reasoning or None, calls or None)
        return [message, *(self.outputs[call.id] for call in calls), *self.systems]


class History:
    """Turns the items of a request into messages, in order."""

    def __init__(self, table: ToolTable, version: ModelVersion, options: ConversionOptions) -> None:
        self.table = table
        self.version = version
        self.refuse_unknown = options.quirks.refused_found_tools
        self.image_token = options.special_tokens.image
        self.messages: list[Message] = []
        self.turn = _Turn()
        self.call_ids: set[str] = set()
        self.answered: set[str] = set()

    def read(self, items: list[Item]) -> list[Message]:
        for index, item in enumerate(items):
            if isinstance(item, MessageItem):
                self._message(index, item)
            elif isinstance(item, ReasoningItem):
                self._reasoning(item)
            elif isinstance(item, FunctionCallItem):
                name = self.table.names.of_call(item.namespace, item.name)
                self._call(index, ToolCall(item.call_id, name, item.arguments))
            elif isinstance(item, CustomCallItem):
                arguments = print_json({"input": item.input}, compact=True)
                self._call(index, ToolCall(item.call_id, item.name, arguments))
            elif isinstance(item, OutputItem):
                self._output(index, item)
            elif self.version.tools_in_system and isinstance(item, ToolSearchCallItem):
                arguments = print_json(item.arguments, compact=True)
                self._call(index, ToolCall(item.call_id, TOOL_SEARCH, arguments))
            elif self.version.tools_in_system and isinstance(item, ToolSearchOutputItem):
                self._search_output(index, item)
        self._end_turn()
        return self.messages

    def _end_turn(self) -> None:
        self.messages += self.turn.messages()
        self.turn = _Turn()

    # Messages

    def _message(self, index: int, item: MessageItem) -> None:
        if item.role == "assistant":
            if self.turn.calls:
                self._end_turn()
            text, _, _ = self._content(index, item.content, "content", images_allowed=False)
            if text:
                self.turn.texts.append(text)
            self.turn.has_message = True
            return
        self._end_turn()
        text, sources, ranges = self._content(index, item.content, "content")
        as_system = item.role == "system" or (item.role == "developer" and self.version.system_in_place)
        make = SystemMessage if as_system else UserMessage
        self.messages.append(make(text, sources, placeholders=ranges, image_token=self.image_token))

    def _reasoning(self, item: ReasoningItem) -> None:
        text = "\n".join(item.texts)
        if self.turn.waits or (text and (self.turn.calls or self.turn.texts)):
            self._end_turn()
        if text:
            self.turn.reasoning.append(text)

    # Calls and outputs

    def _call(self, index: int, call: ToolCall) -> None:
        if not call.id:
            raise empty_string(f"input[{index}].call_id")
        if call.id in self.call_ids:
            raise ConversionError(f"Duplicate 'call_id': {call.id}.")
        self.call_ids.add(call.id)
        if self.turn.calls and not self.turn.waits:
            self._end_turn()
        self.turn.calls.append(call)
        self.turn.call_ids.add(call.id)

    def _check_output(self, index: int, call_id: str) -> None:
        if not call_id:
            raise empty_string(f"input[{index}].call_id")
        if call_id in self.answered:
            raise ConversionError(f"Duplicate tool output for call_id: {call_id}.")
        if call_id not in self.turn.call_ids:
            raise ConversionError(f"No tool call found for tool output with call_id {call_id}.")
        self.answered.add(call_id)

    def _output(self, index: int, item: OutputItem) -> None:
        # Of a function's output the content is looked at first, of a custom one the id.
        is_custom = isinstance(item, CustomOutputItem)
        if is_custom and item.call_id is not None:
            self._check_output(index, item.call_id)
        text, sources, ranges = self._content(index, item.output, "output")
        if not is_custom and item.call_id is not None:
            self._check_output(index, item.call_id)
        message = ToolMessage(text, item.call_id, sources, placeholders=ranges, image_token=self.image_token)
        if item.call_id is None:  # an output on its own
            self._end_turn()
            self.messages.append(message)
        else:
            self.turn.outputs[item.call_id] = message

    def _search_output(self, index: int, item: ToolSearchOutputItem) -> None:
        self._check_output(index, item.call_id)
        if self.refuse_unknown and any(isinstance(tool, UnknownTool) for tool in item.tools):
            raise ConversionError(f"input[{index}]: the enum variant ResponsesTool::Unsupported cannot be serialized")
        text = print_json(found_tools_as_json(item.tools), compact=True)
        self.turn.outputs[item.call_id] = ToolMessage(text, item.call_id)
        if found := self.table.found[index]:
            self.turn.systems.append(SystemMessage("", tools=tuple(found)))

    # Content

    def _content(
        self, index: int, content: Content, field: str, images_allowed: bool = True
    ) -> tuple[str, tuple[ImageSource, ...], tuple[Range, ...]]:
        if isinstance(content, str):
            return content, (), ()
        parts: list[str | ImageSource] = []
        for position, part in enumerate(content):
            if isinstance(part, TextPart):
                parts.append(part.text)
            elif isinstance(part, FilePart):
                parts.append(UNSUPPORTED_DOCUMENT_TEXT)
            elif self.version.images:
                parts.append(_image(part, f"input[{index}]", f".{field}[{position}]", images_allowed))
            else:
                parts.append(UNSUPPORTED_IMAGE_TEXT)
        return join_parts(parts, image_token=self.image_token)


def _image(part: ImagePart, path: str, place: str, allowed: bool) -> ImageSource:
    if part.file_id is not None:
        if part.image_url:
            raise ConversionError(f"{path}{place}: input_image cannot have both image_url and file_id")
        raise ConversionError(f"{path}{place}: {BASE64_FILE_ADVICE}")
    if not part.image_url:
        raise ConversionError(f"{path}{place}: input_image must have image_url or file_id")
    if is_web_url(part.image_url):
        check_url_length(part.image_url, f"{path}{place}: image_url ")
    if not allowed:
        raise ConversionError(f"{path}: Image in assistant message is unsupported")
    return image_from_url(part.image_url, part.detail, path)
