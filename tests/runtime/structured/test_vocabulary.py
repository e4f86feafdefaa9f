"""The library for grammars: which versions of it are taken."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from deepinfer.hal.errors import NotSupportedError
from deepinfer.runtime.structured import vocabulary


@pytest.mark.parametrize(
    ("version", "taken"),
    [
        ("0.2.9", True), ("0.2.10.post1", True), ("0.2.12+cu13", True), (None, True),
        ("0.2.8", False), ("0.3.0", False), ("0.3.0rc1", False), ("1.0", False), ("0.1.99", False), ("0.2", False),
    ],
)  # fmt: skip
def test_versions_out_of_range_are_named(monkeypatch: pytest.MonkeyPatch, version: str | None, taken: bool) -> None:
    monkeypatch.setattr(vocabulary.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(vocabulary, "_version", lambda: version)
    if taken:
        vocabulary.check_installed()
        return
    with pytest.raises(NotSupportedError, match=rf"xgrammar {version} is none of >=0\.2\.9,<0\.3: pip install"):
        vocabulary.check_installed()


def test_the_extras_ask_for_these_versions() -> None:
    extras = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    least, below = (".".join(map(str, one)) for one in vocabulary.VERSIONS)
    assert extras["structured"] == extras["grammar-test"] == [f"xgrammar>={least},<{below}"]
