"""Random streams of model output, as cases for a stream processor.

A case has the form of the files in `tests/recipe/cases`: a request, parsing options, chunks. Output is put together of
what a model writes, right and wrong, and of the halves of every marker, and cut at random borders.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

Case = dict[str, Any]

DSML = "｜DSML｜"

_FRAGMENTS = (
    *(
        "a",
        "b ",
        " word",
        "\n",
        "\n\n",
        "<",
        "</",
        "｜",
        f"<{DSML}",
        f"</{DSML}",
        "<｜DSML",
        "</think>",
        "</thi",
        "think>",
    ),
    *(
        'invoke name="',
        "f",
        '"',
        '">',
        "parameter name=",
        '"k"',
        " ",
        'string="',
        'true">',
        'false">',
        'x"y\n\t\\',
        "{",
    ),
    *(
        "[",
        "}",
        "```json\n",
        "```\n",
        "\n```",
        "`",
        "STOP",
        "ST",
        "OP",
        "tool_calls>",
        " calls>",
        "é😀",
        "日本",
        "\0\x7f",
    ),
    *("\u2028", "\ufffd", f"</{DSML}tool_calls>", f"</{DSML} calls>"),
)
_TEXTS = (
    "Hello",
    "a\nb",
    "x</",
    "",
    " ",
    'quote " and \\',
    "1",
    "日本語😀",
    "\n",
    "<|DSML|",
    "line\n\nline",
    ">",
    "STOP",
)
_VALUES = ("1", "-2.5e3", "true", "null", '[1, {"a": "b"}]', "{}", '"s"', "bad", "")
_NAMES = ("f", "get_weather", "apply_patch", "ns__a", "tool_search", "a b", "")
_STOPS: tuple[tuple[str, ...], ...] = ((), (), ("STOP",), ("\nSTOP", "OP"), ("\n\n",), ("x", "</"), ("aa", "STOPa", ""))
_ADDED = (0, 1, 2, 128803, 128804, 128821, 128822, 128822, 128825, 128825, 128825)
_BYTES = (28927, 225, 99, 161, 163, 999999)
"""Ids of the stand-in tokenizer that are parts of characters, and one that does not exist."""


def call(rng: random.Random, space: str) -> str:
    """One call as a model writes it, with `space` between the mark and the word of a tag."""
    parameters = []
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        is_string = rng.random() < 0.6
        value = rng.choice(_TEXTS if is_string else _VALUES)
        name = rng.choice(("a", "input", "query", "x y" if rng.random() < 0.1 else "n"))
        attribute = f'string="{str(is_string).lower()}"'
        parameters.append(f'<{DSML}{space}parameter name="{name}" {attribute}>{value}</{DSML}{space}parameter>\n')
    return f'<{DSML}{space}invoke name="{rng.choice(_NAMES)}">\n{"".join(parameters)}</{DSML}{space}invoke>\n'


def output(rng: random.Random, *, thinking: bool, json_mode: bool) -> str:
    """An output: sometimes of the right form, sometimes with slips, sometimes noise."""
    if rng.random() < 0.35:
        return "".join(rng.choice(_FRAGMENTS) for _ in range(rng.randint(0, rng.choice((4, 30)))))
    parts = []
    if thinking:
        parts += [rng.choice(("", "\n", "\n\n")), rng.choice(_TEXTS), rng.choice(("", "\n", "\n\n"))]
        parts.append("</think>" if rng.random() < 0.9 else "")
    parts.append(rng.choice(("", "\n", "\n\n")) + rng.choice(_TEXTS))
    if json_mode:
        fence = rng.choice((("", ""), ("```json\n", "\n```"), ("```\n", "\n```\n")))
        parts.append(fence[0] + rng.choice(('{"a": 1}', "[1,\n2]", "none")) + fence[1] + rng.choice(_TEXTS))
    if rng.random() < 0.6:
        space = rng.choice(("", " "))
        word = "calls" if space else rng.choice(("tool_calls", "function_calls"))
        calls = "".join(call(rng, space) for _ in range(rng.randint(0, 3)))
        parts.append(f"\n\n<{DSML}{space}{word}>\n{calls}</{DSML}{space}{word}>" if rng.random() < 0.8 else calls)
        parts.append(rng.choice(("", "after")))
    text = "".join(parts)
    while text and rng.random() < 0.3:  # a slip: something lost, or something too much
        index = rng.randrange(len(text))
        text = text[:index] + rng.choice(("", *_FRAGMENTS)) + text[index + rng.randint(0, 3) :]
    return text


def cut(rng: random.Random, sequence: Sequence[Any]) -> list[Any]:
    """The sequence in parts, cut at random borders; sometimes with empty parts."""
    longest = rng.choice((1, 3, 8, 40, 10**6))
    parts, begin = [], 0
    while begin < len(sequence):
        end = begin + rng.randint(0 if rng.random() < 0.1 else 1, longest)
        parts.append(sequence[begin:end])
        begin = end
    return parts


def token_ids(rng: random.Random, text: str, encode: Callable[[str], list[int]]) -> list[int]:
    """Ids of a text, special tokens among them, with some that no encoder puts there."""
    ids = list(encode(text))
    while rng.random() < 0.3:
        ids.insert(rng.randint(0, len(ids)), rng.choice(_ADDED if rng.random() < 0.5 else _BYTES))
    return ids


def _logprobs(rng: random.Random, ids: Sequence[int]) -> list[Any]:
    values = (-0.5, -1e-7, 0.0, -3.25, float("-inf"), float("nan"), -0.1)
    return [
        [
            rng.choice(values),
            [[rng.choice((token_id, 99, 128822)), rng.choice(values)] for _ in range(rng.randint(0, 2))],
        ]
        for token_id in ids
    ]


def chunks(rng: random.Random, text: str, encode: Callable[[str], list[int]] | None) -> list[Any]:
    """A text as chunks of the engine: text, or ids when there is an encoder, or both in turn."""
    kind = rng.choice(("text", "ids", "ids", "mixed")) if encode else "text"
    result: list[Any] = []
    for part in cut(rng, text) if kind != "ids" else [text]:
        if encode is None or kind == "text" or (kind == "mixed" and rng.random() < 0.5):
            result.append(part if rng.random() < 0.7 else ["text", part, rng.randint(0, 5)])
            continue
        for ids in cut(rng, token_ids(rng, part, encode)):
            result.append(["tokens", ids] if rng.random() < 0.7 else ["tokens", ids, _logprobs(rng, ids)])
    if rng.random() < 0.4:
        usage = {"prompt_tokens": rng.randint(0, 9), "prompt_cache_hit_tokens": rng.randint(0, 9)}
        ready = ["ready", rng.choice((usage, None)), rng.choice(("fp", None))]
        result.insert(0 if rng.random() < 0.8 else rng.randint(0, len(result)), ready)
    if rng.random() < 0.8:
        result.append(["finish", rng.choice(("Stop", "Stop", "Stop", "Length", "ContentFilter"))])
    if rng.random() < 0.05:
        result.append("late")
    return result


def parsing_options(rng: random.Random) -> dict[str, Any]:
    """Parsing options; left out where they are at their default."""
    options: dict[str, Any] = {}
    if rng.random() < 0.5:
        stages = ("ReasoningStart", "ReasoningStart", "ReasoningContinuation", "ContentContinuation")
        options["thinking_initial_stage"] = rng.choice(stages)
    if rng.random() < 0.15:
        options["parse_tool_calls"] = False
    if rng.random() < 0.1:
        options["starts_in_tool_calls"] = True
    if rng.random() < 0.2:
        options["parse_json_output"] = True
    if stops := rng.choice(_STOPS):
        options["stop_sequences"] = list(stops)
    if rng.random() < 0.05:
        options["special_tokens"] = {"thinking_end": "</t>", "dsml": "@@"}
    return options


def _function(name: str) -> dict[str, Any]:
    return {"name": name, "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}


def _responses_tools(rng: random.Random, version: str) -> list[Any]:
    tools: list[Any] = []
    if rng.random() < 0.5:
        tools.append({"type": "custom", "name": "apply_patch"})
    if rng.random() < 0.5:
        member = {"type": "function", **_function("a")}
        tools.append({"type": "namespace", "name": "ns", "description": "d", "tools": [member]})
    if rng.random() < 0.4:
        parameters = _function("")["parameters"]
        tools.append({"type": "tool_search", "execution": "client", "description": "TS", "parameters": parameters})
    if rng.random() < 0.5:
        tools.append({"type": "function", **_function("f"), "strict": rng.choice((None, False))})
    return tools


def request(rng: random.Random, protocol: str, version: str, thinking: bool) -> dict[str, Any]:
    """A request whose answer the stream is."""
    stream = rng.random() < 0.8
    if protocol == "responses":
        effort = rng.choice(("low", "high")) if thinking else "none"
        body: dict[str, Any] = {"input": "hi", "reasoning": {"effort": effort}, "stream": stream}
        if tools := _responses_tools(rng, version):
            body["tools"] = tools
        if rng.random() < 0.3:
            body |= {"instructions": "I", "temperature": 0.25, "user": "u", "max_output_tokens": 7}
        return body
    body = {"messages": [{"role": "user", "content": "hi"}], "stream": stream}
    body["thinking"] = {"type": "enabled" if thinking else "disabled"}
    if protocol == "chat" and stream and rng.random() < 0.3:
        body["stream_options"] = {"include_usage": rng.random() < 0.7}
    if protocol == "messages":
        body["max_tokens"] = 64
    return body


def case(seed: int, protocol: str, encode: Callable[[str], list[int]] | None = None) -> Case:
    """The stream case of this seed.

    Args:
        protocol: "chat", "responses" or "messages".
        encode: of the stand-in tokenizer; without it all chunks are text.
    """
    rng = random.Random(f"{seed} {protocol}")
    version = rng.choice(("v4", "v4.1"))
    options = parsing_options(rng)
    thinking = "thinking_initial_stage" in options if rng.random() < 0.9 else rng.random() < 0.5
    text = output(rng, thinking=thinking, json_mode=options.get("parse_json_output", False))
    if "special_tokens" in options and rng.random() < 0.7:
        text = text.replace("</think>", "</t>").replace(DSML, "@@")
    result: Case = {
        "name": f"{protocol}_{seed}",
        "kind": "stream",
        "protocol": protocol,
        "model_version": version,
        "request": request(rng, protocol, version, thinking),
        "parsing_options": options,
        "chunks": chunks(rng, text, encode if rng.random() < 0.6 else None),
    }
    if protocol == "messages" and rng.random() < 0.3:
        result["options"] = {"signature": "SIG"}
    if encode is not None:
        result["tokenizer"] = version
    return result
