"""The recorded cases of the codec, as test parameters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

CASES = Path(__file__).parents[1] / "recipe" / "cases"
VERSIONS = ("v4", "v4.1")


def recorded(name: str) -> list[Any]:
    """Parameters from a file of recorded cases, each with its name."""
    return [pytest.param(case, id=case["name"]) for case in json.loads((CASES / f"{name}.json").read_text("utf-8"))]
