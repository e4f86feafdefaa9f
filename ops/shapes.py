"""Calls of any shape: ranges of an op's sizes, and how arguments of given sizes are made.

An op may have an entry here beside its samples. The conformance suite draws sizes from the ranges, makes a call of
them, and, when that fails, looks for smaller sizes that fail too. New ops add theirs with `@shape` in a module named
`*_shapes.py`; `load_shapes` finds them.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch


@dataclass(frozen=True)
class Range:
    """Whole multiples of `step` from `low` to `high`, both included."""

    low: int
    high: int
    step: int = 1


@dataclass(frozen=True)
class Pick:
    """One of several values, the simplest first."""

    values: tuple[Any, ...]


@dataclass(frozen=True)
class Spans:
    """Up to `most` pieces of sequences (start, end), starts up to `start`, lengths from 1 to `length`."""

    most: int
    start: int
    length: int


Size = Range | Pick | Spans
Build = Callable[..., tuple[Any, ...]]


@dataclass(frozen=True)
class Shape:
    """Sizes of an op by name, and `build(rng, device, **sizes)`, which makes the arguments in spec order."""

    op: str
    sizes: Mapping[str, Size]
    build: Build

    def make(self, seed: int, device: torch.device, sizes: Mapping[str, Any]) -> tuple[Any, ...]:
        """The arguments of given sizes, always the same for a seed."""
        return self.build(np.random.default_rng(seed), device, **sizes)


SHAPES: dict[str, Shape] = {}


def shape(op: str, **sizes: Size) -> Callable[[Build], Build]:
    """Decorator: register how arguments of `op` are made from sizes drawn from the given ranges."""

    def register(build: Build) -> Build:
        assert op not in SHAPES, f"{op} has two builders"
        SHAPES[op] = Shape(op, sizes, build)
        return build

    return register


@cache
def load_shapes() -> None:
    """Import every module `*_shapes.py` of this package."""
    package = __package__ or ""
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
        if module.name.endswith("_shapes"):
            importlib.import_module(f"{package}.{module.name}")
