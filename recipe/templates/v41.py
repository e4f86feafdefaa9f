"""The prompts of DeepSeek V4.1.

System messages stay where they are, each after a system token. User messages and tool results that follow each other
share one user's turn, results in the order of their calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby

from ..conversation import (
    AssistantMessage,
    Conversation,
    LatestReminder,
    Message,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from ..json_text import JsonValue
from ..special_tokens import SpecialTokens
from ..versions import ModelVersion
from .base import (
    Marks,
    Pieces,
    Prompt,
    ToolMarkup,
    content_pieces,
    is_call_required,
    marks_of,
    opening,
    schema_format_text,
)

VERSION = ModelVersion(key="v4.1", name="DeepseekV41Flash", model_name="DeepSeek-V4.1-Flash")

MARKUP = ToolMarkup(
    calls=" calls", invoke=" invoke", parameter=" parameter", python_floats=True, empty_line_for_none=True
)

_EFFORT_NUMBER = {None: 75, "low": 50, "high": 75, "xhigh": 75, "max": 100}


@dataclass(frozen=True, slots=True)
class V41Template:
    """Renders the prompts of V4.1."""

    version: ModelVersion = VERSION
    markup: ToolMarkup = MARKUP

    def render(self, conversation: Conversation, special_tokens: SpecialTokens) -> Prompt:
        marks = marks_of(special_tokens)
        messages = sort_results(conversation.messages)
        pieces: Pieces = [marks.bos]
        if not (messages and isinstance(messages[0], SystemMessage)) and _has_head(conversation):
            pieces += _system_pieces(SystemMessage(""), _Head.of(conversation, marks), marks)
        before: Message | None = None
        for message in messages:
            pieces += _message_pieces(message, before, conversation, marks)
            before = message
        pieces += opening(conversation, messages, marks)
        if is_call_required(conversation):
            pieces += MARKUP.open_calls(marks)
        return Prompt.from_pieces(pieces, chain.from_iterable(message.image_sources for message in messages))


def sort_results(messages: Sequence[Message]) -> list[Message]:
    """Within each run of user messages and results, the results that have an id come in the order of their calls.

    They trade places among themselves; all others stay. The calls are those of the nearest earlier assistant message
    that has any; an id that is not among them counts as the first call's.
    """
    result: list[Message] = []
    order: dict[str, int] = {}
    for in_turn, group in groupby(messages, key=lambda message: isinstance(message, (UserMessage, ToolMessage))):
        run = list(group)
        if in_turn:
            places = [place for place, message in enumerate(run) if message.tool_call_id is not None]
            in_order = sorted((run[place] for place in places), key=lambda m: order.get(m.tool_call_id or "", 0))
            for place, message in zip(places, in_order):
                run[place] = message
        else:
            for message in run:
                if message.tool_calls:
                    order = {call.id: place for place, call in reversed(list(enumerate(message.tool_calls)))}
        result += run
    return result


@dataclass(frozen=True, slots=True)
class _Head:
    """What the first system block holds besides its message: before the content, and after it."""

    before: str = ""
    after: Pieces = field(default_factory=list)

    @classmethod
    def of(cls, conversation: Conversation, marks: Marks) -> _Head:
        before = ""
        if conversation.thinking_mode:
            number = _EFFORT_NUMBER[conversation.reasoning_effort]
            before = (
                f"Reasoning Effort: {number} (range 1-100, the higher the value, the more thorough the reasoning)\n\n"
            )
        after: Pieces = []
        if conversation.tools_in_effect:
            after += ["\n\n", *MARKUP.tools_block(conversation.tools, marks)]
        if _has_format(conversation):
            schema: JsonValue = {"type": "json_object"}
            if conversation.response_format == "json_schema":
                schema = conversation.response_schema
            after += ["\n\n", schema_format_text(schema, MARKUP)]
        return cls(before, after)


def _has_format(conversation: Conversation) -> bool:
    return conversation.response_format in ("json_schema", "json_object")


def _has_head(conversation: Conversation) -> bool:
    """Whether there is a system block even when no system message begins the conversation."""
    effort = conversation.thinking_mode and bool(conversation.messages)
    return effort or conversation.tools_in_effect or _has_format(conversation)


def _system_pieces(message: SystemMessage, head: _Head, marks: Marks) -> Pieces:
    pieces: Pieces = [marks.system, head.before, *content_pieces(message), *head.after]
    if message.tools:
        pieces.append(f"\n\n### Updated Tool Schemas\n\n{MARKUP.tool_lines(message.tools)}")
    return pieces


def _message_pieces(message: Message, before: Message | None, conversation: Conversation, marks: Marks) -> Pieces:
    if isinstance(message, AssistantMessage):
        return _assistant_pieces(message, before is None, conversation, marks)
    if isinstance(message, SystemMessage):
        head = _Head.of(conversation, marks) if before is None else _Head()
        return _system_pieces(message, head, marks)
    content = content_pieces(message)
    if isinstance(message, LatestReminder):
        is_repeated = isinstance(before, LatestReminder)
        return [] if is_repeated else [marks.latest_reminder, *content]
    if isinstance(message, ToolMessage):
        content = ["<tool_result>", *content, "</tool_result>"]
    joins = isinstance(before, (UserMessage, ToolMessage))
    return ["\n\n" if joins else marks.user, *content]


def _assistant_pieces(message: AssistantMessage, is_first: bool, conversation: Conversation, marks: Marks) -> Pieces:
    pieces: Pieces = [marks.assistant]
    shows_reasoning = conversation.thinking_mode and (
        conversation.tools_in_effect or (message.prefix and (not is_first or _has_format(conversation)))
    )
    if shows_reasoning:
        pieces += [
            marks.thinking_start,
            *marks.assistant_text(message.reasoning_content or ""),
        ]
    continues_reasoning = shows_reasoning and message.prefix and not message.content and not message.tool_calls
    if not continues_reasoning:
        pieces.append(marks.thinking_end)
    pieces += marks.assistant_text(message.content)
    if message.tool_calls:
        pieces += MARKUP.calls_block(message.tool_calls, marks)
    if not message.prefix:
        pieces.append(marks.eos)
    return pieces


TEMPLATE = V41Template()
