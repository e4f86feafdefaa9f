"""Prompts are those of the recorded cases and of the wheel, and special tokens come from templates alone."""

from __future__ import annotations

import re
from types import ModuleType
from typing import Any

import pytest

from deepinfer.recipe.conversation import AssistantMessage, Conversation, Message, ToolCall, ToolMessage, UserMessage
from deepinfer.recipe.errors import InvalidArgumentError
from deepinfer.recipe.special_tokens import DEFAULT_SPECIAL_TOKENS, SpecialToken, SpecialTokens
from deepinfer.recipe.templates.base import GROUNDING, Prompt, Special
from deepinfer.recipe.versions import model_version
from recipe_cases import VERSIONS, recorded
from recipe_conversations import Generator, build

NO_MARK = SpecialTokens(
    **{token.name.lower(): f"«{token.name}»" for token in SpecialToken if token is not SpecialToken.IMAGE}
)


def render(conversation: Conversation, version: str, special_tokens: SpecialTokens = DEFAULT_SPECIAL_TOKENS) -> Prompt:
    return model_version(version).template.render(conversation, special_tokens)


def specials(prompt: Prompt) -> list[str]:
    return [prompt.text[start:stop] for start, stop in prompt.special_ranges]


@pytest.mark.parametrize("case", recorded("render"))
def test_recorded(case: dict[str, Any]) -> None:
    expected = case["expected"]
    special_tokens = SpecialTokens(**case.get("options", {}).get("special_tokens", {}))
    if "error" in expected:
        with pytest.raises(InvalidArgumentError) as caught:
            build(case["conversation"])
        assert str(caught.value) == expected["error"]["message"]
        return
    prompt = render(build(case["conversation"]), case["model_version"], special_tokens)
    assert prompt.text == expected["prompt"]
    assert [list(part) for part in prompt.special_ranges] == expected["special_ranges"]
    assert len(prompt.image_sources) == len(expected.get("image_sources", ()))


@pytest.mark.parametrize("seed", range(10))
def test_random_conversations_as_the_wheel(seed: int, wheel: ModuleType) -> None:
    """Texts, ranges and images of a few hundred conversations, special tokens spelled differently in some."""
    encodings = {"v4": wheel.DeepseekV4Encoding(), "v4.1": wheel.DeepseekV41Encoding()}
    generator = Generator(seed)
    for _ in range(100):
        spec = generator.conversation()
        tokens = generator.special_tokens() if generator.chance(0.2) else {}
        for version, encoding in encodings.items():
            expected = encoding.with_special_tokens(wheel.SpecialTokens(**tokens)).render_conversation(
                build(spec, wheel)
            )
            prompt = render(build(spec), version, SpecialTokens(**tokens))
            assert prompt.text == expected.prompt, spec
            assert list(prompt.special_ranges) == expected.special_ranges, spec
            assert [source.url for source in prompt.image_sources] == [s.url for s in expected.image_sources], spec


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("seed", range(5))
def test_special_tokens_come_from_the_template_alone(seed: int, version: str) -> None:
    """However the tokens are spelled, there are the same ones at the same places, and the text between is the same.

    The second spelling is one that the conversations never have, so that whatever is special there comes from the
    template. Grounding tokens in what the assistant said are the exception: they are its own.
    """
    generator = Generator(1000 + seed)
    kinds = {spelling: token for token, spelling in DEFAULT_SPECIAL_TOKENS.spellings().items()}
    for _ in range(100):
        conversation = build(generator.conversation())
        plain, marked = render(conversation, version), render(conversation, version, NO_MARK)
        grounding = {kind.value for kind in GROUNDING}
        got = [kinds[text].name for text in specials(plain) if text not in grounding]
        assert got == [NAMES[text] for text in specials(marked)]
        assert _plain_text(plain, grounding) == _plain_text(marked, set())


NAMES = {spelling: token.name for token, spelling in NO_MARK.spellings().items()}


def _plain_text(prompt: Prompt, counted_as_text: set[str]) -> str:
    text, position = "", 0
    for start, stop in prompt.special_ranges:
        text += prompt.text[position:start]
        if (spelling := prompt.text[start:stop]) in counted_as_text:
            text += spelling
        position = stop
    return text + prompt.text[position:]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("seed", range(3))
def test_ranges_are_spellings_in_order(seed: int, version: str) -> None:
    generator = Generator(2000 + seed)
    for _ in range(100):
        prompt = render(build(generator.conversation()), version)
        assert set(specials(prompt)) <= set(DEFAULT_SPECIAL_TOKENS.spellings().values())
        flat = [position for part in prompt.special_ranges for position in part]
        assert flat == sorted(flat) and all(0 <= position <= len(prompt.text) for position in flat)
        assert all(start < stop for start, stop in prompt.special_ranges)


