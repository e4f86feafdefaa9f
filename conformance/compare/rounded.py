"""The rounded class: at most so many units in the last place from the oracle."""

from __future__ import annotations

from torch import Tensor

from ...ops.numerics import Rounded
from ..oracle.expected import Within
from .report import Report
from .within import compare_within


def compare_rounded(name: str, numerics: Rounded, want: Tensor, got: Tensor, twin: Tensor | None) -> Report:
    """Every element of `got` within `numerics.ulp` units of float64 `want`, in units of got's dtype."""
    return compare_within(name, Within(want, numerics.limit(want, got.dtype)), got, twin)
