"""Random Responses requests: how a valid one is made, and the rules that use or break one rule each."""

from __future__ import annotations

import random
from typing import Any

import recipe_requests as common
from recipe_requests import Body, RuleSet, chance, text

APPLY_PATCH = {"type": "custom", "name": "apply_patch"}


def image(rng: random.Random) -> Body:
    result: Body = {"type": "input_image", "image_url": common.image_url(rng)}
    if chance(rng, 0.4):
        result["detail"] = rng.choice(("low", "high", "original", "auto", None))
    return result


def part(rng: random.Random) -> Body:
    if chance(rng, 0.15):
        return image(rng)
    if chance(rng, 0.1):
        return {"type": "input_file", "file_id": "x"}
    return {"type": rng.choice(("input_text", "output_text")), "text": text(rng)}


def content(rng: random.Random) -> Any:
    return text(rng) if chance(rng, 0.6) else [part(rng) for _ in range(rng.randrange(4))]


def texts(rng: random.Random) -> Any:
    if chance(rng, 0.6):
        return text(rng)
    return [{"type": "output_text", "text": text(rng)} for _ in range(rng.randrange(3))]


def output(rng: random.Random) -> Any:
    if chance(rng, 0.6):
        return text(rng)
    parts = [part(rng) for _ in range(rng.randrange(3))]
    return [{**item, "type": "input_text"} if item["type"] == "output_text" else item for item in parts]


def call(rng: random.Random, id: str) -> Body:
    kind = rng.choice(("function_call", "function_call", "function_call", "custom_tool_call", "tool_search_call"))
    result: Body = {"type": kind, "call_id": id}
    if kind == "function_call":
        result |= {"name": common.tool_name(rng), "arguments": common.arguments(rng)}
        if chance(rng, 0.4):
            result["namespace"] = rng.choice(("ns", "a", "a_", "zz", None))
    elif kind == "custom_tool_call":
        result |= {"name": rng.choice(("apply_patch", "other")), "input": text(rng)}
    else:
        result["arguments"] = {name: common.value(rng) for name in rng.sample("ab", rng.randrange(3))}
        if chance(rng, 0.5):
            result["execution"] = rng.choice(("client", "server", None))
    return result


def answer(rng: random.Random, item: Body) -> Body:
    if item["type"] == "tool_search_call":
        return {"type": "tool_search_output", "call_id": item["call_id"], "tools": found_tools(rng)}
    return {"type": f"{item['type']}_output", "call_id": item["call_id"], "output": output(rng)}


def found_tools(rng: random.Random) -> list[Body]:
    names = iter(rng.sample(("k1", "k2", "k3", "k4"), 4))
    result: list[Body] = []
    for _ in range(rng.randrange(3)):
        item = function(rng, next(names))
        if chance(rng, 0.3):
            item = namespace(rng, rng.choice(("ns", "found")))
        result.append(item)
    return result


def turn(rng: random.Random, number: int) -> list[Body]:
    items: list[Body] = []
    if chance(rng, 0.5):
        items.append(reasoning(rng))
    if chance(rng, 0.4):
        items.append({"type": "message", "role": "assistant", "content": texts(rng)})
    calls = [call(rng, f"c{number}{letter}") for letter in rng.choice(("", "a", "b", "ab", "ba", "cab"))]
    answers = [answer(rng, item) for item in calls]
    rng.shuffle(answers)
    return [*items, *calls, *answers]


def reasoning(rng: random.Random) -> Body:
    item: Body = {"type": "reasoning", "summary": []}
    if chance(rng, 0.8):
        parts = [{"type": "reasoning_text", "text": text(rng)} for _ in range(rng.randrange(3))]
        item["content"] = rng.choice((parts, parts, None))
    return item


def items(rng: random.Random) -> list[Body]:
    result: list[Body] = []
    for number in range(rng.choice((1, 2, 3, 4))):
        if chance(rng, 0.5):
            message: Body = {"role": rng.choice(("user", "user", "system", "developer", "assistant"))}
            message["content"] = texts(rng) if message["role"] == "assistant" else content(rng)
            if chance(rng, 0.6):
                message["type"] = "message"
            result.append(message)
        else:
            result += turn(rng, number)
        if chance(rng, 0.1):
            result.append({"type": rng.choice(("item_reference", "mcp_call", "zz")), "id": "x"})
    return result


