"""What an oracle may say of a call, and the table of oracles.

An oracle takes an op's arguments on the CPU, as they were before the call, in spec order, weights in the contract's
layout. Section 6 of `docs/numerics.md` has the derivations of the limits; comments beside them count roundings. One
elementary function (exponential, log1p, root, inverse root) counts as 4: two units in the last place.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...ops.numerics import Accumulated, Decided
from ...ops.spec import SPECS
from ..compare.report import Report
from .formats import Floats

U32, U16 = 2.0**-24, 2.0**-8
FP32_MAX = float(torch.finfo(torch.float32).max)
BF16 = torch.bfloat16

Args = Sequence[Any]


@dataclass(frozen=True)
class Within:
    """A float output: `want` and `limit`, float64; `defined` is False where the value is unspecified."""

    want: Tensor
    limit: Tensor
    defined: Tensor | None = None


@dataclass(frozen=True)
class Codes:
    """Quantised rows [n, channels]: values before quantisation, how far they may be off, and the record kind."""

    value: Tensor
    limit: Tensor
    kind: str


@dataclass(frozen=True)
class Choice:
    """Ids chosen by the largest key, [T, E], and how far a key may be off."""

    key: Tensor
    limit: Tensor


@dataclass(frozen=True)
class Bits:
    """An output whose every bit is given; `defined` is False where it is unspecified."""

    want: Tensor
    defined: Tensor | None = None


Judge = Callable[[Args, Sequence[Tensor], Sequence[Tensor]], Report]

FLOATS: dict[str, Callable[..., list[Within]]] = {}
"""Ops whose outputs are floats within a limit: one `Within` per output."""
CODES: dict[str, Callable[..., Codes]] = {}
"""Ops whose outputs together are quantised records, data then scales."""
BITS: dict[str, Callable[..., Sequence[Bits | None]]] = {}
"""Exact ops: the bits of each result (outputs, then written arguments), None for what the twin alone decides."""
JUDGES: dict[str, Judge] = {}
"""Ops of another kind: (arguments before the call, results, the twin's results) -> report."""


def floats(op: str) -> Callable[[Callable[..., list[Within]]], Callable[..., list[Within]]]:
    """Decorator: the oracle of an op in `FLOATS`."""
    return lambda fn: _add(FLOATS, op, fn)


def codes(op: str) -> Callable[[Callable[..., Codes]], Callable[..., Codes]]:
    """Decorator: the oracle of an op in `CODES`."""
    return lambda fn: _add(CODES, op, fn)


def bits(
    op: str,
) -> Callable[[Callable[..., Sequence[Bits | None]]], Callable[..., Sequence[Bits | None]]]:
    """Decorator: the oracle of an op in `BITS`."""
    return lambda fn: _add(BITS, op, fn)


def judged(op: str) -> Callable[[Judge], Judge]:
    """Decorator: the oracle of an op in `JUDGES`."""
    return lambda fn: _add(JUDGES, op, fn)


def _add(table: dict[str, Any], op: str, fn: Any) -> Any:
    assert all(op not in known for known in (FLOATS, CODES, BITS, JUDGES)), f"{op} has two oracles"
    table[op] = fn
    return fn


@cache
def load_oracles() -> None:
    """Import every module of this package, so that the tables are full."""
    package = __package__ or ""
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
        importlib.import_module(f"{package}.{module.name}")


def torched(x: Floats) -> Tensor:
    """A float64 tensor."""
    return torch.from_numpy(np.ascontiguousarray(x, dtype=np.float64))


def terms_of(name: str, args: Args) -> int:
    """The number of terms that a spec of the accumulated class states, for one call."""
    return SPECS[name].terms(*args)


def decided(name: str) -> Decided:
    """The class of a decided op."""
    numerics = SPECS[name].numerics
    assert isinstance(numerics, Decided)
    return numerics


def accumulated(terms: int, magnitude: Floats, want: Floats, dtype: torch.dtype = BF16) -> Within:
    """A float output of the accumulated class; see `numerics.Accumulated.limit`."""
    return Within(torched(want), Accumulated.limit(terms, torched(magnitude), torched(want), dtype))


def largest_run(x: Floats, w: Floats) -> Floats:
    """Largest absolute sum of consecutive terms of x @ w.T: what a partial sum can be."""
    largest = np.zeros((len(x), len(w)))
    for row, out in zip(x, largest, strict=True):
        with np.errstate(invalid="ignore"):
            partial = np.cumsum(row * w, axis=1)
        out[:] = np.maximum(partial.max(1), 0) - np.minimum(partial.min(1), 0)
    return largest
