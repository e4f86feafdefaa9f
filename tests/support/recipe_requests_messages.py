"""Random Messages requests: how a valid one is made, and the rules that use or break one rule each."""

from __future__ import annotations

import random

import recipe_requests as common
from recipe_requests import Body, RuleSet, chance, text


def words(rng: random.Random) -> Body:
    return {"type": "text", "text": text(rng)}


def image(rng: random.Random) -> Body:
    sources = (
        {"type": "url", "url": rng.choice(("http://x/y", "HTTPS://x"))},
        {"type": "base64", "media_type": rng.choice(("image/png", "image/jpg", "image/webp")), "data": "aaaa"},
    )
    return {"type": "image", "source": rng.choice(sources)}


def document(rng: random.Random) -> Body:
    source: Body = {"type": "text", "data": "x"}
    if chance(rng, 0.7):
        source["media_type"] = rng.choice(("text/plain", "application/pdf", None))
    return {"type": "document", "source": source}


def part(rng: random.Random) -> Body:
    maker = rng.choice((words, words, words, words, words, document, image))
    return maker(rng)


def use(rng: random.Random, id: str) -> Body:
    return {"type": "tool_use", "id": id, "name": common.tool_name(rng), "input": common.value(rng)}


def result(rng: random.Random, id: str) -> Body:
    block: Body = {"type": "tool_result", "tool_use_id": id}
    if chance(rng, 0.8):
        parts = [part(rng) for _ in range(rng.randrange(3))]
        if chance(rng, 0.1):
            parts.append({"type": "tool_reference", "tool_name": rng.choice("fgh")})
        block["content"] = rng.choice((text(rng), text(rng), None, parts))
    if chance(rng, 0.2):
        block["is_error"] = rng.choice((True, False, None))
    return block


def thinking_block(rng: random.Random) -> Body:
    return {"type": "thinking", "thinking": text(rng), "signature": rng.choice(("s", None))}


def assistant(rng: random.Random, ids: list[str]) -> Body:
    if not ids and chance(rng, 0.4):
        return {"role": "assistant", "content": text(rng)}
    blocks = [words(rng) for _ in range(rng.randrange(3))]
    if chance(rng, 0.5):
        blocks.insert(rng.randrange(len(blocks) + 1), thinking_block(rng))
    blocks += [use(rng, id) for id in ids]
    return {"role": "assistant", "content": blocks or [words(rng)]}


def messages(rng: random.Random) -> list[Body]:
    made: list[Body] = []
    for number in range(rng.choice((1, 2, 3, 4))):
        kind = rng.choice(("user", "user", "assistant", "system", "tools"))
        if kind == "tools":
            ids = [f"t{number}{letter}" for letter in rng.choice(("a", "ab", "abc"))]
            made.append(assistant(rng, ids))
            rng.shuffle(ids)
            rest = [part(rng) for _ in range(rng.randrange(3))]
            made.append({"role": "user", "content": [result(rng, id) for id in ids] + rest})
        elif kind == "assistant":
            made.append(assistant(rng, []))
        else:
            blocks = [part(rng) for _ in range(rng.choice((1, 2, 3)))]
            made.append({"role": kind, "content": rng.choice((text(rng), blocks))})
    return made


def tool(rng: random.Random, name: str) -> Body:
    item: Body = {"name": name, "input_schema": common.parameters(rng)}
    if chance(rng, 0.5):
        item["description"] = rng.choice((text(rng), None))
    if chance(rng, 0.3):
        item["defer_loading"] = rng.choice((True, False, None))
    if chance(rng, 0.2):
        item["strict"] = True
    return item


def tools(rng: random.Random) -> list[Body]:
    return [tool(rng, name) for name in rng.sample("fgh", rng.choice((1, 2, 3)))]


