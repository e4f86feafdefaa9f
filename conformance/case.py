"""What a suite is made of: cases, and what comes of running one on a target."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch

Tier = Literal["quick", "full", "deep"]
TIERS: tuple[Tier, ...] = ("quick", "full", "deep")

UNAVAILABLE = "unavailable"
UNSUPPORTED = "declared unsupported"
SKIPS = (UNAVAILABLE, UNSUPPORTED)
_TORCH = Path(torch.__file__).parent


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        check: name of the check that saw it: 'shape', 'dtype', 'nonfinite', 'bits', 'limit', 'decision', 'guard',
            'stray_write', 'unread', 'alias', 'alone', 'permuted', 'padded', 'chunked', 'repeat', 'error', …
        message: the output's name and, of values, the worst element with its index, what came, what was wanted, the
            limit and the share of it.
    """

    check: str
    message: str

    def __str__(self) -> str:
        return f"{self.check}: {self.message}"


def raised(error: BaseException, about: str = "") -> Finding:
    """The finding that an exception is: its class, its words, and the line, outside torch, that led to it.

    Args:
        about: comes first.
    """
    found = traceback.extract_tb(error.__traceback__)
    frames = [frame for frame in found if not Path(frame.filename).is_relative_to(_TORCH)] or list(found)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno}, in {frames[-1].name})" if frames else ""
    return Finding("error", f"{about}{type(error).__name__}: {error}{where}")


@dataclass(frozen=True)
class Target:
    """What is judged: a backend, active when a case runs, on a device.

    Attributes:
        fallback: a whole model is judged also where the reference, on that device, has to run some of its ops.
    """

    backend: str
    device: torch.device
    fallback: bool = field(default=False, compare=False)


@dataclass(frozen=True)
class Outcome:
    """What came of a case: passed where nothing was found and nothing skipped.

    Attributes:
        findings: what is wrong.
        skipped: '' or 'unavailable: WHY' or 'declared unsupported: WHY'; nothing else is a reason to skip.
        worst: largest share of a limit that a value reached; None where no limit applies.
        notes: what a report says beside the verdict, such as shares.
        borrowed: ops that ran on the reference's kernels, where the target allows that. Nothing that is found is then
            said of the backend alone.
    """

    findings: tuple[Finding, ...] = ()
    skipped: str = ""
    worst: float | None = None
    notes: tuple[str, ...] = ()
    borrowed: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether the case ran, on the backend's own kernels, and nothing is wrong."""
        return not self.findings and not self.skipped and not self.borrowed


def skip(kind: str, why: str) -> Outcome:
    """An outcome that was not judged; `kind` is UNAVAILABLE or UNSUPPORTED."""
    assert kind in SKIPS, kind
    return Outcome(skipped=f"{kind}: {why}")


@dataclass(frozen=True)
class Case:
    """One question to a backend.

    Attributes:
        suite, op, label: together the name; `op` may be a group of ops or a part of the model.
        run: answers it on a target; an exception it lets through is a finding 'error'.
    """

    suite: str
    op: str
    label: str
    run: Callable[[Target], Outcome]

    @property
    def id(self) -> str:
        """`suite/op/label`, as reports print it and `--case` takes it."""
        return f"{self.suite}/{self.op}/{self.label}"
