"""Markers, the reasons for skipping, and the number of threads of a test run."""

from __future__ import annotations

import importlib.util
import os

# Before torch is imported. The tests' tensors are small: a second thread only waits, and on a busy machine it spins.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest

MARKERS = {
    "gpu": "needs a GPU that torch can use",
    "crosscheck": "compares with another implementation (the crosscheck extra)",
    "slow": "takes more than a few seconds; runs with --slow",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the tests marked slow as well")


def pytest_configure(config: pytest.Config) -> None:
    for name, meaning in MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    marked = {name: [item for item in items if item.get_closest_marker(name)] for name in MARKERS}
    if not config.getoption("--slow"):
        _skip(marked["slow"], "slow: runs with --slow")
    if importlib.util.find_spec("transformers") is None:
        _skip(marked["crosscheck"], "needs transformers: install the crosscheck extra")
    if marked["gpu"] and not _has_gpu():
        _skip(marked["gpu"], "needs a GPU that torch can use")


def _skip(items: list[pytest.Item], reason: str) -> None:
    for item in items:
        item.add_marker(pytest.mark.skip(reason=reason))


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()
