"""Floats within a limit per element: what the rounded and the accumulated class share."""

from __future__ import annotations

import torch
from torch import Tensor

from ..case import Finding
from ..oracle.expected import Within
from .nonfinite import compare_nonfinite, defined_of
from .report import Report, index_of, share_text, shown, worst_of


def compare_within(name: str, oracle: Within, got: Tensor, twin: Tensor | None) -> Report:
    """Non-finite values first; then every element within its own limit of the oracle's value.

    Args:
        twin: the reference's output on the CPU, which says where non-finite values stand; None to ask the oracle.
    """
    if (nonfinite := compare_nonfinite(name, oracle, got, twin)) is not None:
        return Report((nonfinite,))
    judged = defined_of(oracle) & oracle.want.isfinite() & got.isfinite()
    error = torch.where(judged, (got.double() - oracle.want).abs(), 0.0)
    share = torch.where(error == 0, 0.0, error / oracle.limit)  # a limit of 0 means equality
    worst = float(share.max()) if share.numel() else 0.0
    if worst <= 1:
        return Report((), worst)
    flat = worst_of(judged, share)
    return Report(
        (
            Finding(
                "limit",
                f"{name}{index_of(flat, got.shape)}: got {shown(got.flatten()[flat])}, want "
                f"{shown(oracle.want.flatten()[flat])}, limit {float(oracle.limit.flatten()[flat]):.3g}, "
                f"{share_text(worst)}; {int((share > 1).sum())} of {share.numel()} elements beyond it",
            ),
        ),
        worst,
    )
