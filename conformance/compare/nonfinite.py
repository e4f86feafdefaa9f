"""NaN and infinities, before any limit is applied: where the reference has them, and nowhere else."""

from __future__ import annotations

import torch
from torch import Tensor

from ..case import Finding
from ..oracle.expected import Within
from .report import index_of, shown, worst_of


def compare_nonfinite(name: str, oracle: Within, got: Tensor, twin: Tensor | None) -> Finding | None:
    """NaN stands where the twin has NaN, infinity of one sign where it has that, and nothing else is either; and the
    same against the oracle, but for values that it puts within the limit of the dtype's largest number: there rounding
    decides whether a result is infinite.

    Args:
        twin: the reference's output on the CPU; None to ask the oracle alone.
    """
    references = [(oracle.want, "the oracle has")] if twin is None else [(twin, "the reference has")]
    if twin is not None:
        references.append((oracle.want, "the oracle has"))
    defined, either = defined_of(oracle), _either(oracle, got)
    for reference, whose in references:
        wrong = defined & ~either & (_kind(got) != _kind(reference))
        wrong |= defined & (got.isnan() != reference.isnan())
        if wrong.any():
            return _finding(name, wrong, got, reference, whose)
    return None


def _either(oracle: Within, got: Tensor) -> Tensor:
    """Where `got` may be infinite or finite: the limit reaches the dtype's largest number; an infinity has the
    oracle's sign."""
    return at_edge(oracle, got.dtype) & (got.isfinite() | (got.double().sign() == oracle.want.sign()))


def defined_of(oracle: Within) -> Tensor:
    """Where the value is specified."""
    return torch.ones_like(oracle.want, dtype=torch.bool) if oracle.defined is None else oracle.defined


def at_edge(oracle: Within, dtype: torch.dtype) -> Tensor:
    """Where a finite oracle's limit reaches the largest number of the dtype."""
    return oracle.want.isfinite() & ~(oracle.want.abs() + oracle.limit < torch.finfo(dtype).max)


def _kind(x: Tensor) -> Tensor:
    """0 finite, 1 and -1 infinite, 2 NaN."""
    return torch.where(x.isnan(), 2, torch.where(x.isinf(), x.double().nan_to_num(0).sign(), 0)).long()


def _finding(name: str, wrong: Tensor, got: Tensor, want: Tensor, whose: str) -> Finding:
    flat = worst_of(wrong)
    return Finding(
        "nonfinite",
        f"{name}{index_of(flat, got.shape)}: got {shown(got.flatten()[flat])}, {whose} {shown(want.flatten()[flat])}; "
        f"{int(wrong.sum())} of {wrong.numel()} elements are NaN or infinite in the wrong place",
    )
