"""Inputs that are made to be slow: time grows as they do, memory is bounded by their size, and only known errors."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest


def _benchmark() -> Any:
    path = Path(__file__).parents[2] / "benchmarks" / "recipe_limits.py"
    spec = importlib.util.spec_from_file_location("recipe_limits", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


benchmark = _benchmark()


@pytest.mark.slow
@pytest.mark.parametrize("name", benchmark.LIMITS)
def test_time_is_linear_and_memory_bounded(name: str) -> None:
    for _ in range(3):  # another process may disturb one measurement
        found = benchmark.measure(benchmark.LIMITS[name], 0.15)
        # Four times the input: 4 if linear, 16 if quadratic. What takes no time tells nothing.
        if found.seconds[2] < 8 * max(found.seconds[0], 0.01):
            break
    else:
        pytest.fail(f"{found}")
    assert found.peak < 400  # bytes for each byte of input; an event for each is about 200


@pytest.mark.parametrize("name", benchmark.LIMITS)
def test_each_input_can_be_read(name: str) -> None:
    limit = benchmark.LIMITS[name]
    limit.read(limit.make(50))


def test_growth_tells_quadratic_from_linear(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock that work alone moves: on a machine's, another process may halve or double a measurement."""
    now = 0.0
    monkeypatch.setattr(benchmark.time, "process_time", lambda: now)

    def work(size: int, power: int) -> None:
        nonlocal now
        now += size**power * 1e-7

    linear = benchmark.measure(benchmark.Limit(50_000, lambda size: "x" * size, lambda text: work(len(text), 1)))
    quadratic = benchmark.measure(benchmark.Limit(150, lambda size: "x" * size, lambda text: work(len(text), 2)))
    assert linear.growth < 8 < quadratic.growth
    assert linear.growth == pytest.approx(4) and quadratic.growth == pytest.approx(16)