def make(rng: random.Random) -> Body:
    body: Body = {"model": rng.choice(common.MODELS), "messages": messages(rng)}
    if chance(rng, 0.5):
        body["tools"] = tools(rng)
    if chance(rng, 0.5):
        body["thinking"] = {"type": rng.choice(("enabled", "disabled", "disabled", "adaptive"))}
    if chance(rng, 0.8):
        body["max_tokens"] = rng.choice((1, 5, 64, 1000, 999999))
    if chance(rng, 0.3):
        body["system"] = rng.choice((text(rng), None, [words(rng) for _ in range(rng.randrange(3))]))
    if chance(rng, 0.2):
        body["temperature"] = rng.choice((0, 0.3, 1, 2))
    if chance(rng, 0.2):
        body["top_p"] = rng.choice((0.3, 0.95, 0.97, 1))
    return body


RULES = RuleSet(make)
rule = RULES.rule


def _insert(rng: random.Random, body: Body, *new: Body) -> None:
    place = rng.randrange(len(body["messages"]) + 1)
    body["messages"][place:place] = new


@rule
def model_name(rng: random.Random, body: Body) -> None:
    body["model"] = rng.choice(("x", ""))


@rule
def no_messages(rng: random.Random, body: Body) -> None:
    body["messages"] = []


@rule
def empty_content(rng: random.Random, body: Body) -> None:
    _insert(rng, body, {"role": rng.choice(("user", "assistant", "system")), "content": rng.choice(([], [], ""))})


@rule
def system(rng: random.Random, body: Body) -> None:
    header = {"type": "text", "text": rng.choice(("x-anthropic-billing-header: a", "X-Anthropic-Billing-HEADER"))}
    others = [words(rng) for _ in range(rng.randrange(3))]
    body["system"] = rng.choice(([header, *others], [*others, header], header["text"], "", []))


@rule
def bad_tool_name(rng: random.Random, body: Body) -> None:
    rng.choice(body["tools"])["name"] = rng.choice(common.BAD_NAMES)


@rule
def repeated_tool(rng: random.Random, body: Body) -> None:
    body["tools"].append(rng.choice(body["tools"]))


@rule
def broken_schema(rng: random.Random, body: Body) -> None:
    rng.choice(body["tools"])["input_schema"] = rng.choice((*common.BROKEN_SCHEMAS, None))


@rule
def no_schema(rng: random.Random, body: Body) -> None:
    del rng.choice(body["tools"])["input_schema"]


@rule
def server_tool(rng: random.Random, body: Body) -> None:
    kind = rng.choice(("web_search_20250305", "web_search_20250305", "web_search", "bash_1", "custom", ""))
    server: Body = {"type": kind, "name": rng.choice(("web_search", "other", None)), "max_uses": 5}
    if chance(rng, 0.2):
        del server["name"]
    if chance(rng, 0.4):
        body["tools"] = []
    body.setdefault("tools", []).insert(0, server)
    if chance(rng, 0.4):
        body["tool_choice"] = {"type": "tool", "name": rng.choice(("web_search", "other"))}


@rule
def all_deferred(rng: random.Random, body: Body) -> None:
    for item in body["tools"]:
        item["defer_loading"] = True


@rule
def tool_choice(rng: random.Random, body: Body) -> None:
    named = {"type": "tool", "name": rng.choice(("f", "g", "zz", "web_search"))}
    others = ({"type": "auto"}, {"type": "any"}, {"type": "none"}, {"type": "zz"}, None)
    body["tool_choice"] = rng.choice((*others, named, named))
    if body["tool_choice"] and chance(rng, 0.3):
        body["tool_choice"]["disable_parallel_tool_use"] = rng.choice((True, None, 5))


@rule
def named_and_off(rng: random.Random, body: Body) -> None:
    body["tools"] = tools(rng)
    body["tool_choice"] = {"type": "tool", "name": body["tools"][0]["name"]}
    body["thinking"] = {"type": "disabled"}


@rule
def thinking(rng: random.Random, body: Body) -> None:
    body["thinking"] = {"type": rng.choice(("enabled", "disabled", "adaptive")), "budget_tokens": rng.choice((5, None))}


@rule
def effort(rng: random.Random, body: Body) -> None:
    words = ("none", "minimal", "low", "medium", "high", "xhigh", "ultra", "max", None, "x")
    body["output_config"] = {"effort": rng.choice(words), "format": 5}
    if chance(rng, 0.6):
        body.pop("thinking", None)


