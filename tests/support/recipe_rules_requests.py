"""The rules of requests: what the protocols share, and what each has of its own; and every error text."""

# ruff: noqa: E501 - the rows of the tables
from __future__ import annotations

import json
from functools import cached_property
from typing import Any

from recipe_rules import ErrorText, Rule


def has_type(value: Any, *kinds: str) -> bool:
    """Whether some object in a value is of one of these types."""
    if isinstance(value, dict):
        return value.get("type") in kinds or any(has_type(item, *kinds) for item in value.values())
    return isinstance(value, list) and any(has_type(item, *kinds) for item in value)


class View:
    """A request of one protocol, and its result."""

    def __init__(self, case: dict[str, Any], result: dict[str, Any]) -> None:
        self.case = case
        self.protocol = case["protocol"]
        sent = isinstance(case.get("request"), dict) and "request_text" not in case and "request_python" not in case
        self.body = {"messages": [], **case["request"]} if sent and "error" not in result else {"messages": []}
        self.result = result
        self.error = result.get("error") or {}
        self.exception = self.error.get("exception", "")
        self.is_valid = not self.error
        self.extra = result.get("extra") or {}
        self.options = case.get("options", {})
        self.conversation = result.get("conversation") or {}
        self.inference = result.get("inference_options") or {}
        self.parsing = result.get("parsing_options") or {}
        self.messages = self.conversation.get("messages") or []
        self.thinking = self.conversation.get("thinking_mode")
        self.effort = self.conversation.get("reasoning_effort")
        self.tools = self.conversation.get("tools") or []
        self.choice = self.conversation.get("tool_choice")
        self.in_effect = bool(self.tools) and self.choice != "none"
        self.v41 = result.get("model_version") == "DeepseekV41Flash"
        self.v4 = result.get("model_version") == "DeepseekV4Pro"
        self.chat = self.is_valid and self.protocol == "chat"
        self.responses = self.is_valid and self.protocol == "responses"
        self.anthropic = self.is_valid and self.protocol == "messages"

    @cached_property
    def explicit(self) -> str | None:
        """What the request says of thinking itself."""
        return (self.body.get("thinking") or {}).get("type") if self.protocol != "responses" else None

    @cached_property
    def word(self) -> str | None:
        """The request's word for effort."""
        if self.protocol == "chat":
            return self.body.get("reasoning_effort")
        return (self.body.get("reasoning" if self.protocol == "responses" else "output_config") or {}).get("effort")

    @cached_property
    def max_tokens(self) -> Any:
        return self.body.get("max_output_tokens" if self.protocol == "responses" else "max_tokens")

    @cached_property
    def constraint(self) -> dict[str, str]:
        return self.inference.get("output_constraint") or {}

    @cached_property
    def strict(self) -> str:
        """The strict schemas that the result holds, as JSON."""
        if self.constraint.get("kind") == "json":
            return self.constraint["schema"] if "additionalProperties" in self.constraint["schema"] else ""
        return json.dumps([tool["parameters"] for tool in self.tools if tool["strict"]]) if self.in_effect else ""

    @cached_property
    def roles(self) -> list[str]:
        return [message["role"] for message in self.messages]

    @cached_property
    def images(self) -> list[dict[str, Any]]:
        return [source for message in self.messages for source in message["image_sources"]]

    @cached_property
    def named(self) -> list[Any]:
        """Final names of namespaced functions, each with namespace and local name."""
        names = self.extra.get("names")
        return names if isinstance(names, list) else []

    @cached_property
    def tokens(self) -> list[Any]:
        return list(zip(self.case.get("extra") or [], self.extra.get("tokens") or []))

    def sent(self, *kinds: str) -> bool:
        return has_type(self.body, *kinds)

    def content(self, text: str) -> bool:
        return any(text in message["content"] for message in self.messages)


def _words(*words: str, on: bool, stored: str | None) -> Any:
    def met(view: View) -> bool:
        alone = view.explicit is None
        return bool(view.is_valid and alone and view.word in words and view.thinking is on and view.effort == stored)

    return met


def _strict_kind(kind: str, *names: str) -> Any:
    texts = [f'"type":"{kind}"', f'"type": "{kind}"'] if kind else [""]

    def met(view: View) -> bool:
        text = view.strict
        return any(mark in text for mark in texts) and all(f'"{name}"' in text for name in names)

    return met


