"""Random Chat Completions requests: how a valid one is made, and the rules that use or break one rule each."""

from __future__ import annotations

import random
from typing import Any

import recipe_requests as common
from recipe_requests import Body, RuleSet, chance, text


def part(rng: random.Random) -> Body:
    kind = rng.choice(("text", "text", "image_url", "file")) if chance(rng, 0.3) else "text"
    if kind == "text":
        return {"type": "text", "text": text(rng)}
    if kind == "file":
        return {"type": "file", "file_data": common.PIXEL}
    image: Body = {"url": common.image_url(rng)}
    if chance(rng, 0.4):
        image["detail"] = rng.choice(("low", "high", "original", "auto", None))
    return {"type": "image_url", "image_url": image}


def content(rng: random.Random) -> Any:
    return text(rng) if chance(rng, 0.7) else [part(rng) for _ in range(rng.randrange(4))]


def texts(rng: random.Random) -> Any:
    """Content without images, for assistants."""
    return text(rng) if chance(rng, 0.8) else [{"type": "text", "text": text(rng)} for _ in range(rng.randrange(3))]


def call(rng: random.Random, id: str) -> Body:
    function = {"name": common.tool_name(rng), "arguments": common.arguments(rng)}
    return {"id": id, "type": "function", "function": function}


def tool_turn(rng: random.Random, first: int) -> list[Body]:
    ids = [f"c{first + number}" for number in range(rng.choice((1, 1, 2, 3)))]
    message: Body = {"role": "assistant", "tool_calls": [call(rng, id) for id in ids]}
    if chance(rng, 0.6):
        message["content"] = rng.choice((None, texts(rng)))
    if chance(rng, 0.5):
        message["reasoning_content"] = rng.choice((text(rng), "", None))
    rng.shuffle(ids)
    return [message, *({"role": "tool", "tool_call_id": id, "content": content(rng)} for id in ids)]


def messages(rng: random.Random) -> list[Body]:
    result: list[Body] = []
    for number in range(rng.choice((1, 2, 3, 4, 6))):
        kind = rng.choice(("user", "user", "assistant", "assistant", "system", "tools", "latest_reminder"))
        if kind == "tools":
            result += tool_turn(rng, 10 * number)
        elif kind == "assistant":
            message: Body = {"role": kind, "content": texts(rng)}
            if chance(rng, 0.5):
                message["reasoning_content"] = rng.choice((text(rng), "", None))
            result.append(message)
        else:
            result.append({"role": kind, "content": text(rng) if kind == "latest_reminder" else content(rng)})
    return result


def tool(rng: random.Random) -> Body:
    function: Body = {"name": common.tool_name(rng)}
    if chance(rng, 0.7):
        function["description"] = rng.choice((text(rng), None))
    if chance(rng, 0.8):
        function["parameters"] = rng.choice((common.parameters(rng), common.parameters(rng), None))
    if chance(rng, 0.2):
        function["strict"] = rng.choice((True, False, None))
    return {"type": "function", "function": function}


def unique_tools(rng: random.Random) -> list[Body]:
    by_name = {item["function"]["name"]: item for item in (tool(rng) for _ in range(rng.choice((1, 2, 3))))}
    return list(by_name.values())


def make(rng: random.Random) -> Body:
    body: Body = {"model": rng.choice(common.MODELS), "messages": messages(rng)}
    if chance(rng, 0.4):
        body["tools"] = unique_tools(rng)
    if chance(rng, 0.5):
        body["thinking"] = {"type": rng.choice(("enabled", "disabled", "disabled", "adaptive"))}
    if chance(rng, 0.2):
        body["temperature"] = rng.choice((0, 0.3, 1, 2, 2.0, 1.7))
    if chance(rng, 0.2):
        body["top_p"] = rng.choice((0.3, 0.95, 0.97, 1, 1.0))
    return body


RULES = RuleSet(make)
rule = RULES.rule


@rule
def model_name(rng: random.Random, body: Body) -> None:
    body["model"] = rng.choice(("x", "", "deepseek-v4-pro"))


@rule
def no_messages(rng: random.Random, body: Body) -> None:
    body["messages"] = []


@rule
def bad_tool_name(rng: random.Random, body: Body) -> None:
    rng.choice(body["tools"])["function"]["name"] = rng.choice(common.BAD_NAMES)


@rule
def repeated_tool(rng: random.Random, body: Body) -> None:
    body["tools"].append(rng.choice(body["tools"]))