def function(rng: random.Random, name: str) -> Body:
    result: Body = {"type": "function", "name": name}
    if chance(rng, 0.5):
        result["description"] = rng.choice((text(rng), None))
    if chance(rng, 0.8):
        result["parameters"] = rng.choice((common.parameters(rng), common.parameters(rng), None))
    if chance(rng, 0.1):
        result["strict"] = rng.choice((False, None))
    return result


def namespace(rng: random.Random, name: str) -> Body:
    names = rng.sample(("f", "g", "_x", "b", "_b"), rng.randrange(3))
    result: Body = {"type": "namespace", "name": name, "tools": [function(rng, item) for item in names]}
    if chance(rng, 0.5):
        result["description"] = rng.choice((text(rng), "D", None))
    return result


def tools(rng: random.Random) -> list[Body]:
    result = [function(rng, name) for name in rng.sample(("f", "g", "a__b", "ns__f", "ns_x"), rng.randrange(4))]
    if chance(rng, 0.4):
        result += [namespace(rng, name) for name in rng.choice((("ns",), ("a", "a_"), ("ns", "ns"), ("a",)))]
    if chance(rng, 0.2):
        result.append(dict(APPLY_PATCH))
    if chance(rng, 0.2):
        search: Body = {"type": "tool_search", "parameters": rng.choice((common.parameters(rng), None))}
        result.append({**search, "execution": rng.choice(("client", "client", "server", None))})
    if chance(rng, 0.15):
        kind = rng.choice(("web_search", "web_search_2025_08_26", "web_search_preview", "mcp"))
        result.append({"type": kind, "search_context_size": rng.choice(("low", None))})
    rng.shuffle(result)
    return result


def make(rng: random.Random) -> Body:
    body: Body = {"model": rng.choice(common.MODELS), "input": text(rng) if chance(rng, 0.1) else items(rng)}
    if chance(rng, 0.5):
        body["tools"] = tools(rng)
    if chance(rng, 0.5):
        body["reasoning"] = {"effort": rng.choice(("none", "none", "low", "high"))}
    if chance(rng, 0.3):
        body["instructions"] = rng.choice((text(rng), None))
    if chance(rng, 0.2):
        body["temperature"] = rng.choice((0, 0.3, 1, 2))
    if chance(rng, 0.2):
        body["top_p"] = rng.choice((0.3, 0.95, 0.97, 1))
    return body


RULES = RuleSet(make)
rule = RULES.rule


def _insert(rng: random.Random, body: Body, *new: Body) -> None:
    place = rng.randrange(len(body["input"]) + 1)
    body["input"][place:place] = new


@rule
def model_name(rng: random.Random, body: Body) -> None:
    body["model"] = rng.choice(("x", ""))


@rule
def no_input(rng: random.Random, body: Body) -> None:
    body["input"] = rng.choice(([], [], None, ""))
    body["instructions"] = rng.choice((None, "", "I"))


@rule
def bad_name(rng: random.Random, body: Body) -> None:
    item = rng.choice([item for item in body["tools"] if item["type"] in ("function", "namespace")])
    if item["type"] == "namespace" and item["tools"] and chance(rng, 0.6):
        item = rng.choice(item["tools"])
    item["name"] = rng.choice(common.BAD_NAMES)


@rule
def custom_tool(rng: random.Random, body: Body) -> None:
    body.setdefault("tools", []).append({"type": "custom", "name": rng.choice(("zz", "", "apply_patch"))})


@rule
def custom_in_namespace(rng: random.Random, body: Body) -> None:
    members = [dict(APPLY_PATCH), function(rng, "q")]
    rng.shuffle(members)
    body.setdefault("tools", []).append({"type": "namespace", "name": "nn", "tools": members})


@rule
def repeated_in_namespace(rng: random.Random, body: Body) -> None:
    members = [function(rng, "q"), function(rng, "q")]
    body.setdefault("tools", []).append({"type": "namespace", "name": "nn", "tools": members})


@rule
def repeated_tool(rng: random.Random, body: Body) -> None:
    body["tools"].append(rng.choice(body["tools"]))


