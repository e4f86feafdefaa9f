"""Every row of docs/determinism.md, run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import determinism
from deepinfer.hal.catalog import load_backend
from deepinfer.model.hub import resolve_model
from deepinfer.model.transformer import Model
from determinism import FEATURES, LONG, PROMPTS, SLACK, Bits, Feature

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    load_backend("reference")
    loaded = Model.load(resolve_model("tiny"), max_model_len=512, max_draft=determinism.DRAFTS, backtrack=SLACK)
    yield loaded
    loaded.close()


@pytest.fixture(scope="module")
def alone(model: Model) -> Any:
    """What a request says that has an engine to itself, once for each."""
    known: dict[Any, Bits] = {}

    def say(key: int, prompt: list[int]) -> Bits:
        name = key, tuple(prompt)
        if name not in known:
            made = determinism.engine(model)
            known[name] = determinism.ask(made, key, prompts=[prompt] * (key + 1))[key]
        return known[name]

    return say


@pytest.mark.parametrize("feature", [one for one in FEATURES if one.run is not None], ids=lambda one: one.name)
def test_what_must_not_change_what_is_said(model: Model, alone: Any, feature: Feature) -> None:
    assert feature.run is not None
    found, took_place = feature.run(model)
    assert took_place and found, "nothing was shown"
    for key, got in found.items():
        prompt = LONG[key] if feature.long else PROMPTS[key]
        if feature.name == "prefix hits":
            prompt = LONG[key] + PROMPTS[key]
        if feature.name == "forks":
            prompt = PROMPTS[0]
        want = alone(key, prompt)
        assert [token for token, *_ in got] == [token for token, *_ in want], (feature.name, key)
        assert got == want, (feature.name, key)


def test_the_page_is_made_from_the_rows() -> None:
    assert (ROOT / "docs/determinism.md").read_text(encoding="utf-8") == determinism.page(), (
        "run: python tests/support/determinism.py > docs/determinism.md"
    )
    for one in FEATURES:
        if one.test:
            assert (ROOT / "tests" / one.test).exists(), one.test