@rule
def broken_schema(rng: random.Random, body: Body) -> None:
    rng.choice(body["tools"])["function"]["parameters"] = rng.choice(common.BROKEN_SCHEMAS)


@rule
def all_strict(rng: random.Random, body: Body) -> None:
    for item in body["tools"]:
        item["function"]["strict"] = True


@rule
def strict_broken(rng: random.Random, body: Body) -> None:
    all_strict(rng, body)
    rng.choice(body["tools"])["function"]["parameters"] = rng.choice(common.STRICT_BREAKERS)


@rule
def mixed_strict(rng: random.Random, body: Body) -> None:
    body["tools"].append({"type": "function", "function": {"name": "other", "strict": True}})


@rule
def tool_choice(rng: random.Random, body: Body) -> None:
    named = {"type": "function", "function": {"name": rng.choice(("f", "g", "zz"))}}
    body["tool_choice"] = rng.choice(("none", "auto", "required", "required", named, named, "any", None))


@rule
def required_and_off(rng: random.Random, body: Body) -> None:
    body["tools"] = unique_tools(rng)
    named = {"type": "function", "function": {"name": body["tools"][0]["function"]["name"]}}
    body["tool_choice"] = rng.choice(("required", named))
    body["thinking"] = {"type": "disabled"}


@rule
def thinking(rng: random.Random, body: Body) -> None:
    body["thinking"] = {"type": rng.choice(("enabled", "disabled", "adaptive")), "budget_tokens": rng.choice((5, None))}


@rule
def effort(rng: random.Random, body: Body) -> None:
    body["reasoning_effort"] = rng.choice(("none", "minimal", "low", "medium", "high", "xhigh", "ultra", "max", None))
    if chance(rng, 0.6):
        body.pop("thinking", None)


@rule
def json_object(rng: random.Random, body: Body) -> None:
    body["response_format"] = {"type": "json_object"}
    if chance(rng, 0.5):
        body["messages"].insert(0, {"role": "user", "content": rng.choice(("Json", "js on", "a JSON b"))})


@rule
def json_schema(rng: random.Random, body: Body) -> None:
    chosen = rng.choice((common.parameters(rng), common.schema(rng), rng.choice(common.BROKEN_SCHEMAS)))
    body["response_format"] = {"type": "json_schema", "json_schema": {"schema": chosen, "name": "n"}}
    if chance(rng, 0.4):
        body["response_format"]["json_schema"]["strict"] = rng.choice((True, True, False, None))


@rule
def strict_format(rng: random.Random, body: Body) -> None:
    chosen = rng.choice((common.parameters(rng), common.parameters(rng), rng.choice(common.STRICT_BREAKERS)))
    body["response_format"] = {"type": "json_schema", "json_schema": {"schema": chosen, "strict": True}}
    body.pop("tools", None)


@rule
def regex(rng: random.Random, body: Body) -> None:
    body["response_format"] = {"type": "regex", "regex": rng.choice(("[a-z]+", "(", ""))}


@rule
def text_format(rng: random.Random, body: Body) -> None:
    body["response_format"] = rng.choice(({"type": "text"}, None, {"type": "xml"}))


def _insert(rng: random.Random, body: Body, *new: Body) -> None:
    place = rng.randrange(len(body["messages"]) + 1)
    body["messages"][place:place] = new


@rule
def empty_assistant(rng: random.Random, body: Body) -> None:
    _insert(rng, body, {"role": "assistant", "content": None, "reasoning_content": text(rng)})


@rule
def empty_calls(rng: random.Random, body: Body) -> None:
    _insert(rng, body, {"role": "assistant", "content": text(rng), "tool_calls": []})


def _turn_of_two(rng: random.Random) -> list[Body]:
    calls = [call(rng, "p"), call(rng, "q")]
    results = [{"role": "tool", "tool_call_id": id, "content": "R"} for id in ("p", "q")]
    return [{"role": "assistant", "tool_calls": calls}, *results]


@rule
def unanswered_call(rng: random.Random, body: Body) -> None:
    _insert(rng, body, *_turn_of_two(rng)[: rng.choice((1, 2))])


@rule
def unknown_result(rng: random.Random, body: Body) -> None:
    turn = _turn_of_two(rng)
    rng.choice(turn[1:])["tool_call_id"] = "zz"
    _insert(rng, body, *turn)


@rule
def repeated_call_id(rng: random.Random, body: Body) -> None:
    turn = _turn_of_two(rng)
    turn[0]["tool_calls"][1]["id"] = "p"
    _insert(rng, body, *turn)