@rule
def broken_schema(rng: random.Random, body: Body) -> None:
    item = rng.choice([item for item in body["tools"] if item["type"] in ("function", "tool_search")])
    item["parameters"] = rng.choice(common.BROKEN_SCHEMAS)


@rule
def all_strict(rng: random.Random, body: Body) -> None:
    for item in body["tools"]:
        for member in item.get("tools", [item]):
            member["strict"] = True


@rule
def strict_broken(rng: random.Random, body: Body) -> None:
    body["tools"] = [function(rng, "f"), function(rng, "g")][: rng.choice((1, 2))]
    all_strict(rng, body)
    rng.choice(body["tools"])["parameters"] = rng.choice(common.STRICT_BREAKERS)


@rule
def mixed_strict(rng: random.Random, body: Body) -> None:
    body["tools"].append({"type": "function", "name": "other", "strict": True})


@rule
def tool_choice(rng: random.Random, body: Body) -> None:
    name = rng.choice(("f", "g", "ns__f", "ns::f", "zz", "apply_patch"))
    named = {"type": rng.choice(("function", "custom")), "name": name}
    server = {"type": rng.choice(("web_search", "web_search_2025_08_26", "mcp"))}
    body["tool_choice"] = rng.choice(("none", "auto", "required", named, named, server, "any", None))


@rule
def required_and_off(rng: random.Random, body: Body) -> None:
    body["tools"] = [function(rng, "f"), function(rng, "g")]
    body["tool_choice"] = rng.choice(("required", {"type": "function", "name": "f"}))
    body["reasoning"] = {"effort": "none"}


@rule
def effort(rng: random.Random, body: Body) -> None:
    words = ("none", "minimal", "low", "medium", "high", "xhigh", "ultra", "max", None)
    body["reasoning"] = {"effort": rng.choice(words), "summary": rng.choice(("auto", "concise", "detailed", None, "x"))}


@rule
def json_object(rng: random.Random, body: Body) -> None:
    body["text"] = {"format": {"type": "json_object"}}
    if chance(rng, 0.5):
        body["input"].insert(0, {"role": "user", "content": rng.choice(("Json", "js on", "a JSON b"))})


@rule
def json_schema(rng: random.Random, body: Body) -> None:
    chosen = rng.choice((common.parameters(rng), common.schema(rng), rng.choice(common.BROKEN_SCHEMAS)))
    body["text"] = {"format": {"type": "json_schema", "schema": chosen, "name": "n"}}
    if chance(rng, 0.4):
        body["text"]["format"]["strict"] = rng.choice((True, True, False, None))


@rule
def strict_format(rng: random.Random, body: Body) -> None:
    chosen = rng.choice((common.parameters(rng), common.parameters(rng), rng.choice(common.STRICT_BREAKERS)))
    body["text"] = {"format": {"type": "json_schema", "schema": chosen, "strict": True, "name": "n"}}
    body.pop("tools", None)


@rule
def text_format(rng: random.Random, body: Body) -> None:
    formats = ({"type": "text"}, {"type": "regex", "regex": "a"}, None, {"type": "json_schema", "schema": {}})
    body["text"] = {"format": rng.choice(formats)}
    if chance(rng, 0.5):
        body["text"]["verbosity"] = rng.choice(("low", "medium", "high", None, "x"))


@rule
def empty_call_id(rng: random.Random, body: Body) -> None:
    item = call(rng, "e")
    pair = [item, answer(rng, item)]
    rng.choice(pair)["call_id"] = ""
    _insert(rng, body, *pair)


@rule
def repeated_call(rng: random.Random, body: Body) -> None:
    one, two = call(rng, "r"), call(rng, "r")
    _insert(rng, body, *rng.choice(([one, two, answer(rng, one)], [one, answer(rng, one), two, answer(rng, two)])))


@rule
def unanswered(rng: random.Random, body: Body) -> None:
    one, two = call(rng, "u"), call(rng, "v")
    between = rng.choice(({"role": "user", "content": "x"}, reasoning(rng), {"role": "assistant", "content": "x"}))
    kept = rng.choice(([one], [one, two, answer(rng, two)], [one, between, answer(rng, one)]))
    _insert(rng, body, *kept)


