"""Numerics classes: how far an implementation may be from a float64 oracle, and why.

The limits follow from the arithmetic (number of terms, accumulate dtype, output dtype), never from what a kernel
happens to give. `docs/numerics.md`, section 6, derives them and says what an op's terms and magnitudes are.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

UNIT = {torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8}
"""Unit roundoff: the largest relative error of one rounding to nearest."""
DIGITS = {torch.float32: 24, torch.bfloat16: 8}
"""Significant bits, the hidden one included."""
FLOOR = 2.0**-126
"""Absolute allowance of every limit: below the smallest normal number fp32 and bf16 have no relative precision."""
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def spacing(value: Tensor, dtype: torch.dtype) -> Tensor:
    """One unit in the last place: the distance of neighbouring numbers of `dtype` at a finite `value`; float64."""
    exponent = torch.frexp(value.double().nan_to_num(0, 0, 0).abs().clamp(min=FLOOR)).exponent - DIGITS[dtype]
    return ((exponent.long() + 1023) << 52).view(torch.float64)  # 2^exponent by its bits: exact everywhere


@dataclass(frozen=True)
class Numerics:
    """Base of the classes."""

    @property
    def label(self) -> str:
        """Short name, as tables print it."""
        return type(self).__name__.lower()


@dataclass(frozen=True)
class Exact(Numerics):
    """Bit-equal to the reference, given all inputs."""


@dataclass(frozen=True)
class Decided(Numerics):
    """Computes, then decides or quantises: exact where the computed value lies clear of a border.

    Attributes:
        bound: how far the value before the decision may be from the oracle's, in roundings of `dtype`.
        dtype: 'fp32' or 'bf16': the rounding that `bound` counts.
        of: the magnitude that a rounding is relative to, in words.
    """

    bound: float
    dtype: str
    of: str

    def limit(self, magnitude: Tensor) -> Tensor:
        """Largest error of the value before the decision, float64, for magnitudes as `of` says."""
        return self.bound * UNIT[DTYPES[self.dtype]] * magnitude.double() + FLOOR


@dataclass(frozen=True)
class Rounded(Numerics):
    """One rounding of a value whose fp32 error is small beside it: at most `ulp` units in the last place of the output
    dtype from the float64 oracle.

    For results without cancellation only: where terms of both signs add up, the fp32 error is relative to the terms
    and can be many units of a small result; such ops are `Accumulated`, however few their terms.
    """

    ulp: float = 1.0

    def limit(self, want: Tensor, dtype: torch.dtype) -> Tensor:
        """Largest error of each element, float64, for the oracle's values."""
        return self.ulp * spacing(want, dtype) + FLOOR


@dataclass(frozen=True)
class Accumulated(Numerics):
    """A sum of products in fp32.

    Attributes:
        terms: number of summed terms as an expression over the op's dims ('K', 'window+K').
        output: 'bf16': one output rounding on top of the accumulation bound; 'fp32': the accumulation bound and the
            rounding of its own last step.
    """

    terms: str
    output: str = "bf16"

    @staticmethod
    def error(terms: int, magnitude: Tensor) -> Tensor:
        """Largest error of the fp32 sum, in any order, before the output rounding; float64.

        Args:
            terms: number of summed terms; every term passes at most so many roundings, and two to spare for factors.
            magnitude: per element, the sum of the terms' absolute values; of fp32 outputs the largest absolute sum of
                a run of consecutive terms.
        """
        roundings = (terms + 2) * UNIT[torch.float32]
        return roundings / (1 - roundings) * magnitude.double()

    @classmethod
    def limit(cls, terms: int, magnitude: Tensor, want: Tensor, dtype: torch.dtype) -> Tensor:
        """Largest error of each element of the output, float64.

        Args:
            terms, magnitude: as in `error`. want: the oracle's values. dtype: of the output.
        """
        error = cls.error(terms, magnitude)
        return error + UNIT[dtype] * (want.double().abs() + error) + FLOOR

    @staticmethod
    def truncation(steps: int, largest: Tensor) -> Tensor:
        """Largest error of sums that a matrix unit truncates as it adds; float64.

        Args:
            steps: multiply-accumulate steps along the sum (terms / terms per instruction).
            largest: largest absolute partial sum, per element.
        """
        return steps * 2.0**-23 * largest.double()
