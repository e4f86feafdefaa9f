"""Time and memory of the codec on inputs that are made to be slow, at doubling sizes.

    python benchmarks/recipe_limits.py [--scale F] [NAME …]

For every input: seconds of processor time at a size, at twice and at four times that size, how the last compares with
the first (4 is linear, 16 quadratic), and the peak of memory at the largest size for each byte of input.
"""

# ruff: noqa: E501 - the rows of the table
from __future__ import annotations

import argparse
import json
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from deepinfer.recipe.conversation import AssistantMessage, Conversation, Message, ToolCall, ToolMessage, UserMessage
from deepinfer.recipe.errors import RecipeError
from deepinfer.recipe.events.side import event_side
from deepinfer.recipe.json_text import parse_json
from deepinfer.recipe.options import ParsingOptions, ThinkingInitialStage
from deepinfer.recipe.protocols import protocol
from deepinfer.recipe.special_tokens import DEFAULT_SPECIAL_TOKENS
from deepinfer.recipe.stream.chunks import FinishChunk, FinishReason, TextChunk
from deepinfer.recipe.stream.parser import StreamProcessor
from deepinfer.recipe.stream.usage import NO_PROMPT_USAGE
from deepinfer.recipe.versions import model_versions

D = "｜DSML｜"
OPEN = f'<{D}tool_calls>\n<{D}invoke name="f">\n<{D}parameter name="a" string="true">'
CLOSE = f"</{D}parameter>\n</{D}invoke>\n</{D}tool_calls>"
MODEL = "DeepSeek-V4.1-Flash"


@dataclass(frozen=True)
class Limit:
    """An input by size, and what reads it.

    Args:
        size: characters or items of the smallest input.
        make: the input of a size.
        read: what is measured.
    """

    size: int
    make: Callable[[int], Any]
    read: Callable[[Any], Any]


def _json(text: str) -> None:
    try:
        parse_json(text)
    except RecipeError:
        pass


def _request(name: str) -> Callable[[Any], None]:
    def read(body: str) -> None:
        try:
            request = protocol(name).convert(body)
        except RecipeError:
            return
        for version in model_versions():
            version.template.render(request.conversation, DEFAULT_SPECIAL_TOKENS)

    return read


def _render(conversation: Conversation) -> None:
    for version in model_versions():
        version.template.render(conversation, DEFAULT_SPECIAL_TOKENS)


def _stream(name: str, piece: int, **options: Any) -> Callable[[str], None]:
    """Feeds a text in pieces of so many characters, and accumulates what comes."""

    def read(text: str) -> None:
        side = event_side(name)
        body: dict[str, Any] = {"model": MODEL, "input": "q", "messages": [{"role": "user", "content": "q"}]}
        parsing = ParsingOptions(**options)
        processor = StreamProcessor(side.generator(protocol(name).convert(body), "id", "m"), parsing)
        response = side.response("id", "m", 0, NO_PROMPT_USAGE)
        for start in range(0, len(text), piece):
            if processor.finished:
                break
            for event in processor.push(TextChunk(text[start : start + piece], 1)):
                event.to_json()
                response.accumulate(event)
        if not processor.finished:
            for event in processor.push(FinishChunk(FinishReason.STOP)):
                response.accumulate(event)
        response.to_json()

    return read


def _calls(count: int) -> str:
    call = f'<{D}invoke name="f">\n<{D}parameter name="a" string="true">x</{D}parameter>\n</{D}invoke>\n'
    return f"\n\n<{D}tool_calls>\n{call * count}</{D}tool_calls>"


def _tool_turn(count: int) -> str:
    calls = [
        {"id": f"c{n}", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}} for n in range(count)
    ]
    results = [{"role": "tool", "tool_call_id": f"c{n}", "content": "r"} for n in reversed(range(count))]
    return json.dumps({"model": MODEL, "messages": [{"role": "assistant", "tool_calls": calls}, *results]})


def _tools(count: int) -> str:
    parameters = {"type": "object", "properties": {"a": {"type": "string"}}}
    tools = [{"type": "function", "function": {"name": f"f{n}", "parameters": parameters}} for n in range(count)]
    return json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "q"}], "tools": tools})


def _schema(properties: dict[str, Any], **fields: Any) -> str:
    parameters = {"type": "object", "properties": properties, **fields}
    tool = {"type": "function", "function": {"name": "f", "parameters": parameters, "strict": True}}
    return json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "q"}], "tools": [tool]})


def _pattern(pattern: str) -> str:
    return _schema_format({"pattern": pattern})


def _schema_format(schema: dict[str, Any]) -> str:
    named = {"name": "f", "schema": schema}
    format = {"type": "json_schema", "json_schema": named}
    return json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "q"}], "response_format": format})


