"""What `ascend_op_mutants.py` has printed, read again."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ROW = re.compile(
    r"^\| `(?P<label>[^`]+)` \| `(?P<digest>[0-9a-f]{8})` \| (?P<ops>[^|]*) \| (?P<pairs>\d+) \| (?P<known>[^|]+)"
    r" \| \d+ \| (?P<sizes>\d+) \| (?P<errors>\d+) \| (?P<outputs>\d+) \| (?P<redundant>[^|]+) \| \d+ \|$"
)
_LEFT = re.compile(r"^  left: (\w+) line (\d+) at (-?\d+): (.*)$")


@dataclass(frozen=True)
class Found:
    """Counts of a row: of its pairs (errors and outputs are 0 there), or of its sizes and indices."""

    count: int
    errors: int
    outputs: int
    redundant: dict[str, int]


@dataclass(frozen=True)
class Logged:
    """A program's row, and what stands below it.

    Attributes:
        ops: whose samples launch it.
        left: kind, line and place of each mutant that was left; what stands there too, where it has no place.
        contrary: whether something was betrayed against a rule or reason.
    """

    digest: str
    ops: tuple[str, ...]
    pairs: Found
    sizes: Found
    left: frozenset[tuple[str, int, int, str]]
    contrary: bool


def read(log: str) -> dict[str, Logged]:
    """The programs of a log by label; of one that is there twice, the later."""
    found: dict[str, Logged] = {}
    row, below = None, []
    for line in [*log.splitlines(), "#"]:
        if line.startswith("  "):
            below.append(line)
            continue
        if row is not None:
            found[row["label"]] = _logged(row, below)
        row, below = _ROW.match(line), []
    return found


def _logged(row: re.Match[str], below: list[str]) -> Logged:
    left = [(m[1], int(m[2]), int(m[3]), m[4] if m[3] == "-1" else "") for m in map(_LEFT.match, below) if m]
    return Logged(
        row["digest"],
        tuple(re.findall(r"`(\w+)`", row["ops"])),
        Found(int(row["pairs"]), 0, 0, _counts(row["known"])),
        Found(int(row["sizes"]), int(row["errors"]), int(row["outputs"]), _counts(row["redundant"])),
        frozenset(left),
        any(line.startswith("  against ") for line in below),
    )


def _counts(cell: str) -> dict[str, int]:
    """ "2 single burst, 1 tile group" as a dict; {} for "0"."""
    return {m[2]: int(m[1]) for m in re.finditer(r"(?:^|, )(\d+) (\S.*?)(?=, \d+ |$)", cell.strip())}
