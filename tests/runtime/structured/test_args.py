"""`so_args`: every key by name, and nothing passed over."""

from __future__ import annotations

import json
import pickle
import time
from dataclasses import replace
from typing import Any

import pytest

from deepinfer.hal.errors import InvalidArgumentError, NotSupportedError
from deepinfer.runtime.params import SamplingParams
from deepinfer.runtime.structured import args
from deepinfer.runtime.structured.args import MAX_SCHEMA_BYTES, Structure, parse_so_args

AB = {"schema_type": "regex", "schema": "a+b"}


@pytest.mark.parametrize(
    ("so_args", "want"),
    [
        (AB, Structure("regex", "a+b")),
        ({"schema_type": "ebnf", "schema": 'root ::= "a"'}, Structure("ebnf", 'root ::= "a"')),
        ({"schema_type": "json", "schema": "true", "max_whitespace": 0}, Structure("json", "true", whitespace=0)),
        (AB | {"trigger_token_ids": [5, 6], "bound_token_id": 7}, Structure("regex", "a+b", (5, 6), 7)),
        (AB | {"trigger_token_ids": None, "bound_token_id": None, "max_whitespace": None}, Structure("regex", "a+b")),
    ],
)
def test_what_so_args_say(so_args: dict[str, Any], want: Structure) -> None:
    assert parse_so_args(so_args) == want


def test_escapes_in_a_schema_become_characters() -> None:
    text = parse_so_args({"schema_type": "json", "schema": json.dumps({"enum": ["\u00df", "\U0001f600"]})}).text
    assert "ß" in text and "😀" in text and "\\u" not in text


@pytest.mark.parametrize(
    ("so_args", "named"),
    [
        ([], "so_args: got"),
        ({"schema": "a"}, "no key 'schema_type'"),
        ({"schema_type": "regex"}, "no key 'schema'"),
        (AB | {"schema_type": "lark"}, "'json', 'regex', 'ebnf', 'structural_tag'"),
        (AB | {"schema_type": True}, "schema_type"),
        (AB | {"schema": ""}, "not empty"),
        (AB | {"schema": {"type": "object"}}, "a text"),
        (AB | {"schema": "a\ud800"}, "surrogates"),
        (AB | {"schema": "a\0"}, "NUL"),
        (AB | {"serialized": "x"}, "grammars come as text"),
        (AB | {"bound_token_ids": [1]}, "bound_token_id, a single id"),
        (AB | {"triger_token_ids": [1]}, "triger_token_ids"),
        (AB | {"trigger_token_ids": []}, "1 to 64 ids"),
        (AB | {"trigger_token_ids": [-1]}, r"trigger_token_ids'\]\[0\]"),
        (AB | {"bound_token_id": 3}, "without trigger_token_ids"),
        (AB | {"trigger_token_ids": [1], "bound_token_id": -1}, "bound_token_id"),
        (AB | {"max_whitespace": 1}, "unless schema_type is 'json'"),
        ({"schema_type": "json", "schema": "{}", "max_whitespace": 129}, "0 to 128"),
        ({"schema_type": "json", "schema": "{"}, "JSON"),
        ({"schema_type": "json", "schema": '{"minimum": NaN}'}, "NaN"),
        ({"schema_type": "json", "schema": '{"const": 1e999}'}, "JSON"),
        ({"schema_type": "json", "schema": '{"const": "\\ud800"}'}, "JSON"),
        ({"schema_type": "json", "schema": '{"type": "null", "type": "object"}'}, "'type' twice"),
        ({"schema_type": "json", "schema": "[" * 100_000}, "nested too deeply"),
        ({"schema_type": "structural_tag", "schema": "{}"}, "structural_tag"),
    ],
)
def test_errors_name_the_key_and_what_is_allowed(so_args: Any, named: str) -> None:
    with pytest.raises(InvalidArgumentError, match=named):
        parse_so_args(so_args)


def test_a_schema_of_ten_megabytes_is_refused_before_it_is_looked_at() -> None:
    huge = json.dumps({"enum": ["x" * 100] * 100_000})
    assert len(huge) > 10 * MAX_SCHEMA_BYTES // 11
    began = time.process_time()
    with pytest.raises(InvalidArgumentError, match=f"at most {MAX_SCHEMA_BYTES} bytes"):
        SamplingParams(so_args={"schema_type": "json", "schema": huge})
    assert time.process_time() - began < 0.5


