"""Responses that are read before the stream has ended."""

from __future__ import annotations

import json
from typing import Any

import pytest

from deepinfer.recipe.events.side import event_side
from deepinfer.recipe.options import ParsingOptions, ThinkingInitialStage
from deepinfer.recipe.protocols import protocol
from deepinfer.recipe.stream.chunks import TextChunk
from deepinfer.recipe.stream.parser import StreamProcessor
from deepinfer.recipe.stream.usage import NO_PROMPT_USAGE

CALL = (
    '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="f">\n<｜DSML｜parameter name="a" string="true">x</｜DSML｜parameter>\n'
)


def so_far(name: str, pieces: list[str], *, thinking: bool) -> list[Any]:
    """The response after each piece, and after the end."""
    body = {"model": "DeepSeek-V4-Pro", "messages": [{"role": "user", "content": "q"}]}
    body["thinking"] = {"type": "enabled" if thinking else "disabled"}  # type: ignore[assignment]
    side = event_side(name)
    stage = ThinkingInitialStage.REASONING_START if thinking else None
    generator = side.generator(protocol(name).convert(body), "id", "m")
    processor: StreamProcessor[Any] = StreamProcessor(generator, ParsingOptions(thinking_initial_stage=stage))
    response = side.response("id", "m", 0, NO_PROMPT_USAGE)
    result = []
    for piece in [*pieces, None]:
        for event in processor.finish() if piece is None else processor.push(TextChunk(piece)):
            response.accumulate(event)
        result.append(json.loads(response.to_json()))
    return result


@pytest.mark.parametrize(("thinking", "first"), [(True, None), (False, "")])
def test_chat_has_no_content_before_the_first_that_says_so(thinking: bool, first: str | None) -> None:
    after = so_far("chat", [""], thinking=thinking)
    assert [response["choices"][0]["message"]["content"] for response in after] == [first, ""]


def test_chat_content_is_null_while_it_reasons() -> None:
    after = so_far("chat", ["why", "</think>a"], thinking=True)
    assert [response["choices"][0]["message"]["content"] for response in after] == [None, "a", "a"]


@pytest.mark.parametrize(
    ("content", "first"),
    [
        ("x", '{"role":"assistant","content":"","reasoning_content":null}'),
        ("", '{"role":"assistant","content":null,"reasoning_content":""}'),
    ],
)
def test_chat_goes_on_with_what_the_prefix_had(content: str, first: str) -> None:
    prefix = {"role": "assistant", "content": content, "reasoning_content": "r", "prefix": True}
    body = {"model": "DeepSeek-V4-Pro", "messages": [{"role": "user", "content": "q"}, prefix]}
    request = protocol("chat").convert(body)
    side = event_side("chat")
    processor: StreamProcessor[Any] = StreamProcessor(side.generator(request, "id", "m"), request.parsing_options)
    response = side.response("id", "m", 0, NO_PROMPT_USAGE)
    (event,) = processor.push(TextChunk(""))
    assert f'"delta":{first},' in event.to_json()
    response.accumulate(event)
    message = response.to_dict()["choices"][0]["message"]
    assert message == ({"role": "assistant", "content": "x"[:0]} if content else {**json.loads(first), "content": None})


def test_input_of_a_tool_is_there_when_its_block_is_complete() -> None:
    after = so_far("messages", [CALL, "</｜DSML｜invoke>"], thinking=False)
    assert [response["content"][0]["input"] for response in after] == [{}, {}, {"a": "x"}]
