"""Random streams against the original wheel, event by event; more of them run with `--slow`."""

from __future__ import annotations

from collections import Counter
from types import ModuleType

import pytest

import recipe_stream_runner as runner
import recipe_streams
from deepinfer.recipe.quirks import Quirks
from deepinfer.recipe.tokenizer import Tokenizer


def compare(protocol: str, seeds: range, tokenizers: dict[str, Tokenizer]) -> None:
    for seed in seeds:
        case = recipe_streams.case(seed, protocol, tokenizers["v4"].encode)
        assert runner.run(case, Quirks.all_on()) == runner.run_wheel(case), (seed, case)


@pytest.mark.parametrize("protocol", ["chat", "responses", "messages"])
def test_random_streams(protocol: str, wheel: ModuleType, tokenizers: dict[str, Tokenizer]) -> None:
    compare(protocol, range(60), tokenizers)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["chat", "responses", "messages"])
def test_many_random_streams(protocol: str, wheel: ModuleType, tokenizers: dict[str, Tokenizer]) -> None:
    compare(protocol, range(1000, 3000), tokenizers)


def test_the_streams_reach_every_part(tokenizers: dict[str, Tokenizer]) -> None:
    """A generator that stopped making calls, ids, log probabilities or stops would compare nothing."""
    seen: Counter[str] = Counter()
    for seed in range(200):
        case = recipe_streams.case(seed, "chat", tokenizers["v4"].encode)
        text = "".join(event for step in runner.run(case)["steps"] if not isinstance(step, str) for event in step[0])
        for part in ('"tool_calls":[', '"logprobs":{', '"finish_reason":"length"', '"content":" "', "\\ufffd", '"}"'):
            seen[part] += part in text or part.encode().decode("unicode_escape") in text
        kinds = {spec[0] for spec in case["chunks"] if not isinstance(spec, str)}
        seen.update(kinds)
    assert min(seen.values()) >= 5, seen
