"""The examples of the pages on the codec print what the pages say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLE = re.compile(r"```python\n(.*?)```\n\nprints\n\n```\n(.*?)```", re.DOTALL)
EXAMPLES = [
    pytest.param(code, printed, id=f"{page.stem}-{number}")
    for page in sorted(DOCS.glob("recipe*.md"))
    for number, (code, printed) in enumerate(EXAMPLE.findall(page.read_text("utf-8")))
]


@pytest.mark.parametrize(("code", "printed"), EXAMPLES)
def test_example(code: str, printed: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(code, "example", "exec"), {})
    assert capsys.readouterr().out == printed


def test_there_are_some() -> None:
    assert len(EXAMPLES) >= 3
