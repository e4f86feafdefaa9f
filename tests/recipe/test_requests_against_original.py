"""Random requests, valid and broken, through the codec and through the original."""

from __future__ import annotations

import json
import random
from types import ModuleType

import pytest

from deepinfer.recipe.quirks import Quirks
from recipe_compare import as_text, convert_original, convert_ours
from recipe_requests import sample

QUIRKS = Quirks(refused_found_tools=True)


@pytest.mark.parametrize("protocol", ["chat", "messages", "responses"])
@pytest.mark.parametrize("part", range(4))
def test_conversions_are_equal(wheel: ModuleType, protocol: str, part: int) -> None:
    for seed in range(300 * part, 300 * (part + 1)):
        made = sample(protocol, random.Random(seed))
        body = json.dumps(made.body, ensure_ascii=False) if seed % 2 else made.body
        theirs = convert_original(wheel, protocol, body, made.options)
        ours = convert_ours(protocol, body, made.options, QUIRKS)
        assert as_text(ours) == as_text(theirs), (seed, made)


ORDERS = {
    "chat": "messages model frequency_penalty logprobs top_logprobs max_tokens n presence_penalty seed stop stream "
    "stream_options temperature top_p response_format tools tool_choice reasoning_effort thinking parallel_tool_calls",
    "responses": "model input instructions max_output_tokens reasoning stream temperature text tool_choice tools "
    "top_logprobs top_p user",
    "messages": "model messages system max_tokens temperature top_p stop_sequences stream tools tool_choice thinking "
    "output_config metadata",
}


@pytest.mark.parametrize("protocol", sorted(ORDERS))
def test_bodies_by_position_are_equal_with_the_quirk(wheel: ModuleType, protocol: str) -> None:
    for seed in range(150):
        made = sample(protocol, random.Random(seed))
        body = json.dumps([made.body.get(name) for name in ORDERS[protocol].split()])
        theirs = convert_original(wheel, protocol, body, made.options)
        assert as_text(convert_ours(protocol, body, made.options, Quirks.all_on())) == as_text(theirs), (seed, made)
        assert convert_ours(protocol, body, made.options) == {"error": "invalid request body"}


def test_a_found_tool_of_unknown_type_is_left_out(wheel: ModuleType) -> None:
    """The original refuses the request, in words about its innards."""
    found = [{"type": "mcp"}, {"type": "function", "name": "f"}]
    call = {"type": "tool_search_call", "call_id": "c", "arguments": {}}
    items = [call, {"type": "tool_search_output", "call_id": "c", "tools": found}]
    body = {"model": "DeepSeek-V4.1-Flash", "input": items, "reasoning": {"effort": "none"}}
    refused = convert_original(wheel, "responses", body, {})
    assert refused["error"].startswith("input[1]: the enum variant")
    assert convert_ours("responses", body, {}, QUIRKS) == refused
    tools = convert_ours("responses", body, {})["messages"][1]["content"]
    assert [tool["name"] for tool in json.loads(tools)] == ["f"]
