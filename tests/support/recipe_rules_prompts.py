"""The rules of prompts: heads, layout, tool calls, tools, formats, and token ids."""

# ruff: noqa: E501 - the rows of the tables
from __future__ import annotations

import json
from functools import cached_property
from typing import Any

from deepinfer.recipe.errors import InvalidJsonError
from deepinfer.recipe.json_text import parse_json
from deepinfer.recipe.special_tokens import SpecialToken
from recipe_rules import ErrorText, Rule

SPELLINGS = [token.value for token in SpecialToken]
IMAGE = SpecialToken.IMAGE.value


class View:
    """A conversation, and its prompt by V4 (`v4`) and by V4.1 (`v41`)."""

    def __init__(self, case: dict[str, Any], result: dict[str, Any]) -> None:
        self.spec = case["conversation"]
        self.case = case
        self.result = result
        self.is_valid = "error" not in result
        self.messages = self.spec["messages"]
        self.thinking = self.spec.get("thinking_mode", True)
        self.tools = self.spec.get("tools") or []
        self.choice = self.spec.get("tool_choice", "auto")
        self.in_effect = bool(self.tools) and self.choice != "none"
        self.roles = [message["role"] for message in self.messages]
        self.last = self.messages[-1] if self.messages else {"role": ""}
        self.format = self.spec.get("response_format") or next(
            (name for name in ("response_schema", "response_regex") if self.spec.get(name) is not None), "text"
        )
        self.default_spellings = not case.get("special_tokens")

    @cached_property
    def v4(self) -> str:
        return str(self.result["v4"]["prompt"]) if self.is_valid else ""

    @cached_property
    def v41(self) -> str:
        return str(self.result["v4.1"]["prompt"]) if self.is_valid else ""

    def specials(self, version: str) -> list[str]:
        rendered = self.result[version]
        return [rendered["prompt"][start:stop] for start, stop in rendered["special_ranges"]]

    @cached_property
    def systems(self) -> list[dict[str, Any]]:
        return [message for message in self.messages if message["role"] == "system"]

    @cached_property
    def assistants(self) -> list[dict[str, Any]]:
        return [message for message in self.messages if message["role"] == "assistant"]

    @cached_property
    def calls(self) -> list[dict[str, Any]]:
        return [call for message in self.assistants for call in message.get("tool_calls") or ()]

    @cached_property
    def arguments(self) -> list[Any]:
        """The arguments of calls: parsed, or the error."""
        parsed: list[Any] = []
        for call in self.calls:
            try:
                parsed.append(parse_json(call["arguments"]))
            except InvalidJsonError as error:
                parsed.append(error)
        return parsed

    @cached_property
    def values(self) -> list[Any]:
        return [value for item in self.arguments if isinstance(item, dict) for value in item.values()]

    def pairs(self, first: str, second: str) -> bool:
        return any(pair == (first, second) for pair in zip(self.roles, self.roles[1:]))

    @cached_property
    def front_roles(self) -> list[str]:
        """Roles without the system messages, as V4 lays them out."""
        return [role for role in self.roles if role != "system"]

    @cached_property
    def images(self) -> list[dict[str, Any]]:
        return [message for message in self.messages if message.get("image_sources")]

    def results_moved(self, version: str) -> bool:
        """Whether tool results stand in another order than in the conversation."""
        wanted = [message["content"] for message in self.messages if message["role"] == "tool"]
        distinct = [text for text in wanted if text and wanted.count(text) == 1]
        prompt = self.v4 if version == "v4" else self.v41
        places = [prompt.find(f"<tool_result>{text}</tool_result>") for text in distinct]
        return -1 not in places and places != sorted(places)

    @cached_property
    def calls_moved(self) -> bool:
        return any(
            [call["id"] for call in message["tool_calls"]] != sorted(call["id"] for call in message["tool_calls"])
            for message in self.assistants
            if message.get("tool_calls")
        )

    @cached_property
    def known_ids(self) -> set[str]:
        return {call["id"] for call in self.calls}

    @cached_property
    def effort(self) -> str | None:
        return self.spec.get("reasoning_effort")

    def encoded(self, version: str) -> Any:
        return self.result[version].get("ids") if self.is_valid else None

    def failed_encoding(self, version: str) -> str:
        ids = self.encoded(version)
        return ids["error"]["message"] if isinstance(ids, dict) else ""