@rule
def repeated_result(rng: random.Random, body: Body) -> None:
    turn = _turn_of_two(rng)
    turn[2]["tool_call_id"] = "p"
    _insert(rng, body, *turn)


@rule
def stray_result(rng: random.Random, body: Body) -> None:
    _insert(rng, body, {"role": "tool", "tool_call_id": "s", "content": content(rng)})


@rule
def prefix_last(rng: random.Random, body: Body) -> None:
    reasoning = rng.choice((text(rng), "", None))
    body["messages"].append(
        {"role": "assistant", "content": rng.choice(("", text(rng))), "reasoning_content": reasoning, "prefix": True}
    )


@rule
def prefix_alone(rng: random.Random, body: Body) -> None:
    body.pop("tools", None)
    body["messages"] = [item for item in body["messages"] if item["role"] in ("user", "system", "latest_reminder")]
    prefix_last(rng, body)


@rule
def prefix_earlier(rng: random.Random, body: Body) -> None:
    body["messages"].insert(0, {"role": "assistant", "content": "a", "prefix": True})
    if chance(rng, 0.3):
        body["messages"] = [body["messages"][0], {"role": "system", "content": ""}]


@rule
def prefix_of_user(rng: random.Random, body: Body) -> None:
    _insert(rng, body, {"role": "user", "content": "a", "prefix": True})


@rule
def empty_system(rng: random.Random, body: Body) -> None:
    _insert(rng, body, {"role": "system", "content": rng.choice(("", [], [{"type": "text", "text": ""}]))})


@rule
def bad_image(rng: random.Random, body: Body) -> None:
    role = rng.choice(("user", "system", "assistant"))
    image = {"type": "image_url", "image_url": {"url": rng.choice(common.BAD_IMAGE_URLS)}}
    _insert(rng, body, {"role": role, "content": [{"type": "text", "text": "a"}][: rng.randrange(2)] + [image]})


@rule
def image_in_assistant(rng: random.Random, body: Body) -> None:
    image = {"type": "image_url", "image_url": {"url": common.image_url(rng)}}
    _insert(rng, body, {"role": "assistant", "content": [image]})


FILES: tuple[Body, ...] = (
    {"file": {"file_data": "x"}},
    {"file_id": "f"},
    {"file_id": "f", "file_data": common.PIXEL},
    {"file_data": "x"},
    {"file_data": "data:image/png;base64,@"},
    {"file_data": "data:image/png,a"},
    {"file_data": "data:application/pdf;base64,aa", "filename": "p"},
    {"file_data": common.PIXEL, "filename": "n"},
    {"filename": 5},
)


@rule
def file_part(rng: random.Random, body: Body) -> None:
    body["model"] = common.MODELS[1]
    role = rng.choice(("user", "user", "system", "assistant"))
    body["messages"].insert(0, {"role": role, "content": [{"type": "file", **rng.choice(FILES)}]})


@rule
def named_message(rng: random.Random, body: Body) -> None:
    rng.choice(body["messages"])["name"] = rng.choice(("n", None, 5))


@rule
def images(rng: random.Random, body: Body) -> None:
    body["model"] = common.MODELS[1]
    parts = [{"type": "text", "text": text(rng)}] + [
        {"type": "image_url", "image_url": {"url": common.image_url(rng), "detail": rng.choice(("low", "auto", None))}}
        for _ in range(rng.choice((1, 2)))
    ]
    rng.shuffle(parts)
    _insert(rng, body, {"role": rng.choice(("user", "system")), "content": parts})


@rule
def stop(rng: random.Random, body: Body) -> None:
    body["stop"] = rng.choice(("a", "", [], ["a", "b"], ["a", ""], ["a"] * 16, ["a"] * 17, None, [""]))


@rule
def stream(rng: random.Random, body: Body) -> None:
    body["stream"] = rng.choice((True, False, None))
    if chance(rng, 0.6):
        body["stream_options"] = rng.choice(({"include_usage": True}, {}, None, {"include_usage": None}))


@rule
def temperature(rng: random.Random, body: Body) -> None:
    body["temperature"] = rng.choice((-0.1, 2.1, 2, 0, 2.00000001, -1e-50, 1e40, 0.7, "1", None))


@rule
def top_p(rng: random.Random, body: Body) -> None:
    body["top_p"] = rng.choice((0, 1.1, 1, 1e-50, 0.3, 0.95, 0.99, -1, None))


