"""The rules of streams: markers of each stage, what is held, calls, ids, usage, finish reasons, events of each protocol.

Markers are counted where our parser acts on them; everything else is told from the case and its result.
"""

# ruff: noqa: E501 - the rows of the tables
from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from deepinfer.recipe.stream import machine
from deepinfer.recipe.stream.stages import DSML, THINK_END, Effect, Marker
from recipe_rules import ErrorText, Rule

_acted: set[str] = set()


@contextmanager
def recording() -> Iterator[None]:
    """Record which markers our parser acts on."""
    original = machine.Machine._act

    def act(self: machine.Machine, marker: Marker, source: Any, out: Any) -> None:
        kind = "stop" if marker.effect is Effect.STOP else marker.pattern
        ids = " ids" if self._by_ids and (DSML in marker.pattern or THINK_END in marker.pattern) else ""
        _acted.add(f"{self._stage.name} {kind.replace(DSML, '｜DSML｜').replace(THINK_END, '</think>')}{ids}")
        original(self, marker, source, out)

    machine.Machine._act = act  # type: ignore[method-assign]
    try:
        yield
    finally:
        machine.Machine._act = original  # type: ignore[method-assign]


def take_acted() -> set[str]:
    """The markers since the last time."""
    result = set(_acted)
    _acted.clear()
    return result


class View:
    """A stream, and what came of it."""

    def __init__(self, case: dict[str, Any], result: dict[str, Any], acted: set[str] | None = None) -> None:
        self.case = case
        self.protocol = case.get("answers", case["protocol"])
        self.options = case["parsing_options"]
        self.acted = acted or set()
        self.is_valid = "steps" in result
        steps = result.get("steps") or []
        self.errors = [step["error"]["message"] for step in steps if "error" in step]
        self.steps = [step for step in steps if "events" in step]
        self.events = [text for step in self.steps for _, text in step["events"]]
        self.names = [name for step in self.steps for name, _ in step["events"]]
        self.joined = "\n".join(self.events)
        self.final = result.get("final") or ""
        self.thinking = "thinking_initial_stage" in self.options
        self.chunks = case["chunks"]
        self.kinds = ["text" if isinstance(chunk, str) else chunk[0] for chunk in self.chunks]
        self.finish = next(
            (chunk[1] for chunk in self.chunks if not isinstance(chunk, str) and chunk[0] == "finish"), None
        )

    @cached_property
    def calls(self) -> bool:
        return "call_" in self.final and any(word in self.final for word in ("function", "tool_use", "tool_call"))

    @cached_property
    def parsed(self) -> dict[str, Any]:
        return json.loads(self.final) if self.final else {}

    @cached_property
    def stopped(self) -> bool:
        return any(mark.endswith(" stop") for mark in self.acted)

    def is_of(self, protocol: str) -> bool:
        return self.is_valid and self.protocol == protocol

    @cached_property
    def held_newlines(self) -> bool:
        """Whether newlines of one push belong to a block that begins in another."""
        texts = [chunk for chunk in self.chunks if isinstance(chunk, str)]
        rests = ("".join(texts[index:]).lstrip("\n") for index in range(1, len(texts)))
        return any(a.endswith("\n") and rest.startswith("<｜DSML｜") for a, rest in zip(texts, rests))

    @cached_property
    def held(self) -> bool:
        """Whether a push of text gave nothing, and more came later."""
        quiet = [not step["events"] for step in self.steps[: len(self.chunks)]]
        return any(kind == "text" and chunk and still for kind, chunk, still in zip(self.kinds, self.chunks, quiet))


def _acts(stage: str, *patterns: str) -> Any:
    marks = {f"{stage} {pattern}" for pattern in patterns}
    return lambda view: bool(marks & view.acted)


def _has(text: str, protocol: str | None = None) -> Any:
    return lambda view: (protocol is None or view.protocol == protocol) and text in view.joined


def _ends(protocol: str, text: str, reason: str | None = None) -> Any:
    def met(view: View) -> bool:
        return view.is_of(protocol) and text in view.final and (reason is None or view.finish == reason)

    return met


