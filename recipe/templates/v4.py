"""The prompts of DeepSeek V4.

All system messages stand at the front, before the first role token. Calls and their results are sorted by id. Tool
results are part of the user's turn.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

from ..conversation import (
    AssistantMessage,
    Conversation,
    ImageSource,
    LatestReminder,
    Message,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
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

VERSION = ModelVersion(
    key="v4",
    name="DeepseekV4Pro",
    model_name="DeepSeek-V4-Pro",
    images=False,
    system_in_place=False,
    tools_in_system=False,
    namespace_separator="__",
    namespace_descriptions=False,
    blank_line_before_patch=False,
    minimum_thinking_top_p=None,
)

MARKUP = ToolMarkup(
    calls="tool_calls", invoke="invoke", parameter="parameter", python_floats=False, empty_line_for_none=False
)

_ABSOLUTE_MAXIMUM = """\
Reasoning Effort: Absolute maximum with no shortcuts permitted.
You MUST be very thorough in your thinking and comprehensively decompose the problem to resolve the root cause, \
rigorously stress-testing your logic against all potential paths, edge cases, and adversarial scenarios.
Explicitly write out your entire deliberation process, documenting every intermediate step, considered alternative, \
and rejected hypothesis to ensure absolutely no assumption is left unchecked.

"""
_BEYOND_MAXIMUM = """\
Reasoning Effort: Beyond maximum — exhaustive, relentless, and uncompromising.
You MUST reason with the utmost depth and rigor, leaving absolutely nothing to chance: exhaustively decompose the \
problem into its most fundamental components, trace every causal chain to its root, and resolve the underlying cause \
rather than any surface symptom.
Do not stop reasoning until you have independently verified the solution from multiple angles and are certain that no \
assumption remains unchecked and no error remains undiscovered.

"""
_EFFORT_TEXT = {None: _ABSOLUTE_MAXIMUM, "low": "", "high": _ABSOLUTE_MAXIMUM, "xhigh": _ABSOLUTE_MAXIMUM}
_EFFORT_TEXT["max"] = _BEYOND_MAXIMUM

_JSON_FORMAT_TEXT = """\
You are a helpful assistant designed to output JSON.
## Response Format:

Reply with JSON object ONLY."""


@dataclass(slots=True)
class Turn:
    """A message to render. Adjacent user messages have become one turn."""

    message: Message
    content: Pieces
    images: list[ImageSource]

    @classmethod
    def of(cls, message: Message) -> Turn:
        return cls(message, content_pieces(message) if message.content else [], list(message.image_sources))

    def append(self, message: Message) -> None:
        """Adds another message's content after a blank line. Empty contents leave none."""
        if message.content:
            self.content += (["\n\n"] if self.content else []) + content_pieces(message)
        self.images += message.image_sources


@dataclass(frozen=True, slots=True)
class V4Template:
    """Renders the prompts of V4."""

    version: ModelVersion = VERSION
    markup: ToolMarkup = MARKUP

    def render(self, conversation: Conversation, special_tokens: SpecialTokens) -> Prompt:
        marks = marks_of(special_tokens)
        system = Turn(SystemMessage(""), [], [])
        for message in conversation.messages:
            if isinstance(message, SystemMessage) and message.content:
                system.append(message)
        turns = sort_by_call_id(merge_users(conversation.messages))
        pieces: Pieces = [marks.bos]
        pieces += _head(conversation, system.content, marks)
        before: Message | None = None
        for index, turn in enumerate(turns):
            is_last = index == len(turns) - 1
            pieces += _turn_pieces(turn, before, is_last, conversation, marks)
            before = turn.message
        pieces += opening(conversation, [turn.message for turn in turns], marks)
        if is_call_required(conversation):
            pieces += MARKUP.open_calls(marks)
        return Prompt.from_pieces(pieces, chain(system.images, *(turn.images for turn in turns)))


def merge_users(messages: Iterable[Message]) -> list[Turn]:
    """The messages but the system's. User messages that are then adjacent are merged."""
    turns: list[Turn] = []
    for message in messages:
        if isinstance(message, SystemMessage):
            continue
        if turns and isinstance(message, UserMessage) and isinstance(turns[-1].message, UserMessage):
            turns[-1].append(message)
        else:
            turns.append(Turn.of(message))
    return turns


def sort_by_call_id(turns: list[Turn]) -> list[Turn]:
    """Sorts as many turns after an assistant turn as it has calls: results first, by their id, those without id ahead.

    Which turns and how many is settled before anything moves. With fewer turns left nothing is sorted. The calls
    themselves are sorted when they are rendered.
    """
    turns = list(turns)
    counts = [(start, len(calls)) for start, turn in enumerate(turns, 1) if (calls := turn.message.tool_calls)]
    for start, count in counts:
        if start + count <= len(turns):
            turns[start : start + count] = sorted(turns[start : start + count], key=_result_order)
    return turns


def _result_order(turn: Turn) -> tuple[bool, bool, str]:
    call_id = turn.message.tool_call_id
    return (not isinstance(turn.message, ToolMessage), call_id is not None, call_id or "")


def _head(conversation: Conversation, system: Pieces, marks: Marks) -> Pieces:
    """Effort, system messages, tools and response format."""
    pieces: Pieces = [_EFFORT_TEXT[conversation.reasoning_effort] if conversation.thinking_mode else "", *system]
    if conversation.tools_in_effect:
        pieces += ["\n\n", *MARKUP.tools_block(conversation.tools, marks)]
    if conversation.response_format == "json_schema":
        pieces += ["\n\n", schema_format_text(conversation.response_schema, MARKUP)]
    elif conversation.response_format == "json_object":
        pieces += ["\n\n", _JSON_FORMAT_TEXT]
    return pieces


def _turn_pieces(turn: Turn, before: Message | None, is_last: bool, conversation: Conversation, marks: Marks) -> Pieces:
    message = turn.message
    if isinstance(message, AssistantMessage):
        return _assistant_pieces(message, is_last, conversation, marks)
    if isinstance(message, LatestReminder):
        return [marks.latest_reminder, *turn.content]
    if isinstance(message, ToolMessage):
        joins = isinstance(before, ToolMessage)
        content = ["<tool_result>", *turn.content, "</tool_result>"]
    else:
        joins = isinstance(before, (UserMessage, ToolMessage))
        content = turn.content
    return ["\n\n" if joins else marks.user, *content]


def _assistant_pieces(message: AssistantMessage, is_last: bool, conversation: Conversation, marks: Marks) -> Pieces:
    pieces: Pieces = [marks.assistant]
    if message.reasoning_content is not None and (conversation.tools_in_effect or message.prefix):
        pieces += [marks.thinking_start, *marks.assistant_text(message.reasoning_content)]
    continues_reasoning = message.prefix and not message.content and conversation.thinking_mode
    if not continues_reasoning:
        pieces.append(marks.thinking_end)
    pieces += marks.assistant_text(message.content)
    if message.tool_calls is not None:
        calls = sorted(message.tool_calls, key=lambda call: call.id)
        pieces += MARKUP.calls_block(calls, marks)
    if not (message.prefix and is_last):
        pieces.append(marks.eos)
    return pieces


TEMPLATE = V4Template()
