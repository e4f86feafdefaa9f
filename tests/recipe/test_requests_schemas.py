"""JSON Schemas of requests, their strict form, patterns, and data URLs."""

from __future__ import annotations

import time
from typing import Any

import pytest

from deepinfer.recipe.errors import ConversionError
from deepinfer.recipe.requests.data_urls import read_data_url
from deepinfer.recipe.requests.images import quoted
from deepinfer.recipe.requests.regex_check import is_ecma_regex
from deepinfer.recipe.requests.schema_check import SchemaError, check_schema
from deepinfer.recipe.requests.strict_schema import strict_format, strict_parameters

DRAFT_4, DRAFT_7 = "http://json-schema.org/draft-04/schema#", "http://json-schema.org/draft-07/schema#"


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {},
        {"type": ["string", "null"], "enum": []},
        {"minLength": 1.0},
        {"$schema": DRAFT_7, "items": [{}]},
        {"$schema": DRAFT_4, "exclusiveMinimum": True, "minimum": 1},
        {"$ref": "#/$defs/a~1b", "$defs": {"a/b": {}}},
        {"$ref": "#here", "$defs": {"a": {"$anchor": "here"}}},
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        {"$defs": {"a": {"$ref": "#/nowhere"}}},  # nothing leads there
        {"const": {"$ref": "#/nowhere"}},
        {"x-unknown": {"type": "bogus"}},
        {"$id": "http://h/x", "$ref": "x#/$defs/a", "$defs": {"a": {}}},
    ],
)
def test_schemas(schema: Any) -> None:
    check_schema(schema)


@pytest.mark.parametrize(
    "schema",
    [
        None,
        5,
        {"type": "bogus"},
        {"type": []},
        {"minLength": -1},
        {"minLength": 1.5},
        {"required": ["a", "a"]},
        {"properties": {"a": 5}},
        {"items": [{}]},
        {"exclusiveMinimum": True},
        {"pattern": "["},
        {"patternProperties": {"[": {}}},
        {"$schema": "bogus"},
        {"$schema": DRAFT_4, "required": []},
        {"$schema": DRAFT_4, "minLength": 1.0},
        {"$ref": "#/nowhere"},
        {"properties": {"a": {"$ref": "#nowhere"}}},
        {"$ref": "http://x.invalid/s"},
        {"$ref": "file:///etc/passwd"},
        {"$defs": {"a": {"$ref": "http://x.invalid/s"}}},
        {"$ref": "#/unknown", "unknown": {"type": "bogus"}},
        {"$id": "#a"},
    ],
)
def test_values_that_are_no_schemas(schema: Any) -> None:
    with pytest.raises(SchemaError):
        check_schema(schema)


def test_deep_and_wide_schemas_are_read_in_time() -> None:
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(120):
        deep = {"type": "object", "properties": {"a": deep, "b": {"$ref": "#"}}}
    check_schema(deep)
    check_schema(
        {"$ref": "#/$defs/a0", "$defs": {f"a{n}": {"$ref": f"#/$defs/a{n + 1}"} for n in range(400)} | {"a400": {}}}
    )


def test_strict_parameters() -> None:
    schema: Any = {
        "type": "object",
        "title": "gone",
        "properties": {
            "s": {"type": "string", "minLength": 1, "enum": ["x"], "description": "d", "format": "email"},
            "n": {"type": "number", "const": 1, "maximum": 2.5, "description": "d"},
            "l": {"type": "array", "items": {"$ref": "#", "title": "gone"}, "minItems": 1},
            "u": {"anyOf": [{"type": "null"}, {"type": "object", "properties": {"k": {"type": ["string", "null"]}}}]},
        },
    }
    strict: Any = strict_parameters(schema)
    assert list(strict) == ["type", "properties", "additionalProperties", "required"]
    assert strict["required"] == ["s", "n", "l", "u"] and strict["additionalProperties"] is False
    fields = strict["properties"]
    assert list(fields["s"].items()) == [("type", "string"), ("description", "d"), ("format", "email"), ("enum", ["x"])]
    assert list(fields["n"]) == ["type", "description", "const", "maximum"]
    assert fields["l"] == {"type": "array", "items": {"$ref": "#"}}
    assert fields["u"]["anyOf"][1]["required"] == ["k"]
    assert strict_parameters({"type": "object"}) == {
        "type": "object",
        "properties": {},
        "additionalProperties": False,
        "required": [],
    }


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "object"}, "An object with no properties is not allowed."),
        ({"type": "string"}, "The top level of the json schema must be an object."),
        ({"type": "object", "properties": {"a": {}}}, "Invalid json schema: properties.a: one of `type`"),
        ({"type": "object", "properties": {"a": {"type": "array"}}}, "properties.a.items: required field is missing"),
        (
            {"type": "object", "properties": {"a": {"type": "null"}}, "required": []},
            "Required properties must match all",
        ),
        (
            {"type": "object", "properties": {"a": {"type": "null"}}, "required": ["b"]},
            "Required property 'b' not found",
        ),
        ({"type": "object", "properties": {"a": {"type": "null"}}, "required": ["a", "a"]}, "Duplicate required"),
        ({"type": "object", "properties": {"a": {"type": "null"}}, "additionalProperties": True}, "should not be true"),
    ],
)
def test_formats_without_a_strict_form(schema: Any, message: str) -> None:
    with pytest.raises(ConversionError) as raised:
        strict_format(schema)
    assert message in str(raised.value)


