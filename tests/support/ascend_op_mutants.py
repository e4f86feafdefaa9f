"""What betrays each mutant of each op's kernels: the table in docs/ascend_mutants.md.

    python tests/support/ascend_op_mutants.py --write     # rows of programs whose text has changed since
    python tests/support/ascend_op_mutants.py LABEL ...   # prints rows, and what nothing betrayed, with its place

A whole table takes hours of one core; each row is kept as soon as it is there.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path

import torch

from ascend_equivalent import reason
from ascend_ops import TARGET, differences, launch, on_ascend, ops, size, supported
from deepinfer.backends.ascend.build import programs
from deepinfer.backends.ascend.program import Fault, Program, watched
from deepinfer.backends.ascend.sim import Kernel, Schedule, mutate
from deepinfer.backends.ascend.sim.mutate import Mutant
from deepinfer.backends.ascend.sweep import Swept, Try, sweep_mutants
from deepinfer.conformance.calls import call, to_target
from deepinfer.hal.registry import REGISTRY
from deepinfer.ops.spec import SPECS, Sample

PAGE = Path(__file__).parents[2] / "docs" / "ascend_mutants.md"
HEAD = (
    "| program | text | ops | pairs | redundant | left | sizes, indices | faults | in outputs | redundant | left |\n"
    + "| --- " * 11
    + "|"
)
LARGEST = 40_000
"""Elements of a sample on which mutants are tried, where an op has any so small."""
SECONDS = 20.0


class Text:
    """A program's text with all mutants built in, as often as it is launched with another number of blocks."""

    def __init__(self, program: Program) -> None:
        self.program, self.text = program, program.text()
        self.made = mutate.schemata(self.text)
        self._kernels: dict[int, Kernel] = {}

    def kernel(self, blocks: int) -> Kernel:
        if blocks not in self._kernels:
            self._kernels[blocks] = Kernel(self.made.text, blocks)
        return self._kernels[blocks]

    def fault(self, mutant: Mutant, loose: bool) -> Fault:
        options = {"relaxed": loose, "sites": mutant.sites, "delta": mutant.delta, "seconds": SECONDS}
        return Fault(self.program, self.kernel, options)


@cache
def launching(program: Program) -> tuple[str, ...]:
    """Ops of the families that a program is written in whose samples launch it."""
    own = {kernel.op for kernel in REGISTRY.kernels() if kernel.backend == "ascend" and holds(kernel.fn, program)}
    return tuple(op for op in ops() if op in own and any(launches(op, s, program) for s in chosen(op)))


def holds(function: Callable[..., object], program: Program) -> bool:
    """Whether the module of a function has a program, alone or in a dict."""
    values = vars(sys.modules[function.__module__]).values()
    return any(program in v.values() if isinstance(v, dict) else v is program for v in values)


@cache
def launched(op: str, sample: int) -> tuple[Program, ...]:
    return tuple(run.program for run in launch(op, chosen(op)[sample].args)[1])


def launches(op: str, sample: Sample, program: Program) -> bool:
    return program in launched(op, [s is sample for s in chosen(op)].index(True))


@cache
def chosen(op: str) -> tuple[Sample, ...]:
    """Samples on which an op's mutants are tried."""
    every = supported(op)
    return tuple([s for s in every if size(s) <= LARGEST] or every[:2])


def tried(op: str, sample: Sample, text: Text) -> Try:
    """Outputs with a mutant on against those without; memory that nothing wrote is NaN."""
    want, _ = filled(op, sample, Schedule(), None)

    def one(mutant: Mutant, some: Sequence[Schedule], loose: bool) -> str:
        for schedule in some:
            got, _ = filled(op, sample, schedule, text.fault(mutant, loose))
            if wrong := differences(op, got, want, sample.args):
                return wrong[0]
        return ""

    return one


