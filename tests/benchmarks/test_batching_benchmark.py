"""The batching benchmark runs, prints what it says, and tells a missed limit by its exit status."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

Command = Callable[..., int]


@pytest.fixture
def batching(load_benchmark: Callable[[str], ModuleType]) -> Any:
    return load_benchmark("batching")


def test_json_has_a_line_per_size_and_gains_over_the_first(
    batching: Any, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ("--prompt-tokens", 2, "--tokens", 2, "--turns", 1)
    assert command(batching, "--json", "--sizes", "1,3", *small) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(r["benchmark"], r["model"], r["batch"]) for r in records] == [("batching", "tiny", n) for n in (1, 3)]
    assert all(r["tokens_per_second"] > 0 for r in records) and records[0]["gain"] == 1
    assert records[1]["gain"] == pytest.approx(records[1]["tokens_per_second"] / records[0]["tokens_per_second"])


@pytest.mark.parametrize(
    ("sizes", "gain", "status"), [("1,32", 8.0, 0), ("1,32", 7.99, 1), ("1,8", 2, 0), ("8,32", 2, 0)]
)
def test_a_gain_below_the_bar_is_exit_status_1(
    batching: Any,
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    sizes: str,
    gain: float,
    status: int,
) -> None:
    """The bar is that of batch 32 over batch 1; other sizes have none."""

    def measured(model: str, found: list[int], *_: int) -> list[dict[str, Any]]:
        return [{"batch": size, "tokens_per_second": 5.0, "gain": gain if i else 1.0} for i, size in enumerate(found)]

    monkeypatch.setattr(batching, "run", measured)
    assert command(batching, "--sizes", sizes) == status
    assert len(capsys.readouterr().out.splitlines()) == 2
