"""What is wrong with a checkpoint, found from its headers before anything large is allocated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from ..hal.errors import CheckpointError
from .names import FOLDED, IGNORED, TensorSpec
from .safetensors_file import TensorEntry

Problem = Literal[
    "unreadable shard", "missing shard", "truncated", "missing", "missing scale", "shape", "dtype", "duplicate",
    "index", "unexpected", "values",
]  # fmt: skip
PROBLEMS: tuple[str, ...] = get_args(Problem)
_SHOWN = 5


@dataclass(frozen=True)
class Finding:
    """One fault: its kind, the tensor or file it concerns, and a sentence with what was found and what is wanted."""

    problem: Problem
    name: str
    detail: str


def compare(specs: Iterable[TensorSpec], index: Mapping[str, TensorEntry]) -> list[Finding]:
    """Holds the tensors found against the ones wanted.

    Args:
        specs: what has to be there; names without prefix.
        index: what is there, under the same kind of name. Names that match `IGNORED` are passed over.
    """
    findings: list[Finding] = []
    wanted: set[str] = set()
    for spec in specs:
        wanted.add(spec.name)
        entry = index.get(spec.name)
        if entry is None:
            findings.append(_missing(spec))
            continue
        if entry.dtype != spec.dtype:
            detail = f"{entry.dtype} in {entry.shard.name}, must be {spec.dtype}"
            findings.append(Finding("dtype", spec.name, detail))
        if entry.shape != spec.shape:
            detail = f"{list(entry.shape)} in {entry.shard.name}, must be {list(spec.shape)}"
            findings.append(Finding("shape", spec.name, detail))
    for name, entry in index.items():
        if name not in wanted and not IGNORED.fullmatch(name):
            findings.append(_unexpected(name, entry))
    return findings


def _missing(spec: TensorSpec) -> Finding:
    wanted = f"{spec.dtype} {list(spec.shape)} in no shard"
    if spec.is_scale:
        return Finding("missing scale", spec.name, f"{wanted}; quantised weights need their scales")
    return Finding("missing", spec.name, wanted)


def _unexpected(name: str, entry: TensorEntry) -> Finding:
    if FOLDED.fullmatch(name):
        detail = "must not exist: the hyper-connection norm weight belongs multiplied into hc_*_fn"
    else:
        detail = f"{entry.dtype} {list(entry.shape)} in {entry.shard.name} belongs to no part of this architecture"
    return Finding("unexpected", name, detail)


def truncated(entries: Iterable[TensorEntry], sizes: Mapping[str, int]) -> list[Finding]:
    """Tensors whose bytes end beyond their file. `sizes`: file name -> bytes."""
    return [
        Finding("truncated", e.name, f"ends at byte {e.offset + e.nbytes}, {e.shard.name} has {sizes[e.shard.name]}")
        for e in entries
        if e.offset + e.nbytes > sizes[e.shard.name]
    ]


def render(findings: Iterable[Finding], shown: int = _SHOWN) -> list[str]:
    """Lines for people: a count per kind of fault, then its first `shown` cases."""
    by_kind: dict[str, list[Finding]] = {}
    for finding in findings:
        by_kind.setdefault(finding.problem, []).append(finding)
    lines = []
    for kind in sorted(by_kind, key=PROBLEMS.index):
        cases = by_kind[kind]
        lines.append(f"{kind}: {len(cases)}")
        lines += [f"  {case.name}: {case.detail}" for case in cases[:shown]]
        if len(cases) > shown:
            lines.append(f"  ... and {len(cases) - shown} more")
    return lines


class CheckpointReportError(CheckpointError):
    """A checkpoint with faults; `findings` holds them all, the message the first few of each kind."""

    def __init__(self, where: str, findings: Iterable[Finding]) -> None:
        self.where = where
        self.findings = tuple(findings)
        count = len(self.findings)
        head = f"{where}: not a usable checkpoint, {count} problem{'s' if count != 1 else ''}"
        super().__init__("\n".join([head, *("  " + line for line in render(self.findings))]))

    def __reduce__(self) -> tuple[type[CheckpointReportError], tuple[str, tuple[Finding, ...]]]:
        return (type(self), (self.where, self.findings))
