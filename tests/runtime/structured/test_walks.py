"""Schemas and expressions made to take long, near the limit of their size: the walk takes as long as they are large."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from deepinfer.hal.errors import InvalidArgumentError, NotSupportedError
from deepinfer.runtime.structured.args import MAX_SCHEMA_BYTES, parse_so_args
from deepinfer.runtime.structured.expression import full_pattern
from deepinfer.runtime.structured.schema import MAX_COMPARED, MAX_DEPTH, check_schema
from timing import growth, seconds


def patterns(n: int) -> Any:
    return {"type": "object", "patternProperties": {f"^{i:06}": True for i in range(n)}}


def patterns_and_properties(n: int) -> Any:
    return patterns(n) | {"properties": {f"p{i}": True for i in range(n)}}


def constants(n: int) -> Any:
    names = [f"p{i}" for i in range(n)]
    return {"oneOf": [{"type": "object", "properties": {name: {"const": 1} for name in names}, "required": names}]}


def chain(n: int) -> Any:
    steps = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(n)}
    return {"$ref": "#/$defs/d0", "$defs": steps | {f"d{n}": {"type": "null"}}}


def the_same_branch(n: int) -> Any:
    pairs = [{"oneOf": [{"$ref": "#/$defs/a"}, {"type": "null"}, {"const": i}]} for i in range(n)]
    return {"anyOf": pairs, "$defs": {"a": {"enum": [f"{i}" for i in range(4 * n)]}}}


def a_chain_of_branches(n: int) -> Any:
    """Few references that are long, behind many that are short."""
    long = {f"{i:05}" + "a" * 5 * n: {"$ref": f"#/$defs/{i + 1:05}" + "a" * 5 * n} for i in range(20)}
    long["00020" + "a" * 5 * n] = {"type": "string"}
    short = {"$ref": "#/$defs/00000" + "a" * 5 * n}
    pairs = [{"oneOf": [{"$ref": "#/$defs/b"}, {"type": "null"}]} for _ in range(n)]
    return {"anyOf": pairs, "$defs": long | {"b": short}}


def long_names(n: int) -> Any:
    """Parts whose places have long names, which nobody is to hear of."""
    inner = {"type": "object", "properties": {f"{i}": {"type": "string", "pattern": "a"} for i in range(n)}}
    return {"type": "object", "properties": {"x" * 20 * n: inner}}


def values_and_types(n: int) -> Any:
    return {"oneOf": [{"enum": [f"{i}" for i in range(n)]}] + [{"type": "null"}]}


@pytest.mark.parametrize(
    ("make", "n"),
    [
        (patterns, 1000), (patterns_and_properties, 1000), (constants, 2000), (chain, 1000), (the_same_branch, 500),
        (a_chain_of_branches, 800), (long_names, 3000), (values_and_types, 10000),
    ],
)  # fmt: skip
def test_a_walk_takes_as_long_as_its_schema(make: Callable[[int], Any], n: int) -> None:
    small, large = json.dumps(make(n)), json.dumps(make(4 * n))
    assert len(large) < MAX_SCHEMA_BYTES
    parse = partial(parse_so_args, before=None)
    run = [partial(parse, {"schema_type": "json", "schema": text}) for text in (small, large)]
    assert growth(*run, 10) < 10  # 16, were it quadratic


@pytest.mark.parametrize("piece", ["(a)?", r"\++", "(?:(b)?c)?", r"\}+", "[+]+"])
def test_expressions_take_as_long_as_they_are(piece: str) -> None:
    # Behind one wide character a copy of what stands before a piece takes long.
    small, large = "\U0001f600" + piece * 10_000, "\U0001f600" + piece * 40_000
    assert growth(partial(full_pattern, small, ""), partial(full_pattern, large, ""), 10) < 10  # 16, were it quadratic


def test_branches_that_take_too_much_comparing_are_refused_by_the_limit() -> None:
    """Parts that many references lead to are compared as often."""
    few = {f"a{i}": {"enum": [1000 * i + j for j in range(500)]} for i in range(100)}
    wide = {"oneOf": [{"$ref": f"#/$defs/a{i}"} for i in range(100)]}
    assert check_schema(wide | {"$defs": few}) is not None
    many = {"anyOf": [json.loads(json.dumps(wide)) for _ in range(100)], "$defs": few}
    assert len(json.dumps(many)) < MAX_SCHEMA_BYTES

    def run() -> None:
        with pytest.raises(NotSupportedError, match=f"oneOf.*more than {MAX_COMPARED} values"):
            check_schema(many)

    assert seconds(run) < 5


@pytest.mark.parametrize("depth", [MAX_DEPTH, MAX_DEPTH + 1, 600])
@pytest.mark.parametrize("kind", ["list", "dict"])
@pytest.mark.parametrize("where", ["const", "enum", "oneOf", "property"])
def test_deep_values_are_refused_by_the_limit(depth: int, kind: str, where: str) -> None:
    value: Any = 1
    for _ in range(depth):
        value = [value] if kind == "list" else {"a": value}
    held: Any = {"enum": [0, value]} if where == "enum" else {"const": value}
    if where == "property":
        held = {"type": "object", "properties": {"k": held}, "required": ["k"]}
    if where in ("oneOf", "property"):
        held = {"oneOf": [held, {"type": "null"}]}
    so_args = {"schema_type": "json", "schema": json.dumps(held)}
    if depth <= MAX_DEPTH:
        parse_so_args(so_args)
        return
    with pytest.raises(InvalidArgumentError, match=f"at most {MAX_DEPTH}"):
        parse_so_args(so_args)


@pytest.mark.parametrize(
    ("schema", "allowed"),
    [
        ({"type": ["object"] * 3}, "each once"),
        ({"oneOf": [{"type": [{}]}, {"type": "null"}]}, "one or several of"),
        ({"oneOf": [{"type": 5}, {"type": "null"}]}, "one or several of"),
        ({"$ref": "#/$defs/" + "1" * 5000, "$defs": []}, "a part of this schema"),
        ({"oneOf": [{"$ref": "#/$defs/a"}, {"type": "null"}], "$defs": {"a": {"$ref": "#/$defs/a"}}}, "back to itself"),
    ],
)
def test_what_is_no_schema_is_refused_and_nothing_else_is_raised(schema: Any, allowed: str) -> None:
    with pytest.raises((InvalidArgumentError, NotSupportedError), match=f"{allowed}|may both hold"):
        check_schema(schema)


def test_places_are_named_as_they_were() -> None:
    with pytest.raises(NotSupportedError, match=r"schema'\] at /properties/a~1b~0c/items: not"):
        check_schema({"type": "object", "properties": {"a/b~c": {"type": "array", "items": {"not": {}}}}})
    with pytest.raises(NotSupportedError, match=r"schema'\] at /: not"):
        check_schema({"not": {}})
    with pytest.raises(NotSupportedError, match=r"at /\$defs/a/pattern: lookahead"):
        check_schema({"$ref": "#/$defs/a", "$defs": {"a": {"type": "string", "pattern": "(?=a)"}}})
    with pytest.raises(NotSupportedError, match="may match one name"):
        check_schema({"type": "object", "patternProperties": {"^b": {}, "^ab": {}, "^b(?:c|d)": {}, "^a-": {}}})
    for name, fits in {"ac": True, "a": True, "abx": False, "ab": False, "": True, "b": False, "z": True}.items():
        schema = {"type": "object", "properties": {name: True}, "patternProperties": {"^ab": {}, "^b": {}, "^ad": {}}}
        if fits:
            check_schema(schema)
        else:
            with pytest.raises(NotSupportedError, match=f"the property '{name}'"):
                check_schema(schema)
