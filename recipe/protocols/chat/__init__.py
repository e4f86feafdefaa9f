"""Chat Completions: requests and their conversations."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from ...conversation import Conversation, Message
from ...errors import ConversionError
from ...options import ConversionOptions, InferenceOptions
from ...requests import common
from ...requests.converted import AnswerSettings, ConversationRequest
from ...requests.formats import RequestedFormat, format_constraint, output_constraint, parsing_options
from ...requests.tools import check_strict, check_tool_name, select_tools
from ...versions import ModelVersion
from ..base import Protocol
from .body import BODY, ChatBody
from .history import History


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatAnswer(AnswerSettings):
    """What the events of a Chat Completions response need of the request."""

    include_usage: bool = False


def _convert(body: ChatBody, options: ConversionOptions) -> ConversationRequest:
    version = common.resolve_version(body.model, options)
    for index, tool in enumerate(body.tools):
        check_tool_name(tool.name, f"tools[{index}].function.name")
    if not body.messages:
        raise ConversionError("Empty input messages")
    messages = History(body.messages, version, options).read()
    thinking = common.resolve_thinking(body.thinking, body.reasoning_effort, options)
    reasoned = common.fill_reasoning(
        messages, thinking.on, bool(body.tools), options.reasoning_content_behavior, "reasoning_content"
    )
    requested = body.response_format or RequestedFormat()
    _check_prefix(messages)
    _check_json_object(messages, requested)
    tools = select_tools(body.tools, body.tool_choice, thinking.on)
    _check_prefix_alone(messages, body, requested)
    stop = common.check_stop_sequences(body.stop)
    if body.stream_options is not None and not body.stream:
        raise ConversionError("stream_options should be set along with stream = true")
    of_format = format_constraint(requested)
    check_strict(tools, has_format=body.response_format is not None)
    inference = _inference_options(body, version, thinking.on, tools.in_effect, options)
    return ConversationRequest(
        Conversation(
            reasoned,
            thinking_mode=thinking.on,
            tools=tools.tools,
            tool_choice=tools.choice,
            reasoning_effort=thinking.effort,
            response_format="json_object" if requested.kind == "json_object" else "text",
            response_schema=requested.schema,
            response_regex=requested.regex,
        ),
        version,
        dataclasses.replace(inference, output_constraint=output_constraint(tools, of_format)),
        parsing_options(messages, thinking.on, tools, requested.kind, stop, options),
        stream=body.stream,
        answer=ChatAnswer(include_usage=body.stream_options is not None and body.stream_options.include_usage),
    )


def _check_prefix(messages: list[Message]) -> None:
    if any(message.prefix for message in messages[:-1]):
        raise ConversionError(
            "Invalid completion message: prefix set true with message which is not final message "
            "or message role is not assistant"
        )


def _check_json_object(messages: list[Message], requested: RequestedFormat) -> None:
    if requested.kind == "json_object" and not common.mentions_json(messages):
        raise ConversionError(
            "Prompt must contain the word 'json' in some form to use 'response_format' of type 'json_object'."
        )


def _check_prefix_alone(messages: list[Message], body: ChatBody, requested: RequestedFormat) -> None:
    """A prefix goes neither with JSON mode nor with tools, declared or in the history."""
    if not (messages and messages[-1].prefix):
        return
    if requested.kind == "json_object":
        raise ConversionError("response_format json_object should not be used with prefix")
    if body.tools or any(message.tool_calls or message.role == "tool" for message in messages):
        raise ConversionError("Function call should not be used with prefix")


def _inference_options(
    body: ChatBody, version: ModelVersion, thinking: bool, tools_in_effect: bool, options: ConversionOptions
) -> InferenceOptions:
    if body.n is not None and body.n != 1:
        raise ConversionError("Invalid n value (currently only n = 1 is supported)")
    for name in ("presence_penalty", "frequency_penalty"):
        penalty = getattr(body, name)
        if penalty is not None and not -2 <= penalty <= 2:
            raise ConversionError(f"Invalid {name} value, the valid range of {name} is [-2, 2]")
    sampling = common.resolve_sampling(body.temperature, body.top_p, version, thinking, tools_in_effect)
    if body.top_logprobs is not None and not body.logprobs:
        raise ConversionError(
            "Invalid top_logprobs and logprobs value, logprobs must be set to true if top_logprobs is used."
        )
    common.check_top_logprobs(body.top_logprobs)
    common.check_max_tokens(body.max_tokens, thinking, options)
    common.check_seed(body.seed)
    return InferenceOptions(
        max_tokens=body.max_tokens,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        logprobs=body.logprobs,
        top_logprobs=body.top_logprobs,
        seed=body.seed,
    )


PROTOCOL = Protocol("chat", "/v1/chat/completions", BODY, _convert)
