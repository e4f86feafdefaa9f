"""What a step costs: a linear model of its seconds, fitted while the engine runs.

    seconds = base + row * rows + key * sum of min(c, near) + far * sum of c

The sums are over the rows, c are the keys up to a row, itself included. The first sum stands for sparse attention,
which looks at no more than `near` of them, the second for the index scores that choose these. Coefficients are never
negative, so more rows or longer contexts are never predicted to be cheaper.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

WINDOW = 512
"""Steps that a fit looks back at."""
LEAST = 16
"""Steps before the first fit."""
EVERY = 16
"""Steps between fits."""
QUANTILE = 0.9
"""Part of the steps looked back at that took no longer than predicted."""

Features = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class Cost:
    """Coefficients in seconds, see the module. `near`: keys that sparse attention looks at, per row."""

    base: float
    row: float
    key: float
    far: float
    near: int

    def of(self, features: Features) -> float:
        """Predicted seconds."""
        return features[0] * self.base + features[1] * self.row + features[2] * self.key + features[3] * self.far

    def rows_within(self, seconds: float, start: int, most: int) -> int:
        """The most rows, from position `start` on, that take no longer; 0 to `most`."""
        low, high = 0, most
        while low < high:
            middle = (low + high + 1) // 2
            if self.of(span(start, start + middle, self.near)) <= seconds:
                low = middle
            else:
                high = middle - 1
        return low


def span(start: int, end: int, near: int) -> Features:
    """Features of rows start..end-1 of one request, without the step's base."""
    split = min(max(near, start), end)
    keys = _sum(start, split) + near * (end - split)
    return 0.0, float(end - start), float(keys), float(_sum(start, end))


def step_features(spans: Iterable[tuple[int, int]], near: int) -> Features:
    """Features of a step, from the rows (start, end) of its requests."""
    total = (1.0, 0.0, 0.0, 0.0)
    for start, end in spans:
        part = span(start, end, near)
        total = (1.0, total[1] + part[1], total[2] + part[2], total[3] + part[3])
    return total


def _sum(start: int, end: int) -> int:
    """Keys of rows start..end-1: start + 1 for the first."""
    return (end * (end + 1) - start * (start + 1)) // 2


class CostFit:
    """Fits `Cost` to the steps of an engine.

    Args:
        near: see `Cost`.

    Attributes:
        cost: the newest fit, with a factor for the steps that took longer than most; None before `LEAST` steps.
    """

    def __init__(self, near: int) -> None:
        self.near = near
        self.cost: Cost | None = None
        self._steps = np.zeros((WINDOW, 5))  # the features and seconds of the last steps, in turns
        self._count = self._since = 0

    def add(self, spans: Iterable[tuple[int, int]], seconds: float) -> None:
        """A step that ran."""
        self._steps[self._count % WINDOW] = *step_features(spans, self.near), seconds
        self._count += 1
        self._since += 1
        if self._count >= LEAST and self._since >= (EVERY if self.cost is not None else 1):
            self._since = 0
            self.cost = self._fit()

    def _fit(self) -> Cost:
        steps = self._steps[: self._count]
        x, y = steps[:, :4], np.maximum(steps[:, 4], 1e-9)
        # By relative error: a step that took a hundred times as long as it should, for whatever reason, weighs as much
        # as any other.
        coefficients = non_negative_least_squares(x / y[:, None], np.ones_like(y))
        predicted = x @ coefficients
        factor = float(np.quantile(y / np.maximum(predicted, 1e-12), QUANTILE))
        base, row, key, far = (float(c) * max(1.0, factor) for c in coefficients)
        return Cost(base, row, key, far, self.near)


def non_negative_least_squares(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The c >= 0 with the least |x c - y|: the best of the solutions over every subset of terms.

    Args:
        x: fp64 [n, terms], few terms. y: fp64 [n].
    """
    terms = x.shape[1]
    scale = np.sqrt((x * x).sum(axis=0))
    scale[scale == 0] = 1.0
    # |x c - y| is |r c - z| and something that no c changes: a few rows, however many steps.
    q, r = np.linalg.qr(x / scale)
    z = q.T @ y
    best: npt.NDArray[np.float64] = np.zeros(terms)
    least = float(z @ z)
    for size in range(terms, 0, -1):  # all terms first: where that solution is not negative, none is better
        for chosen in map(list, combinations(range(terms), size)):
            part = np.linalg.lstsq(r[:, chosen], z, rcond=None)[0]
            off = r[:, chosen] @ part - z
            if (part >= 0).all() and float(off @ off) < least:
                best, least = np.zeros(terms), float(off @ off)
                best[chosen] = part
        if size == terms and best.any():
            break
    best /= scale
    return best
