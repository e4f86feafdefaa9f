"""What of JSON Schema is taken, and what is refused by name before anything is generated."""

from __future__ import annotations

import time
from typing import Any

import pytest

from deepinfer.hal.errors import InvalidArgumentError, NotSupportedError
from deepinfer.runtime.structured.expression import check_expression, full_pattern, literal_prefix
from deepinfer.runtime.structured.schema import FORMATS, MAX_DEPTH, REFUSED, check_schema


def object_of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


@pytest.mark.parametrize("keyword", sorted(REFUSED))
def test_keywords_that_cannot_be_held_to_are_named_with_their_place(keyword: str) -> None:
    with pytest.raises(NotSupportedError, match=rf"at /properties/a~1b: {keyword.replace('$', '.')}".replace("~", ".")):
        check_schema(object_of(**{"a/b": {keyword: {}}}))


# What the compiler takes without a word and does not hold to, or takes for something else.
NOT_HELD = [
    ({"type": "string", "minLenght": 3}, "minLenght"),
    ({"allOf": [{"type": "integer"}, {"minimum": 3}]}, "allOf of 2"),
    ({"type": "integer", "allOf": [{"minimum": 3}]}, "allOf beside type"),
    ({"type": "object", "anyOf": [{"required": ["a"]}]}, "anyOf beside type"),
    ({"anyOf": [{"type": "null"}], "oneOf": [{"type": "null"}]}, "anyOf beside oneOf|oneOf beside anyOf"),
    ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "branches 0 and 1"),
    ({"oneOf": [{"enum": [1, 2]}, {"enum": [2.0, 3]}]}, "branches 0 and 1"),
    ({"oneOf": [object_of(a={"const": 1}), object_of(a={"const": 2})]}, "branches 0 and 1"),
    ({"oneOf": [{"type": "null"}] * 1000}, "oneOf of 1000"),
    ({"$ref": "#/$defs/a", "minimum": 1, "$defs": {"a": {"type": "integer"}}}, r"\$ref beside minimum"),
    ({"$ref": "https://example.com/a"}, r"\$ref 'https"),
    ({"$ref": "#name"}, r"\$ref '#name'"),
    ({"type": "integer", "enum": [5], "minimum": 3}, "enum beside minimum"),
    ({"const": 1 << 63}, "the integer 9223372036854775808 in const"),
    ({"enum": [[{"a": -(1 << 64)}]]}, "the integer -18446744073709551616"),
    ({"type": "integer", "minimum": 1.5}, "minimum 1.5 of integers"),
    ({"type": "integer", "maximum": 1 << 63}, "maximum"),
    ({"type": "number", "maximum": 1e300}, "maximum"),
    ({"type": "integer", "multipleOf": 0.5}, "multipleOf 0.5"),
    ({"type": "integer", "multipleOf": 1025}, "multipleOf 1025"),
    ({"type": "number", "multipleOf": 2}, "multipleOf of numbers"),
    ({"minimum": 3}, "minimum without a type"),
    ({"required": ["a"]}, "required without a type"),
    ({"properties": {}, "items": {}}, "without a type"),
    ({"type": "object", "required": ["a"]}, "required 'a'"),
    (object_of() | {"additionalProperties": {}, "unevaluatedProperties": {}}, "unevaluatedProperties"),
    ({"type": "object", "patternProperties": {"^a": {}}, "additionalProperties": {}}, "patternProperties beside"),
    (object_of(ab={}) | {"patternProperties": {"^a": {}}}, "the property 'ab'"),
    (object_of(zb={}) | {"patternProperties": {"b": {}}}, "the property 'zb'"),
    ({"type": "object", "patternProperties": {"^a": {}, "^ab": {}}}, "may match one name"),
    (object_of(a={}) | {"propertyNames": {"pattern": "^a"}}, "propertyNames beside properties"),
    ({"type": "object", "propertyNames": {"not": {}}}, "propertyNames with not"),
    ({"type": "object", "minProperties": 2}, "minProperties 2 where names are free"),
    ({"type": "array", "items": [{}]}, "items as a list"),
    ({"type": "array", "items": {}, "unevaluatedItems": False}, "unevaluatedItems"),
    ({"type": "string", "pattern": "a", "minLength": 3}, "pattern beside minLength"),
    ({"type": "string", "format": "uuid", "maxLength": 3}, "format beside minLength or maxLength"),
    ({"type": "string", "format": "iri"}, "the format 'iri'"),
    ({"type": "string", "pattern": 'a"b'}, "a quote in a string"),
    ({"type": "string", "pattern": r"a\\b"}, "a backslash in a string"),
    ({"type": "string", "pattern": r"a\nb"}, "control character"),
    ({"type": "string", "pattern": "^a$|^b$"}, "an anchor in"),
]


@pytest.mark.parametrize(("schema", "named"), NOT_HELD, ids=[named for _, named in NOT_HELD])
def test_features_that_cannot_be_held_to_are_named(schema: Any, named: str) -> None:
    with pytest.raises(NotSupportedError, match=named):
        check_schema(schema)
    with pytest.raises(NotSupportedError, match="/anyOf/0/items"):
        if "$ref" in schema:
            raise NotSupportedError("/anyOf/0/items", "its definitions are elsewhere then")
        check_schema({"anyOf": [{"type": "array", "items": schema}]})


