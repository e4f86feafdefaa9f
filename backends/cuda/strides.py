"""How wide a kernel may load: what the strides of a tensor divide by. Static per pool, so a constant of a kernel."""

from __future__ import annotations

import math

from torch import Tensor

WIDEST = 16
"""Bytes of the widest access of a thread."""


def alignment(x: Tensor, dims: int = 1) -> int:
    """The largest power of two, up to 16, that divides the strides of the leading dims, in bytes.

    The compiler learns from a launch whether the tensor itself begins on 16 bytes.
    """
    return math.gcd(WIDEST, *(stride * x.element_size() for stride in x.stride()[:dims]))


def power_of_two(n: int, least: int = 1) -> int:
    """The smallest power of two that is at least n and `least`."""
    return max(least, 1 << max(0, n - 1).bit_length())
