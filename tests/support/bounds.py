"""Limits for comparisons with another implementation: unit roundoffs, and a check that tells how near a limit is."""

from __future__ import annotations

import torch

U32 = 2.0**-24
"""Largest relative error of one fp32 rounding to nearest."""
UBF16 = 2.0**-8
"""Largest relative error of one bf16 rounding to nearest."""
UE4M3 = 2.0**-4
"""Largest relative error of one E4M3 rounding of a normal number."""
TINY = 2.0**-126
"""Absolute allowance for underflow, below which fp32 and bf16 have no relative precision."""


def share(got: torch.Tensor, want: torch.Tensor, limit: torch.Tensor | float) -> float:
    """Largest |got - want| / limit, in float64. NaN anywhere counts as infinite."""
    difference = (got.double() - want.double()).abs()
    if difference.numel() == 0:
        return 0.0
    ratio = difference / (torch.as_tensor(limit, dtype=torch.float64) + TINY)
    return float(torch.where(ratio.isnan(), torch.inf, ratio).max())


def assert_within(what: str, got: torch.Tensor, want: torch.Tensor, limit: torch.Tensor | float) -> None:
    """Fail unless every |got - want| <= limit; prints the largest difference and its share of the limit."""
    assert got.shape == want.shape, f"{what}: shape {tuple(got.shape)} against {tuple(want.shape)}"
    used = share(got, want, limit)
    largest = float((got.double() - want.double()).abs().max())
    print(f"{what}: largest difference {largest:.3g}, {used:.3g} of the limit")
    assert used <= 1, f"{what}: difference is {used:.3g} times the limit (largest {largest:.3g})"
