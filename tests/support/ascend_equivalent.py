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
        kind: "pair" or an operator.
        text: what a part of the line that they stand in matches; PLACE in it is where they stand.
        why: in a few words, as the table prints it.
    """

    programs: str
    kind: str
    text: str
    why: str


KNOWN: tuple[Equivalent, ...] = ()


def reason(label: str, mutant: Mutant) -> str:
    """Why a mutant is equivalent, "" where nobody has said so."""
    line, column = mutant.text, mutant.column
    marked = line if column < 0 else line[:column] + PLACE + line[column:]
    for known in KNOWN:
        if known.kind == mutant.kind and re.fullmatch(known.programs, label):
            if re.search(known.text, marked if PLACE in known.text else line):
                return known.why
    return ""