def _referring(count: int) -> str:
    chain = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(count)}
    return _schema({"a": {"$ref": "#/$defs/d0"}}, **{"$defs": {**chain, f"d{count}": {"type": "string"}}})


def _responses_turns(count: int) -> str:
    items: list[Any] = []
    for number in range(count):
        items.append({"type": "function_call", "call_id": f"c{number}", "name": "f", "arguments": "{}"})
        items.append({"type": "function_call_output", "call_id": f"c{number}", "output": "r"})
    return json.dumps({"model": MODEL, "input": items})


def _responses_calls(count: int) -> str:
    calls = [{"type": "function_call", "call_id": f"c{n}", "name": "f", "arguments": "{}"} for n in range(count)]
    outputs = [{"type": "function_call_output", "call_id": f"c{n}", "output": "r"} for n in range(count)]
    return json.dumps({"model": MODEL, "input": calls + outputs})


def _namespaces(count: int) -> str:
    names = [{"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "g"}]} for _ in range(count)]
    return json.dumps({"model": MODEL, "input": "q", "tools": names})


def _messages_turns(count: int) -> str:
    turns: list[Any] = []
    for number in range(count):
        use = {"type": "tool_use", "id": f"t{number}", "name": "f", "input": {}}
        turns.append({"role": "assistant", "content": [use]})
        turns.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"t{number}"}]})
    return json.dumps({"model": MODEL, "messages": turns})


def _chat_text(text: str) -> str:
    return json.dumps({"model": MODEL, "messages": [{"role": "user", "content": text}]})


def _history(count: int) -> Conversation:
    messages: list[Message] = []
    for number in range(count):
        calls = (ToolCall(str(number % 7), "f", '{"a": 1}'),)
        messages += [UserMessage("q"), AssistantMessage("a", "r", calls), ToolMessage("x", str(number % 5))]
    return Conversation(tuple(messages))