def filled(op: str, sample: Sample, schedule: Schedule, fault: Fault | None) -> tuple[list[torch.Tensor], int]:
    """Outputs and written arguments of a call in which fresh memory is filled with NaN, and its launches."""
    spec = SPECS[op]
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with on_ascend():
            placed = to_target(spec, sample.args, TARGET)
            with watched(schedule, fault) as runs:
                outs = call(spec, placed, TARGET)
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
    written = [v for a, v in zip(spec.args, placed, strict=True) if getattr(a, "mutable", False) and v is not None]
    return [*outs, *written], len(runs)


def swept(
    program: Program, kinds: Sequence[str], *, relaxed: bool = False, of: Sequence[Mutant] | None = None
) -> Swept:
    """Try a program's mutants of these kinds, or some of them, on the samples of the ops that launch it."""
    text = Text(program)
    tries = [
        tried(op, sample, text) for op in launching(program) for sample in chosen(op) if launches(op, sample, program)
    ]
    return sweep_mutants(text.text, text.made.mutants if of is None else of, tries, kinds, relaxed=relaxed)


def digest(program: Program) -> str:
    """Of a program's text, as the table names it."""
    return sha256(program.text().encode()).hexdigest()[:8]


def left(program: Program, found: Swept) -> list[Mutant]:
    """What nothing betrayed and nobody explained."""
    return [m for m in found.unexplained if not reason(program.label, m)]


def row(program: Program, of_pairs: Swept, of_sizes: Swept) -> str:
    names = ", ".join(f"`{op}`" for op in launching(program))
    cells: list[object] = [f"`{program.label}`", f"`{digest(program)}`", names]
    for found, order in ((of_pairs, ()), (of_sizes, ("error", "output"))):
        rules = found.rules()
        for m in found.unexplained:
            if why := reason(program.label, m):
                rules[why] = rules.get(why, 0) + 1
        redundant = ", ".join(f"{count} {rule}" for rule, count in sorted(rules.items()))
        cells += [found.count, *(found.by(how) for how in order), redundant or "0", len(left(program, found))]
    return f"| {' | '.join(map(str, cells))} |"


def rows() -> dict[tuple[str, str], str]:
    """The rows of the page, by label and digest."""
    text = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    return {(m[1], m[2]): m[0] for m in re.finditer(r"^\| `([^`]+)` \| `([0-9a-f]{8})` \|.*$", text, re.M)}


def write(known: dict[tuple[str, str], str]) -> None:
    """Keep the rows of the programs' present texts on the page."""
    keys = [(program.label, digest(program)) for program in programs() if program.current()]
    head = PAGE.read_text(encoding="utf-8").split("| program |")[0]
    body = "\n".join(known[key] for key in keys if key in known)
    PAGE.write_text(f"{head}{HEAD}\n{body}\n", encoding="utf-8")


def main(arguments: list[str]) -> None:
    known, writes = rows(), "--write" in arguments
    named = [a for a in arguments if not a.startswith("--")]
    for program in programs():
        if named and program.label not in named or not program.current():
            continue
        key = program.label, digest(program)
        if (writes and not named and key in known) or not launching(program):
            continue
        pairs, sizes = swept(program, ("pair",), relaxed=True), swept(program, mutate.OPERATORS)
        known[key] = row(program, pairs, sizes)
        print(known[key], flush=True)
        for m in (*left(program, pairs), *left(program, sizes)):
            print(f"  left: {m.kind} line {m.line} at {m.at}: {place(program, m)}", flush=True)
        for v in (*pairs.contradicted, *sizes.contradicted):
            print(f"  against a rule: {v.mutant.kind} line {v.mutant.line}: {v.message}", flush=True)
        if writes:
            write(known)


def place(program: Program, mutant: Mutant) -> str:
    """What stands around a mutant's place, which is marked."""
    if mutant.at < 0:
        return mutant.text
    text = program.text()
    start, end = text.rfind("\n", 0, mutant.at) + 1, text.find("\n", mutant.at)
    before, after = text[start : mutant.at].strip(), text[mutant.at : end]
    return f"{before[-80:]}>>>{after[:60]}"


if __name__ == "__main__":
    main(sys.argv[1:])
