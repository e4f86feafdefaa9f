"""What came of holding two recordings against each other: per op, and as lines of a file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

from .case import Finding

FORMAT = 1
"""Of the lines of a comparison."""
FILE = "comparison.jsonl"
SIDES = ("a", "b")


@dataclass(frozen=True)
class Worst:
    """The element in which two recordings of an op are furthest apart.

    Attributes:
        place: sample, output and index. a, b: what each has; of a NaN or infinity 'nan', 'inf'.
        apart: units in the last place of the output's dtype between floats (infinite where one is not finite); of
            integers and bytes the difference.
    """

    place: str
    a: str
    b: str
    apart: float

    def __str__(self) -> str:
        return f"{self.apart:.3g}: {self.place}: {self.a} and {self.b}"


@dataclass
class Agreement:
    """What came of one op.

    Attributes:
        equal, within, outside: outputs of equal bits; that differ and lie in the class; that do not.
        passed_over: why outputs could not be compared, and how many; none of those counted above.
        unjudged: why outputs that were compared could not be held against an oracle that was asked for, and how many.
        worst: where they differ most; None where all that was kept is equal.
        findings: what lies outside the class; their words begin with whose it is.
        share: of each side the largest share of a limit that a kept output reached; None where no limit applied.
        error: of each side, the sum of squares of (error / limit) against a float64 oracle, and elements; floats only.
        nearer: calls of which one side is nearer the oracle, and of which they are as near.
    """

    op: str
    numerics: str
    calls: int = 0
    equal: int = 0
    within: int = 0
    outside: int = 0
    passed_over: dict[str, int] = field(default_factory=dict)
    unjudged: dict[str, int] = field(default_factory=dict)
    worst: Worst | None = None
    findings: list[Finding] = field(default_factory=list)
    share: dict[str, float | None] = field(default_factory=lambda: dict.fromkeys(SIDES))
    error: dict[str, list[float]] = field(default_factory=lambda: {side: [0.0, 0.0] for side in SIDES})
    nearer: dict[str, int] = field(default_factory=lambda: {"a": 0, "b": 0, "both": 0})

    @property
    def verdict(self) -> str:
        """'outside', 'within', 'equal', or 'not compared'."""
        found = (("outside", self.outside), ("within", self.within), ("equal", self.equal))
        return next((name for name, count in found if count), "not compared")

    def rms(self, side: str) -> float | None:
        """Root of the mean square of error / limit over kept elements of float outputs; None where there is none."""
        total, count = self.error[side]
        return (total / count) ** 0.5 if count else None

    def over(self, why: str, count: int) -> None:
        """Outputs that cannot be compared."""
        self.passed_over[why] = self.passed_over.get(why, 0) + count

    def alone(self, why: str, count: int) -> None:
        """Outputs that are compared with one another only."""
        self.unjudged[why] = self.unjudged.get(why, 0) + count

    def as_dict(self) -> dict[str, Any]:
        """The line of the file."""
        return {
            "record": "op",
            "op": self.op,
            "class": self.numerics,
            "verdict": self.verdict,
            "calls": self.calls,
            "equal": self.equal,
            "within": self.within,
            "outside": self.outside,
            "passed_over": self.passed_over,
            "unjudged": self.unjudged,
            "worst": None if self.worst is None else {**vars(self.worst), "apart": _number(self.worst.apart)},
            "findings": [{"check": f.check, "message": f.message} for f in self.findings],
            "share": {side: _number(self.share[side]) for side in SIDES},
            "rms": {side: _number(self.rms(side)) for side in SIDES},
            "nearer": self.nearer,
        }


@dataclass(frozen=True)
class Comparison:
    """Two recordings, op by op.

    Attributes:
        heads: the headers of A and B. ops: in the order of A's calls. oracle: whether equal outputs were judged too.
    """

    heads: tuple[dict[str, Any], dict[str, Any]]
    ops: tuple[Agreement, ...]
    oracle: bool

    @property
    def findings(self) -> list[Finding]:
        """Of all ops."""
        return [finding for each in self.ops for finding in each.findings]

    def counts(self) -> dict[str, int]:
        """Sums over the ops."""
        return {
            "calls": sum(each.calls for each in self.ops),
            "equal": sum(each.equal for each in self.ops),
            "within": sum(each.within for each in self.ops),
            "outside": sum(each.outside for each in self.ops),
            "passed_over": sum(sum(each.passed_over.values()) for each in self.ops),
            "unjudged": sum(sum(each.unjudged.values()) for each in self.ops),
        }

    def records(self) -> Iterator[dict[str, Any]]:
        """The lines of `comparison.jsonl`: a header, an op each, the verdict."""
        heads = dict(zip(SIDES, self.heads, strict=True))
        yield {"record": "header", "format": FORMAT, "kind": "deepinfer comparison", **heads, "oracle": self.oracle}
        yield from (each.as_dict() for each in self.ops)
        yield {"record": "verdict", "agree": not self.findings, **self.counts()}

    def write(self, folder: Path) -> Path:
        """Write `comparison.jsonl` into a folder; the file."""
        folder.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps(each, ensure_ascii=False) for each in self.records()]
        (folder / FILE).write_text("\n".join(lines) + "\n", encoding="utf-8")
        return folder / FILE


def _number(value: float | None) -> float | str | None:
    return value if value is None or isfinite(value) else str(value)
