"""Random requests of the three protocols, made rule by rule.

A request starts valid. Then some rules are applied to it, each of which uses or breaks one rule of the protocol;
several at once settle which of their errors comes first. `sample` says which rules it applied, so that a fuzzer can
count them. The rules themselves are in `recipe_requests_chat.py`, `…_responses.py` and `…_messages.py`.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

Body = dict[str, Any]
Rule = Callable[[random.Random, Body], None]

MODELS = ("DeepSeek-V4-Pro", "DeepSeek-V4.1-Flash")
PIXEL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ"
LONG_URL = "http://h/" + "a" * 8184


@dataclass
class Sample:
    """A request, the conversion options to use (by name, enumerations by their word), and the rules applied to it."""

    protocol: str
    body: Any
    options: dict[str, Any] = field(default_factory=dict)
    rules: list[str] = field(default_factory=list)


@dataclass
class RuleSet:
    """What is known of a protocol: how a valid request is made, and its rules."""

    make: Callable[[random.Random], Body]
    rules: dict[str, Rule] = field(default_factory=dict)

    def rule(self, function: Rule) -> Rule:
        self.rules[function.__name__] = function
        return function


def sample(protocol: str, rng: random.Random) -> Sample:
    """A random request."""
    known = rule_set(protocol)
    body = known.make(rng)
    names = rng.choices(list(known.rules), k=rng.choices((0, 1, 2, 3), (2, 6, 4, 2))[0])
    for name in names:
        try:
            known.rules[name](rng, body)
        except (AttributeError, IndexError, KeyError, TypeError):
            pass  # what the rule is about was taken away by another
    if rng.random() < 0.08:
        names.append("shape")
        _break_shape(rng, body)
    return Sample(protocol, body, random_options(rng), names)


def rule_set(protocol: str) -> RuleSet:
    """The rules of a protocol, from the module of its name."""
    found: RuleSet = import_module(f"recipe_requests_{protocol}").RULES
    return found


def random_options(rng: random.Random) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if rng.random() < 0.25:
        options["default_thinking_mode"] = False
    if rng.random() < 0.2:
        options["reasoning_content_behavior"] = "Reject"
    if rng.random() < 0.2:
        options["responses_web_search"] = "Reject"
    if rng.random() < 0.3:
        options["messages_web_search"] = "Drop"
    if rng.random() < 0.1:
        options["thinking_max_tokens_upper_bound"] = rng.choice((0, 10, 1000000))
        options["non_thinking_max_tokens_upper_bound"] = rng.choice((0, 5, 1000000))
    return options


def chance(rng: random.Random, probability: float) -> bool:
    return rng.random() < probability


def _break_shape(rng: random.Random, body: Body) -> None:
    """Put a value of another type somewhere, or take a field away."""
    node: Any = body
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        if not keys:
            return
        key = rng.choice(keys)
        below = node[key]
        if isinstance(below, (dict, list)) and below and rng.random() < 0.75:
            node = below
            continue
        if isinstance(node, dict) and rng.random() < 0.25:
            del node[key]
        else:
            node[key] = rng.choice((None, 5, 1.5, True, "x", "", [], {}, -1, [5], {"type": "x"}, 2**40))
        return


# Pieces of requests

_WORDS = (
    "hello",
    "json",
    "JSON",
    "é",
    "日本",
    "<｜User｜>",
    "</think>",
    "<｜image｜>",
    "\n",
    "\0",
    "😀",
    "a b",
    "<tool_result>",
)


def text(rng: random.Random) -> str:
    return "".join(rng.choice(_WORDS) for _ in range(rng.choice((0, 1, 1, 2, 3))))


def number(rng: random.Random) -> Any:
    return rng.choice((0, 1, -1, 0.5, 1e-5, 1e-7, 1e16, 123456789012345678, 2**63, -0.0, 1.5))


def value(rng: random.Random, depth: int = 2) -> Any:
    """Any JSON value."""
    kind = rng.randrange(8 if depth else 5)
    if kind < 5:
        return (None, rng.random() < 0.5, number(rng), text(rng), text(rng))[kind]
    if kind == 5:
        return [value(rng, depth - 1) for _ in range(rng.randrange(3))]
    return {rng.choice("abcé"): value(rng, depth - 1) for _ in range(rng.randrange(4))}


def arguments(rng: random.Random) -> str:
    import json

    if chance(rng, 0.2):
        return rng.choice(("", "{", "[1]", "null", '{"a":1,"a":2}', '{"a":1e400}', '{"a":"\\ud800"}', " {} "))
    return json.dumps({name: value(rng) for name in rng.sample("abc", rng.randrange(3))}, ensure_ascii=False)


def tool_name(rng: random.Random) -> str:
    return rng.choice(("f", "g", "h", "get_weather", "a-b", "_x", "x_", "F9"))


BAD_NAMES = ("", "a b", "é", "a" * 129, "é" * 65, "a.b", "a\n")


def schema(rng: random.Random, depth: int = 2) -> Any:
    """A JSON Schema, nearly always valid."""
    kind = rng.choice(
        ("string", "number", "integer", "boolean", "null", "array", "object", "list", "any", "ref", "enum")
    )
    if depth <= 0 and kind in ("array", "object", "any"):
        kind = "string"
    result: Body = {"type": kind}
    if kind == "string":
        extra = {"pattern": rng.choice(("^a+$", "[a-z]", "\\d+")), "format": rng.choice(("email", "ipv4", "uri"))}
        extra |= {"enum": ["a", "b"], "minLength": 1}
        result |= {name: extra[name] for name in rng.sample(list(extra), rng.randrange(3))}
    elif kind in ("number", "integer"):
        names = rng.sample(("minimum", "maximum", "const", "default", "exclusiveMinimum"), rng.randrange(3))
        result |= {name: rng.choice((0, 1, -3, 2.5, 1e300)) for name in names}
        if chance(rng, 0.2):
            result["multipleOf"] = rng.choice((1, 2, 0.5))
    elif kind == "array":
        if chance(rng, 0.9):
            result["items"] = schema(rng, depth - 1)
        if chance(rng, 0.2):
            result["minItems"] = rng.choice((0, 1))
    elif kind == "object":
        result = object_schema(rng, depth - 1)
    elif kind == "list":
        result = {"type": rng.sample(("string", "number", "integer", "boolean", "null", "object"), rng.choice((1, 2)))}
    elif kind == "any":
        result = {rng.choice(("anyOf", "anyOf", "oneOf")): [schema(rng, depth - 1) for _ in range(rng.choice((1, 2)))]}
    elif kind == "ref":
        result = {"$ref": rng.choice(("#", "#/$defs/d", "#/$defs/d", "#/properties/a"))}
    elif kind == "enum":
        result = {"enum": ["a", 1, None]}
    if chance(rng, 0.2):
        result["description"] = text(rng)
    if chance(rng, 0.1):
        result["title"] = "t"
    return result


def object_schema(rng: random.Random, depth: int = 2) -> Body:
    names = rng.sample("abcd", rng.randrange(4))
    result: Body = {"type": "object"}
    if names or chance(rng, 0.5):
        result["properties"] = {name: schema(rng, depth) for name in names}
    if chance(rng, 0.3):
        result["required"] = rng.choice((names, list(reversed(names)), names[:1], []))
    if chance(rng, 0.3):
        result["additionalProperties"] = rng.choice((False, False, True, {"type": "string"}))
    if chance(rng, 0.3):
        result["description"] = text(rng)
    return result


def parameters(rng: random.Random) -> Any:
    """A schema for parameters: an object, with the definition that references mean."""
    if chance(rng, 0.4):
        return {"type": "object", "properties": {"a": {"type": "string"}}}
    result = object_schema(rng)
    result["$defs"] = {"d": {"type": "string"}}
    result.setdefault("properties", {}).setdefault("a", {"type": "string"})
    return result


BROKEN_SCHEMAS: tuple[Any, ...] = (
    {},
    {"type": "string"},
    {"type": ["object"]},
    {"type": "object", "properties": 5},
    {"type": "bogus"},
    {"type": "object", "required": ["a", "a"]},
    {"type": "object", "properties": {"a": {"$ref": "#/nope"}}},
    {"type": "object", "properties": {"a": {"$ref": "http://x.invalid/s"}}},
    {"type": "object", "properties": {"a": {"type": "string", "pattern": "["}}},
    {"type": "object", "properties": {"a": {"items": [{}]}}},
    {"type": "object", "$schema": "bogus"},
    {"type": "object", "$schema": "http://json-schema.org/draft-07/schema#", "properties": {"a": {"items": [{}]}}},
    {"type": "object", "$schema": "http://json-schema.org/draft-04/schema#", "required": []},
    {"type": "object", "anyOf": []},
    5,
    True,
    "x",
    [],
)
STRICT_BREAKERS: tuple[Any, ...] = (
    {"type": "object", "properties": {"a": {"type": "object"}}},
    {"type": "object", "properties": {"a": {"enum": ["x"]}}},
    {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": True},
    {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "null"}}, "required": ["a"]},
    {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a", "a"][:1] + ["b"]},
    {"type": "object", "properties": {"a": {"type": "array"}}},
    {"type": "object", "properties": {"a": {"type": "string", "format": "date"}}},
    {"type": "object", "properties": {"a": {"type": "integer", "minimum": 1.0}}},
    {"type": "object", "properties": {"a": {"anyOf": [{"$ref": "#"}]}}},
)


def image_url(rng: random.Random) -> str:
    return rng.choice((PIXEL, "http://x/y.png", "HTTPS://x/y", "data:image/webp;base64,aa"))


BAD_IMAGE_URLS = (
    "ftp://x/y",
    "",
    "data:image/png,aa",
    "data:text/plain;base64,aa",
    "data:image/png;base64,@@",
    "data:image/png;base64,a",
    LONG_URL,
    "data:image/bmp;base64,aa",
    "x",
)


def broken_sampling(rng: random.Random, body: Body, **choices: tuple[Any, ...]) -> None:
    """Give one of the named parameters one of its values."""
    name = rng.choice(list(choices))
    body[name] = rng.choice(choices[name])


def copied(body: Body) -> Body:
    return copy.deepcopy(body)
