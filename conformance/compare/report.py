"""What a comparator found, and how it words an element."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..case import Finding


@dataclass(frozen=True)
class Report:
    """Findings, and the largest share of its limit that any value reached (None where no limit applied)."""

    findings: tuple[Finding, ...] = ()
    worst: float | None = None

    def __add__(self, other: Report) -> Report:
        shares = [w for w in (self.worst, other.worst) if w is not None]
        return Report(self.findings + other.findings, max(shares) if shares else None)

    @classmethod
    def of(cls, *found: Finding | None) -> Report:
        """A report of those findings that are any."""
        return cls(tuple(f for f in found if f is not None))


def index_of(flat: int, shape: torch.Size) -> str:
    """'[i, j]' of a flat index."""
    place = []
    for size in reversed(shape):
        flat, rest = divmod(flat, size)
        place.append(rest)
    return f"[{', '.join(map(str, reversed(place)))}]"


def shown(value: Tensor) -> str:
    """One element: floats to nine digits, bytes and integers as they are."""
    if value.dtype.is_floating_point:
        return f"{value.float().item() if value.element_size() < 4 else value.item():.9g}"
    return str(value.item())


def worst_of(wrong: Tensor, badness: Tensor | None = None) -> int:
    """Flat index of the first wrong element of the largest badness."""
    flat = wrong.flatten()
    if badness is None:
        return int(torch.nonzero(flat)[0])
    return int(torch.where(flat, badness.flatten().double().nan_to_num(torch.inf), -torch.inf).argmax())


def share_text(share: float) -> str:
    """'1.23 times the limit'."""
    return f"{share:.3g} times the limit"