@rule
def penalties(rng: random.Random, body: Body) -> None:
    values = (-2, 2, 2.1, -2.1, 0, None)
    common.broken_sampling(rng, body, presence_penalty=values, frequency_penalty=values)


@rule
def count(rng: random.Random, body: Body) -> None:
    body["n"] = rng.choice((0, 1, 2, 255, 256, 1.0, None))


@rule
def max_tokens(rng: random.Random, body: Body) -> None:
    body["max_tokens"] = rng.choice((0, 1, 5, 7, 393216, 393217, 2**32 - 1, 2**32, 1.0, None))


@rule
def seed(rng: random.Random, body: Body) -> None:
    body["seed"] = rng.choice((0, 5, 2**63 - 1, 2**63, 2**64 - 1, -1, 1.0, None))


@rule
def logprobs(rng: random.Random, body: Body) -> None:
    body["top_logprobs"] = rng.choice((0, 3, 20, 21, 255, 256, None))
    if chance(rng, 0.6):
        body["logprobs"] = rng.choice((True, True, False, None))


@rule
def ignored(rng: random.Random, body: Body) -> None:
    for name in ("user", "logit_bias", "metadata", "max_completion_tokens", "foo"):
        if chance(rng, 0.5):
            body[name] = common.value(rng)
    body["parallel_tool_calls"] = rng.choice((True, False, None, 5))


# Rules that few requests reach by chance: the rest of the request is made plain.


def _plain(body: Body, **fields: Any) -> None:
    for name in ("tools", "tool_choice", "response_format", "thinking", "reasoning_effort", "stop", "stream_options"):
        body.pop(name, None)
    body["messages"] = [{"role": "user", "content": "Json"}]
    body.update(fields)


def _function(name: str, **fields: Any) -> Body:
    return {"type": "function", "function": {"name": name, **fields}}


@rule
def prefix_with_json(rng: random.Random, body: Body) -> None:
    _plain(body, response_format={"type": "json_object"})
    body["messages"].append({"role": "assistant", "content": "{", "prefix": True})


@rule
def thinking_excludes(rng: random.Random, body: Body) -> None:
    named = {"type": "function", "function": {"name": "f"}}
    _plain(body, tools=[_function("f")], tool_choice=rng.choice(("required", named)), thinking={"type": "enabled"})


@rule
def named_unknown(rng: random.Random, body: Body) -> None:
    _plain(body, tools=[_function("f")], tool_choice={"type": "function", "function": {"name": "zz"}})


@rule
def strict_with_format(rng: random.Random, body: Body) -> None:
    formats = ({"type": "text"}, {"type": "json_object"}, {"type": "regex", "regex": "a"})
    _plain(body, tools=[_function("f", strict=True)], response_format=rng.choice(formats))


@rule
def strict_format_of_value(rng: random.Random, body: Body) -> None:
    chosen = {"schema": rng.choice(({"type": "string"}, {"$ref": "#"}, {"anyOf": [{"type": "null"}]})), "strict": True}
    _plain(body, response_format={"type": "json_schema", "json_schema": chosen})


@rule
def strict_tool_of_value(rng: random.Random, body: Body) -> None:
    _plain(body, tools=[_function("f", strict=True, parameters={"type": rng.choice(("string", "null"))})])


@rule
def long_link(rng: random.Random, body: Body) -> None:
    body["model"] = common.MODELS[1]
    part = {"type": "image_url", "image_url": {"url": common.LONG_URL}}
    body["messages"].insert(0, {"role": "user", "content": [{"type": "text", "text": "a"}] * rng.randrange(2) + [part]})


@rule
def data_links(rng: random.Random, body: Body) -> None:
    body["model"] = common.MODELS[1]
    links = ("data:image/png;base64,@", "data:image/bmp;base64,aa", "data:image/png;x=y;base64,a%61 ", "DATA:,;base64,")
    part = {"type": "image_url", "image_url": {"url": rng.choice(links)}}
    body["messages"].insert(0, {"role": "user", "content": [part]})


@rule
def stop_long(rng: random.Random, body: Body) -> None:
    body["stop"] = ["a"] * rng.choice((16, 17, 40))


@rule
def logprobs_high(rng: random.Random, body: Body) -> None:
    body |= {"logprobs": True, "top_logprobs": rng.choice((20, 21, 255))}


@rule
def schema_not_object(rng: random.Random, body: Body) -> None:
    chosen = rng.choice(({}, {"type": "string"}, {"type": ["object", "null"]}, True))
    _plain(body, tools=[_function("f", parameters=chosen)])
