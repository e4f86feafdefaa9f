"""The README's table of support, from the contract, the kernels that are registered and the recordings that are kept.

python -m deepinfer.conformance.support README.md tests/recordings/*/
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from .evidence import EvidenceError
from .matrix import Matrix
from .report import IN_TREE, of_installed

BEGIN, END = "<!-- support: made by `python -m deepinfer.conformance.support` -->\n", "<!-- end of support -->"


def support(found: Matrix) -> str:
    """A row per family: its ops, and on each backend how far they stand."""
    lines = [f"| Ops of | {' | '.join(['', *(f'`{b}`' for b in found.backends)])} |"]
    lines.append("|---" * (2 + len(found.backends)) + "|")
    for family, ops in sorted(found.families.items()):
        cells = [_levels(found, backend, ops) for backend in found.backends]
        lines.append(f"| {family.replace('_', ' ')} | {len(ops)} | {' | '.join(cells)} |")
    total = sum(map(len, found.families.values()))
    every = [op for ops in found.families.values() for op in ops]
    lines.append(f"| all | {total} | {' | '.join(_levels(found, backend, every) for backend in found.backends)} |")
    return "\n".join(lines) + "\n"


def _levels(found: Matrix, backend: str, ops: Iterable[str]) -> str:
    """'simulated', or '2 specified, 4 simulated'."""
    counts = Counter(found.cells[op, backend].levels[-1] for op in ops)
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{count} {level}" for level, count in counts.most_common())


def renewed(text: str, table: str) -> str:
    """A page with the table between its marks.

    Raises:
        EvidenceError: the page has no such marks.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise EvidenceError(f"the page has no lines {BEGIN.strip()!r} and {END!r}")
    return before + BEGIN + table + END + after


if __name__ == "__main__":
    page = Path(sys.argv[1])
    table = support(of_installed(map(Path, sys.argv[2:]), IN_TREE))
    page.write_text(renewed(page.read_text(encoding="utf-8"), table))
