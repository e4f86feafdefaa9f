"""Conversions as plain values, from the codec and from the original, to compare."""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

from deepinfer.recipe.errors import ConversionError, InvalidBodyError, InvalidJsonError
from deepinfer.recipe.options import (
    ConversionOptions,
    ReasoningContentBehavior,
    ThinkingInitialStage,
    WebSearchBehavior,
)
from deepinfer.recipe.protocols import protocol
from deepinfer.recipe.quirks import NO_QUIRKS, Quirks
from deepinfer.recipe.versions import model_version

REQUESTS = {"chat": "ChatCompletionRequest", "responses": "ResponsesRequest", "messages": "MessagesRequest"}
STAGES = ("ReasoningStart", "ReasoningContinuation", "ContentContinuation")
_CONVERSATION = ("thinking_mode", "tool_choice", "reasoning_effort", "response_format", "response_schema")
_INFERENCE = ("max_tokens", "temperature", "top_p", "logprobs", "top_logprobs", "seed")
_PARSING = ("parse_tool_calls", "starts_in_tool_calls", "parse_json_output")
_ENUMS: dict[str, Any] = {
    "reasoning_content_behavior": ReasoningContentBehavior,
    "responses_web_search": WebSearchBehavior,
    "messages_web_search": WebSearchBehavior,
}
_ENUM_NAMES = {"FillEmpty": "FILL_EMPTY", "Reject": "REJECT", "Drop": "DROP"}
_SCHEMA_ERRORS = ("Invalid json schema:", "Invalid tool parameters schema :")


def options_of(named: dict[str, Any], quirks: Quirks = NO_QUIRKS) -> ConversionOptions:
    """Options from the names that the recorded cases use."""
    named = dict(named)
    aliases = named.pop("model_aliases", {})
    special_tokens = named.pop("special_tokens", None)
    for name in _ENUMS.keys() & named.keys():
        named[name] = _ENUMS[name][_ENUM_NAMES[named[name]]]
    options = ConversionOptions(**named, quirks=quirks)
    for alias, version in aliases.items():
        options = options.with_model_alias(alias, model_version(version))
    if special_tokens is not None:
        from deepinfer.recipe.special_tokens import SpecialTokens

        options = options.with_special_tokens(SpecialTokens(**special_tokens))
    return options


def convert_ours(name: str, body: Any, options: dict[str, Any], quirks: Quirks = NO_QUIRKS) -> dict[str, Any]:
    """What the codec makes of a request."""
    try:
        chosen = protocol(name)
        request = chosen.convert(chosen.read(body, quirks=quirks), options_of(options, quirks))
    except ConversionError as error:
        return {"error": comparable(str(error))}
    except InvalidBodyError:
        return {"error": "invalid request body"}
    except InvalidJsonError:
        return {"error": "invalid JSON request"}
    stage = request.parsing_options.thinking_initial_stage
    stages = dict(zip(ThinkingInitialStage, STAGES))
    return dump(request, request.model_version.name, stages[stage] if stage else None)


def convert_original(wheel: ModuleType, name: str, body: Any, options: dict[str, Any]) -> dict[str, Any]:
    """What the original makes of it."""
    named = dict(options)
    for option in _ENUMS.keys() & named.keys():
        kind = "ReasoningContentBehavior" if option.startswith("reasoning") else "WebSearchBehavior"
        named[option] = getattr(getattr(wheel, kind), named[option])
    try:
        request = getattr(wheel, REQUESTS[name])(body).convert(wheel.ConversionOptions(**named))
    except wheel.ConversionError as error:
        return {"error": comparable(str(error))}
    except ValueError as error:
        return {"error": str(error).partition(":")[0]}
    stage = request.parsing_options.thinking_initial_stage
    stages = [known for known in STAGES if stage is not None and stage == getattr(wheel.ThinkingInitialStage, known)]
    version = "DeepseekV4Pro" if request.model_version == wheel.ModelVersion.DeepseekV4Pro else "DeepseekV41Flash"
    return dump(request, version, stages[0] if stages else None)


def comparable(message: str) -> str:
    """An error text without what need not be equal: a validator's words, and which of several calls has no output."""
    for start in _SCHEMA_ERRORS:
        if message.startswith(start):
            return start
    if message.startswith("Invalid schema for function") and "schema must be a JSON Schema of" not in message:
        return message.partition(": ")[0]
    if message.startswith("No tool output found for tool call"):
        return "No tool output found for tool call"
    return message


def dump(request: Any, version: str, stage: str | None) -> dict[str, Any]:
    conversation, inference, parsing = request.conversation, request.inference_options, request.parsing_options
    constraint = inference.output_constraint
    return {
        "conversation": {name: getattr(conversation, name) for name in (*_CONVERSATION, "response_regex")},
        "messages": [dump_message(message) for message in conversation.messages],
        "tools": [dump_tool(tool) for tool in conversation.tools],
        "inference": {name: getattr(inference, name) for name in _INFERENCE},
        "constraint": constraint and [constraint.kind, constraint.schema],
        "parsing": {name: getattr(parsing, name) for name in _PARSING},
        "stop": list(parsing.stop_sequences),
        "stage": stage,
        "stream": request.stream,
        "version": version,
    }


def dump_tool(tool: Any) -> dict[str, Any]:
    return {name: getattr(tool, name) for name in ("name", "description", "parameters", "strict", "defer_loading")}


def dump_message(message: Any) -> dict[str, Any]:
    result = {name: getattr(message, name) for name in ("role", "content", "reasoning_content", "tool_call_id")}
    calls = message.tool_calls
    result["prefix"] = message.prefix
    result["tool_calls"] = None if calls is None else [[call.id, call.name, call.arguments] for call in calls]
    result["images"] = [
        [source.kind, source.detail, source.path, source.url or source.data_url] for source in message.image_sources
    ]
    if message.role == "system":
        result["tools"] = None if message.tools is None else [dump_tool(tool) for tool in message.tools]
    return result


def as_text(value: Any) -> str:
    """Values as text, in which 1 is not 1.0 and the order of keys counts."""
    return json.dumps(value, ensure_ascii=False)
