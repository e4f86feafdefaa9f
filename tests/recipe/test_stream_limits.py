"""Hostile output: time that grows with its length and no faster, memory that does not, no undocumented exception."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from functools import partial

import pytest

from deepinfer.recipe.events.chat import ChatChunkGenerator
from deepinfer.recipe.events.responses_items import CustomCall
from deepinfer.recipe.options import ParsingOptions, ThinkingInitialStage
from deepinfer.recipe.stream.chunks import TextChunk
from deepinfer.recipe.stream.machine import Machine, Output
from deepinfer.recipe.stream.parser import StreamProcessor
from timing import growth

D = "｜DSML｜"
CALL = f'<{D}invoke name="f">\n</{D}invoke>\n'
OPEN = f'<{D}invoke name="f"><{D}parameter name="a" string="true">'
THINKING = ParsingOptions(thinking_initial_stage=ThinkingInitialStage.REASONING_CONTINUATION)
LONG_STOP = ParsingOptions(stop_sequences=("a" * 3000 + "b",))

SHAPES: dict[str, tuple[ParsingOptions, Callable[[int], list[str]]]] = {
    "calls in one push": (ParsingOptions(), lambda n: [CALL * n]),
    "calls with values": (ParsingOptions(), lambda n: [(OPEN + f"v</{D}parameter></{D}invoke>") * n]),
    "tags that never close": (ParsingOptions(), lambda n: [f'<{D}invoke name="f"' * n]),
    "beginnings of a tag": (ParsingOptions(), lambda n: ["<｜DSM" * n]),
    "beginnings, a push each": (ParsingOptions(), lambda n: ["\n<｜DSM"] * n),
    "newlines": (THINKING, lambda n: ["\n" * 20 * n]),
    "newlines, a push each": (THINKING, lambda n: ["\n"] * 2 * n),
    "newlines and beginnings": (THINKING, lambda n: ["\n\n</" * n, "\n</think"] * 2),
    "a value, a push per character": (ParsingOptions(), lambda n: [OPEN, *("x" * 3 * n)]),
    "brackets": (ParsingOptions(parse_json_output=True), lambda n: ["[" * 30 * n]),
    "a name without end": (ParsingOptions(), lambda n: [f'<{D}invoke name="', *(["n"] * 3 * n)]),
    "a long stop sequence, nearly": (LONG_STOP, lambda n: ["a"] * 2 * n),
    "many stop sequences": (ParsingOptions(stop_sequences=tuple(f"{i}xyz" for i in range(16))), lambda n: ["1xy"] * n),
}


def fed(options: ParsingOptions, chunks: list[str]) -> None:
    machine, outputs = Machine(options), list[Output]()
    for chunk in chunks:
        machine.feed(chunk, outputs)
        outputs.clear()
    machine.finish(outputs)


@pytest.mark.parametrize("name", SHAPES)
def test_time_grows_with_the_length(name: str) -> None:
    options, make = SHAPES[name]
    size = 2500  # four times as much is 10,000 calls
    once, four_times = make(size), make(4 * size)
    assert growth(partial(fed, options, once), partial(fed, options, four_times), 10) < 10  # 16, were it quadratic


def test_streamed_text_is_not_kept() -> None:
    processor = StreamProcessor(ChatChunkGenerator("id", "m", thinking=False), ParsingOptions())
    processor.push(TextChunk(OPEN))
    tracemalloc.start()
    try:
        for _ in range(1000):
            for event in processor.push(TextChunk('some text of an argument, "quoted"\n' * 30)):
                event.to_json()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000  # of a megabyte that went through


def test_an_escape_that_is_none_is_not_read_again_and_again() -> None:
    """The text of a custom call ends there, as it did; what follows takes no time."""
    call = CustomCall("ctc_i", 0, "c", "apply_patch")
    assert list(call.read_arguments('{"input": "a\\uZZZZ')) == ["a"]
    assert [piece for _ in range(1000) for piece in call.read_arguments("bcd")] == []
    assert len(call._escape) < 10
    split = CustomCall("ctc_i", 0, "c", "apply_patch")
    assert list(split.read_arguments('{"input": "\\u00')) + list(split.read_arguments('e9"}')) == ["é"]
