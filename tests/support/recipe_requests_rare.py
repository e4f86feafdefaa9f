"""Small requests, each about one thing that random ones rarely come to: one error text, or one rule."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import recipe_requests as common
from recipe_requests import Body

Maker = Callable[[random.Random], Body]
_OBJECT: Body = {"type": "object", "properties": {"a": {"type": "string"}}}
_V41 = common.MODELS[1]
_LINKS = (common.LONG_URL, "ftp://x", "data:image/bmp;base64,aa", "data:image/png;base64,@")
_OFF: dict[str, Body] = {
    "chat": {"thinking": {"type": "disabled"}},
    "responses": {"reasoning": {"effort": "none"}},
    "messages": {"thinking": {"type": "disabled"}},
}

_STRICT_VALUES: tuple[Body, ...] = (
    {"type": "string", "pattern": "^a+$", "description": "d"},
    {"type": "string", "format": "email"},
    {"type": "string", "enum": ["a", "b"]},
    {"type": "number", "minimum": 1, "maximum": 2.5},
    {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 3, "const": 1, "default": 2},
    {"type": "integer", "minimum": 1, "multipleOf": 2},
    {"type": "integer", "description": "d", "const": 3},
    {"type": "boolean", "description": "d"},
    {"type": "null"},
    {"type": "array", "items": {"type": "string"}, "description": "d"},
    {"type": ["string", "null"], "description": "d"},
    {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "d"},
    {"$ref": "#/$defs/d"},
    {"type": "object", "properties": {"x": {"type": "string"}}, "description": "d"},
    {"type": "object", "properties": {}},
)


def strict_schema(rng: random.Random) -> Body:
    """An object of properties that strict schemas have."""
    values = rng.sample(_STRICT_VALUES, rng.choice((1, 1, 2, 3)))
    properties = dict(zip("abc", values))
    schema: Body = {"type": "object", "properties": properties, "$defs": {"d": {"type": "string"}}}
    if rng.random() < 0.3:
        schema["description"] = "d"
    if rng.random() < 0.2:
        schema["additionalProperties"] = rng.choice((False, True))
    if rng.random() < 0.3:
        names = list(properties)
        schema["required"] = rng.choice((names, names[:-1], [*names, "zz"], [*reversed(names)], [*names, names[0]]))
    return schema


# Chat Completions


def _chat(**fields: Any) -> Body:
    return {"messages": [{"role": "user", "content": "json"}], **fields}


def _chat_tool(**fields: Any) -> Body:
    return {"type": "function", "function": {"name": "f", **fields}}


def _chat_image(rng: random.Random, part: Body, role: str = "user") -> Body:
    parts = [{"type": "text", "text": "a"}] * rng.randrange(2) + [part]
    return {"model": _V41, "messages": [{"role": role, "content": parts}]}


def _file(rng: random.Random) -> Body:
    links = ("x", "data:image/png;base64,@", "data:text/plain;base64,aa", "data:image/png;base64,aa")
    return rng.choice(({"file_id": "f"}, {}, *({"file_data": link} for link in links)))


CHAT: list[Maker] = [
    lambda rng: _chat(tools=[_chat_tool(parameters=strict_schema(rng), strict=True)]),
    lambda rng: _chat(
        response_format={"type": "json_schema", "json_schema": {"schema": strict_schema(rng), "strict": True}}
    ),
    lambda rng: _chat(seed=rng.choice((2**63, 2**63 - 1, 2**64 - 1))),
    lambda rng: _chat(stop=rng.choice(("", "a", ["a"] * 17, ["a", ""]))),
    lambda rng: _chat(presence_penalty=rng.choice((2.1, -2.1, 2))),
    lambda rng: _chat(frequency_penalty=rng.choice((2.1, -2.1, -2))),
    lambda rng: _chat(n=rng.choice((0, 1, 2, 255))),
    lambda rng: _chat(top_logprobs=rng.choice((1, 20)), logprobs=rng.choice((False, True, None))),
    lambda rng: _chat(stream_options={"include_usage": rng.random() < 0.5}, stream=rng.random() < 0.5),
    lambda rng: _chat(reasoning_effort="none", thinking={"type": rng.choice(("enabled", "adaptive"))}),
    lambda rng: _chat(reasoning_effort=rng.choice(("max", "low")), thinking={"type": "disabled"}),
    lambda rng: _chat(reasoning_effort=rng.choice(("max", "ultra", "xhigh"))),
    lambda rng: _chat(tools=[_chat_tool()], tool_choice="none"),
    lambda rng: _chat(tools=[_chat_tool(name=rng.choice(common.BAD_NAMES))]),
    lambda rng: _chat_image(rng, {"type": "image_url", "image_url": {"url": rng.choice(_LINKS)}}),
    lambda rng: _chat_image(rng, {"type": "image_url", "image_url": {"url": "http://x"}}, "assistant"),
    lambda rng: _chat_image(rng, {"type": "file", "file": _file(rng)}),
    lambda rng: {"messages": [{"role": "user", "content": "q"}], "response_format": {"type": "json_object"}},
]

# Responses


def _responses(**fields: Any) -> Body:
    return {"input": "q", **fields}


def _response_function(**fields: Any) -> Body:
    return {"type": "function", "name": "f", **fields}


def _response_image(rng: random.Random, role: str = "user") -> Body:
    links = [{"image_url": link} for link in _LINKS]
    source = rng.choice((*links, {"file_id": "f"}, {"file_id": "f", "image_url": "http://x"}, {}))
    part = {"type": "input_image", **source}
    if rng.random() < 0.5:
        call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
        answer = {"type": "function_call_output", "call_id": "c", "output": [part]}
        return {"model": _V41, "input": [call, answer]}
    parts = [{"type": "input_text", "text": "a"}] * rng.randrange(2) + [part]
    return {"model": _V41, "input": [{"role": role, "content": parts}]}


def _namespaces(rng: random.Random) -> Body:
    spaces = [
        {"type": "namespace", "name": name, "tools": [_response_function(), _response_function(name="_g")]}
        for name in rng.choice((("a", "a"), ("a_", "a"), ("b",)))
    ]
    return _responses(tools=[*spaces, _response_function(name=rng.choice(("a__f", "b_g", "h")))])


RESPONSES: list[Maker] = [
    lambda rng: _responses(tools=[_response_function(parameters=strict_schema(rng), strict=True)]),
    lambda rng: _responses(
        text={"format": {"type": "json_schema", "name": "n", "schema": strict_schema(rng), "strict": True}}
    ),
    _response_image,
    _response_image,
    _response_image,
    lambda rng: {**_response_image(rng, "assistant")},
    _namespaces,
    lambda rng: _responses(text={"format": {"type": "json_object"}}),
    lambda rng: _responses(input="JSON", text={"format": {"type": "json_object"}}),
    lambda rng: _responses(tools=[{"type": "web_search"}], tool_choice=rng.choice(("auto", {"type": "web_search"}))),
    lambda rng: _responses(reasoning={"effort": rng.choice(("max", "xhigh", "ultra"))}),
    lambda rng: _responses(tools=[_response_function()], tool_choice="none"),
    lambda rng: {"input": rng.choice((None, [])), "instructions": rng.choice((None, "I"))},
]

# Messages


def _messages(*messages: Body, **fields: Any) -> Body:
    return {"messages": list(messages) or [{"role": "user", "content": "q"}], **fields}


def _misplaced(rng: random.Random) -> Body:
    blocks: tuple[Body, ...] = (
        {"type": "tool_use", "id": "m", "name": "f", "input": {}},
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
        {"type": "tool_result", "tool_use_id": "m"},
        {"type": "thinking", "thinking": "t", "signature": "s"},
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
        {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "f"}},
    )
    return _messages({"role": rng.choice(("user", "assistant", "system")), "content": [rng.choice(blocks)]})


def _message_image(rng: random.Random, role: str = "user") -> Body:
    links: tuple[Body, ...] = tuple({"type": "url", "url": link} for link in (common.LONG_URL, "ftp://x", "http://x"))
    links += ({"type": "file", "file_id": "f"}, {"type": "base64", "media_type": "image/png", "data": "@"})
    block = {"type": "image", "source": rng.choice(links)}
    return _messages({"role": role, "content": [block]}, model=_V41)


def _found(rng: random.Random) -> Body:
    name = rng.choice(("f", "zz"))
    use = {"type": "tool_use", "id": "u", "name": "f", "input": {}}
    reference = {"type": "tool_reference", "tool_name": name}
    answer = {"type": "tool_result", "tool_use_id": "u", "content": [reference]}
    addition = {"type": "tool_addition", "tool": {"type": "tool_reference", "name": name}}
    turns: tuple[list[Body], ...] = (
        [{"role": "assistant", "content": [use]}, {"role": "user", "content": [answer]}],
        [{"role": "user", "content": "q"}, {"role": "system", "content": [addition]}],
    )
    tools = [{"name": "f", "input_schema": _OBJECT, "defer_loading": True}, {"name": "g", "input_schema": _OBJECT}]
    return _messages(*rng.choice(turns), model=rng.choice(common.MODELS), tools=tools[: rng.choice((1, 2, 2))])


MESSAGES: list[Maker] = [
    _misplaced,
    _misplaced,
    _message_image,
    lambda rng: _message_image(rng, "assistant"),
    _found,
    lambda rng: _messages(
        output_config={"effort": "none"}, thinking={"type": rng.choice(("enabled", "adaptive")), "budget_tokens": 5}
    ),
    lambda rng: _messages(output_config={"effort": "max"}, thinking={"type": "disabled"}),
    lambda rng: _messages(output_config={"effort": rng.choice(("xhigh", "max", "ultra"))}),
    lambda rng: _messages(
        tools=[{"name": "f", "input_schema": _OBJECT}], tool_choice={"type": rng.choice(("any", "none", "auto"))}
    ),
    lambda rng: _messages({"role": "user", "content": []}),
    lambda rng: _messages(
        system=[{"type": "text", "text": "x-anthropic-billing-header: a"}, {"type": "text", "text": "b"}]
    ),
    lambda rng: _messages(stop_sequences=rng.choice((["a"], ["a", ""], ["a"] * 17))),
    lambda rng: _messages(
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "u", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "u"}]},
        tools=[{"name": "f", "input_schema": _OBJECT}],
    ),
]

_MAKERS = {"chat": CHAT, "responses": RESPONSES, "messages": MESSAGES}


def rare_request(protocol: str, rng: random.Random) -> Body:
    """One of them, for one of the models, thinking or not."""
    body = {"model": rng.choice(common.MODELS), **rng.choice(_MAKERS[protocol])(rng)}
    if rng.random() < 0.3:
        body = {**_OFF[protocol], **body}
    return body
