"""What `deepinfer conformance` prints of comparisons and reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..conformance.agreement import Agreement, Comparison
    from ..conformance.matrix import Matrix

WIDE = 120
LISTED = 50
"""Findings that are written out."""


def comparison_text(found: Comparison) -> str:
    """The sides, a table of the ops, what lies outside, what was not compared, the verdict."""
    lines = [f"{side}: {about(head)}" for side, head in zip("AB", found.heads, strict=True)]
    head = ["op", "class", "calls", "equal", "within", "outside"]
    head += ["A", "B", "nearer"] if found.oracle else []
    rows = [_agreement(each, found.oracle) for each in found.ops if each.calls]
    lines += ["", *table([*head, "furthest apart"], rows), ""]
    lines += [f"OUTSIDE {finding}" for finding in found.findings[:LISTED]]
    if len(found.findings) > LISTED:
        lines.append(f"… and {len(found.findings) - LISTED} more")
    over: Counter[str] = Counter()
    alone: Counter[str] = Counter()
    for each in found.ops:
        over.update(each.passed_over)
        alone.update(each.unjudged)
    lines += [f"not compared, {count} outputs: {why}" for why, count in over.most_common()]
    lines += [f"compared without an oracle, {count} outputs: {why}" for why, count in alone.most_common()]
    if found.oracle:
        lines.append("A, B: rms of error / limit of float outputs, elsewhere the largest share of a limit")
        lines.append("nearer: calls in which one recording is nearer the oracle")
    lines.append("furthest apart: units in the last place of floats, the difference of integers; where; of A and of B")
    counts = found.counts()
    lines.append(
        f"{counts['calls']} calls: {counts['equal']} outputs equal in every bit, "
        f"{counts['within']} within their class, {counts['outside']} outside"
    )
    return "\n".join(lines)


def about(head: dict[str, Any]) -> str:
    """One line of where a recording was made."""
    parts = [f"{head['backend']} on {head['device']} ({head['arch']})", head["date"], f"torch {head['torch']}"]
    parts += [f"Triton {head['triton']}"] * bool(head["triton"]) + [f"commit {head['commit']}"] * bool(head["commit"])
    return ", ".join(parts)


def _agreement(each: Agreement, oracle: bool) -> list[str]:
    row = [each.op, each.numerics, *map(str, (each.calls, each.equal, each.within, each.outside))]
    if oracle:
        for side in ("a", "b"):
            rms, share = each.rms(side), each.share[side]
            value = share if rms is None else rms
            row.append("" if value is None else f"{value:.3g}")
        row.append(nearer(each))
    return [*row, str(each.worst) if each.worst is not None else ""]


def nearer(each: Agreement) -> str:
    """'A 3, B 1' calls, 'same', or '' where nothing was held against an oracle."""
    a, b, both = (each.nearer[key] for key in ("a", "b", "both"))
    if a == b == 0:
        return "same" if both else ""
    return ", ".join(f"{side} {count}" for side, count in (("A", a), ("B", b)) if count)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Columns in line, the last one cut off at the width of the page."""
    cells = [head, *rows]
    widths = [max(len(row[n]) for row in cells) for n in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return [line if len(line) <= WIDE + 40 else line[: WIDE + 39] + "…" for line in lines]


def matrix_text(found: Matrix) -> str:
    """Each op's level on every backend, the suites beside it, failures, and the counts of each level."""
    rows, failed = [], []
    for family, ops in found.families.items():
        for op in ops:
            row = [op, family]
            for backend in found.backends:
                cell = found.cells[op, backend]
                row.append(" ".join([cell.levels[-1], *(_suite(name, c) for name, c in cell.suites().items())]))
                failed += [(backend, case) for case in cell.cases if case.status == "failed"]
            rows.append(row)
    for backend, cases in found.whole.items():
        failed += [(backend, case) for case in cases if case.status == "failed"]
    lines = [*table(["op", "family", *found.backends], rows), ""]
    for backend, case in failed[:LISTED]:
        lines += [f"FAILED {backend}: {case.id}", *(f"    {finding}" for finding in case.findings)]
    if len(failed) > LISTED:
        lines.append(f"… and {len(failed) - LISTED} more")
    for backend in found.backends:
        lines.append(f"{backend}: " + ", ".join(f"{n} {level}" for level, n in found.counts(backend).items()))
    return "\n".join(lines)


def _suite(name: str, counts: dict[str, Any]) -> str:
    """'ops 12/12'."""
    total = sum(counts[status] for status in ("passed", "failed", "skipped", "fallback"))
    return f"{name} {counts['passed']}/{total}"
