"""Markers, the reasons for skipping, and the number of threads of a test run."""

from __future__ import annotations

import importlib.util
import os
from collections import defaultdict
from pathlib import Path

# Before torch is imported. The tests' tensors are small: a second thread only waits, and on a busy machine it spins.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# Before triton is imported: without a GPU its kernels run in the interpreter. Compiling is tried in child processes.
if not any(Path("/dev").glob("nvidia[0-9]*")):
    os.environ.setdefault("TRITON_INTERPRET", "1")

import pytest

MARKERS = {
    "gpu": "needs a GPU that torch can use",
    "crosscheck": "compares with another implementation (the crosscheck extra)",
    "slow": "takes more than a few seconds; runs with --slow",
    "whole": "the rest of a sweep of which --slow runs a part; runs with --whole",
}

MINUTES = {"unit": 6, "recipe": 3, "cuda": 6, "ascend": 8, "conformance": 4, "engine": 3}
"""Minutes that each area of the tests may take on two idle cores, all tests included (--slow)."""
AREAS = {
    "recipe": "recipe",
    "backends/cuda": "cuda",
    "backends/ascend": "ascend",
    "conformance": "conformance",
    "meta": "conformance",
    "runtime": "engine",
    "parallel": "engine",
}
"""Folders of tests and the areas they count to; all others are 'unit'."""

UNTRACED = (
    "backends/ascend/",
    "backends/cuda/",
    "benchmarks/",
    "meta/",
    "recipe/",
    "repo/",
    *(f"runtime/test_{name}.py" for name in (
        "ahead", "determinism", "flight", "graphs", "prefix", "replay", "state_machine", "tiny_prefix", "waiting",
    )),
)  # fmt: skip
"""Tests that are not traced for coverage, which doubles the time of what is Python alone: they reach nothing of hal,
ops and model that the tests of these folders, and the traced ones of the engine and of conformance, do not."""

LONGEST = (
    "runtime/test_graphs.py",
    "backends/ascend/test_sweep.py",
    "backends/ascend/test_ops.py",
    "backends/cuda/test_compile.py",
    "backends/cuda/test_compile_older.py",
    *(f"runtime/test_{name}.py" for name in (
        "tiny_drafts", "state_machine", "determinism", "loader", "images", "replay", "drafting", "prefix", "tiny_model",
    )),
)  # fmt: skip
"""Files that take longest. They come first, so that no worker is left with one of them at the end."""

_seconds: dict[str, float] = defaultdict(float)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the tests marked slow as well")
    parser.addoption("--whole", action="store_true", help="run all: those marked slow, and sweeps as a whole")


def pytest_configure(config: pytest.Config) -> None:
    for name, meaning in MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")
    config.addinivalue_line("markers", "no_cover: of pytest-cov, which may be absent")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _place(item.nodeid.partition("::")[0]))
    for item in items:
        if item.nodeid.removeprefix("tests/").startswith(UNTRACED):
            item.add_marker("no_cover")
    marked = {name: [item for item in items if item.get_closest_marker(name)] for name in MARKERS}
    whole = config.getoption("--whole")
    if not (whole or config.getoption("--slow")):
        _skip(marked["slow"], "slow: runs with --slow")
    if not whole:
        _skip(marked["whole"], "the rest of a sweep: runs with --whole")
    if importlib.util.find_spec("transformers") is None:
        _skip(marked["crosscheck"], "needs transformers: install the crosscheck extra")
    if marked["gpu"] and not _has_gpu():
        _skip(marked["gpu"], "needs a GPU that torch can use")


def _place(file: str) -> int:
    name = file.removeprefix("tests/")
    return LONGEST.index(name) if name in LONGEST else len(LONGEST)


def _skip(items: list[pytest.Item], reason: str) -> None:
    for item in items:
        item.add_marker(pytest.mark.skip(reason=reason))


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[area_of(report.nodeid)] += report.duration


def area_of(nodeid: str) -> str:
    """The area that a test's time counts to, by its folder."""
    folder = Path(nodeid.partition("::")[0]).parent.as_posix().removeprefix("tests/")
    return next((area for name, area in AREAS.items() if folder == name or folder.startswith(f"{name}/")), "unit")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if sum(_seconds.values()) < 60:
        return
    terminalreporter.section("time by area, in minutes of two cores", sep="-")
    for area, minutes in MINUTES.items():
        if area in _seconds:
            terminalreporter.line(f"{area:12} {_seconds[area] / 120:5.1f} of {minutes} min")
