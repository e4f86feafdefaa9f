"""Numerics classes: how far an implementation may be from the reference, and why.

The limits follow from the arithmetic (number of terms, accumulate dtype, output dtype), never from what a kernel
happens to give. `docs/numerics.md` derives them.
"""

from __future__ import annotations

from dataclasses import dataclass


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
        bound: how far the value before the decision may be from the oracle's, in words with its unit.
    """

    bound: str


@dataclass(frozen=True)
class Rounded(Numerics):
    """One rounding: at most `ulp` units in the last place of the output dtype from the float64 oracle."""

    ulp: float = 1.0


@dataclass(frozen=True)
class Accumulated(Numerics):
    """A sum of many products.

    Attributes:
        terms: number of summed terms as an expression over the op's dims ('K', 'window+K').
        output: 'bf16': a stated multiple of the output rounding on top of the accumulation bound; 'fp32': the
            accumulation bound alone.
    """

    terms: str
    output: str = "bf16"
