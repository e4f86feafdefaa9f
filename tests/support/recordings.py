"""Recordings changed on purpose, and whole again: with digests that fit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

from deepinfer.conformance.recording_format import read, write

WRITTEN = ("kind", "format", "outputs", "digest", "calls")
"""What `write` says by itself."""


def edit(
    folder: Path,
    change: Callable[[dict[str, Any]], Any] = lambda facts: None,
    kept: Callable[[dict[str, Tensor]], dict[str, Tensor]] = lambda kept: kept,
) -> None:
    """Change facts and kept outputs of a recording."""
    facts, tensors = read(folder)
    change(facts)
    write(folder, {k: v for k, v in facts.items() if k not in WRITTEN}, facts["calls"], kept(tensors))


def first(facts: dict[str, Any], op: str) -> tuple[int, dict[str, Any]]:
    """The first call of an op with elements, and its number."""
    return next((i, c) for i, c in enumerate(facts["calls"]) if c["op"] == op and 0 not in c["outputs"][0]["shape"])