def test_tokens_outside_the_vocabulary_are_refused() -> None:
    params = SamplingParams(so_args=AB | {"trigger_token_ids": [5, 100]})
    params.validate_for_model(101)
    with pytest.raises(InvalidArgumentError, match=r"trigger_token_ids'\]\[1\].*100"):
        params.validate_for_model(100)
    with pytest.raises(InvalidArgumentError, match="bound_token_id"):
        SamplingParams(so_args=AB | {"trigger_token_ids": [5], "bound_token_id": 100}).validate_for_model(100)


def test_a_copy_says_the_same_and_a_changed_field_is_checked() -> None:
    params = SamplingParams(so_args=dict(AB))
    assert params.copy().structure == params.structure == parse_so_args(AB)
    params.so_args = {"schema_type": "regex", "schema": "(?=a)"}
    with pytest.raises(NotSupportedError, match="lookahead"):
        params.copy()
    assert SamplingParams().structure is None


@pytest.mark.parametrize(
    ("part", "error", "named"),
    [
        ({"type": "const_string", "value": "x"}, None, ""),
        ({"type": "sequence", "elements": [{"type": "json_schema", "json_schema": {"type": "null"}}]}, None, ""),
        ({"type": "lark"}, NotSupportedError, "'lark'"),
        ({"type": "token", "token": 5}, NotSupportedError, "'token'"),
        ({"type": "regex", "pattern": r"\bx"}, NotSupportedError, "word border"),
        ({"type": "regex"}, InvalidArgumentError, "pattern"),
        ({"type": "plus", "content": {"type": "json_schema", "json_schema": {"not": {}}}}, NotSupportedError, "not"),
        ({"type": "sequence", "elements": ["x"]}, InvalidArgumentError, "elements/0"),
        ({"type": "json_schema", "json_schema": True, "style": "gemma"}, NotSupportedError, "style"),
    ],
)
def test_structural_tags(part: Any, error: type[Exception] | None, named: str) -> None:
    so_args = {"schema_type": "structural_tag", "schema": json.dumps({"type": "structural_tag", "format": part})}
    if error is None:
        text = parse_so_args(so_args).text
        assert ("json_schema" not in text) or '"max_whitespace_cnt": 16' in text
        return
    with pytest.raises(error, match=named):
        parse_so_args(so_args)


def test_a_schema_is_read_once_whoever_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not on the engine's thread, which copies what `check_request` made."""
    read: list[str] = []
    plain = args._text

    def noted(kind: str, schema: Any) -> str:
        read.append(schema)
        return plain(kind, schema)

    monkeypatch.setattr(args, "_text", noted)
    schema = json.dumps({"enum": ["a", "b"]})
    params = SamplingParams(so_args={"schema_type": "json", "schema": schema, "trigger_token_ids": [3]})
    once = params.copy()
    for _ in range(3):
        once = once.copy()
        once.validate()
    assert read == [schema] and once.structure == params.structure and once.structure is not None

    # What has changed is read, also where the dict is the same one; nothing of it is passed over.
    assert once.so_args is not None
    once.so_args["trigger_token_ids"].append(4)
    assert once.copy().structure == replace(params.structure or once.structure, trigger=(3, 4)) and len(read) == 1
    once.so_args["max_whitespace"] = True
    with pytest.raises(InvalidArgumentError, match="max_whitespace"):
        once.copy()
    del once.so_args["max_whitespace"]
    once.so_args["schema"] = json.dumps({"not": {}})
    with pytest.raises(NotSupportedError, match="not"):
        once.copy()
    once.so_args["schema_type"] = "regex"
    assert once.copy().structure == Structure("regex", once.so_args["schema"], (3, 4)) and len(read) == 3


def test_a_pickled_structure_is_the_same() -> None:
    made = parse_so_args(AB)
    assert pickle.loads(pickle.dumps(made)) == made and pickle.loads(pickle.dumps(made)).key == made.key