LIMITS: dict[str, Limit] = {
    "json: deep nesting": Limit(200_000, lambda n: "[" * n, _json),
    "json: wide, below the depth limit": Limit(5_000, lambda n: "[" + ",".join(["[" * 100 + "]" * 100] * (n // 50)) + "]", _json),
    "json: quotes without end": Limit(200_000, lambda n: '["' + '\\"' * n, _json),
    "json: escapes": Limit(100_000, lambda n: '"' + "\\ud83d\\ude00" * n + '"', _json),
    "json: digits": Limit(50_000, lambda n: "1" * n, _json),
    "json: decimals": Limit(50_000, lambda n: "0." + "1" * n, _json),
    "json: keys that repeat": Limit(50_000, lambda n: "{" + ",".join(['"a":1'] * n) + "}", _json),
    "render: many turns": Limit(1_000, _history, _render),
    "render: special tokens spelled": Limit(20_000, lambda n: Conversation((UserMessage("<｜User｜></think>" * n),)), _render),
    "render: arguments of 1 MB": Limit(250_000, lambda n: Conversation((AssistantMessage("", None, (ToolCall("a", "f", json.dumps({"a": "x\n" * n})),)),)), _render),
    "chat: 10,000 calls": Limit(2_500, _tool_turn, _request("chat")),
    "chat: tools": Limit(500, _tools, _request("chat")),
    "chat: schema, many properties": Limit(1_000, lambda n: _schema({f"p{i}": {"type": "string"} for i in range(n)}), _request("chat")),
    "chat: schema, chain of references": Limit(500, _referring, _request("chat")),
    "chat: a pattern of sets without end": Limit(100_000, lambda n: _pattern("[" * n), _request("chat")),
    "chat: a pattern that reads two ways": Limit(100_000, lambda n: _pattern("[" + r"\p{L}" * (n // 5)), _request("chat")),
    "chat: a pattern of counts without end": Limit(20_000, lambda n: _pattern("(?=a)" + "a{ " * n), _request("chat")),
    "chat: identifiers below a long one": Limit(50_000, lambda n: _schema_format({"$id": "http://h/" + "x" * n + "/", "anyOf": [{"$id": f"p{i}"} for i in range(n // 20)]}), _request("chat")),
    "chat: text that mentions no json": Limit(500_000, lambda n: _chat_text("jso" * n), _request("chat")),
    "chat: base64 of an image": Limit(500_000, lambda n: json.dumps({"model": MODEL, "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + "aaaa" * (n // 4)}}]}]}), _request("chat")),
    "responses: turns with calls": Limit(2_500, _responses_turns, _request("responses")),
    "responses: calls side by side": Limit(2_500, _responses_calls, _request("responses")),
    "responses: names that clash": Limit(2_000, _namespaces, _request("responses")),
    "messages: turns with calls": Limit(2_500, _messages_turns, _request("messages")),
    "stream: 1 MB argument, one character a piece": Limit(25_000, lambda n: OPEN + "x" * n + CLOSE, _stream("chat", 1)),
    "stream: 1 MB argument, 1,000 characters a piece": Limit(250_000, lambda n: OPEN + 'x"\n' * (n // 3) + CLOSE, _stream("messages", 1000)),
    "stream: 1 MB argument at once": Limit(250_000, lambda n: OPEN + "x" * n + CLOSE, _stream("responses", 1 << 30)),
    "stream: 10,000 calls": Limit(1_250, _calls, _stream("chat", 50)),
    "stream: 10,000 calls, Responses": Limit(1_250, _calls, _stream("responses", 50)),
    "stream: 10,000 calls, Messages": Limit(1_250, _calls, _stream("messages", 50)),
    "stream: newlines": Limit(25_000, lambda n: "a" + "\n" * n, _stream("chat", 1)),
    "stream: newlines at once": Limit(250_000, lambda n: "a" + "\n" * n, _stream("chat", 1 << 30)),
    "stream: beginnings of a tag": Limit(25_000, lambda n: f"</{D[:-1]}" * (n // 7), _stream("chat", 3)),
    "stream: beginnings of a tag in an argument": Limit(25_000, lambda n: OPEN + f"</{D[:-1]}" * (n // 7), _stream("chat", 3)),
    "stream: newlines and beginnings": Limit(25_000, lambda n: "\n</thi" * (n // 6), _stream("chat", 2, thinking_initial_stage=ThinkingInitialStage.REASONING_START)),
    "stream: a long stop sequence": Limit(12_500, lambda n: "a" * n, _stream("chat", 1, stop_sequences=("a" * 2_000 + "b",))),
    "stream: a stop sequence as long as the text": Limit(12_500, lambda n: "a" * n, lambda text: _stream("chat", 7, stop_sequences=("a" * len(text) + "b",))(text)),
    "stream: newlines in a stop sequence": Limit(12_500, lambda n: "\n" * n, _stream("chat", 3, stop_sequences=("\n" * 1_000 + "b", "\n\nx"))),
    "stream: brackets in JSON mode": Limit(25_000, lambda n: "x\n``" * (n // 4), _stream("chat", 3, parse_json_output=True)),
    "stream: a long name": Limit(25_000, lambda n: f'<{D}tool_calls>\n<{D}invoke name="' + "f" * n, _stream("chat", 1)),
}  # fmt: skip


@dataclass(frozen=True)
class Measured:
    """Seconds at a size, twice and four times it, and the peak of memory for each byte of the largest input."""

    seconds: tuple[float, float, float]
    peak: float

    @property
    def growth(self) -> float:
        return self.seconds[2] / max(self.seconds[0], 1e-4)


def _seconds(limit: Limit, size: int, rounds: int) -> float:
    value = limit.make(size)
    best = float("inf")
    for _ in range(rounds):
        start = time.process_time()
        limit.read(value)
        best = min(best, time.process_time() - start)
    return best


def _length(value: Any) -> int:
    """Bytes of an input, near enough."""
    return len(value.encode()) if isinstance(value, str) else sum(len(str(message)) for message in value.messages)


def measure(limit: Limit, scale: float = 1.0, rounds: int = 2) -> Measured:
    """Time and memory of one input."""
    sizes = [max(1, round(limit.size * scale * factor)) for factor in (1, 2, 4)]
    limit.read(limit.make(min(10, sizes[0])))  # what is made once
    first, second, third = (_seconds(limit, size, rounds) for size in sizes)
    value = limit.make(sizes[2])
    tracemalloc.start()
    try:
        limit.read(value)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    return Measured((first, second, third), peak / max(1, _length(value)))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--scale", type=float, default=1.0, help="factor of all sizes")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="beginnings of the inputs' names; all if none is given"
    )
    args = parser.parse_args()
    print(f"{'input':48} {'size':>9} {'t(n)':>8} {'t(2n)':>8} {'t(4n)':>8} {'growth':>7} {'peak/byte':>10}")
    for name, limit in LIMITS.items():
        if args.names and not any(name.startswith(part) for part in args.names):
            continue
        found = measure(limit, args.scale)
        times = " ".join(f"{seconds:8.3f}" for seconds in found.seconds)
        print(
            f"{name:48} {round(limit.size * args.scale):9,} {times} {found.growth:7.1f} {found.peak:10.1f}", flush=True
        )


if __name__ == "__main__":
    main()
