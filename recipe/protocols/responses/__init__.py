"""Responses: requests and their conversations."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ...conversation import Conversation, Message, SystemMessage, UserMessage
from ...errors import ConversionError
from ...options import ConversionOptions, InferenceOptions, WebSearchBehavior
from ...requests import apply_patch, common
from ...requests.converted import AnswerSettings, ConversationRequest
from ...requests.formats import format_constraint, output_constraint, parsing_options
from ...requests.tools import ToolSelection, check_strict, select_tools
from ...versions import ModelVersion
from ..base import Protocol
from .body import BODY, CustomTool, FunctionTool, NamespaceTool, ResponsesBody, Tool, ToolSearchTool, UnknownTool
from .echo import ResponsesEcho, echo_of
from .history import History
from .tools import ToolTable, read_tools

__all__ = ["PROTOCOL", "ResponsesAnswer", "ResponsesEcho", "echo_of", "namespace_tool_map"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponsesAnswer(AnswerSettings):
    """What the events of a response need of the request.

    Args:
        namespace_tool_map: namespace and local name of the functions that have one, by the name that the model knows.
        custom_tools: names of the functions that the request declared as custom tools.
        tool_search: whether calls of `tool_search` are searches that the client runs.
    """

    echo: ResponsesEcho = field(default_factory=ResponsesEcho)
    namespace_tool_map: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    custom_tools: frozenset[str] = frozenset()
    tool_search: bool = False


def namespace_tool_map(body: ResponsesBody, options: ConversionOptions) -> dict[str, tuple[str, str]]:
    """Namespace and local name of the declared functions that have one, by the name that the model knows.

    Raises:
        ConversionError: the model is not known, or a tool is declared in a way that is not allowed.
    """
    version = common.resolve_version(body.model, options)
    # Tools without a name of their own choosing are not looked at; what takes their place keeps the others' indices.
    named: list[Tool] = [
        tool if isinstance(tool, FunctionTool | NamespaceTool) else UnknownTool() for tool in body.tools
    ]
    return read_tools(named, [], version, options).namespaces


def _convert(body: ResponsesBody, options: ConversionOptions) -> ConversationRequest:
    version = common.resolve_version(body.model, options)
    items = body.input if isinstance(body.input, list) else []
    table = read_tools(body.tools, items, version, options)
    messages = _messages(body, table, version, options)
    thinking = common.resolve_thinking(None, body.reasoning.effort, options)
    reasoned: Sequence[Message] = common.fill_reasoning(
        messages, thinking.on, bool(table.all), options.reasoning_content_behavior, "reasoning_text"
    )
    if body.tool_choice.web_search and options.responses_web_search is WebSearchBehavior.REJECT:
        raise ConversionError("Server tools are not supported")
    tools = select_tools(table.all, body.tool_choice.choice, thinking.on)
    requested = body.text.format.format
    if requested.kind == "json_object" and not common.mentions_json(messages):
        raise ConversionError(
            "Response input messages must contain the word 'json' in some form "
            "to use 'text.format' of type 'json_object'."
        )
    of_format = format_constraint(requested)
    check_strict(tools, has_format=requested.kind != "text")
    inference = _inference_options(body, version, thinking.on, tools.in_effect, options)
    reasoned = _with_settled_tools(reasoned, tools)
    return ConversationRequest(
        Conversation(
            tuple(reasoned),
            thinking_mode=thinking.on,
            tools=tools.tools,
            tool_choice=tools.choice,
            reasoning_effort=thinking.effort,
            response_format="json_object" if requested.kind == "json_object" else "text",
            response_schema=requested.schema,
        ),
        version,
        dataclasses.replace(inference, output_constraint=output_constraint(tools, of_format)),
        parsing_options(messages, thinking.on, tools, requested.kind, (), options),
        stream=body.stream,
        answer=_answer(body, table),
    )


def _messages(
    body: ResponsesBody, table: ToolTable, version: ModelVersion, options: ConversionOptions
) -> list[Message]:
    if body.input is None and not body.instructions:
        raise ConversionError("Either input or instructions must be provided")
    messages: list[Message] = [SystemMessage(body.instructions)] if body.instructions else []
    if isinstance(body.input, str):
        messages.append(UserMessage(body.input))
    elif body.input is not None:
        if not body.input:
            raise ConversionError("Input items array must not be empty")
        messages += History(table, version, options).read(body.input)
    return messages


def _with_settled_tools(messages: Sequence[Message], tools: ToolSelection) -> list[Message]:
    """The messages with the tools that they bring as they were settled, less those that the choice left out."""
    settled = {tool.name: tool for tool in tools.tools}
    result: list[Message] = []
    for message in messages:
        if isinstance(message, SystemMessage) and message.tools is not None:
            kept = tuple(settled[tool.name] for tool in message.tools if tool.name in settled)
            if not kept:
                continue
            message = dataclasses.replace(message, tools=kept)
        result.append(message)
    return result


def _inference_options(
    body: ResponsesBody, version: ModelVersion, thinking: bool, tools_in_effect: bool, options: ConversionOptions
) -> InferenceOptions:
    sampling = common.resolve_sampling(body.temperature, body.top_p, version, thinking, tools_in_effect)
    common.check_top_logprobs(body.top_logprobs)
    common.check_max_tokens(body.max_output_tokens, thinking, options)
    return InferenceOptions(
        max_tokens=body.max_output_tokens,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        logprobs=body.top_logprobs is not None,
        top_logprobs=body.top_logprobs,
    )


def _answer(body: ResponsesBody, table: ToolTable) -> ResponsesAnswer:
    custom = any(isinstance(tool, CustomTool) for tool in body.tools)
    return ResponsesAnswer(
        echo=echo_of(body),
        namespace_tool_map=table.namespaces,
        custom_tools=frozenset({apply_patch.NAME} if custom else ()),
        tool_search=any(isinstance(tool, ToolSearchTool) and tool.execution == "client" for tool in body.tools),
    )


PROTOCOL = Protocol("responses", "/v1/responses", BODY, _convert)
