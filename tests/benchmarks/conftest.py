"""Benchmarks as modules, and their command lines run in this process."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def load_benchmark() -> Callable[[str], ModuleType]:
    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"{name}_benchmark", FOLDER / f"{name}.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Runs a benchmark's `main` with arguments; its exit status."""

    def run(module: ModuleType, *arguments: object) -> int:
        monkeypatch.setattr(sys, "argv", [str(module.__file__), *map(str, arguments)])
        status: int = module.main()
        return status

    return run
