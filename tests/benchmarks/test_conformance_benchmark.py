"""The benchmark of the conformance suite runs two programs, and says what failed."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import ModuleType

import pytest

BUSY = ("-c", "import time; t = time.process_time()\nwhile time.process_time() - t < 0.3: pass\nprint('done')")
BRIEF = ("-c", "print('brief')")


def test_it_compares_processor_seconds(
    load_benchmark: Callable[[str], ModuleType],
    command: Callable[..., int],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    module = load_benchmark("conformance")
    found = module.run(BRIEF, BUSY)
    assert found["suite"]["cpu_seconds"] > 0.29 and found["suite"]["says"] == "done" and found["ratio"] > 1
    monkeypatch.setattr(module, "run", lambda: module_run(BUSY, BUSY))
    module_run = load_benchmark("conformance").run
    assert command(module, "--json") == 0
    assert json.loads(capsys.readouterr().out)["bar"] == 3.0
    monkeypatch.setattr(module, "run", lambda: module_run(BUSY, ("-c", "raise SystemExit('broken')")))
    assert command(module) == 1 and "broken" in capsys.readouterr().out
    monkeypatch.setattr(module, "BAR", 0.1)
    monkeypatch.setattr(module, "run", lambda: module_run(BUSY, BUSY))
    assert command(module) == 1