@pytest.mark.parametrize("pattern", ["", "^[a-z]+$", r"\d{2,}", "(?<n>a)", "(?=a)", r"\u{41}", r"\p{Lu}", "[{]", "a|b"])
def test_patterns(pattern: str) -> None:
    assert is_ecma_regex(pattern)


@pytest.mark.parametrize("pattern", ["[", "(", "a{2,1}", "{", "*", r"\k<n>", r"\Z", r"\0", "[z-a]", "(?>a)", "(?#c)"])
def test_texts_that_are_no_patterns(pattern: str) -> None:
    assert not is_ecma_regex(pattern)


def test_a_long_base_is_not_repeated_for_every_part() -> None:
    parts = [{"$id": f"part-{number}"} for number in range(10)]
    check_schema({"$id": "http://schemas.example/" + "x" * 1900 + "/", "anyOf": parts})
    with pytest.raises(SchemaError, match="at most 2048"):
        check_schema({"$id": "http://schemas.example/" + "x" * 2048 + "/", "anyOf": parts})


def test_an_index_of_more_digits_than_python_reads() -> None:
    with pytest.raises(SchemaError, match="does not lead to a part"):
        check_schema({"$ref": "#/anyOf/" + "1" * 5000, "anyOf": [{}]})


@pytest.mark.parametrize(
    "pattern",
    [
        "[" + r"\p{a}" * 60,  # each could be read in two ways
        "[" + r"\x41" * 60,
        "[" * 100_000,
        "[" + r"\p{" * 30_000 + "]",
        "a{" + "1" * 5000 + "}",  # more digits than Python reads
    ],
    ids=["properties", "bytes", "sets", "braces", "digits"],
)
def test_patterns_that_are_made_to_be_slow_are_judged_at_once(pattern: str) -> None:
    start = time.process_time()
    with pytest.raises(SchemaError, match="is not a regular expression"):
        check_schema({"pattern": pattern})
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    ("url", "media_type", "data"),
    [
        ("data:image/png;base64,aGk=", "image/png", b"hi"),
        ("DATA:image/PNG;charset=x;base64,aG k#fragment", "image/png", b"hi"),
        ("data:image/gif;base64,aGk%3D", "image/gif", b"hi"),
        (" data:im\nage/gif,a%20b\t", "image/gif", b"a b"),
        ("data:,x", "text/plain", b"x"),
        ("data:image/png;base64,aGk=x", "image/png", None),
        ("data:image/png;base64,a", "image/png", None),
        ("data:image/png;base64,aG=", "image/png", None),
    ],
)
def test_data_urls(url: str, media_type: str, data: bytes | None) -> None:
    read = read_data_url(url)
    assert read is not None and read.media_type == media_type
    assert read.decode() == data and read.is_decodable() == (data is not None)


@pytest.mark.parametrize("url", ["", "http://x", "data:image/png", "data:image/png#,a", "ſdata:,a"])
def test_texts_that_are_no_data_urls(url: str) -> None:
    assert read_data_url(url) is None


def test_quoting() -> None:
    assert quoted('a"b\\\n\0é\u202e') == '"a\\"b\\\\\\n\\0é\\u{202e}"'