RULES = [
    Rule("8.1/start-reasoning", "starts: reasoning", lambda v: v.options.get("thinking_initial_stage") == "ReasoningStart"),
    Rule("8.1/start-continued", "starts: reasoning goes on", lambda v: v.options.get("thinking_initial_stage") == "ReasoningContinuation"),
    Rule("8.1/start-content", "starts: content goes on", lambda v: v.options.get("thinking_initial_stage") == "ContentContinuation"),
    Rule("8.1/start-off", "starts: content", lambda v: not v.thinking),
    Rule("8.1/start-calls", "starts: calls", lambda v: v.options.get("starts_in_tool_calls")),
    Rule("8.1/no-calls", "calls are not parsed", lambda v: v.options.get("parse_tool_calls") is False),
    Rule("8.1/content-stop", "content: a stop sequence", _acts("CONTENT", "stop")),
    Rule("8.1/content-fence", "content, JSON mode: a fence with json", _acts("CONTENT", "```json\n")),
    Rule("8.1/content-fence-plain", "content, JSON mode: a fence", _acts("CONTENT", "```\n")),
    Rule("8.1/content-brace", "content, JSON mode: a brace", _acts("CONTENT", "{")),
    Rule("8.1/content-bracket", "content, JSON mode: a bracket", _acts("CONTENT", "[")),
    Rule("8.1/content-calls", "content: calls begin", _acts("CONTENT", "<｜DSML｜")),
    Rule("8.1/content-think", "content: an end of thought is dropped", _acts("CONTENT", "</think>")),
    Rule("8.1/json-stop", "JSON: a stop sequence", _acts("JSON", "stop")),
    Rule("8.1/json-fence", "JSON: the fence ends", _acts("JSON", "\n```")),
    Rule("8.1/after-calls", "after JSON: calls begin", _acts("AFTER_JSON", "<｜DSML｜", "<｜DSML｜ ids")),
    Rule("8.1/space", "JSON mode: other text is a space", lambda v: v.options.get("parse_json_output") and '" "' in v.joined),
    Rule("8.1/reasoning-calls", "reasoning: calls begin", _acts("REASONING", "<｜DSML｜")),
    Rule("8.1/reasoning-end", "reasoning: thought ends", _acts("REASONING", "</think>")),
    Rule("8.1/invoke", "calls: a call begins", _acts("CALLS", 'invoke name="')),
    Rule("8.1/calls-end", "calls: end as V4 writes it", _acts("CALLS", "</｜DSML｜tool_calls>", "</｜DSML｜tool_calls> ids")),
    Rule("8.1/calls-end-v41", "calls: end as V4.1 writes it", _acts("CALLS", "</｜DSML｜ calls>", "</｜DSML｜ calls> ids")),
    Rule("8.1/name", "name: complete", _acts("NAME", '"')),
    Rule("8.1/parameter", "arguments: a parameter", _acts("ARGS", "parameter name=")),
    Rule("8.1/args-end", "arguments: end", _acts("ARGS", "</｜DSML｜", "</｜DSML｜ ids")),
    Rule("8.1/param-name", "parameter name: complete", _acts("PARAM_NAME", " ", '" string="')),
    Rule("8.1/string", "parameter type: a string", _acts("PARAM_TYPE", 'true">')),
    Rule("8.1/raw", "parameter type: raw", _acts("PARAM_TYPE", 'false">')),
    Rule("8.1/value-end", "value: end", _acts("VALUE", "</｜DSML｜", "</｜DSML｜ ids")),
    Rule("8.1/escaped", "a string value is escaped", _has('\\\\\\"')),
    Rule("8.1/no-parameters", "a call without parameters", _has('"{}"')),
    Rule("8.1/many-parameters", "a second parameter", _has('", "')),
    Rule("8.1/wrapper", "another word of the wrapper", lambda v: any("function_calls" in str(chunk) for chunk in v.chunks)),
    Rule("8.1/ascii", "ASCII bars are text", _has("<|DSML|")),
    Rule("8.1/spellings", "other spellings", lambda v: v.options.get("special_tokens")),
    Rule("8.2/held", "a push that is held", lambda v: v.held),
    Rule("8.2/held-newlines", "held newlines before a block", lambda v: v.held_newlines),
    Rule("8.2/empty", "an empty push", lambda v: "" in v.chunks),
    Rule("8.2/late", "a push after the end", lambda v: "stream processor has finished" in v.errors),
    Rule("8.2/finish-twice", "finish() after the end gives nothing", lambda v: v.finish and v.steps and not v.steps[-1]["events"]),
    Rule("8.2/no-finish", "no finish chunk", lambda v: not v.finish and v.is_valid),
    Rule("8.3/call", "a call", lambda v: v.calls),
    Rule("8.3/second", "a second call", _has("call_01_")),
    Rule("8.3/ET", "a call without reasoning, thinking", _has("_ET_#")),
    Rule("8.4/ids", "token ids", lambda v: "tokens" in v.kinds),
    Rule("8.4/mixed", "ids and text", lambda v: "tokens" in v.kinds and "text" in v.kinds),
    Rule("8.4/single", "ids one by one", lambda v: sum(not isinstance(c, str) and c[0] == "tokens" and len(c[1]) == 1 for c in v.chunks) > 3),
    Rule("8.4/none", "an empty list of ids", lambda v: any(not isinstance(c, str) and c[0] == "tokens" and not c[1] for c in v.chunks)),
    Rule("8.4/unknown", "an unknown id", lambda v: any(not isinstance(c, str) and c[0] == "tokens" and 999999 in c[1] for c in v.chunks)),
    Rule("8.4/replaced", "bytes that are no UTF-8", lambda v: "tokens" in v.kinds and "\ufffd" in v.joined),
    Rule("8.4/dsml", "calls begin by an id", lambda v: any("｜DSML｜ ids" in mark for mark in v.acted)),
    Rule("8.4/think", "thought ends by an id", lambda v: any(mark.endswith("</think> ids") for mark in v.acted)),
    Rule("8.4/spelled", "ids that spell a token stay text", lambda v: "tokens" in v.kinds and ("</think>" in v.joined or "｜DSML｜" in v.joined)),
    Rule("8.4/no-tokenizer", "ids without tokenizer", lambda v: any("without a tokenizer" in error for error in v.errors)),
    Rule("8.4/logprob-count", "log probabilities for another number of ids", lambda v: any("invalid log prob" in error for error in v.errors)),
    Rule("8.4/closed", "an error closes", lambda v: any("is closed" in error for error in v.errors)),
    Rule("8.5/usage", "usage of the prompt", lambda v: v.kinds[:1] == ["ready"] and v.is_valid),
    Rule("8.5/usage-late", "a later ready is ignored", lambda v: "ready" in v.kinds[1:]),
    Rule("8.5/fingerprint", "a fingerprint", _has('"fp"')),
    Rule("8.5/reasoning", "reasoning tokens are counted", lambda v: v.case.get("tokenizer") and v.thinking and "reasoning_tokens" in v.final),
    Rule("8.5/logprobs", "log probabilities", lambda v: '"top_logprobs":[{' in v.joined),
    Rule("8.5/logprobs-null", "log probabilities that are not finite", lambda v: '"logprob":null' in v.joined),
    Rule("8.5/logprobs-bytes", "a token that is no UTF-8", lambda v: '"token":"\\\\x' in v.joined),
    Rule("8.6/chat-stop", "chat: stop", _ends("chat", '"finish_reason":"stop"', "Stop")),
    Rule("8.6/chat-calls", "chat: tool_calls", _ends("chat", '"finish_reason":"tool_calls"')),
    Rule("8.6/chat-length", "chat: length", _ends("chat", '"finish_reason":"length"')),
    Rule("8.6/chat-filter", "chat: content_filter", _ends("chat", '"finish_reason":"content_filter"')),
    Rule("8.6/chat-calls-unsaid", "chat: calls without a finish chunk: stop", lambda v: v.is_of("chat") and v.calls and not v.finish and '"finish_reason":"stop"' in v.final),
    Rule("8.6/length-calls", "length wins over calls", lambda v: v.is_valid and v.calls and v.finish == "Length"),
    Rule("8.6/messages-stop", "Messages: end_turn", _ends("messages", '"stop_reason":"end_turn"')),
    Rule("8.6/messages-calls", "Messages: tool_use", _ends("messages", '"stop_reason":"tool_use"')),
    Rule("8.6/messages-sequence", "Messages: stop_sequence", _ends("messages", '"stop_reason":"stop_sequence"')),
    Rule("8.6/messages-length", "Messages: max_tokens", _ends("messages", '"stop_reason":"max_tokens"')),
    Rule("8.6/messages-filter", "Messages: refusal", _ends("messages", '"stop_reason":"refusal"')),
    Rule("8.6/messages-calls-unsaid", "Messages: calls without a finish chunk: end_turn", lambda v: v.is_of("messages") and v.calls and not v.finish and '"stop_reason":"end_turn"' in v.final),
    Rule("8.6/responses-completed", "Responses: completed", _ends("responses", '"status":"completed"')),
    Rule("8.6/responses-length", "Responses: incomplete by length", _ends("responses", '"reason":"max_output_tokens"')),
    Rule("8.6/responses-filter", "Responses: incomplete by filter", _ends("responses", '"reason":"content_filter"')),
    Rule("9.1/first", "chat: first delta", _has('"delta":{"role":"assistant","content":""}', "chat")),
    Rule("9.1/first-thinking", "chat: first delta, thinking", _has('"delta":{"role":"assistant","content":null,"reasoning_content":""}', "chat")),
    Rule("9.1/first-prefix", "chat: first delta after a prefix with content", _has('"delta":{"role":"assistant","content":"","reasoning_content":null}', "chat")),
    Rule("9/other", "answers in another protocol than the request's", lambda v: v.is_valid and "answers" in v.case),
    Rule("9.1/content", "chat: content", _has('"delta":{"content":"', "chat")),
    Rule("9.1/reasoning", "chat: reasoning", _has('"delta":{"content":null,"reasoning_content":"', "chat")),
    Rule("9.1/call", "chat: a call", _has('"type":"function","function":{"name":', "chat")),
    Rule("9.1/arguments", "chat: arguments", _has('"tool_calls":[{"index":0,"function":{"arguments":', "chat")),
    Rule("9.1/usage-null", "chat: usage null before the end", _has('"usage":null', "chat")),
    Rule("9.1/usage-not-streamed", "chat: the same when not streamed", lambda v: v.is_of("chat") and not v.case["request"]["stream"] and '"usage":null' in v.joined),
    Rule("9.1/cached", "chat: cached tokens", lambda v: v.is_of("chat") and '"prompt_cache_hit_tokens":0' not in v.final and v.final and '"usage"' in v.final),
    Rule("9.2/created", "Responses: created, in progress", _has('"type":"response.in_progress"', "responses")),
    Rule("9.2/reasoning", "Responses: a reasoning item", _has('"type":"response.reasoning_text.done"', "responses")),
    Rule("9.2/message", "Responses: a message item", _has('"type":"response.output_text.done"', "responses")),
    Rule("9.2/commentary", "Responses: a message before a call", _has('"phase":"commentary"', "responses")),
    Rule("9.2/call", "Responses: a function call", _has('"type":"response.function_call_arguments.done"', "responses")),
    Rule("9.2/namespace", "Responses: a call of a namespace", _has('"namespace":"ns"', "responses")),
    Rule("9.2/custom", "Responses: a custom call", _has('"type":"response.custom_tool_call_input.done"', "responses")),
    Rule("9.2/custom-raw", "Responses: a custom call of another form", lambda v: v.is_of("responses") and '"type":"response.custom_tool_call_input.delta","delta":"{' in v.joined),
    Rule("9.2/search", "Responses: a tool search", _has('"type":"tool_search_call"', "responses")),
    Rule("9.2/echo", "Responses: the echo", _has('"instructions":"I"', "responses")),
    Rule("9.2/tools", "Responses: tools are repeated", _has('"tools":[{', "responses")),
    Rule("9.3/start", "Messages: start", _has('"type":"message_start"', "messages")),
    Rule("9.3/thinking", "Messages: a thinking block and ping", lambda v: v.is_of("messages") and "thinking_delta" in v.joined),
    Rule("9.3/thinking-empty", "Messages: an empty thinking block", lambda v: v.is_of("messages") and "signature_delta" in v.joined and "thinking_delta" not in v.joined),
    Rule("9.3/text", "Messages: a text block", _has("text_delta", "messages")),
    Rule("9.3/tool", "Messages: a tool block", _has("input_json_delta", "messages")),
    Rule("9.3/signature", "Messages: a signature", _has('"signature":"SIG"', "messages")),
    Rule("9.3/signature-id", "Messages: the id as signature", _has('"signature":"id-1"', "messages")),
    Rule("9.3/ping-off", "Messages: ping after the first block, off", lambda v: v.is_of("messages") and not v.thinking and '"ping"' in v.joined),
    Rule("9.3/no-ping", "Messages: no block, no ping", lambda v: v.is_of("messages") and '"ping"' not in v.joined and "message_start" in v.joined),
    Rule("9.3/input-broken", "Messages: input that does not parse is {}", lambda v: v.is_of("messages") and "input_json_delta" in v.joined and '"input":{}' in v.final and '"partial_json":"{}"' not in v.joined),
    Rule("9/so-far", "the response after each step", lambda v: v.case.get("each") and v.is_valid),
]  # fmt: skip

ERRORS = [
    ErrorText("E8.2/finished", "stream processor has finished"),
    ErrorText("E8.2/closed", "stream processor is closed"),
    ErrorText("E8.4/tokenizer", "token chunk received without a tokenizer"),
    ErrorText("E8.4/logprobs", r"invalid log probabilities: \d+ log probabilities for \d+ token IDs"),
]
