"""Messages: requests and their conversations."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from ...conversation import Conversation, Message, SystemMessage, ToolDefinition
from ...errors import ConversionError
from ...options import ConversionOptions, InferenceOptions, WebSearchBehavior
from ...requests import common
from ...requests.converted import AnswerSettings, ConversationRequest
from ...requests.formats import output_constraint, parsing_options
from ...requests.tools import (
    AUTO,
    RequestedChoice,
    ToolSelection,
    check_tool_name,
    select_tools,
    unknown_tool,
)
from ...versions import ModelVersion
from ..base import Protocol
from .body import BODY, MessagesBody, ServerTool
from .history import History

__all__ = ["PROTOCOL", "MessagesAnswer"]

_BILLING_HEADER = "x-anthropic-billing-header"
_WEB_SEARCH = "web_search"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagesAnswer(AnswerSettings):
    """What the events of a Messages response need of the request: nothing that the conversation does not say."""


def _convert(body: MessagesBody, options: ConversionOptions) -> ConversationRequest:
    version = common.resolve_version(body.model, options)
    declared = _tools(body, version, options)
    if not body.messages:
        raise ConversionError("messages: at least one message is required")
    messages: list[Message] = [] if body.system is None else [SystemMessage(_system_text(body.system))]
    messages += History(declared, version, options).read(body.messages)
    thinking = common.resolve_thinking(body.thinking, body.output_config, options)
    reasoned: Sequence[Message] = common.fill_reasoning(
        messages, thinking.on, bool(body.tools), options.reasoning_content_behavior, "content[].thinking"
    )
    tools = select_tools(declared, _tool_choice(body), thinking.on, parameters_required=True)
    stop = common.check_stop_sequences(body.stop_sequences)
    inference = _inference_options(body, version, thinking.on, tools.in_effect, options)
    reasoned = _with_kept_tools(reasoned, tools)
    return ConversationRequest(
        Conversation(
            tuple(reasoned),
            thinking_mode=thinking.on,
            tools=tools.tools,
            tool_choice=tools.choice,
            reasoning_effort=thinking.effort,
        ),
        version,
        dataclasses.replace(inference, output_constraint=output_constraint(tools, None)),
        parsing_options(messages, thinking.on, tools, "text", stop, options),
        stream=body.stream,
        answer=MessagesAnswer(),
    )


def _tools(body: MessagesBody, version: ModelVersion, options: ConversionOptions) -> list[ToolDefinition]:
    """The tools that the model can call.

    Raises:
        ConversionError: a server tool, a name that is not allowed, or none that is loaded.
    """
    tools: list[ToolDefinition] = []
    dropped = options.messages_web_search is WebSearchBehavior.DROP
    for index, tool in enumerate(body.tools):
        if isinstance(tool, ServerTool):
            if not (dropped and tool.type.startswith(_WEB_SEARCH)):
                raise ConversionError(f"tools[{index}]: server tools are not supported")
            continue
        check_tool_name(tool.name, f"tools[{index}].name")
        deferred = tool.defer_loading and version.tools_in_system
        tools.append(ToolDefinition(tool.name, tool.description, tool.input_schema, defer_loading=deferred))
    if tools and all(tool.defer_loading for tool in tools):
        raise ConversionError("tools: at least one tool must have defer_loading=false. All tools cannot be deferred.")
    return tools


def _tool_choice(body: MessagesBody) -> RequestedChoice:
    """The choice; naming a server tool that was dropped is none.

    Raises:
        ConversionError: another tool is named while all tools were dropped.
    """
    dropped = {tool.name for tool in body.tools if isinstance(tool, ServerTool)}
    name = body.tool_choice.name
    if name is None or name not in dropped:
        if name is not None and body.tools and all(isinstance(tool, ServerTool) for tool in body.tools):
            raise unknown_tool(name)
        return body.tool_choice
    return AUTO


def _system_text(system: str | Sequence[str]) -> str:
    if isinstance(system, str):
        return system
    if system and system[0][: len(_BILLING_HEADER)].lower() == _BILLING_HEADER:
        system = system[1:]
    return "\n\n".join(system)


def _with_kept_tools(messages: Sequence[Message], tools: ToolSelection) -> list[Message]:
    """The messages with the tools that they bring, less those that the choice left out."""
    kept_names = {tool.name for tool in tools.tools}
    result: list[Message] = []
    for message in messages:
        if isinstance(message, SystemMessage) and message.tools is not None:
            kept = tuple(tool for tool in message.tools if tool.name in kept_names)
            if not kept and not message.content:
                continue
            message = dataclasses.replace(message, tools=kept)
        result.append(message)
    return result


def _inference_options(
    body: MessagesBody, version: ModelVersion, thinking: bool, tools_in_effect: bool, options: ConversionOptions
) -> InferenceOptions:
    sampling = common.resolve_sampling(body.temperature, body.top_p, version, thinking, tools_in_effect)
    bound = options.max_tokens_upper_bound(thinking)
    max_tokens = body.max_tokens if body.max_tokens is None else min(body.max_tokens, bound)
    common.check_max_tokens(max_tokens, thinking, options)
    return InferenceOptions(max_tokens=max_tokens, temperature=sampling.temperature, top_p=sampling.top_p)


PROTOCOL = Protocol("messages", "/v1/messages", BODY, _convert)