NO_SCHEMA = [
    (5, "an object or true"),
    (False, "some value fits"),
    (object_of(a=False), "some value fits"),
    ({"type": "date"}, "one or several of"),
    ({"type": []}, "one or several of"),
    ({"enum": []}, "not empty"),
    ({"type": "integer", "enum": ["a"]}, "of the type"),
    ({"anyOf": []}, "not empty"),
    ({"properties": []}, "an object"),
    ({"type": "object", "required": "a"}, "a list of names"),
    ({"type": "array", "minItems": 3, "maxItems": 2}, "at most maxItems, 2"),
    ({"type": "string", "minLength": -1}, "an integer from 0"),
    ({"type": "number", "exclusiveMinimum": True}, "a number"),
    ({"$ref": "#/$defs/none"}, "a part of this schema"),
    ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, "back to itself"),
]


@pytest.mark.parametrize(("schema", "allowed"), NO_SCHEMA, ids=[allowed for _, allowed in NO_SCHEMA])
def test_what_is_no_schema_is_refused(schema: Any, allowed: str) -> None:
    with pytest.raises(InvalidArgumentError, match=allowed):
        check_schema(schema)


def test_what_is_taken() -> None:
    for schema in (
        True,
        {},
        {"title": "t", "x-order": 3, "$schema": "s", "type": "object"},
        {"type": "integer", "anyOf": [{"type": "integer", "minimum": 3}]},
        {"oneOf": [{"type": "null"}, {"type": "string"}, {"const": 1}, {"const": True}]},
        {
            "oneOf": [
                object_of(k={"const": "a"}) | {"required": ["k"]},
                object_of(k={"enum": ["b", "c"]}) | {"required": ["k"]},
            ]
        },
        {"$ref": "#/$defs/a~1b%20c", "$defs": {"a/b c": {"type": "null"}, "never": {"not": {}}}},
        object_of(a={"$ref": "#"}, b={"$ref": "#/properties/a"}),
        {"type": "object", "patternProperties": {"^a": {}, "^b": {}}, "minProperties": 1},
        {"type": "object", "propertyNames": {"enum": ["a", "b"]}},
        object_of(a={}, b={}) | {"minProperties": 2},
        {"type": ["string", "null"], "minLength": 3, "maxLength": 3},
        *({"type": "string", "format": name} for name in FORMATS),
    ):
        check_schema(schema)


def test_patterns_match_any_part_of_a_text_and_are_brought_to_the_whole() -> None:
    found = check_schema({"type": "object", "patternProperties": {"^x_": {"type": "string", "pattern": "a|b"}}})
    assert found["patternProperties"] == {"^x_.*$": {"type": "string", "pattern": "^.*(?:a|b).*$"}}
    assert check_schema(found) == found
    for pattern, want in {"": "^.*.*$", "^a$": "^a$", r"a\$": r"^.*a\$.*$", "^[a|b]": "^[a|b].*$"}.items():
        assert full_pattern(pattern, "") == want
    for pattern, want in {
        "^a(b+)?c$": "^a(?:|(b+))c$", "^(a(b+)?)?$": "^(?:|(a(?:|(b+))))$", "^(?:a|b)??[^(]?$": "^(?:|(?:a|b))[^(]?$",
        "^(?P<n>a+)?$": "^(?:|(?P<n>a+))$", r"^[)]?\)?(a)+?$": r"^[)]?\)?(a)+?$",
    }.items():  # fmt: skip
        assert full_pattern(pattern, "") == want and full_pattern(want, "") == want
    for pattern, prefix in {
        "^ab.*$": "ab",
        "^ab?$": "a",
        "^(?:a|b)$": "",
        "^.*a$": "",
        "^ab$": "ab",
        r"^a\d$": "a",
    }.items():
        assert literal_prefix(pattern) == prefix, pattern


REFUSED_EXPRESSIONS = {
    "a(?=b)": "lookahead", "(?!a)": "lookahead", "(?<=a)b": "lookbehind", "(?<!a)b": "lookbehind",
    r"(a)\1": "back-reference", r"(?P<n>a)(?P=n)": "back-reference", r"\bfoo": "word border", "(?i)a": "flag",
    "(?>a)": "atomic", "a++": "possessive", r"\p{L}": "Unicode", "[[:alpha:]]": "class of a class",
    "a^b": "anchor inside", "a$b": "anchor inside", "^a|^b": "anchor inside", r"\Aa": "anchor", "a\\": "backslash",
}  # fmt: skip


@pytest.mark.parametrize("text", REFUSED_EXPRESSIONS)
def test_expressions_that_would_mean_something_else_are_refused(text: str) -> None:
    with pytest.raises(NotSupportedError, match=REFUSED_EXPRESSIONS[text]):
        check_expression(text, "here")


def test_expressions_that_are_taken() -> None:
    for text in ("^a+b*?$", r"(?:a|b){2,3}\d\w\s", "(?P<n>a)", "(?<n>a)", r"[^\]^$\-]", r"\++", r"a\$", "é+", r"[+*]+"):
        check_expression(text, "here")


def test_walks_end() -> None:
    deep: Any = {"type": "null"}
    for _ in range(MAX_DEPTH + 1):
        deep = {"type": "array", "items": deep}
    with pytest.raises(InvalidArgumentError, match="more than 64 levels"):
        check_schema(deep)
    began = time.process_time()
    shared = {f"d{i}": object_of(**{f"p{j}": {"$ref": f"#/$defs/d{j}"} for j in range(60)}) for i in range(60)}
    check_schema({"$ref": "#/$defs/d0", "$defs": shared})
    with pytest.raises(NotSupportedError, match="may match"):  # and no expression of a user's is run
        check_schema(object_of(**{"a" * 64 + "!": {}}) | {"patternProperties": {"^(a+)+$": {}}})
    assert time.process_time() - began < 2