_UNSUPPORTED = "[Unsupported Image]"

RULES = [
    Rule("4.1/text", "a request as text", lambda v: "request_text" in v.case or v.case.get("form") == "text"),
    Rule("4.1/python", "a request as Python values", lambda v: v.case.get("form") == "python"),
    Rule("4.1/no-json", "text that is not JSON", lambda v: v.error.get("message", "").startswith("invalid JSON")),
    Rule("4.1/shape", "JSON of another shape", lambda v: v.error.get("message", "").startswith("invalid request body")),
    Rule("4.1/value", "Python: NaN, infinity, a cycle", lambda v: v.exception == "ValueError" and v.case.get("form") == "odd"),
    Rule("4.1/overflow", "Python: an integer beyond 64 bits", lambda v: v.exception == "OverflowError"),
    Rule("4.1/type", "Python: a type that JSON has not", lambda v: v.exception == "TypeError"),
    Rule("4.1/surrogate", "Python: a lone surrogate", lambda v: v.exception == "UnicodeEncodeError"),
    Rule("4.1/depth", "Python: nested too deep", lambda v: v.exception == "RecursionError"),
    Rule("4.1/tuple", "Python: a tuple is an array", lambda v: "tuple" in str(v.case.get("request_python"))),
    Rule("4.1/consumed", "a request that failed is spent", lambda v: "consumed" in str(v.extra.get("again"))),
    Rule("4.2/alias", "another name of a model", lambda v: v.is_valid and v.body.get("model") in v.options.get("model_aliases", {})),
    Rule("4.2/spellings", "other spellings of special tokens", lambda v: v.is_valid and v.options.get("special_tokens")),
    Rule("4.3/enabled", "thinking enabled", lambda v: v.is_valid and v.explicit == "enabled" and v.thinking),
    Rule("4.3/adaptive", "thinking adaptive", lambda v: v.is_valid and v.explicit == "adaptive" and v.thinking),
    Rule("4.3/disabled", "thinking disabled", lambda v: v.is_valid and v.explicit == "disabled" and not v.thinking),
    Rule("4.3/wins-on", "enabled wins over the word none", lambda v: v.is_valid and v.explicit in ("enabled", "adaptive") and v.word == "none" and v.effort == "high"),
    Rule("4.3/wins-off", "disabled wins over a word", lambda v: v.is_valid and v.explicit == "disabled" and v.word not in (None, "none") and not v.thinking),
    Rule("4.3/default-on", "neither: the default, on", lambda v: v.is_valid and v.explicit is None and v.word is None and v.thinking),
    Rule("4.3/default-off", "neither: the default, off", lambda v: v.is_valid and v.explicit is None and v.word is None and v.options.get("default_thinking_mode") is False and not v.thinking),
    Rule("4.3/none", "the word none", _words("none", on=False, stored=None)),
    Rule("4.3/low", "the words minimal, low", _words("minimal", "low", on=True, stored="low")),
    Rule("4.3/high", "the words medium, high", _words("medium", "high", on=True, stored="high")),
    Rule("4.3/xhigh", "the word xhigh", _words("xhigh", on=True, stored="xhigh")),
    Rule("4.3/max", "the words max, ultra", _words("max", "ultra", on=True, stored="max")),
    Rule("4.4/temperature-thinking", "temperature is 1 when thinking", lambda v: v.thinking and v.body.get("temperature") not in (None, 1) and v.inference["temperature"] == 1.0),
    Rule("4.4/temperature", "temperature as requested", lambda v: v.is_valid and not v.thinking and v.body.get("temperature") is not None and v.inference["temperature"] != 1.0),
    Rule("4.4/single", "sampling in 32 bits", lambda v: v.is_valid and v.inference["temperature"] not in (None, v.body.get("temperature")) and not v.thinking and v.body.get("temperature")),
    Rule("4.4/top_p-v4-tools", "V4 thinking with tools: 0.95", lambda v: v.v4 and v.thinking and v.in_effect and 0.9 < v.inference["top_p"] < 1),
    Rule("4.4/top_p-v4-thinking", "V4 thinking without tools: 1", lambda v: v.v4 and v.thinking and not v.in_effect and v.inference["top_p"] == 1),
    Rule("4.4/top_p-v4-off", "V4 off: as requested", lambda v: v.v4 and not v.thinking and v.body.get("top_p") not in (None, 1) and v.inference["top_p"] < 1),
    Rule("4.4/top_p-v41-thinking", "V4.1 thinking: at least 0.95", lambda v: v.v41 and v.thinking and v.body.get("top_p") and v.body["top_p"] < 0.95 and 0.9 < v.inference["top_p"] < 1),
    Rule("4.4/top_p-v41-off", "V4.1 off: 1", lambda v: v.v41 and not v.thinking and v.body.get("top_p") not in (None, 1) and v.inference["top_p"] == 1),
    Rule("4.4/lowered", "Messages lowers to the bound", lambda v: v.anthropic and v.max_tokens is not None and v.inference["max_tokens"] < v.max_tokens),
    Rule("4.4/kept", "max tokens as requested", lambda v: v.is_valid and v.max_tokens is not None and v.inference["max_tokens"] == v.max_tokens),
    Rule("4.4/seed", "a seed", lambda v: v.chat and v.inference["seed"] is not None),
    Rule("4.4/stop", "stop sequences", lambda v: v.parsing.get("stop_sequences")),
    Rule("4.4/resolve-requested", "resolve: requested", lambda v: any(v.inference["max_tokens"] == got for _, got in v.tokens)),
    Rule("4.4/resolve-8192", "resolve: 8192 when off", lambda v: any(got == 8192 for _, got in v.tokens) and not v.thinking),
    Rule("4.4/resolve-65536", "resolve: 65536 when thinking", lambda v: any(got == 65536 for _, got in v.tokens) and v.thinking),
    Rule("4.4/resolve-131072", "resolve: 131072 with effort max", lambda v: any(got == 131072 for _, got in v.tokens) and v.effort == "max"),
    Rule("4.4/resolve-rest", "resolve: what is left of the context", lambda v: any(isinstance(got, int) and got == pair[1] - pair[0] for pair, got in v.tokens)),
    Rule("4.4/resolve-one", "resolve: at least 1", lambda v: any(got == 1 and pair[0] == pair[1] for pair, got in v.tokens)),
    Rule("4.5/none", "choice none: no tools", lambda v: v.is_valid and v.choice == "none" and v.body.get("tools") and not v.tools),
    Rule("4.5/required", "choice required", lambda v: v.is_valid and v.choice == "required" and isinstance(v.body.get("tool_choice"), str)),
    Rule("4.5/named", "a named tool", lambda v: v.is_valid and v.choice == "required" and isinstance(v.body.get("tool_choice"), dict) and len(v.tools) == 1),
    Rule("4.5/no-tools", "required or named without tools is auto", lambda v: v.is_valid and not v.tools and v.choice == "auto" and v.body.get("tool_choice") not in (None, "auto", "none")),
    Rule("4.5/no-parameters", "absent parameters are {}", lambda v: v.is_valid and any(tool["parameters"] == {} for tool in v.tools)),
    Rule("4.5/strict", "strict tools", lambda v: v.is_valid and any(tool["strict"] for tool in v.tools)),
    Rule("4.5/strict-null", "strict tools without parameters", lambda v: v.is_valid and any(tool["strict"] and tool["parameters"] == {"type": "object", "properties": {}, "additionalProperties": False, "required": []} for tool in v.tools)),
    Rule("4.6/object", "strict: an object", _strict_kind("object", "properties")),
    Rule("4.6/description", "strict: a description", _strict_kind("object", "description")),
    Rule("4.6/pattern", "strict: a pattern", _strict_kind("string", "pattern")),
    Rule("4.6/format", "strict: a format", _strict_kind("string", "format")),
    Rule("4.6/enum", "strict: words", _strict_kind("string", "enum")),
    Rule("4.6/number", "strict: a number with bounds", lambda v: _strict_kind("number", "minimum")(v) or _strict_kind("number", "maximum")(v)),
    Rule("4.6/integer", "strict: an integer", _strict_kind("integer")),
    Rule("4.6/multiple", "strict: multipleOf", _strict_kind("", "multipleOf")),
    Rule("4.6/boolean", "strict: a boolean", _strict_kind("boolean")),
    Rule("4.6/null", "strict: null", _strict_kind("null")),
    Rule("4.6/array", "strict: an array", _strict_kind("array", "items")),
    Rule("4.6/list", "strict: several types", lambda v: '"type": [' in v.strict or '"type":[' in v.strict),
    Rule("4.6/any", "strict: anyOf", _strict_kind("", "anyOf")),
    Rule("4.6/ref", "strict: a reference", _strict_kind("", "$ref")),
    Rule("4.7/tool_call", "constraint: tool_call", lambda v: v.constraint.get("kind") == "tool_call"),
    Rule("4.7/tool_call_required", "constraint: tool_call_required", lambda v: v.constraint.get("kind") == "tool_call_required"),
    Rule("4.7/json", "constraint: any JSON", lambda v: v.constraint.get("kind") == "json" and not v.constraint["schema"]),
    Rule("4.7/schema", "constraint: a schema", lambda v: v.constraint.get("kind") == "json" and v.constraint["schema"]),
    Rule("4.7/regex", "constraint: an expression", lambda v: v.constraint.get("kind") == "regex"),
    Rule("4.7/deferred", "constraint: a deferred tool", lambda v: '"defer_loading":true' in v.constraint.get("schema", "")),
    Rule("4.7/none", "no constraint", lambda v: v.is_valid and not v.constraint),
    Rule("4.8/start", "stage: reasoning begins", lambda v: v.parsing.get("thinking_initial_stage") == "ReasoningStart"),
    Rule("4.8/reasoning", "stage: reasoning goes on", lambda v: v.parsing.get("thinking_initial_stage") == "ReasoningContinuation"),
    Rule("4.8/content", "stage: content goes on", lambda v: v.parsing.get("thinking_initial_stage") == "ContentContinuation"),
    Rule("4.8/off", "no stage", lambda v: v.is_valid and v.parsing["thinking_initial_stage"] is None),
    Rule("4.8/in-calls", "the output starts in calls", lambda v: v.parsing.get("starts_in_tool_calls")),
    Rule("4.8/json", "the output is JSON", lambda v: v.parsing.get("parse_json_output")),
    Rule("4.9/dropped", "not thinking: no reasoning", lambda v: v.is_valid and v.thinking is False and "assistant" in v.roles),
    Rule("4.9/filled", "thinking: reasoning is filled", lambda v: v.thinking and any(m["role"] == "assistant" and m["reasoning_content"] == "" for m in v.messages)),
    Rule("5/parts", "chat: parts of a message", lambda v: v.chat and any(isinstance(m.get("content"), list) and len(m["content"]) > 1 for m in v.body["messages"])),
    Rule("5/no-parts", "chat: an empty list of parts", lambda v: v.chat and any(m.get("content") == [] for m in v.body["messages"])),
    Rule("5/empty-system", "chat: empty system messages are dropped", lambda v: v.chat and sum(m["role"] == "system" for m in v.body["messages"]) > v.roles.count("system")),
    Rule("5/null", "chat: calls without content", lambda v: v.chat and any(m["role"] == "assistant" and m.get("content") is None for m in v.body["messages"])),
    Rule("5/calls", "chat: calls and results", lambda v: v.chat and "tool" in v.roles),
    Rule("5/prefix", "chat: a prefix", lambda v: v.chat and v.messages and v.messages[-1]["prefix"]),
    Rule("5/unsupported", "chat: V4 has no images", lambda v: v.chat and v.v4 and v.content(_UNSUPPORTED)),
    Rule("5/image", "chat: V4.1 images", lambda v: v.chat and v.images),
    Rule("5/detail", "chat: detail of an image", lambda v: v.chat and any(source["detail"] != "high" for source in v.images)),
    Rule("5/logprobs", "chat: log probabilities", lambda v: v.chat and v.inference["logprobs"] and v.inference["top_logprobs"]),
    Rule("5/schema", "chat: a schema", lambda v: v.chat and v.conversation["response_format"] == "json_schema"),
    Rule("5/regex", "chat: an expression", lambda v: v.chat and v.conversation["response_format"] == "regex"),
    Rule("5/usage", "chat: stream options", lambda v: v.chat and v.body.get("stream_options")),
    Rule("6/text", "Responses: input is a text", lambda v: v.responses and isinstance(v.body.get("input"), str)),
    Rule("6/instructions", "Responses: instructions", lambda v: v.responses and v.body.get("instructions")),
    Rule("6/developer-v4", "Responses: V4 developer is a user", lambda v: v.responses and v.v4 and any(item.get("role") == "developer" for item in v.body.get("input") or () if isinstance(item, dict))),
    Rule("6/developer-v41", "Responses: V4.1 developer is a system", lambda v: v.responses and v.v41 and any(item.get("role") == "developer" for item in v.body.get("input") or () if isinstance(item, dict))),
    Rule("6/ignored", "Responses: unknown items", lambda v: v.responses and v.sent("item_reference", "mcp_call", "zz")),
    Rule("6/file", "Responses: a file", lambda v: v.responses and v.content("[Unsupported Document]")),
    Rule("6/reasoning", "Responses: reasoning items", lambda v: v.responses and v.sent("reasoning")),
    Rule("6/reasoning-kept", "Responses: reasoning of a turn", lambda v: v.responses and any(m["reasoning_content"] for m in v.messages)),
    Rule("6/calls", "Responses: function calls", lambda v: v.responses and v.sent("function_call") and "tool" in v.roles),
    Rule("6/custom", "Responses: custom calls", lambda v: v.responses and v.sent("custom_tool_call")),
    Rule("6/search-call", "Responses: V4.1 tool searches", lambda v: v.responses and v.v41 and v.sent("tool_search_call")),
    Rule("6/search-call-v4", "Responses: V4 ignores tool searches", lambda v: v.responses and v.v4 and v.sent("tool_search_call")),
    Rule("6/search-found", "Responses: tools that a search found", lambda v: v.responses and any(m.get("tools") for m in v.messages)),
    Rule("6/apply_patch", "Responses: apply_patch", lambda v: v.responses and any(tool["name"] == "apply_patch" for tool in v.tools)),
    Rule("6/namespace", "Responses: a namespace", lambda v: v.responses and v.named),
    Rule("6/clash", "Responses: names that clash", lambda v: v.responses and any(name.endswith("_1") for name, _ in v.named)),
    Rule("6/underscore", "Responses: V4 leaves out a separator", lambda v: v.responses and v.v4 and any(name == f"{parts[0]}{parts[1]}" for name, parts in v.named)),
    Rule("6/namespaced-call", "Responses: a call with a namespace", lambda v: v.responses and any(isinstance(item, dict) and item.get("namespace") for item in v.body.get("input") or ())),
    Rule("6/search-tool", "Responses: V4.1 client tool search", lambda v: v.responses and v.v41 and any(tool["name"] == "tool_search" for tool in v.tools)),
    Rule("6/web-search", "Responses: web search is dropped", lambda v: v.responses and v.sent("web_search", "web_search_2025_08_26")),
    Rule("6/unknown-tool", "Responses: other tools are ignored", lambda v: v.responses and v.sent("mcp", "web_search_preview")),
    Rule("6/image", "Responses: images", lambda v: v.responses and v.images),
    Rule("6/unsupported", "Responses: V4 has no images", lambda v: v.responses and v.v4 and v.sent("input_image")),
    Rule("6/logprobs", "Responses: top_logprobs", lambda v: v.responses and v.inference["logprobs"]),
    Rule("6/echo", "Responses: the echo", lambda v: v.responses and "echo" in v.extra),
    Rule("7/system", "Messages: a system", lambda v: v.anthropic and v.body.get("system") is not None),
    Rule("7/header", "Messages: a header is dropped", lambda v: v.anthropic and isinstance(v.body.get("system"), list) and "billing" in str(v.body["system"][:1]).lower()),
    Rule("7/system-role-v4", "Messages: V4 system role", lambda v: v.anthropic and v.v4 and v.content("<system-reminder>")),
    Rule("7/system-role-v41", "Messages: V4.1 system role", lambda v: v.anthropic and v.v41 and any(m["role"] == "system" for m in v.body["messages"])),
    Rule("7/blocks", "Messages: blocks of a user", lambda v: v.anthropic and any(m["role"] == "user" and isinstance(m["content"], list) and len(m["content"]) > 1 for m in v.body["messages"])),
    Rule("7/result", "Messages: results", lambda v: v.anthropic and v.sent("tool_result")),
    Rule("7/document", "Messages: documents", lambda v: v.anthropic and v.content("[Unsupported document type:")),
    Rule("7/image", "Messages: V4.1 images", lambda v: v.anthropic and v.images),
    Rule("7/unsupported", "Messages: V4 has no images", lambda v: v.anthropic and v.v4 and v.content(_UNSUPPORTED)),
    Rule("7/thinking", "Messages: thinking blocks", lambda v: v.anthropic and any(m["reasoning_content"] for m in v.messages)),
    Rule("7/use", "Messages: calls", lambda v: v.anthropic and any(m["tool_calls"] for m in v.messages)),
    Rule("7/deferred", "Messages: V4.1 deferred tools", lambda v: v.anthropic and any(tool["defer_loading"] for tool in v.tools)),
    Rule("7/reference", "Messages: references", lambda v: v.anthropic and v.sent("tool_reference")),
    Rule("7/reference-v41", "Messages: V4.1 references bring tools", lambda v: v.anthropic and v.v41 and any(m.get("tools") for m in v.messages)),
    Rule("7/addition", "Messages: additions", lambda v: v.anthropic and v.sent("tool_addition")),
    Rule("7/any", "Messages: choice any is auto", lambda v: v.anthropic and (v.body.get("tool_choice") or {}).get("type") == "any" and v.choice == "auto"),
    Rule("7/server", "Messages: server tools and blocks are dropped", lambda v: v.anthropic and v.sent("server_tool_use", "web_search_tool_result", "web_search_20250305")),
    Rule("7/stop", "Messages: stop sequences", lambda v: v.anthropic and v.body.get("stop_sequences")),
    Rule("7/ignored", "Messages: ignored fields", lambda v: v.anthropic and any(name in v.body for name in ("top_k", "service_tier"))),
]  # fmt: skip