@rule
def stray_output(rng: random.Random, body: Body) -> None:
    _insert(rng, body, answer(rng, call(rng, "s")))


@rule
def repeated_output(rng: random.Random, body: Body) -> None:
    item = call(rng, "d")
    again = answer(rng, item)
    _insert(rng, body, item, answer(rng, item), again)
    if chance(rng, 0.3):
        body["input"].append(again)


@rule
def output_without_id(rng: random.Random, body: Body) -> None:
    item: Body = {"type": "function_call_output", "output": output(rng)}
    if chance(rng, 0.4):
        item["call_id"] = None
    _insert(rng, body, item)


@rule
def output_without_text(rng: random.Random, body: Body) -> None:
    item = call(rng, "w")
    answered = answer(rng, item)
    answered["output"] = None
    if chance(rng, 0.5):
        del answered["output"]
    body["input"][:0] = [item, answered]


@rule
def interleaved(rng: random.Random, body: Body) -> None:
    one, two, three = (call(rng, id) for id in ("i", "j", "k"))
    ignored = {"type": "zz"}
    _insert(rng, body, one, two, ignored, answer(rng, two), three, answer(rng, three), answer(rng, one))


@rule
def developer(rng: random.Random, body: Body) -> None:
    _insert(rng, body, {"role": rng.choice(("developer", "system")), "content": rng.choice(("", "x", []))})


@rule
def assistants(rng: random.Random, body: Body) -> None:
    one, two = ({"role": "assistant", "content": texts(rng)} for _ in range(2))
    _insert(rng, body, *rng.choice(([one, two], [one, reasoning(rng), two], [reasoning(rng), reasoning(rng), one])))


@rule
def bad_image(rng: random.Random, body: Body) -> None:
    broken: Body = {"type": "input_image", "image_url": rng.choice(common.BAD_IMAGE_URLS)}
    broken = rng.choice((broken, broken, {"type": "input_image"}, {"type": "input_image", "file_id": "x"}))
    if chance(rng, 0.2):
        broken = {"type": "input_image", "file_id": "x", "image_url": "http://x"}
    parts = [{"type": "input_text", "text": "a"}][: rng.randrange(2)] + [broken]
    if chance(rng, 0.2):
        item = {"type": "function_call", "call_id": "im", "name": "f", "arguments": "{}"}
        _insert(rng, body, item, {"type": "function_call_output", "call_id": "im", "output": parts})
    else:
        _insert(rng, body, {"role": rng.choice(("user", "system", "assistant", "developer")), "content": parts})


@rule
def image_in_assistant(rng: random.Random, body: Body) -> None:
    _insert(rng, body, {"role": "assistant", "content": [image(rng)]})


@rule
def search(rng: random.Random, body: Body) -> None:
    body["model"] = common.MODELS[1]
    item = {"type": "tool_search_call", "call_id": "ts", "arguments": {"q": common.value(rng)}}
    _insert(rng, body, item, {"type": "tool_search_output", "call_id": "ts", "tools": found_tools(rng)})


@rule
def search_broken(rng: random.Random, body: Body) -> None:
    body["model"] = common.MODELS[1]
    found = rng.choice(
        (
            {"type": "function", "name": rng.choice(common.BAD_NAMES)},
            {"type": "function", "name": "f"},
            {"type": "custom", "name": rng.choice(("zz", "apply_patch"))},
            {"type": "namespace", "name": "n", "tools": [dict(APPLY_PATCH)]},
            {"type": "namespace", "name": "", "tools": []},
            {"type": "function", "name": "k9", "parameters": rng.choice(common.BROKEN_SCHEMAS)},
            {"type": "web_search"},
            {"type": "tool_search", "execution": "client", "parameters": None},
            {"type": "function", "name": "k8", "strict": True},
        )
    )
    item = {"type": "tool_search_call", "call_id": "tb", "arguments": {}}
    _insert(rng, body, item, {"type": "tool_search_output", "call_id": "tb", "tools": [found]})


@rule
def search_unknown_tool(rng: random.Random, body: Body) -> None:
    body["model"] = common.MODELS[1]
    item = {"type": "tool_search_call", "call_id": "tu", "arguments": {}}
    _insert(rng, body, item, {"type": "tool_search_output", "call_id": "tu", "tools": [{"type": "mcp"}]})