def _spelled_plainly(view: View) -> bool:
    """Whether the prompt spells a special token outside of its special ranges."""
    if not view.is_valid:
        return False
    text, position, rest = view.v41, 0, []
    for start, stop in view.result["v4.1"]["special_ranges"]:
        rest.append(text[position:start])
        position = stop
    return any(spelling in piece for piece in [*rest, text[position:]] for spelling in SPELLINGS)


def _effort(word: str | None, text: str, number: int) -> Any:
    def met(view: View) -> bool:
        named = "effort" in view.spec or view.effort == word
        return bool(view.thinking and view.is_valid and named and text in view.v4 and f": {number} (" in view.v41)

    return met


_ABSOLUTE, _BEYOND = "Absolute maximum with no shortcuts", "Beyond maximum —"
_SCHEMA = "You MUST strictly adhere to the following schema"


def _is_number(text: str) -> Any:
    return lambda view: any(text in json.dumps(value) for value in view.values if isinstance(value, float))


RULES = [
    Rule("2/plain", "text that spells a special token stays plain", _spelled_plainly),
    Rule("2/image", "an image placeholder is a special token", lambda v: v.is_valid and IMAGE in v.specials("v4.1")),
    Rule("2/image-few", "fewer occurrences than image sources", lambda v: any(m["content"].count(IMAGE) < len(m["image_sources"]) for m in v.images)),
    Rule("2/image-more", "later occurrences are text", lambda v: any(m["content"].count(IMAGE) > len(m["image_sources"]) for m in v.images)),
    Rule("2/image-none", "occurrences without sources are text", lambda v: any(IMAGE in m["content"] and not m.get("image_sources") for m in v.messages)),
    Rule("2/spellings", "other spellings of special tokens", lambda v: v.is_valid and not v.default_spellings),
    Rule("2.1/joined", "V4: contents of several system messages are joined", lambda v: sum(bool(m["content"]) for m in v.systems) > 1),
    Rule("2.1/empty", "V4: empty system messages are skipped", lambda v: any(not m["content"] for m in v.systems)),
    Rule("2.1/front", "V4: system messages go to the front", lambda v: "system" in v.roles[1:] and v.roles[0] != "system"),
    Rule("2.1/effort", "V4: effort text when thinking", lambda v: v.thinking and _ABSOLUTE in v.v4),
    Rule("2.1/tools", "V4: tools block behind system text", lambda v: v.in_effect and v.systems and "## Tools" in v.v4),
    Rule("2.1/tools-first", "V4: tools block without system text", lambda v: v.in_effect and not v.systems and "## Tools" in v.v4),
    Rule("2.1/format", "V4: format text in the head", lambda v: v.format in ("json_object", "response_schema") and v.is_valid),
    Rule("2.1/merged", "V4: users left adjacent by system messages merge", lambda v: any(v.roles[i : i + 3] == ["user", "system", "user"] for i in range(len(v.roles)))),
    Rule("2.2/in-place", "V4.1: system messages stay in place", lambda v: "system" in v.roles[1:] and v.default_spellings and v.v41.count("<｜System｜>") > 1),
    Rule("2.2/block", "V4.1: a system block is put first", lambda v: v.roles[:1] != ["system"] and v.messages and v.is_valid and "<｜System｜>" in v.specials("v4.1")[1:2]),
    Rule("2.2/none", "V4.1: no system block", lambda v: v.is_valid and v.messages and not v.systems and "<｜System｜>" not in v.specials("v4.1") and v.default_spellings),
    Rule("2.2/empty", "V4.1: no messages, no tools: no effort line", lambda v: not v.messages and not v.in_effect and v.thinking),
    Rule("2.2/empty-tools", "V4.1: no messages, but tools", lambda v: not v.messages and v.in_effect),
    Rule("2.3/none", "effort: none given", _effort(None, _ABSOLUTE, 75)),
    Rule("2.3/low", "effort: low", lambda v: v.thinking and v.effort == "low" and _ABSOLUTE not in v.v4 and ": 50 (" in v.v41),
    Rule("2.3/high", "effort: high", _effort("high", _ABSOLUTE, 75)),
    Rule("2.3/xhigh", "effort: xhigh", _effort("xhigh", _ABSOLUTE, 75)),
    Rule("2.3/max", "effort: max", _effort("max", _BEYOND, 100)),
    Rule("2.3/off", "effort without thinking has no text", lambda v: v.effort and not v.thinking),
    Rule("2.4/reminders", "V4.1: the first of adjacent reminders; V4: all", lambda v: v.pairs("latest_reminder", "latest_reminder")),
    Rule("2.4/users", "adjacent users", lambda v: v.pairs("user", "user")),
    Rule("2.4/users-empty", "adjacent users, one empty: V4 skips, V4.1 joins", lambda v: any(a["role"] == b["role"] == "user" and not a["content"] for a, b in zip(v.messages, v.messages[1:]))),
    Rule("2.4/calls-sorted", "V4: calls are sorted by id", lambda v: v.calls_moved),
    Rule("2.4/results-v4", "V4: results are sorted", lambda v: v.results_moved("v4")),
    Rule("2.4/results-v41", "V4.1: results are sorted by call", lambda v: v.results_moved("v4.1")),
    Rule("2.4/id-none", "results without id", lambda v: any(m["role"] == "tool" and m.get("tool_call_id") is None for m in v.messages) and v.calls),
    Rule("2.4/id-unknown", "results of unknown calls", lambda v: v.calls and any(m["role"] == "tool" and m.get("tool_call_id") not in (None, *v.known_ids) for m in v.messages)),
    Rule("2.4/tool-tool", "a result after a result", lambda v: v.pairs("tool", "tool")),
    Rule("2.4/user-tool", "a result after a user: V4 opens a turn, V4.1 joins", lambda v: v.pairs("user", "tool")),
    Rule("2.4/tool-user", "a user after a result", lambda v: v.pairs("tool", "user")),
    Rule("2.4/assistants", "adjacent assistants", lambda v: v.pairs("assistant", "assistant")),
    Rule("2.4/think-tools", "reasoning of history with tools", lambda v: v.in_effect and any(m.get("reasoning_content") for m in v.assistants)),
    Rule("2.4/think-dropped", "reasoning of history is dropped without tools", lambda v: not v.in_effect and any(m.get("reasoning_content") and not m.get("prefix") for m in v.assistants)),
    Rule("2.4/think-off", "V4: reasoning with tools, not thinking", lambda v: v.in_effect and not v.thinking and any(m.get("reasoning_content") is not None for m in v.assistants)),
    Rule("2.4/think-none", "V4.1: thinking with tools, reasoning missing", lambda v: v.in_effect and v.thinking and any(m.get("reasoning_content") is None for m in v.assistants)),
    Rule("2.4/prefix-first", "V4.1: a prefix that is the first message", lambda v: v.messages and v.messages[0].get("prefix")),
    Rule("2.4/prefix-first-format", "V4.1: the same with a format text", lambda v: v.messages and v.messages[0].get("prefix") and v.format in ("json_object", "response_schema")),
    Rule("2.4/prefix-empty", "a prefix without content", lambda v: any(m.get("prefix") and not m["content"] for m in v.assistants)),
    Rule("2.4/prefix-calls", "a prefix with calls", lambda v: any(m.get("prefix") and m.get("tool_calls") for m in v.assistants)),
    Rule("2.4/prefix-last", "the last message is a prefix", lambda v: v.last.get("prefix")),
    Rule("2.4/prefix-earlier", "V4 ends an earlier prefix, V4.1 does not", lambda v: any(m.get("prefix") for m in v.messages[:-1])),
    Rule("2.4/opening-on", "the prompt ends with an opened thought", lambda v: v.default_spellings and v.v41.endswith("<｜Assistant｜><think>")),
    Rule("2.4/opening-off", "the prompt ends with a closed thought", lambda v: v.default_spellings and v.v41.endswith("<｜Assistant｜></think>")),
    Rule("2.4/required", "a required choice opens the block", lambda v: v.in_effect and v.choice == "required" and v.is_valid),
    Rule("2.4/required-prefix", "the same after a prefix", lambda v: v.in_effect and v.choice == "required" and v.last.get("prefix")),
    Rule("2.5/object", "arguments: an object", lambda v: any(isinstance(item, dict) and item for item in v.arguments)),
    Rule("2.5/string", "a string parameter", lambda v: any(isinstance(value, str) for value in v.values)),
    Rule("2.5/other", "a parameter that is no string", lambda v: any(not isinstance(value, str) for value in v.values)),
    Rule("2.5/keys", "keys that repeat", lambda v: any(isinstance(item, dict) and call["arguments"].count('"a":') > list(item).count("a") == 1 for item, call in zip(v.arguments, v.calls))),
    Rule("2.5/none", "no parameters", lambda v: any(item == {} for item in v.arguments)),
    Rule("2.5/no-object", "arguments: JSON, but no object", lambda v: any(not isinstance(item, (dict, Exception)) for item in v.arguments)),
    Rule("2.5/no-json", "arguments: not JSON", lambda v: any(isinstance(item, Exception) for item in v.arguments)),
    Rule("2.5/deep", "arguments: nested too deep", lambda v: any(isinstance(item, Exception) and "recursion" in str(item) for item in v.arguments)),
    Rule("2.5/no-calls", "an empty list of calls", lambda v: any(m.get("tool_calls") == [] for m in v.assistants)),
    Rule("2.6/description", "a tool without description", lambda v: v.in_effect and any(tool.get("description") is None for tool in v.tools)),
    Rule("2.6/parameters", "a tool without parameters", lambda v: v.in_effect and any(tool.get("parameters") is None for tool in v.tools)),
    Rule("2.6/strict", "a strict tool", lambda v: v.in_effect and any(tool.get("strict") for tool in v.tools)),
    Rule("2.6/deferred", "deferred tools are left out", lambda v: v.in_effect and any(tool.get("defer_loading") for tool in v.tools)),
    Rule("2.6/all-deferred", "all tools are deferred", lambda v: v.in_effect and all(tool.get("defer_loading") for tool in v.tools)),
    Rule("2.6/system", "tools of a system message: V4.1 shows them, V4 not", lambda v: any(m.get("tools") for m in v.systems)),
    Rule("2.6/system-empty", "an empty list of tools in a system message", lambda v: any(m.get("tools") == [] for m in v.systems)),
    Rule("2.6/choice-none", "tools, and the choice none", lambda v: v.tools and v.choice == "none"),
    Rule("2.7/schema", "format: a schema", lambda v: v.format == "response_schema" and _SCHEMA in v.v4),
    Rule("2.7/object", "format: JSON", lambda v: v.format == "json_object" and "Reply with JSON object ONLY." in v.v4 and _SCHEMA in v.v41),
    Rule("2.7/regex", "format: an expression", lambda v: v.format == "response_regex"),
    Rule("0.4/exponent", "doubles with exponents: V4 and V4.1 differ", _is_number("e-0")),
    Rule("0.4/small", "doubles near 1e-5", lambda v: any(isinstance(value, float) and 1e-5 <= abs(value) < 1e-4 for value in v.values)),
    Rule("0.4/large", "doubles from 1e16", lambda v: any(isinstance(value, float) and abs(value) >= 1e16 for value in v.values)),
    Rule("0.4/minus-zero", "minus zero", lambda v: any(repr(value) == "-0.0" for value in v.values)),
    Rule("0.4/u64", "integers beyond i64", lambda v: any(isinstance(value, int) and value >= 1 << 63 for value in v.values)),
    Rule("0.4/overflow", "a number that overflows", lambda v: any("out of range" in str(item) for item in v.arguments if isinstance(item, Exception))),
    Rule("3/ids", "token ids of both versions", lambda v: isinstance(v.encoded("v4"), list) and isinstance(v.encoded("v4.1"), list)),
    Rule("3/plain", "ids of text that spells special tokens", lambda v: isinstance(v.encoded("v4.1"), list) and _spelled_plainly(v)),
    Rule("3/image", "ids with an image", lambda v: isinstance(v.encoded("v4.1"), list) and IMAGE in v.specials("v4.1")),
    Rule("3/no-system", "the tokenizer lacks a special token", lambda v: "is not in the added vocabulary" in v.failed_encoding("v4.1")),
    Rule("3/no-tokenizer", "no tokenizer", lambda v: "no tokenizer" in v.failed_encoding("v4")),
]  # fmt: skip

ERRORS: list[ErrorText] = [
    ErrorText("1/combined", "response_schema and response_regex cannot be combined"),
    ErrorText("1/object", r'response_format "json_object" cannot be combined with response_schema or response_regex'),
    ErrorText("1/effort", r'invalid reasoning_effort "zz"; expected "low", "high", "xhigh", or "max"'),
    ErrorText("1/choice", r'invalid tool_choice "zz"; expected "auto", "none", or "required"'),
    ErrorText("1/format", r'invalid response_format "zz"; expected "text" or "json_object"'),
    ErrorText("1/image", "image_token must not be empty"),
    ErrorText("1/detail", r'invalid detail "zz"; expected "low", "high", "original", or "auto"'),
    ErrorText("3/error-system", r'failed to encode conversation: special token ".*" is not in the added vocabulary'),
    ErrorText("3/error-tokenizer", "no tokenizer is attached to the encoding"),
]
