"""Mutants of ops' kernels that change nothing which any input could show, each with its reason."""

from __future__ import annotations

import re
from dataclasses import dataclass

from deepinfer.backends.ascend.sim.mutate import Mutant

PLACE = "@"
"""Stands in a pattern where the mutant does; no kernel has it elsewhere."""


@dataclass(frozen=True)
class Equivalent:
    """Mutants that no data betrays.

    Attributes:
        programs: what their labels match.
        kind: "pair" or an operator, or what several of them match.
        text: what a part of the line that they stand in matches; PLACE in it is where they stand.
        why: in a few words, as the table prints it.
    """

    programs: str
    kind: str
    text: str
    why: str


KNOWN: tuple[Equivalent, ...] = (
    # What asc_sync_pipe keeps apart are stores to slots that a row or position has for itself.
    Equivalent("store_last_rows-.*", "pair", "asc_sync_pipe", "distinct slots"),
    Equivalent("ring_move-.*", "pair", "asc_sync_pipe", "distinct slots"),
    # `begin` is at least 0, so is the remainder of a sum with it, and its sign bit is clear.
    Equivalent("ring_move-.*", "block", r"[LR] & \(\(\(at \+ \(+\(int32_t\)@block_idx", "sign of a remainder"),
    # Padding is zero in all rows of a sequence, whichever of its threads writes which; each has one for its own values.
    Equivalent(
        "draft_inputs-.*", "block|thread", r"^Y7\[.*@.* % \(\(int64_t\)d\)\).*= \(int64_t\)0;$", "zeros permuted"
    ),
    Equivalent("draft_inputs-.*", "block|thread", r"^if \(.*@.* % d\) == 0\) \{$", "one thread of each sequence"),
    # Behind its piece a core would go on through the following ones, to the row's end, and mask there what they mask.
    Equivalent("mask_rows-.*", "clamp", r"@min\(8192, ", "the same by more cores"),
)


def reason(label: str, mutant: Mutant) -> str:
    """Why a mutant is equivalent, "" where nobody has said so."""
    line, column = mutant.text, mutant.column
    marked = line if column < 0 else line[:column] + PLACE + line[column:]
    for known in KNOWN:
        if re.fullmatch(known.kind, mutant.kind) and re.fullmatch(known.programs, label):
            if re.search(known.text, marked if PLACE in known.text else line):
                return known.why
    return ""