@rule
def temperature(rng: random.Random, body: Body) -> None:
    body["temperature"] = rng.choice((-0.1, 2.1, 2, 0, 1e40, 0.7, "1", None))


@rule
def top_p(rng: random.Random, body: Body) -> None:
    body["top_p"] = rng.choice((0, 1.1, 1, 1e-50, 0.3, 0.95, 0.99, -1, None))


@rule
def max_output_tokens(rng: random.Random, body: Body) -> None:
    body["max_output_tokens"] = rng.choice((0, 1, 5, 7, 393216, 393217, 2**32, 1.0, None))


@rule
def top_logprobs(rng: random.Random, body: Body) -> None:
    body["top_logprobs"] = rng.choice((0, 3, 20, 21, 255, 256, None))


@rule
def ignored(rng: random.Random, body: Body) -> None:
    for name in ("metadata", "stop", "seed", "store", "include", "previous_response_id", "thinking"):
        if chance(rng, 0.5):
            body[name] = common.value(rng)
    body["user"] = rng.choice(("u", None, 5))
    body["stream"] = rng.choice((True, False, None))


# Rules that few requests reach by chance: the rest of the request is made plain.


def _plain(body: Body, **fields: Any) -> None:
    for name in ("tools", "tool_choice", "text", "reasoning"):
        body.pop(name, None)
    body["input"] = [{"role": "user", "content": "Json"}]
    body.update(fields)


def _function(name: str, **fields: Any) -> Body:
    return {"type": "function", "name": name, **fields}


@rule
def thinking_excludes(rng: random.Random, body: Body) -> None:
    choices = ("required", {"type": "function", "name": "f"})
    _plain(body, tools=[_function("f")], tool_choice=rng.choice(choices), reasoning={"effort": "low"})


@rule
def named_unknown(rng: random.Random, body: Body) -> None:
    _plain(body, tools=[_function("f")], tool_choice={"type": rng.choice(("function", "custom")), "name": "zz"})


@rule
def strict_with_format(rng: random.Random, body: Body) -> None:
    formats = ({"type": "text"}, {"type": "json_object"}, {"type": "json_schema", "name": "n", "schema": {}})
    _plain(body, tools=[_function("f", strict=True)], text={"format": rng.choice(formats)})


@rule
def strict_format_of_value(rng: random.Random, body: Body) -> None:
    chosen = rng.choice(({"type": "string"}, {"$ref": "#"}, {"anyOf": [{"type": "null"}]}))
    _plain(body, text={"format": {"type": "json_schema", "name": "n", "schema": chosen, "strict": True}})


@rule
def strict_tool_of_value(rng: random.Random, body: Body) -> None:
    _plain(body, tools=[_function("f", strict=True, parameters={"type": rng.choice(("string", "null"))})])


@rule
def schema_not_object(rng: random.Random, body: Body) -> None:
    chosen = rng.choice(({}, {"type": "string"}, {"type": ["object", "null"]}, True))
    _plain(body, tools=[_function("f", parameters=chosen)])


@rule
def image_sources(rng: random.Random, body: Body) -> None:
    body["model"] = common.MODELS[1]
    urls = (common.LONG_URL, "data:image/png;base64,@", "data:image/bmp;base64,aa", "ftp://x", "")
    sources = ({"file_id": "f"}, {"file_id": "f", "image_url": "http://x"}, {}, *({"image_url": url} for url in urls))
    parts = [{"type": "input_text", "text": "a"}] * rng.randrange(2)
    parts.append({"type": "input_image", **rng.choice(sources)})
    if chance(rng, 0.5):
        item = {"type": "function_call", "call_id": "io", "name": "f", "arguments": "{}"}
        body["input"][:0] = [item, {"type": "function_call_output", "call_id": "io", "output": parts}]
    else:
        body["input"].insert(0, {"role": "user", "content": parts})


@rule
def twice_called(rng: random.Random, body: Body) -> None:
    item = {"type": "function_call", "call_id": "tc", "name": "f", "arguments": "{}"}
    body["input"][:0] = [item, dict(item)]
