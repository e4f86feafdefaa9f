"""The page of known faults: every row has its reports, and tests that exist or the part that it waits for."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "known_faults.md"
HEADER = ["Fault", "Reports", "Here", "Tests"]
REPORT = re.compile(r"([\w.-]+(/[\w.-]+)? )?#\d+|[\w.-]+ `\w+`")
TEST = re.compile(r"`(tests/[\w/]+/test_\w+\.py::test_\w+)`")
LATER = "Parts that do not exist yet"
COMPLETE = {"Quantisers", "Page tables", "32-bit addresses", "Top-k", "Requests", "Cancellation", "Weights and devices"}
"""Sections about parts that exist: a row without a test is a gap there, not a plan."""


@dataclass(frozen=True)
class Row:
    section: str
    fault: str
    reports: tuple[str, ...]
    here: str
    tests: tuple[str, ...]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def parse(text: str) -> list[Row]:
    """The rows of the page's tables; ValueError where a line is none."""
    rows, section = [], ""
    for line in text.splitlines():
        if line.startswith("## "):
            section = line[3:]
        if not line.startswith("|") or set(line) <= set("|-") or cells(line) == HEADER:
            continue
        if len(cells(line)) != len(HEADER):
            raise ValueError(f"not four cells: {line}")
        fault, reports, here, tests = cells(line)
        named = TEST.findall(tests)
        if tests != ", ".join(f"`{test}`" for test in named):
            raise ValueError(f"not a list of tests: {tests}")
        rows.append(Row(section, fault, tuple(reports.split(", ")), here, tuple(named)))
    return rows


@cache
def functions(file: str) -> frozenset[str]:
    path = ROOT / file
    if not path.is_file():
        return frozenset()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    made = [node for node in tree.body if isinstance(node, ast.Assign)]  # by a function that several files share
    names = [
        name.id for node in made for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name)
    ]
    return frozenset(names) | {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


ROWS = parse(PAGE.read_text(encoding="utf-8"))


@pytest.mark.parametrize("test", sorted({test for row in ROWS for test in row.tests}))
def test_every_named_test_exists(test: str) -> None:
    file, _, name = test.partition("::")
    assert name in functions(file), f"{file} has no {name}"


def test_every_row_says_what_holds_it_or_what_will() -> None:
    assert len(ROWS) > 35
    for row in ROWS:
        planned = row.here.startswith("Planned with ")
        assert planned != bool(row.tests), f"{row.fault}: either tests, or planned with a part"
        assert planned == (row.section == LATER) or row.section not in COMPLETE, f"{row.fault}: in {row.section}"
        assert len(set(row.tests)) == len(row.tests), f"{row.fault}: a test is named twice"
    assert {row.section for row in ROWS} >= COMPLETE | {LATER}


def test_every_row_names_its_reports() -> None:
    for row in ROWS:
        assert row.reports[0] and not row.reports[0].startswith("#"), row.fault
        assert all(REPORT.fullmatch(report) for report in row.reports), f"{row.fault}: {row.reports}"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("| a | vllm #1 | b |", "not four cells"),
        ("| a | vllm #1 | b | `tests/x/test_y.py::test_z` `tests/x/test_y.py::test_w` |", "not a list of tests"),
        ("| a | vllm #1 | b | test_z |", "not a list of tests"),
    ],
)
def test_a_broken_row_is_seen(line: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse(line)


def test_a_missing_test_is_seen() -> None:
    assert "test_a_missing_test_is_seen" in functions("tests/repo/test_known_faults.py")
    assert "test_nothing" not in functions("tests/repo/test_known_faults.py")
    assert not functions("tests/repo/test_that_is_gone.py")
