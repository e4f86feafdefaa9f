"""Properties of any JSON text and any request body: drawn, and made smaller where they fail."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepinfer.recipe.errors import ConversionError, InvalidBodyError, InvalidJsonError
from deepinfer.recipe.json_text import parse_json, print_json
from deepinfer.recipe.protocols import protocol
from deepinfer.recipe.special_tokens import DEFAULT_SPECIAL_TOKENS
from deepinfer.recipe.versions import model_version
from recipe_cases import VERSIONS

MODELS = [model_version(version).model_name for version in VERSIONS]
NUMBERS = st.integers(-(1 << 63), (1 << 64) - 1) | st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
FIELDS = {
    "chat": "role content tool_calls tool_call_id type text function name arguments id image_url url reasoning_content",
    "responses": "role content type text call_id name arguments output tools id summary input image_url namespace",
    "messages": "role content type text id name input tool_use_id source media_type data url thinking tool_name",
}
TOP = {
    "chat": "messages tools tool_choice response_format stop temperature stream thinking reasoning_effort seed",
    "responses": "input instructions tools tool_choice text reasoning temperature max_output_tokens",
    "messages": "messages system tools tool_choice stop_sequences thinking max_tokens output_config",
}
WORDS = ("user", "assistant", "tool", "system", "text", "function", "image_url", "input_text", "tool_use", "message")


@settings(deadline=None, max_examples=200)
@given(JSON)
def test_json_that_is_printed_reads_back(value: Any) -> None:
    for compact in (False, True):
        text = print_json(value, compact=compact)
        assert parse_json(text) == value == json.loads(text)
        assert print_json(parse_json(text), compact=compact) == text


@settings(deadline=None, max_examples=300)
@given(st.text('{}[]":,\\ -+.0123456789eEtruefalsn\u2028\0é', max_size=24))
def test_any_text_is_json_or_a_known_error(text: str) -> None:
    try:
        value = parse_json(text)
    except InvalidJsonError:
        return
    # What is read here is JSON elsewhere; not the other way round, since a number may be too large.
    assert json.loads(text) == value


def bodies(name: str) -> st.SearchStrategy[dict[str, Any]]:
    """Bodies whose fields have the names of a protocol, and often values that fit them."""
    values = st.recursive(
        st.sampled_from(WORDS) | st.none() | st.booleans() | NUMBERS | TEXTS,
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS[name].split()), inner, max_size=4)
        ),
        max_leaves=10,
    )
    turns = st.fixed_dictionaries({"role": st.sampled_from(WORDS[:4]), "content": values | TEXTS})
    history = st.lists(turns | values, min_size=1, max_size=4)
    required = {"model": st.sampled_from(MODELS), "input" if name == "responses" else "messages": history}
    optional = {field: values for field in TOP[name].split() if field not in required}
    return st.fixed_dictionaries(required, optional=optional)


@pytest.mark.parametrize("name", list(TOP))
def test_any_body_converts_or_is_refused_in_words(name: str) -> None:
    converted = []

    @settings(deadline=None, max_examples=150)
    @given(bodies(name))
    def check(body: dict[str, Any]) -> None:
        try:
            request = protocol(name).convert(body)
        except ConversionError as error:
            assert error.status_code == 400 and json.loads(error.body)["error"]["message"] == str(error)
        except InvalidBodyError as error:
            assert str(error).startswith("invalid request body: ")
        else:
            request.model_version.template.render(request.conversation, DEFAULT_SPECIAL_TOKENS)
            assert protocol(name).convert(json.dumps(body)).conversation == request.conversation
            converted.append(body)

    check()
    assert converted
