"""Typed reading of bodies, Python values as bodies, and options."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest

from deepinfer.recipe.errors import (
    ConversionError,
    InvalidArgumentError,
    InvalidBodyError,
    InvalidJsonError,
    InvalidTypeError,
    JsonRangeError,
)
from deepinfer.recipe.options import ConversionOptions, ReasoningContentBehavior, WebSearchBehavior
from deepinfer.recipe.protocols import protocol, protocols
from deepinfer.recipe.quirks import Quirks
from deepinfer.recipe.requests.body import (
    Reading,
    ShapeError,
    array,
    boolean,
    optional,
    record,
    required,
    signed,
    single,
    string,
    tagged,
    unsigned,
    word,
)
from deepinfer.recipe.requests.common import shortest_single
from deepinfer.recipe.versions import model_version

PLAIN = Reading()
CHAT = {"model": "DeepSeek-V4-Pro", "messages": [{"role": "user", "content": "q"}]}


@dataclass
class Point:
    x: int
    name: str | None


POINT = record(Point, x=required(unsigned(8)), name=optional(string))


def test_fields_absent_null_and_unknown() -> None:
    assert POINT({"x": 3, "z": 1}, PLAIN) == Point(3, None)
    assert POINT({"x": 3, "name": None}, PLAIN) == Point(3, None)
    with pytest.raises(ShapeError, match="x: required field is missing"):
        POINT({"name": "a"}, PLAIN)


@pytest.mark.parametrize(
    ("reader", "value"),
    [
        (unsigned(8), 256),
        (unsigned(8), -1),
        (unsigned(8), 1.0),
        (unsigned(8), True),
        (signed(64), 1 << 63),
        (boolean, 1),
        (string, None),
        (single, "1"),
        (single, False),
        (word({"a": 1}), "A"),
        (array(string), {"a": 1}),
        (POINT, [1, "a"]),
        (tagged("type", {"p": POINT}), {"x": 1}),
        (tagged("type", {"p": POINT}), {"type": "q"}),
    ],
)
def test_refused_values(reader: Any, value: Any) -> None:
    with pytest.raises(ShapeError):
        reader(value, PLAIN)


def test_numbers_are_rounded_to_32_bits() -> None:
    assert single(0.3, PLAIN) == 0.30000001192092896
    assert single(1e40, PLAIN) == math.inf
    assert shortest_single(single(0.3, PLAIN)) == 0.3
    assert shortest_single(1.0) == 1.0


def test_errors_name_the_place() -> None:
    body = {**CHAT, "messages": [{"role": "user", "content": [{"type": "text", "text": 5}]}]}
    with pytest.raises(InvalidBodyError, match=r"body: messages\[0\]\.content\[0\]\.text: expected a string"):
        protocol("chat").read(body)
    with pytest.raises(InvalidJsonError):
        protocol("chat").read("{")


def test_positional_bodies_only_as_a_quirk() -> None:
    body = {**CHAT, "messages": [["user", "q"]], "thinking": ["disabled", None], "reasoning_effort": {"low": None}}
    with pytest.raises(InvalidBodyError):
        protocol("chat").read(body)
    quirks = Quirks(positional_bodies=True)
    with pytest.raises(InvalidBodyError):
        protocol("chat").read({**CHAT, "thinking": ["disabled"]}, quirks=quirks)
    read = protocol("chat").read({**CHAT, "thinking": ["disabled", None]}, quirks=quirks)
    assert protocol("chat").convert(read).conversation.thinking_mode is False


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ({1, 2}, InvalidTypeError),
        (math.nan, InvalidArgumentError),
        (1 << 64, JsonRangeError),
        ("\ud800", InvalidArgumentError),
        ({1: 2}, InvalidTypeError),
    ],
)
def test_python_values_that_json_has_not(value: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        protocol("chat").read({**CHAT, "foo": value})


def test_a_conversion_leaves_the_body_alone() -> None:
    """The same body converts twice, and what it returns shares nothing with the caller's dict."""
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    body = protocol("chat").read({**CHAT, "tools": [tool]})
    first = protocol("chat").convert(body)
    schema["properties"]["a"] = {"type": "string"}
    assert protocol("chat").convert(body) == first
    assert first.conversation.tools[0].parameters == {"type": "object", "properties": {}}


def test_protocols_are_found() -> None:
    assert list(protocols()) == ["chat", "messages", "responses"]
    with pytest.raises(InvalidArgumentError, match="known: chat, messages, responses"):
        protocol("grpc")


def test_options_copies() -> None:
    options = ConversionOptions()
    changed = (
        options.with_default_thinking_mode(False)
        .with_reasoning_content_behavior(ReasoningContentBehavior.REJECT)
        .with_messages_web_search(WebSearchBehavior.DROP)
        .with_responses_web_search(WebSearchBehavior.REJECT)
        .with_thinking_max_tokens_upper_bound(5)
        .with_model_alias("mine", model_version("v4.1"))
    )
    assert options == ConversionOptions() and options != changed
    assert changed.max_tokens_upper_bound(True) == 5 and changed.max_tokens_upper_bound(False) == 393216
    assert protocol("chat").convert({**CHAT, "model": "mine"}, changed).model_version is model_version("v4.1")
    assert list(changed.with_model_versions_by_name({}).model_versions_by_name) == []
    with pytest.raises(InvalidArgumentError, match="thinking_max_tokens_upper_bound is -1"):
        options.with_thinking_max_tokens_upper_bound(-1)


@pytest.mark.parametrize(
    ("fields", "prompt", "limit", "want"),
    [
        ({}, 10, 1000000, 65536),
        ({"reasoning_effort": "max"}, 10, 1000000, 131072),
        ({"thinking": {"type": "disabled"}}, 10, 1000000, 8192),
        ({}, 990, 1000, 10),
        ({}, 1000, 1000, 1),
        ({"max_tokens": 7}, 993, 1000, 7),
    ],
)
def test_resolve_max_tokens(fields: dict[str, Any], prompt: int, limit: int, want: int) -> None:
    assert protocol("chat").convert({**CHAT, **fields}).resolve_max_tokens(prompt, limit) == want


def test_resolve_max_tokens_over_the_context() -> None:
    request = protocol("chat").convert({**CHAT, "max_tokens": 8})
    with pytest.raises(ConversionError, match=r"you requested 1001 tokens \(993 in the messages, 8 in"):
        request.resolve_max_tokens(993, 1000)
