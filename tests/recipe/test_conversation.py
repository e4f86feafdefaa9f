"""Conversations refuse what they cannot mean, and know which text stands for an image."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest

from deepinfer.recipe.conversation import (
    AssistantMessage,
    Conversation,
    ImageSource,
    LatestReminder,
    SystemMessage,
    ToolCall,
    ToolDefinition,
    ToolMessage,
    UserMessage,
    join_parts,
)
from deepinfer.recipe.errors import InvalidArgumentError, InvalidTypeError

IMAGE = "<｜image｜>"
SOURCE = ImageSource.from_url("http://h/1")
OTHER = ImageSource.from_bytes(b"x", "low", path="messages[0]")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"reasoning_effort": "zz"}, 'invalid reasoning_effort "zz"; expected "low", "high", "xhigh", or "max"'),
        ({"tool_choice": "any"}, 'invalid tool_choice "any"; expected "auto", "none", or "required"'),
        ({"response_format": "json_schema"}, 'invalid response_format "json_schema"; expected "text" or "json_object"'),
        ({"response_schema": {}, "response_regex": "a"}, "response_schema and response_regex cannot be combined"),
        (
            {"response_format": "json_object", "response_regex": ""},
            'response_format "json_object" cannot be combined with response_schema or response_regex',
        ),
    ],
)
def test_words_and_formats(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        Conversation(**arguments)
    assert str(caught.value) == message


def test_schema_and_regex_settle_the_format_and_copies_keep_it() -> None:
    schema, regex = Conversation(response_schema=True), Conversation(response_regex="")
    assert (schema.response_format, regex.response_format) == ("json_schema", "regex")
    assert replace(schema, thinking_mode=False).response_format == "json_schema"
    assert replace(regex, thinking_mode=False).response_format == "regex"


def test_tools_in_effect() -> None:
    tools = (ToolDefinition("f"),)
    assert (
        Conversation(tools=tools).tools_in_effect and Conversation(tools=tools, tool_choice="required").tools_in_effect
    )
    assert not Conversation(tools=tools, tool_choice="none").tools_in_effect
    assert not Conversation(tool_choice="required").tools_in_effect


def test_values_are_copied_and_frozen() -> None:
    schema: Any = {"a": [1]}
    messages = [UserMessage("a")]
    tool = ToolDefinition("f", parameters=schema)
    conversation = Conversation(messages, tools=[tool], response_schema=schema)  # type: ignore[arg-type]
    schema["a"].append(2)
    messages.append(UserMessage("b"))
    assert tool.parameters == conversation.response_schema == {"a": [1]}
    assert conversation.messages == (UserMessage("a"),)
    with pytest.raises(FrozenInstanceError):
        conversation.messages = ()  # type: ignore[misc]


@pytest.mark.parametrize(
    ("content", "sources", "token", "ranges"),
    [
        (f"a{IMAGE}b{IMAGE}", 1, IMAGE, ((1, 10),)),
        (f"a{IMAGE}b{IMAGE}", 2, IMAGE, ((1, 10), (11, 20))),
        (f"a{IMAGE}", 3, IMAGE, ((1, 10),)),
        (IMAGE, 0, IMAGE, ()),
        ("aaaa", 3, "aa", ((0, 2), (2, 4))),
        (f"<｜ima{IMAGE}ge｜>", 1, IMAGE, ((5, 14),)),
    ],
)
def test_first_occurrences_are_placeholders(content: str, sources: int, token: str, ranges: object) -> None:
    for kind in (SystemMessage, UserMessage, ToolMessage):
        message = kind(content, image_sources=(SOURCE,) * sources, image_token=token)
        assert message.placeholders == ranges
        assert message.image_sources == (SOURCE,) * sources


def test_joined_parts_keep_text_that_spells_the_token() -> None:
    content, sources, ranges = join_parts([IMAGE, SOURCE, "", f"{IMAGE}é", OTHER])
    assert content == f"{IMAGE}\n\n{IMAGE}\n\n\n\n{IMAGE}é\n\n{IMAGE}"
    assert sources == (SOURCE, OTHER)
    assert [content[start:stop] for start, stop in ranges] == [IMAGE, IMAGE]
    assert ranges == ((11, 20), (36, 45))
    assert UserMessage(content, sources, placeholders=ranges).placeholders == ranges
    assert join_parts([]) == ("", (), ())


@pytest.mark.parametrize(
    "make",
    [
        lambda: UserMessage("a", (SOURCE,), image_token=""),
        lambda: UserMessage("a", image_token=""),
        lambda: UserMessage("abc", (SOURCE,), placeholders=((2, 4),)),
        lambda: UserMessage("abc", (SOURCE,), placeholders=((1, 1),)),
        lambda: UserMessage("abc", (SOURCE, SOURCE), placeholders=((1, 2), (0, 1))),
        lambda: UserMessage("abc", placeholders=((0, 1),)),
        lambda: UserMessage("\ud800"),
        lambda: AssistantMessage("", "\udfff"),
        lambda: ToolMessage("", "\ud800"),
        lambda: ToolCall("", "\ud800", ""),
        lambda: ToolDefinition("f", "\ud800"),
        lambda: ToolDefinition("f", parameters={"a": float("nan")}),
        lambda: ImageSource.from_url("x", "medium"),  # type: ignore[arg-type]
    ],
)
def test_values_that_are_refused(make: Callable[[], object]) -> None:
    with pytest.raises(InvalidArgumentError):
        make()


@pytest.mark.parametrize(
    "make",
    [
        lambda: UserMessage(3),  # type: ignore[arg-type]
        lambda: UserMessage("", ["http://h"]),  # type: ignore[arg-type, list-item]
        lambda: Conversation(["hello"]),  # type: ignore[arg-type, list-item]
        lambda: Conversation("hello"),  # type: ignore[arg-type]
        lambda: AssistantMessage("", tool_calls="f"),  # type: ignore[arg-type]
        lambda: ImageSource("bytes", "x"),
        lambda: ImageSource("url", b"x"),
        lambda: ToolDefinition("f", parameters={1}),  # type: ignore[arg-type]
    ],
)
def test_types_that_are_refused(make: Callable[[], object]) -> None:
    with pytest.raises(InvalidTypeError):
        make()


def test_what_belongs_to_another_role_is_neutral() -> None:
    for message in (SystemMessage(""), UserMessage(""), ToolMessage(""), LatestReminder("")):
        assert (message.reasoning_content, message.tool_calls, message.prefix) == (None, None, False)
        assert message.tool_call_id is None
    assert AssistantMessage("").image_sources == LatestReminder("").placeholders == ()


def test_image_sources() -> None:
    source = ImageSource.from_data_url("data:,x", "auto", path="p")
    assert (source.kind, source.data_url, source.url, source.data) == ("data_url", "data:,x", None, None)
    assert (source.detail, source.path) == ("auto", "p")
    assert (SOURCE.url, SOURCE.detail, OTHER.data) == ("http://h/1", "high", b"x")
