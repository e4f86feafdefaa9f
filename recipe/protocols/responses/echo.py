"""What responses repeat of their request."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...json_text import JsonValue
from .body import ResponsesBody
from .tools import tool_as_json


def _nothing_about_reasoning() -> JsonValue:
    return {"effort": None, "summary": None}


def _plain_text() -> JsonValue:
    return {"format": {"type": "text"}, "verbosity": None}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponsesEcho:
    """Settings of a request as its responses repeat them; the defaults are those of a request that says nothing.

    Args:
        temperature, top_p: as requested, rounded to 32 bits; `requests.common.shortest_single` is how they are printed.
    """

    instructions: str | None = None
    max_output_tokens: int | None = None
    reasoning: JsonValue = field(default_factory=_nothing_about_reasoning)
    temperature: float = 1.0
    top_p: float = 1.0
    text: JsonValue = field(default_factory=_plain_text)
    tool_choice: JsonValue = "auto"
    tools: tuple[JsonValue, ...] = ()
    top_logprobs: int = 0
    user: str | None = None


def echo_of(body: ResponsesBody) -> ResponsesEcho:
    reasoning = body.reasoning
    tools = (tool_as_json(tool) for tool in body.tools)
    return ResponsesEcho(
        instructions=body.instructions,
        max_output_tokens=body.max_output_tokens,
        reasoning={"effort": reasoning.effort, "summary": reasoning.summary or reasoning.generate_summary},
        temperature=1.0 if body.temperature is None else body.temperature,
        top_p=1.0 if body.top_p is None else body.top_p,
        text={"format": body.text.format.sent, "verbosity": body.text.verbosity},
        tool_choice=body.tool_choice.sent,
        tools=tuple(tool for tool in tools if tool is not None),
        top_logprobs=body.top_logprobs or 0,
        user=body.user,
    )
