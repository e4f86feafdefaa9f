"""What the page on the codec shows is what happens."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "recipe.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(python)?\n(.*?)```", PAGE, flags=re.DOTALL)


def test_the_example_prints_what_stands_below_it(capsys: pytest.CaptureFixture[str]) -> None:
    place = next(place for place, (kind, text) in enumerate(BLOCKS) if kind and "encoding.render" in text)
    exec(compile(BLOCKS[place][1], "docs/recipe.md", "exec"), {})
    assert capsys.readouterr().out == BLOCKS[place + 1][1]


def test_the_module_of_a_new_version_renders(monkeypatch: pytest.MonkeyPatch) -> None:
    from deepinfer.recipe import Conversation, SpecialTokens, UserMessage
    from deepinfer.recipe.templates import base

    module = next(text for kind, text in BLOCKS if kind and "TEMPLATE = " in text)
    v9 = ModuleType(f"{base.__package__}.v9")
    v9.__package__ = base.__package__
    monkeypatch.setitem(sys.modules, v9.__name__, v9)
    exec(compile(module, "docs/recipe.md", "exec"), v9.__dict__)
    prompt = v9.TEMPLATE.render(Conversation((UserMessage("hi"),)), SpecialTokens())
    assert prompt.text == "<｜begin▁of▁sentence｜><｜User｜>hi<｜Assistant｜><think>"