_EMPTY = r"empty string\. Expected a string with minimum length 1, but got an empty string instead\."
_NAME = r"Invalid '(tools|input\[\d+\]\.tools)\[\d+\](\.tools\[\d+\])?(\.function)?\.name': "
_IMAGE = r"You have uploaded an unsupported image\. Please make sure your image is valid .*"
_LONG = r"external link length \d+ too long, max link length 8192\. Consider passing file data directly with base64 .*"
_PAIRED = r"An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'"
_USES = r"`tool_use` ids were found without `tool_result` blocks immediately after: .*"
_FILE = r"file_id is not supported\. Pass the image as a base64 data url instead\."
_PLACE = r"messages\.\d+\.content(\[\d+\]|\.\d+\.tool_result(\.content\[\d+\])?)|messages\.\d+"

ERRORS = [
    ErrorText("E4.2/model", r"The supported API model names are .*, but you passed .*\."),
    ErrorText("E4.4/temperature", r"Invalid temperature value, the valid range of temperature is \[0, 2\]"),
    ErrorText("E4.4/top_p", r"Invalid top_p value, the valid range of top_p is \(0, 1\.0\]"),
    ErrorText("E4.4/max_tokens", r"Invalid max_tokens value, the valid range of max_tokens is \[1, \d+\]"),
    ErrorText("E4.4/seed", r"Invalid seed value, the valid range of seed is \[0, 2\^63\)"),
    ErrorText("E4.4/stop-many", r"Stop string array too long: \d+"),
    ErrorText("E4.4/stop-empty", r"Invalid 'stop\[\d+\]': " + _EMPTY),
    ErrorText("E4.4/stop-lone", r"Invalid 'stop': " + _EMPTY),
    ErrorText("E4.4/context", r"This model's maximum context length is \d+ tokens\. However, you requested \d+ tokens .*"),
    ErrorText("E4.5/name-empty", _NAME + _EMPTY),
    ErrorText("E4.5/name-long", _NAME + r"string too long\. Expected a string with maximum length 128, but got .*"),
    ErrorText("E4.5/name-pattern", _NAME + r"string does not match pattern\. Expected a string that matches .*"),
    ErrorText("E4.5/unique", r"Tool names must be unique\."),
    ErrorText("E4.5/object", r"Invalid schema for function '.*': schema must be a JSON Schema of 'type: \"object\"', got .*"),
    ErrorText("E4.5/schema", r"Invalid schema for function '.*': .*"),
    ErrorText("E4.5/named", r"Invalid value for 'tool_call': no function named '.*' was specified in the 'tools' parameter\."),
    ErrorText("E4.5/thinking", r"Thinking mode does not support this tool_choice"),
    ErrorText("E4.5/mixed", r"Cannot use strict tool with non-strict tool in the same request"),
    ErrorText("E4.5/strict-format", r"response_format should not be used with tools"),
    ErrorText("E4.6/additional", r"additionalProperties should not be true"),
    ErrorText("E4.6/empty", r"An object with no properties is not allowed\."),
    ErrorText("E4.6/required", r"Required properties must match all properties in the object"),
    ErrorText("E4.6/required-unknown", r"Required property '.*' not found in object"),
    ErrorText("E4.6/required-twice", r"Duplicate required property '.*'"),
    ErrorText("E4.6/top-tool", r"The top level of the function parameters schema must be an object\."),
    ErrorText("E4.6/top-format", r"The top level of the json schema must be an object\."),
    ErrorText("E4.6/tool", r"Invalid tool parameters schema : .*"),
    ErrorText("E4.7/schema", r"Invalid json schema: .*"),
    ErrorText("E4.7/json-chat", r"Prompt must contain the word 'json' in some form to use .*"),
    ErrorText("E4.7/json-responses", r"Response input messages must contain the word 'json' in some form to use .*"),
    ErrorText("E4.9/chat", r"The `reasoning_content` in the thinking mode must be passed back to the API\."),
    ErrorText("E4.9/messages", r"The `content\[\]\.thinking` in the thinking mode must be passed back to the API\."),
    ErrorText("E4.9/responses", r"The `.*` in the thinking mode must be passed back to the API\."),
    ErrorText("E5/empty", r"Empty input messages"),
    ErrorText("E5/assistant", r"Invalid assistant message: content or tool_calls must be set"),
    ErrorText("E5/calls-empty", r"Invalid 'messages\[\d+\]\.tool_calls': empty array\. Expected an array with minimum .*"),
    ErrorText("E5/insufficient", _PAIRED + r"\. \(insufficient tool messages following tool_calls message\)"),
    ErrorText("E5/unanswered", _PAIRED + r", The following tool_call_ids did not have response messages: .*"),
    ErrorText("E5/duplicate", r"Duplicate value for 'tool_call_id' of .* in message\[\d+\]"),
    ErrorText("E5/stray", r"Messages with role 'tool' must be a response to a preceding message with 'tool_calls'"),
    ErrorText("E5/prefix", r"Invalid completion message: prefix set true with message which is not final message or .*"),
    ErrorText("E5/prefix-calls", r"Function call should not be used with prefix"),
    ErrorText("E5/prefix-json", r"response_format json_object should not be used with prefix"),
    ErrorText("E5/long", r"\.messages\[\d+\]\.image_url\.url\[\d+\]: image_url\.url " + _LONG),
    ErrorText("E5/url", r"\.messages\[\d+\]: Unsupported image_url format"),
    ErrorText("E5/type", r"\.messages\[\d+\]: " + _IMAGE),
    ErrorText("E5/base64", r"\.messages\[\d+\]: Invalid base64 data"),
    ErrorText("E5/image", r"Image in assistant message is not supported"),
    ErrorText("E5/file", r"\.messages\[\d+\]: file must have a file_id or file_data"),
    ErrorText("E5/file-both", r"\.messages\[\d+\]: file cannot have both file_id and file_data"),
    ErrorText("E5/file-id", r"\.messages\[\d+\]: " + _FILE),
    ErrorText("E5/file-url", r"\.messages\[\d+\]: file_data is not a valid base64 data url"),
    ErrorText("E5/file-type", r"\.messages\[\d+\]: You have uploaded an unsupported file\. Please make sure .*"),
    ErrorText("E5/presence", r"Invalid presence_penalty value, the valid range of presence_penalty is \[-2, 2\]"),
    ErrorText("E5/frequency", r"Invalid frequency_penalty value, the valid range of frequency_penalty is \[-2, 2\]"),
    ErrorText("E5/n", r"Invalid n value \(currently only n = 1 is supported\)"),
    ErrorText("E5/top_logprobs", r"Invalid top_logprobs value, the valid range of top_logprobs is \[0, 20\]\."),
    ErrorText("E5/logprobs", r"Invalid top_logprobs and logprobs value, logprobs must be set to true if .*"),
    ErrorText("E5/stream", r"stream_options should be set along with stream = true"),
    ErrorText("E6/input", r"Either input or instructions must be provided"),
    ErrorText("E6/items", r"Input items array must not be empty"),
    ErrorText("E6/call-empty", r"Invalid 'input\[\d+\]\.call_id': " + _EMPTY),
    ErrorText("E6/call-twice", r"Duplicate 'call_id': .*\."),
    ErrorText("E6/no-output", r"No tool output found for tool call .*\."),
    ErrorText("E6/no-call", r"No tool call found for tool output with call_id .*\."),
    ErrorText("E6/output-twice", r"Duplicate tool output for call_id: .*"),
    ErrorText("E6/custom", r"Unsupported custom tool: '.*'\. Only 'apply_patch' is supported\."),
    ErrorText("E6/custom-namespace", r"Currently custom tools are not allowed inside a namespace\. Found custom tool .*"),
    ErrorText("E6/namespace-twice", r"Tool names within a namespace must be unique\."),
    ErrorText("E6/found", r"input\[\d+\]: the enum variant ResponsesTool::Unsupported cannot be serialized"),
    ErrorText("E6/server", r"Server tools are not supported"),
    ErrorText("E6/image-none", r"input\[\d+\]\.(content|output)\[\d+\]: input_image must have image_url or file_id"),
    ErrorText("E6/image-both", r"input\[\d+\]\.(content|output)\[\d+\]: input_image cannot have both image_url and file_id"),
    ErrorText("E6/image-file", r"input\[\d+\]\.(content|output)\[\d+\]: " + _FILE),
    ErrorText("E6/image-long", r"input\[\d+\]\.(content|output)\[\d+\]: image_url " + _LONG),
    ErrorText("E6/image-url", r"input\[\d+\]: Unsupported image_url format"),
    ErrorText("E6/image-type", r"input\[\d+\]: " + _IMAGE),
    ErrorText("E6/image-base64", r"input\[\d+\]: Invalid base64 data"),
    ErrorText("E6/image-assistant", r"input\[\d+\]: Image in assistant message is unsupported"),
    ErrorText("E7/empty", r"messages: at least one message is required"),
    ErrorText("E7/content", r"messages\.\d+: all messages must have non-empty content"),
    ErrorText("E7/missing-end", r"messages\.\d+:" + _USES),
    ErrorText("E7/missing", r"messages\.\d+: " + _USES),
    ErrorText("E7/missing-block", r"messages\.\d+\.\d+: " + _USES),
    ErrorText("E7/use-twice", r"messages\.\d+\.content\.\d+: `tool_use` ids must be unique"),
    ErrorText("E7/result-twice", r"messages\.\d+\.content\.\d+: each tool_use must have a single result\. Found multiple .*"),
    ErrorText("E7/unexpected", r"unexpected `messages\.\d+\.content\.\d+: tool_use_id` found in `tool_result` blocks: .*"),
    ErrorText("E7/place-use", r"messages\.\d+: `(server_)?tool_use` blocks can only be in `assistant` messages"),
    ErrorText("E7/place-result", r"messages\.\d+: `tool_result` blocks can only be in `user` messages"),
    ErrorText("E7/place-thinking", r"messages\.\d+\.content: thinking blocks may only be in `assistant` messages"),
    ErrorText("E7/place-search", r"messages\.\d+: `web_search_tool_result` blocks can only be in `assistant` messages"),
    ErrorText("E7/place-addition", r"messages\.\d+: `tool_addition` blocks can only be in `system` messages"),
    ErrorText("E7/server-tool", r"tools\[\d+\]: server tools are not supported"),
    ErrorText("E7/server-block", r"Unsupported content block: server tools are not supported"),
    ErrorText("E7/deferred", r"tools: at least one tool must have defer_loading=false\. All tools cannot be deferred\."),
    ErrorText("E7/reference", r"messages\.\d+\.content\.\d+: tool reference '.*' not found in available tools"),
    ErrorText("E7/addition", r"messages\.\d+\.content\.\d+: `tool_addition` references unknown tool '.*'"),
    ErrorText("E7/image-url", rf"({_PLACE}): invalid url: .*"),
    ErrorText("E7/image-long", rf"({_PLACE}): {_LONG}"),
    ErrorText("E7/image-file", rf"({_PLACE}): {_FILE}"),
    ErrorText("E7/image-base64", rf"({_PLACE}): base64 decode error"),
    ErrorText("E7/image-assistant", r"Image in assistant message is unsupported"),
]  # fmt: skip
