"""Versions are found by their templates; special tokens have the spellings that prompts need."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deepinfer.recipe import versions
from deepinfer.recipe.conversation import Conversation
from deepinfer.recipe.errors import InvalidArgumentError
from deepinfer.recipe.special_tokens import DEFAULT_SPECIAL_TOKENS, SpecialToken, SpecialTokens
from deepinfer.recipe.versions import model_version, model_versions

NEW = """
from dataclasses import dataclass
from deepinfer.recipe.templates.base import Prompt, Special
from deepinfer.recipe.versions import ModelVersion

@dataclass(frozen=True)
class NewTemplate:
    version: ModelVersion = ModelVersion(key="new", name="New", model_name="New-1")

    def render(self, conversation, special_tokens):
        return Prompt.from_pieces([Special(special_tokens.bos), "new"])

TEMPLATE = NewTemplate()
"""


@pytest.mark.parametrize("name", ["v4.1", "DeepseekV41Flash", "DeepSeek-V4.1-Flash"])
def test_names(name: str) -> None:
    assert model_version(name).key == "v4.1"
    assert repr(model_version(name)) == "ModelVersion.DeepseekV41Flash"


def test_unknown_name() -> None:
    with pytest.raises(InvalidArgumentError, match=r"'v3' is not known; known: v4, v4\.1"):
        model_version("v3")


def test_each_version_renders_by_its_own_template() -> None:
    assert [version.key for version in model_versions()] == ["v4", "v4.1"]
    assert all(version.template.version is version for version in model_versions())


@pytest.fixture
def new_template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    from deepinfer.recipe import templates

    (tmp_path / "v9.py").write_text(NEW, encoding="utf-8")
    monkeypatch.setattr(templates, "__path__", [*templates.__path__, str(tmp_path)])
    versions._templates.cache_clear()
    yield
    versions._templates.cache_clear()
    sys.modules.pop("deepinfer.recipe.templates.v9", None)


def test_one_new_file_is_one_new_version(new_template: None) -> None:
    assert [version.key for version in model_versions()] == ["v4", "v4.1", "new"]
    prompt = model_version("new").template.render(Conversation(), DEFAULT_SPECIAL_TOKENS)
    assert (prompt.text, prompt.special_ranges) == ("<｜begin▁of▁sentence｜>new", ((0, 21),))


def test_spellings() -> None:
    assert DEFAULT_SPECIAL_TOKENS.spellings() == {token: token.value for token in SpecialToken}
    tokens = SpecialTokens(polygon_end="x")
    assert tokens.token(SpecialToken.POLYGON_END) == "x"
    assert tokens.token(SpecialToken.POLYGON) == "<｜polygon｜>"
    assert len(SpecialToken) == 18
