"""The table of parameters: fresh, complete, and every test it names exists."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from deepinfer.runtime import support

ROOT = Path(__file__).parents[2]


@cache
def functions(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_the_page_is_fresh() -> None:
    written = (ROOT / "docs" / "parameters.md").read_text(encoding="utf-8")
    assert written == support.render(), "run: python -m deepinfer.runtime.support > docs/parameters.md"


@pytest.mark.parametrize("test", sorted({row.test for row in support.rows()}))
def test_every_named_test_exists(test: str) -> None:
    file, _, name = test.partition("::")
    assert name in functions(file), f"{file} has no {name}"


def test_no_stale_entries() -> None:
    sampling = {row.name for row in support.sampling_rows()}
    assert set(support.SAMPLING_TESTS) | set(support.SAMPLING_REFUSED) == sampling
    arguments = {row.name for row in support.argument_rows()}
    assert set(support.ARGUMENT_TESTS) | set(support.REFUSED) | {"engine_type"} == arguments
    used = {name for name, variable in support.VARIABLES.items() if variable.brought_by is None}
    assert {f"DEEPINFER_{name}" for name in support.VARIABLE_TESTS} == used


def test_every_refusal_says_what_will_bring_it() -> None:
    refused = [row for row in support.rows() if row.brought_by is not None]
    assert len(refused) > 40 and all(len(row.brought_by or "") > 5 for row in refused)
