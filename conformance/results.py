"""Results of a run: one JSON object per line, a header first, then a case each, the verdict last."""

from __future__ import annotations

import datetime
import json
import platform
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import torch

from ..hal.backend import Backend
from ..hal.contract import CONTRACT_VERSION
from ..hal.device import Device
from .case import Finding, Outcome

FILE = "results.jsonl"
FORMAT = 1
KIND = "deepinfer conformance results"


@dataclass(frozen=True)
class Result:
    """What came of one case.

    Attributes:
        id: of the case. required: whether the verdict counts it. seconds: it took.
    """

    id: str
    outcome: Outcome
    required: bool
    seconds: float

    @property
    def status(self) -> str:
        """'failed', 'skipped', 'fallback' (nothing was found, with some ops on the reference's kernels) or 'passed'."""
        if self.outcome.findings:
            return "failed"
        return "skipped" if self.outcome.skipped else "fallback" if self.outcome.borrowed else "passed"

    def as_dict(self) -> dict[str, Any]:
        """The line of the file."""
        return {
            "record": "case",
            "id": self.id,
            "required": self.required,
            "status": self.status,
            "seconds": round(self.seconds, 4),
            **outcome_dict(self.outcome),
        }


def outcome_dict(outcome: Outcome) -> dict[str, Any]:
    """An outcome for JSON; numbers that JSON lacks become None."""
    worst = outcome.worst
    return {
        "findings": [{"check": f.check, "message": f.message} for f in outcome.findings],
        "skipped": outcome.skipped,
        "worst": worst if worst is not None and abs(worst) < float("inf") else None,
        "notes": list(outcome.notes),
        "borrowed": list(outcome.borrowed),
    }


def outcome_of(record: Mapping[str, Any]) -> Outcome:
    """The outcome that `outcome_dict` described."""
    findings = tuple(Finding(f["check"], f["message"]) for f in record["findings"])
    notes, borrowed = tuple(record["notes"]), tuple(record["borrowed"])
    return Outcome(findings, record["skipped"], record["worst"], notes, borrowed)


@dataclass(frozen=True)
class Verdict:
    """`passed n of m required`, and what else there is to say."""

    results: Sequence[Result]
    missing: Sequence[str] = ()
    """Requirements that no case answers: each counts as failed."""

    @property
    def required(self) -> int:
        """m."""
        return sum(r.required for r in self.results) + len(self.missing)

    @property
    def passed(self) -> int:
        """n."""
        return sum(r.required and r.status == "passed" for r in self.results)

    @property
    def failed(self) -> list[str]:
        """Ids of the cases that failed, required or not, and the requirements that no case answers."""
        return [r.id for r in self.results if r.status == "failed"] + list(self.missing)

    def skips(self) -> list[tuple[str, int]]:
        """Reasons for skipping and how many cases each skipped, most first."""
        return Counter(r.outcome.skipped for r in self.results if r.status == "skipped").most_common()

    def borrowed(self) -> list[tuple[str, tuple[str, ...], tuple[str, ...]]]:
        """Cases in which some ops ran on the reference's kernels, and nothing was found: id, those ops, notes."""
        return [(r.id, r.outcome.borrowed, r.outcome.notes) for r in self.results if r.status == "fallback"]

    def __str__(self) -> str:
        line = f"passed {self.passed} of {self.required} required"
        counts = [
            (len(self.borrowed()), "passed with ops on fallback"),
            (len(self.failed), "failed"),
            (sum(n for _, n in self.skips()), "skipped"),
        ]
        return ", ".join([line, *(f"{n} {what}" for n, what in counts if n)])

    def report(self) -> str:
        """Every failure with its findings, the reasons for skips, and the verdict: what a failing test should show."""
        lines = [
            "\n".join([f"FAILED {r.id}", *(f"    {finding}" for finding in r.outcome.findings)])
            for r in self.results
            if r.status == "failed"
        ]
        lines += [f"FAILED {name}\n    missing: required, and no suite has such a case" for name in self.missing]
        lines += [f"skipped {count}: {reason}" for reason, count in self.skips()]
        return "\n".join([*lines, str(self)])

    def as_dict(self) -> dict[str, Any]:
        """The last line of the file."""
        return {
            "record": "verdict",
            "passed": self.passed,
            "required": self.required,
            "failed": self.failed,
            "skipped": dict(self.skips()),
            "fallback": {name: list(ops) for name, ops, _ in self.borrowed()},
            "seconds": round(sum(r.seconds for r in self.results), 3),
        }


def header(
    version: str, backend: Backend, device: Device, tier: str, suites: Iterable[str], ops: Iterable[str]
) -> dict[str, Any]:
    """The first line of the file: what was judged, where, by what."""
    return {
        "record": "header",
        "format": FORMAT,
        "kind": KIND,
        "deepinfer": version,
        "contract_version": CONTRACT_VERSION,
        "backend": backend.name,
        "backend_contract_version": backend.contract_version,
        "device": str(device),
        "level": backend.level(device),
        "capability": backend.capability(device).as_dict(),
        "suites": list(suites),
        "tier": tier,
        "ops": list(ops),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


class Writer:
    """Writes records to `results.jsonl` of a folder as they come; to nowhere without a folder."""

    def __init__(self, folder: Path | None) -> None:
        self._stream: TextIO | None = None
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self._stream = (folder / FILE).open("w", encoding="utf-8")

    def write(self, record: Mapping[str, Any]) -> None:
        """One line, at once on disk: a run that is killed leaves what it knew."""
        if self._stream is not None:
            self._stream.write(json.dumps(record, ensure_ascii=False, default=str) + "\n")
            self._stream.flush()

    def close(self) -> None:
        """Close the file."""
        if self._stream is not None:
            self._stream.close()
