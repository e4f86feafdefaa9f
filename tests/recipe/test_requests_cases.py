"""The recorded requests: conversation, options and errors."""

from __future__ import annotations

import json
from typing import Any

import pytest

from deepinfer.recipe.errors import ConversionError
from deepinfer.recipe.protocols import protocol
from recipe_cases import recorded
from recipe_compare import comparable, convert_ours, dump, options_of

MODELS = {"v4": "DeepSeek-V4-Pro", "v4.1": "DeepSeek-V4.1-Flash"}
MESSAGE = {"image_sources": [], "reasoning_content": None, "tool_calls": None, "tool_call_id": None, "prefix": False}


def bodies(case: dict[str, Any]) -> list[Any]:
    """The ways to hand in the request of a case."""
    if "request_bytes_hex" in case:
        return [bytes.fromhex(case["request_bytes_hex"])]
    if "request_text" in case:
        return [case["request_text"], case["request_text"].encode()]
    request = {"model": MODELS[case["model_version"]], **case["request"]}
    return [request, json.dumps(request, ensure_ascii=False)]


def expected_message(message: dict[str, Any]) -> dict[str, Any]:
    filled = {**MESSAGE, **message}
    calls = filled["tool_calls"]
    result = {name: filled[name] for name in ("role", "content", "reasoning_content", "tool_call_id", "prefix")}
    result["tool_calls"] = calls and [[call["id"], call["name"], call["arguments"]] for call in calls]
    result["images"] = [
        [source["kind"], source["detail"], source["path"], source.get("url") or source.get("data_url")]
        for source in filled["image_sources"]
    ]
    if filled["role"] == "system":
        result["tools"] = filled.get("tools")
    return result


def expected_dump(expected: dict[str, Any]) -> dict[str, Any]:
    conversation, inference = dict(expected["conversation"]), dict(expected["inference_options"])
    parsing, constraint = dict(expected["parsing_options"]), inference.pop("output_constraint")
    messages, tools = conversation.pop("messages"), conversation.pop("tools")
    return {
        "conversation": conversation,
        "messages": [expected_message(message) for message in messages],
        "tools": tools,
        "inference": inference,
        "constraint": constraint and [constraint["kind"], constraint["schema"]],
        "stage": parsing.pop("thinking_initial_stage"),
        "stop": parsing.pop("stop_sequences"),
        "parsing": parsing,
        "stream": expected["stream"],
    }


@pytest.mark.parametrize(
    "case", [*(case for name in ("chat", "responses", "messages") for case in recorded(f"{name}_requests"))]
)
def test_requests(case: dict[str, Any]) -> None:
    check(case, case["protocol"])


@pytest.mark.parametrize("case", recorded("raw_bodies"))
def test_raw_bodies(case: dict[str, Any]) -> None:
    check(case, case["protocol"])


def check(case: dict[str, Any], name: str) -> None:
    expected = case["expected"]
    for body in bodies(case):
        got = convert_ours(name, body, case.get("options", {}))
        if "error" in expected:
            error = expected["error"]
            if error["exception"] == "ConversionError":
                assert got == {"error": comparable(error["body"]["error"]["message"])}
            else:
                assert got == {"error": error["message"].partition(":")[0]}
        else:
            assert "error" not in got, got
            got.pop("version")
            assert got == expected_dump(expected)


def test_error_bodies_are_those_of_the_cases() -> None:
    """The HTTP body, byte by byte."""
    for name in ("chat", "responses", "messages"):
        for case in (param.values[0] for param in recorded(f"{name}_requests")):
            error = case["expected"].get("error", {})
            if error.get("exception") != "ConversionError" or case["expected"].get("compare"):
                continue
            with pytest.raises(ConversionError) as raised:
                protocol(name).convert(bodies(case)[0], options_of(case.get("options", {})))
            assert json.loads(raised.value.body) == error["body"]
            assert raised.value.body == json.dumps(error["body"], ensure_ascii=False, separators=(",", ":"))
            assert raised.value.status_code == error["status_code"]


def test_dump_sees_every_field() -> None:
    """A difference in any field shows."""
    request = protocol("chat").convert({"model": MODELS["v4"], "messages": [{"role": "user", "content": "q"}]})
    assert dump(request, "x", None) != dump(request, "y", None)