def _pair(rng: random.Random) -> tuple[Body, Body]:
    blocks = [use(rng, "p"), use(rng, "q")]
    return {"role": "assistant", "content": blocks}, {"role": "user", "content": [result(rng, "p"), result(rng, "q")]}


@rule
def missing_result(rng: random.Random, body: Body) -> None:
    one, two = _pair(rng)
    del two["content"][rng.randrange(2)]
    _insert(rng, body, *rng.choice(([one], [one, two], [one, two])))


@rule
def content_before_result(rng: random.Random, body: Body) -> None:
    one, two = _pair(rng)
    two["content"].insert(rng.randrange(2), part(rng))
    _insert(rng, body, one, two)


@rule
def content_between(rng: random.Random, body: Body) -> None:
    one, two = _pair(rng)
    blocks = ({"role": "system", "content": rng.choice(("x", "", []))}, {"role": "assistant", "content": [words(rng)]})
    _insert(rng, body, one, rng.choice((*blocks, {"role": "user", "content": "x"})), two)


@rule
def content_after_use(rng: random.Random, body: Body) -> None:
    one, two = _pair(rng)
    one["content"].insert(rng.choice((1, 2)), rng.choice((part(rng), thinking_block(rng))))
    _insert(rng, body, one, two)


@rule
def repeated_use(rng: random.Random, body: Body) -> None:
    one, two = _pair(rng)
    one["content"][1]["id"] = "p"
    _insert(rng, body, one, two)


@rule
def repeated_result(rng: random.Random, body: Body) -> None:
    one, two = _pair(rng)
    two["content"].insert(rng.choice((1, 2)), result(rng, "p"))
    _insert(rng, body, one, two)


@rule
def unexpected_result(rng: random.Random, body: Body) -> None:
    one, two = _pair(rng)
    two["content"].insert(rng.randrange(3), result(rng, "zz"))
    _insert(rng, body, *rng.choice(([one, two], [two])))


@rule
def misplaced(rng: random.Random, body: Body) -> None:
    server_use = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    found = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
    addition = {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "f"}}
    blocks = (use(rng, "m"), result(rng, "m"), thinking_block(rng), server_use, found, addition)
    chosen = [words(rng)][: rng.randrange(2)] + [rng.choice(blocks)]
    _insert(rng, body, {"role": rng.choice(("user", "assistant", "system")), "content": chosen})


@rule
def server_blocks(rng: random.Random, body: Body) -> None:
    server_use = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    found = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
    blocks = [words(rng), server_use, found, words(rng)]
    _insert(rng, body, {"role": "assistant", "content": rng.sample(blocks, rng.choice((1, 2, 4)))})


@rule
def reference(rng: random.Random, body: Body) -> None:
    names = [rng.choice(("f", "f", "g", "h", "zz")) for _ in range(rng.choice((1, 2)))]
    parts = [words(rng)] + [{"type": "tool_reference", "tool_name": name} for name in names]
    answer = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x", "content": parts}]}
    _insert(rng, body, {"role": "assistant", "content": [use(rng, "x")]}, answer)


@rule
def addition(rng: random.Random, body: Body) -> None:
    names = [rng.choice(("f", "f", "g", "h", "zz")) for _ in range(rng.choice((1, 2)))]
    blocks = [{"type": "tool_addition", "tool": {"type": "tool_reference", "name": name}} for name in names]
    _insert(rng, body, {"role": "system", "content": [words(rng)][: rng.randrange(2)] + blocks})


@rule
def bad_image(rng: random.Random, body: Body) -> None:
    url = rng.choice(("ftp://x", "", "x", common.LONG_URL, 'a"b\\\n', "data:image/png;base64,aa"))
    data = rng.choice(("@", "aa", "a", "aa=", "aa==", "aaa=", "a a", "ab-_"))
    sources = (
        {"type": "url", "url": url},
        {"type": "url", "url": url},
        {"type": "file", "file_id": "f"},
        {"type": "base64", "media_type": "image/png", "data": data},
    )
    blocks = [words(rng)][: rng.randrange(2)] + [{"type": "image", "source": rng.choice(sources)}]
    if chance(rng, 0.25):
        answer = {"type": "tool_result", "tool_use_id": "i", "content": blocks}
        _insert(rng, body, {"role": "assistant", "content": [use(rng, "i")]}, {"role": "user", "content": [answer]})
    else:
        _insert(rng, body, {"role": rng.choice(("user", "assistant", "system")), "content": blocks})