HOSTILE = [token.value for token in SpecialToken] + [
    "\0",
    "\ue000",
    "\uf8ff\0",
    "<｜Us",
    "er｜>",
    "<｜",
    "｜>",
    "</thi",
    "nk>",
]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("text", HOSTILE)
def test_halves_in_neighbouring_fields_stay_text(text: str, version: str) -> None:
    """A spelling that only arises where two contents, or a content and the template, meet."""
    calls = (ToolCall("1", text, f'{{"{text if text.isprintable() else "k"}": "<｜User"}}'),)
    messages: tuple[Message, ...] = (
        UserMessage("<｜Us"), UserMessage("er｜>"), UserMessage(text), UserMessage("<"), ToolMessage("｜DSML｜" + text),
        AssistantMessage("</th", "<th", calls), ToolMessage("ink>", "1"), UserMessage("<｜Assis"),
    )  # fmt: skip
    neutral: tuple[Message, ...] = (
        UserMessage("a"), UserMessage("b"), UserMessage("c"), UserMessage("d"), ToolMessage("e"),
        AssistantMessage("f", "g", (ToolCall("1", "h", '{"k": "v"}'),)), ToolMessage("i", "1"), UserMessage("j"),
    )  # fmt: skip
    assert specials(render(Conversation(messages), version)) == specials(render(Conversation(neutral), version))


@pytest.mark.parametrize("version", VERSIONS)
def test_grounding_tokens_are_tokens_in_what_the_assistant_said(version: str) -> None:
    text = "".join(token.value + "x" for token in GROUNDING)
    messages = (UserMessage(text), AssistantMessage(text, text, prefix=True))
    got = specials(render(Conversation(messages, response_format="json_object"), version))
    spellings = [token.value for token in GROUNDING]
    assert [text for text in got if text in spellings] == 2 * spellings  # not those of the user


@pytest.mark.parametrize(
    ("version", "calls", "results", "order"),
    [
        ("v4", "ab", [("", "1"), (None, "2")], "21"),  # without id before the empty id
        ("v4", "ba", [("b", "1"), ("a", "2")], "21"),
        ("v4", "abc", [("b", "1"), ("a", "2")], "12"),  # fewer messages than calls
        ("v4", "ab", [("z", "1"), ("y", "2"), ("a", "3")], "213"),  # as many as calls, whatever their ids
        ("v41", "aba", [("b", "1"), ("a", "2")], "21"),  # an id counts where it comes first
        ("v41", "ab", [("b", "1"), (None, "2"), ("z", "3"), ("a", "4")], "3241"),  # unknown ids as the first call's
        ("v41", "ba", [("a", "1"), ("b", "2")], "21"),
    ],
)  # fmt: skip
def test_order_of_results(
    version: str, calls: str, results: list[tuple[str | None, str]], order: str, wheel: ModuleType
) -> None:
    called = [{"id": call, "name": "f", "arguments": "{}"} for call in calls]
    messages = [{"role": "assistant", "content": "", "tool_calls": called}]
    if version == "v41":  # a later assistant message with an empty list changes nothing
        messages.append({"role": "assistant", "content": "", "tool_calls": []})
    messages += [{"role": "tool", "content": text, "tool_call_id": call_id} for call_id, text in results]
    name = {"v4": "v4", "v41": "v4.1"}[version]
    text = render(build({"messages": messages}), name).text
    assert "".join(re.findall(r"<tool_result>(.)", text)) == order
    encoding = {"v4": wheel.DeepseekV4Encoding, "v41": wheel.DeepseekV41Encoding}[version]()
    assert text == encoding.render_conversation(build({"messages": messages}, wheel)).prompt


def test_pieces() -> None:
    prompt = Prompt.from_pieces(["é", Special("<a>"), "", Special(""), Special("<b>"), "😀x"])
    assert (prompt.text, prompt.special_ranges) == ("é<a><b>😀x", ((1, 4), (4, 7)))


def test_the_results_of_many_calls_are_sorted_in_little_time() -> None:
    calls = tuple(ToolCall(str(number), "f", "{}") for number in range(10_000))
    results = tuple(ToolMessage("x", str(number)) for number in reversed(range(10_000)))
    for version in VERSIONS:
        text = render(Conversation((AssistantMessage("", tool_calls=calls), *results)), version).text
        assert text.count("<tool_result>") == 10_000
