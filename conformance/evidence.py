"""What reports are made of: results of runs, and recordings, read from their files."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..hal.backend import LEVELS
from ..hal.errors import DeepInferError
from . import recording_format, results

STATUSES = ("passed", "failed", "skipped", "fallback")


class EvidenceError(DeepInferError):
    """A file that holds no results of a run, or damaged ones."""


@dataclass(frozen=True)
class CaseResult:
    """One line of a run: `suite/op/label` in parts, and what came of it.

    Attributes:
        worst: largest share of a limit; None where no limit applied.
        findings: 'check: message' of each.
        why: of a skip.
    """

    suite: str
    op: str
    label: str
    status: str
    seconds: float
    worst: float | None
    findings: tuple[str, ...] = ()
    why: str = ""
    notes: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """As `--case` takes it."""
        return f"{self.suite}/{self.op}/{self.label}"


@dataclass(frozen=True)
class Run:
    """Results of one run, or the calls of a recording.

    Attributes:
        backend, level, place: whose kernels, how they ran (of `LEVELS`), and on what.
        date, about: when, and with what.
        cases: of a run. ops: that ran at all.
        whole: whether the run came to its verdict.
        kind: 'run' or 'recording'.
    """

    backend: str
    level: str
    place: str
    date: str
    about: str
    cases: tuple[CaseResult, ...]
    ops: frozenset[str] = field(default_factory=frozenset)
    whole: bool = True
    kind: str = "run"
    tier: str = ""

    @property
    def where(self) -> str:
        """The level in words: 'run on NVIDIA H200', 'interpreted'."""
        return level_words(self.level, self.place)


def level_words(level: str, place: str = "") -> str:
    """A level as reports print it."""
    return f"run on {place}" if level == LEVELS[-1] else level


def gather(paths: Iterable[Path]) -> list[Run]:
    """Everything that lies in some files and folders: `results.jsonl` and recordings.

    Raises:
        EvidenceError: a path holds neither. RecordingError: a recording is damaged.
    """
    found = []
    for path in paths:
        folder = path if path.is_dir() else path.parent
        there = [path] if path.is_file() else [folder / n for n in (results.FILE, recording_format.FACTS)]
        there = [file for file in there if file.is_file()]
        if not there:
            raise EvidenceError(f"{path} has neither {results.FILE} nor {recording_format.FACTS}")
        for file in there:
            found.append(of_recording(folder) if file.name == recording_format.FACTS else of_results(file))
    return found


def of_recording(folder: Path) -> Run:
    """The ops of a recording: that they ran there. Whether they agreed is said by a comparison."""
    facts, _ = recording_format.read(folder)
    about = ", ".join(part for part in (facts["about"], f"commit {facts['commit']}" * bool(facts["commit"])) if part)
    level = _level(folder / recording_format.FACTS, facts["level"])
    ops = frozenset(call["op"] for call in facts["calls"])
    return Run(facts["backend"], level, facts["device"], facts["date"], about, (), ops, kind="recording")


def _level(path: Path, level: Any) -> str:
    if level not in LEVELS:
        raise EvidenceError(f"{path} has level {level!r}; allowed: {', '.join(LEVELS)}")
    return str(level)


def of_results(path: Path) -> Run:
    """The cases of a run, up to where it was broken off.

    Raises:
        EvidenceError: it is no file of results, of another format, or damaged; names the line.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise EvidenceError(f"{path} cannot be read: {error}") from error
    whole = text.endswith("\n")
    lines = text.split("\n")[:-1] if whole else text.split("\n")
    records = [_record(path, n, line) for n, line in enumerate(lines[: None if whole else -1], 1)]
    if not records or records[0].get("kind") != results.KIND:
        raise EvidenceError(f"{path} has no results of a run: its first line must say {results.KIND!r}")
    head = records[0]
    if head.get("format") != results.FORMAT:
        raise EvidenceError(f"{path} has format {head.get('format')}; this version reads {results.FORMAT}")
    try:
        cases = tuple(_case(each) for each in records[1:] if each["record"] == "case")
        ops = frozenset(case.op for case in cases if case.status in ("passed", "failed"))
        about = f"torch {head['torch']}, Python {head['python']}"
        level, name = _level(path, head["level"]), head["capability"]["name"]
        if not isinstance(name, str):
            raise ValueError(f"a device named {name!r}")
        done = whole and records[-1]["record"] == "verdict"
        return Run(str(head["backend"]), level, name, str(head["started"]), about, cases, ops, done, tier=head["tier"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise EvidenceError(f"{path} is damaged: {type(error).__name__}: {error}") from error


def _record(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise EvidenceError(f"{path}, line {number} is no JSON: {error}") from error
    if not isinstance(found, dict) or "record" not in found:
        raise EvidenceError(f"{path}, line {number} is no record")
    return found


def _case(each: dict[str, Any]) -> CaseResult:
    suite, op, label = each["id"].split("/", 2)
    worst = each["worst"]
    if each["status"] not in STATUSES:
        raise ValueError(f"status {each['status']!r}")
    return CaseResult(
        suite,
        op,
        label,
        each["status"],
        float(each["seconds"]),
        None if worst is None else float(worst),
        tuple(f"{f['check']}: {f['message']}" for f in each["findings"]),
        str(each["skipped"]),
        tuple(map(str, each["notes"])),
    )
