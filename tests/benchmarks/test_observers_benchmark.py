"""The benchmark of what watching an engine costs."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import ModuleType

import pytest

Command = Callable[..., int]
Load = Callable[[str], ModuleType]


def test_every_observer_is_measured(
    load_benchmark: Load, command: Command, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    observers = load_benchmark("observers")
    monkeypatch.setattr(observers, "ADDS", 10)
    for options in ((), ("--drafts", 2)):
        assert command(observers, "--samples", 4, "--steps", 3, "--json", *options) == 0
        records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [one["observer"] for one in records] == ["metrics", "log", "timeline", "put", "take"]
        assert all(one["us_per_sample"] > 0 and one["ratio_to_add"] > 0 for one in records)


def test_bad_options_are_refused(load_benchmark: Load, command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        command(load_benchmark("observers"), "--samples", 0)
    assert caught.value.code == 2 and "allowed" in capsys.readouterr().err
