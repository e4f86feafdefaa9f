"""Random outputs under the masks of many schemas: whatever ends parses, and is what its schema says."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import pytest

from grammars import Compiler, walk
from schema_check import fits
from schema_corpus import CLASSES

EVERY = 8
"""In each run one of so many schemas; the rest is `whole`."""


def test_the_corpus_is_as_large_as_it_says() -> None:
    assert len(CLASSES) >= 12 and all(len(schemas) >= 15 for schemas in CLASSES.values())
    texts = {json.dumps(schema) for schemas in CLASSES.values() for schema in schemas}
    assert len(texts) >= 180


def outputs(compiler: Compiler, schema: Any, count: int, seed: int) -> list[str | None]:
    held, rng = compiler.of_schema(copy.deepcopy(schema)), random.Random(seed)
    found = []
    for _ in range(count):
        said = walk(held.fresh(held.structure, held.eos_id, False), compiler, rng)
        found.append(None if said is None else compiler.text(said))
    return found


def check(compiler: Compiler, name: str, places: range, count: int) -> None:
    ended = total = 0
    for place in places:
        schema = CLASSES[name][place]
        for text in outputs(compiler, schema, count, place):
            total += 1
            if text is not None:
                ended += 1
                assert fits(json.loads(text), schema), (schema, text)
    assert ended >= 0.95 * total, f"{ended} of {total} outputs ended"


@pytest.mark.parametrize("name", CLASSES)
def test_outputs_parse_and_are_what_the_schema_says(compiler: Compiler, name: str) -> None:
    check(compiler, name, range(0, len(CLASSES[name]), EVERY), 2)


@pytest.mark.whole
@pytest.mark.parametrize("name", CLASSES)
def test_all_outputs_parse_and_are_what_the_schema_says(compiler: Compiler, name: str) -> None:
    check(compiler, name, range(len(CLASSES[name])), 6)


def test_the_check_of_values_refuses_what_does_not_fit() -> None:
    """Each schema of the corpus refuses some value, so that outputs that fit say something."""
    strange: list[Any] = [
        None,
        True,
        -1.5,
        10**30,
        "~" * 30,
        [[[[["~"]]]]],
        {"~": {"~": 1}},
        {"value": [[]], "next": 3},
    ]
    for schemas in CLASSES.values():
        for schema in schemas:
            assert not all(fits(value, schema) for value in strange), schema
