"""The accumulated class: the bound of a sum of products, and a rounding."""

from __future__ import annotations

from torch import Tensor

from ...ops.numerics import Accumulated
from ..oracle.expected import Within
from .report import Report
from .within import compare_within


def compare_accumulated(
    name: str, terms: int, magnitude: Tensor, want: Tensor, got: Tensor, twin: Tensor | None = None
) -> Report:
    """Every element of `got` within `Accumulated.limit` of float64 `want`; see there for `terms` and `magnitude`."""
    return compare_within(name, Within(want, Accumulated.limit(terms, magnitude, want, got.dtype)), got, twin)
