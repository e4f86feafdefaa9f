"""Engines over the simulated executor, as fixtures."""

from __future__ import annotations

from typing import Any

import pytest

from engines import build_engine, drain


@pytest.fixture
def make_engine() -> Any:
    return build_engine


@pytest.fixture
def run_dry() -> Any:
    return drain
