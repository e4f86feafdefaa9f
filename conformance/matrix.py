"""Op × backend × suite: how far every op stands on every backend, and what came of its cases. Reports print it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..hal.backend import LEVELS
from ..hal.errors import InvalidArgumentError
from ..ops.spec import SPECS
from .evidence import CaseResult, Run, level_words

FORMAT = 1
WORST = 5
"""Cases of an op that are shown with their shares."""
EDGES = (0.0, 1e-3, 1e-2, 0.1, 0.25, 0.5, 0.75, 1.0)
"""Upper ends of a histogram's bars, of largest shares of a limit; the last bar is beyond the limit."""


@dataclass(frozen=True)
class Cell:
    """One op on one backend.

    Attributes:
        levels: reached, in words, the furthest last.
        level: the furthest, of `LEVELS`.
        cases: of all suites and runs.
    """

    op: str
    backend: str
    level: str
    levels: tuple[str, ...]
    cases: tuple[CaseResult, ...]

    def suites(self) -> dict[str, dict[str, Any]]:
        """Per suite: cases by status, seconds, the largest share of a limit."""
        found: dict[str, dict[str, Any]] = {}
        for case in self.cases:
            row = found.setdefault(case.suite, {"passed": 0, "failed": 0, "skipped": 0, "fallback": 0, "seconds": 0.0})
            row[case.status] += 1
            row["seconds"] = round(row["seconds"] + case.seconds, 4)
        return found

    def worst(self) -> list[CaseResult]:
        """Cases of the largest shares, failed ones first."""
        judged = [case for case in self.cases if case.worst is not None or case.status == "failed"]
        return sorted(judged, key=lambda case: (case.status != "failed", -(case.worst or 0.0)))[:WORST]

    def histogram(self) -> list[int]:
        """Cases by their largest share of a limit: 0, up to each of `EDGES`, beyond."""
        bars = [0] * (len(EDGES) + 1)
        for case in self.cases:
            if case.worst is not None:
                bars[sum(case.worst > edge for edge in EDGES)] += 1
        return bars

    def as_dict(self) -> dict[str, Any]:
        """The line of the file."""
        return {
            "record": "cell",
            "op": self.op,
            "backend": self.backend,
            "level": self.level,
            "levels": list(self.levels),
            "suites": self.suites(),
            "histogram": self.histogram() if any(c.worst is not None for c in self.cases) else [],
            "worst": [{"id": c.id, "status": c.status, "share": c.worst, "findings": c.findings} for c in self.worst()],
        }


@dataclass(frozen=True)
class Matrix:
    """All ops of the contract on some backends.

    Attributes:
        families: op names by family. backends: in order. cells: by op and backend.
        whole: cases that are of no one op, such as those of a whole model, by backend.
        suites: that any case is of.
    """

    families: Mapping[str, tuple[str, ...]]
    backends: tuple[str, ...]
    cells: Mapping[tuple[str, str], Cell]
    whole: Mapping[str, tuple[CaseResult, ...]]
    suites: tuple[str, ...]
    runs: tuple[Run, ...]

    def counts(self, backend: str) -> dict[str, int]:
        """Ops by their level on a backend, the least level first."""
        found = [self.cells[op, backend].level for ops in self.families.values() for op in ops]
        return {level: found.count(level) for level in LEVELS if level in found}

    def records(self) -> Iterable[dict[str, Any]]:
        """The lines of a report as JSON: a header, the runs, a cell each, the cases of whole models."""
        head = {"record": "header", "format": FORMAT, "kind": "deepinfer conformance report"}
        yield {**head, "backends": self.backends, "suites": self.suites, "edges": EDGES}
        for run in self.runs:
            facts = {"kind": run.kind, "backend": run.backend, "level": run.level, "place": run.place}
            yield {"record": "run", **facts, "date": run.date, "about": run.about, "whole": run.whole}
        for ops in self.families.values():
            yield from (self.cells[op, backend].as_dict() for op in ops for backend in self.backends)
        for backend, cases in self.whole.items():
            for c in cases:
                line = {"record": "case", "backend": backend, "id": c.id, "status": c.status, "share": c.worst}
                yield {**line, "seconds": c.seconds, "findings": c.findings, "notes": c.notes}


def matrix(runs: Sequence[Run], kernels: Mapping[str, Iterable[str]], checked: Mapping[str, Sequence[str]]) -> Matrix:
    """What some runs, and the kernels that are registered, say of every op.

    Args:
        kernels: ops of which a backend has kernels of its own. checked: levels that its own tests hold those at.

    Raises:
        InvalidArgumentError: what `checked` says of a backend is no list of levels.
    """
    for backend, levels in checked.items():
        _check_levels(backend, levels)
    families: dict[str, list[str]] = defaultdict(list)
    for name, spec in SPECS.items():
        families[spec.family].append(name)
    backends = tuple(dict.fromkeys([*kernels, *(run.backend for run in runs)]))
    own = {backend: frozenset(kernels.get(backend, ())) for backend in backends}
    cells = {}
    for op in SPECS:
        for backend in backends:
            mine = [run for run in runs if run.backend == backend]
            reached = {level: level_words(level) for level in checked.get(backend, ()) if op in own[backend]}
            for run in mine:
                if op in run.ops:
                    places = {place for place in (reached.get(run.level), run.where) if place}
                    reached[run.level] = " and ".join(sorted(places))
            order = sorted(reached, key=LEVELS.index) or [LEVELS[0]]
            cases = tuple(case for run in mine for case in run.cases if case.op == op)
            words = tuple(reached[level] for level in order) if reached else (LEVELS[0],)
            cells[op, backend] = Cell(op, backend, order[-1], words, cases)
    whole = {
        backend: tuple(c for run in runs if run.backend == backend for c in run.cases if c.op not in SPECS)
        for backend in backends
    }
    suites = tuple(dict.fromkeys(case.suite for run in runs for case in run.cases))
    named = {family: tuple(ops) for family, ops in families.items()}
    return Matrix(named, backends, cells, {b: c for b, c in whole.items() if c}, suites, tuple(runs))


def _check_levels(backend: str, levels: Any) -> None:
    """Plug-ins write `Backend.checked`: a text alone, or a word that is no level, has to be named as theirs."""
    whole = isinstance(levels, Sequence) and not isinstance(levels, str)
    odd = [level for level in levels if level not in LEVELS] if whole else [levels]
    if odd:
        allowed = ", ".join(LEVELS)
        raise InvalidArgumentError(f"checked of backend {backend!r}", odd[0], f"a list of any of {allowed}")
