"""The benchmark of truncated prompts: its cases, counted rows, and the exit status when the modes differ."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

Command = Callable[..., int]


@pytest.fixture
def replay(load_benchmark: Callable[[str], ModuleType]) -> Any:
    return load_benchmark("replay")


def test_every_case_is_measured_and_rows_are_counted(
    replay: Any, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    shape = ("--prompts", 1, "--prompt-tokens", 40, "--continuation", 3)
    assert command(replay, *shape, "--keep", "22,40", "--json") == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    cases = {(r["case"], r["keep"]): r for r in records}
    assert list(cases) == [("rounding", 40)] + [(mode, keep) for keep in (22, 40) for mode in replay.MODES]
    assert all(r["positions"] == 4 and 0 <= r["kl"] <= r["kl_max"] and 0 <= r["top1"] <= 1 for r in records)
    assert cases["mask", 22]["rows"] == 1.0 == cases["mask", 22]["flops"]
    assert cases["compact", 22]["rows"] == (6 * 40 + 4 * 22) / 400
    assert cases["resume", 22]["rows"] == 22 / 40
    assert cases["compact", 22]["same_bits"] and cases["compact", 22]["kl"] == cases["mask", 22]["kl"] > 0
    for mode in replay.MODES:  # nothing is left out: the exact model
        assert cases[mode, 40]["kl"] == 0.0 and cases[mode, 40]["rows"] == 1.0


def test_a_difference_between_the_modes_is_told_by_the_exit_status(
    replay: Any, command: Command, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = {"kl": 0.1, "kl_max": 0.2, "top1": 1.0, "rows": 0.5, "flops": 0.5}
    record = {"model": "tiny", "case": "compact", "keep": 22, **figures}
    for same, status in ((True, 0), (False, 1)):
        monkeypatch.setattr(replay, "run", lambda *a, same=same: [record | {"same_bits": same}])
        assert command(replay) == status
        printed = capsys.readouterr()
        assert "compact" in printed.out and ("differ" in printed.err) == bool(status)


@pytest.mark.parametrize("options", [("--keep", "301"), ("--keep", "0"), ("--modes", "drop")])
def test_bad_options_are_refused(
    replay: Any, command: Command, capsys: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    with pytest.raises(SystemExit) as caught:
        command(replay, *options)
    assert caught.value.code == 2 and "allowed" in capsys.readouterr().err