@rule
def image_in_assistant(rng: random.Random, body: Body) -> None:
    _insert(rng, body, {"role": "assistant", "content": [image(rng)]})


@rule
def stop_sequences(rng: random.Random, body: Body) -> None:
    body["stop_sequences"] = rng.choice((["a"], [], ["a", ""], [""], ["a"] * 16, ["a"] * 17, None, "a"))


@rule
def temperature(rng: random.Random, body: Body) -> None:
    body["temperature"] = rng.choice((-0.1, 2.1, 2, 0, 1e40, 0.7, "1", None))


@rule
def top_p(rng: random.Random, body: Body) -> None:
    body["top_p"] = rng.choice((0, 1.1, 1, 1e-50, 0.3, 0.95, 0.99, -1, None))


@rule
def max_tokens(rng: random.Random, body: Body) -> None:
    body["max_tokens"] = rng.choice((0, 0, 1, 7, 393216, 393217, 2**32, 1.0, None))


@rule
def ignored(rng: random.Random, body: Body) -> None:
    for name in ("top_k", "service_tier", "container", "mcp_servers", "logprobs", "seed"):
        if chance(rng, 0.5):
            body[name] = common.value(rng)
    body["metadata"] = rng.choice(({"user_id": "u"}, {"user_id": None}, None, {"user_id": 5}, {}))
    body["stream"] = rng.choice((True, False, None))


# Rules that few requests reach by chance: the rest of the request is made plain.


@rule
def thinking_excludes(rng: random.Random, body: Body) -> None:
    body["messages"] = [{"role": "user", "content": "q"}]
    body["tools"] = [{"name": "f", "input_schema": {"type": "object"}}]
    body |= {"tool_choice": {"type": "tool", "name": "f"}, "thinking": {"type": "enabled"}}


@rule
def named_unknown(rng: random.Random, body: Body) -> None:
    body["messages"] = [{"role": "user", "content": "q"}]
    body["tools"] = [{"name": "f", "input_schema": {"type": "object"}}]
    body |= {"tool_choice": {"type": "tool", "name": "zz"}, "thinking": {"type": "disabled"}}


@rule
def stop_long(rng: random.Random, body: Body) -> None:
    body["messages"] = [{"role": "user", "content": "q"}]
    body["stop_sequences"] = rng.choice((["a"] * 17, ["a", ""]))


@rule
def image_sources(rng: random.Random, body: Body) -> None:
    body["model"] = common.MODELS[1]
    sources: tuple[Body, ...] = tuple(
        {"type": "url", "url": url} for url in (common.LONG_URL, common.LONG_URL, "ftp://x", "x", 'a"b\\\n')
    )
    sources += ({"type": "file", "file_id": "f"}, {"type": "base64", "media_type": "image/png", "data": "aa"})
    blocks = [{"type": "text", "text": "a"}] * rng.randrange(2) + [{"type": "image", "source": rng.choice(sources)}]
    if chance(rng, 0.5):
        answer = {"type": "tool_result", "tool_use_id": "is", "content": blocks}
        ask = {"type": "tool_use", "id": "is", "name": "f", "input": {}}
        body["messages"][:0] = [{"role": "assistant", "content": [ask]}, {"role": "user", "content": [answer]}]
    else:
        body["messages"].insert(0, {"role": "user", "content": blocks})


@rule
def schema_not_object(rng: random.Random, body: Body) -> None:
    body["messages"] = [{"role": "user", "content": "q"}]
    body["tools"] = [{"name": "f", "input_schema": rng.choice(({}, {"type": "string"}, True, {"type": ["object"]}))}]
    body.pop("tool_choice", None)
