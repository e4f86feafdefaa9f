"""What betrays each mutant of each op's kernels: the rows of the table in docs/ascend_mutants.md.

`python tests/support/ascend_op_mutants.py` prints the table, whole in hours; with labels of programs, their rows only;
with `--left`, those that nothing betrayed, each with its place.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache

import torch

from ascend_ops import differences, launch, on_ascend, ops, size, supported
from deepinfer.backends.ascend.build import programs
from deepinfer.backends.ascend.program import Fault, Program, watched
from deepinfer.backends.ascend.sim import Kernel, Schedule, mutate
from deepinfer.backends.ascend.sim.mutate import Mutant
from deepinfer.backends.ascend.sweep import Swept, Try, sweep_mutants
from deepinfer.conformance.calls import call, to_target
from deepinfer.ops.spec import SPECS, Sample

from ascend_ops import TARGET  # isort: skip

HEAD = "| program | op | pairs | redundant | sizes, indices | faults | in outputs | redundant |\n" + "| --- " * 8 + "|"
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
def launching() -> dict[str, tuple[str, ...]]:
    """Ops by label of the programs that their samples launch."""
    found: dict[str, list[str]] = {}
    for op in ops():
        for sample in chosen(op):
            for run in launch(op, sample.args)[1]:
                if op not in found.setdefault(run.program.label, []):
                    found[run.program.label].append(op)
    return {label: tuple(names) for label, names in found.items()}


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


def swept(program: Program, kinds: Sequence[str], *, relaxed: bool = False, of: Sequence[Mutant] | None = None) -> Swept:
    """Try a program's mutants of these kinds, or some of them, on the samples of the ops that launch it."""
    text = Text(program)
    tries = [
        tried(op, sample, text)
        for op in launching()[program.label]
        for sample in chosen(op)
        if any(run.program is program for run in launch(op, sample.args)[1])
    ]
    return sweep_mutants(text.text, text.made.mutants if of is None else of, tries, kinds, relaxed=relaxed)


def row(program: Program, of_pairs: Swept, of_sizes: Swept) -> str:
    cells: list[object] = [f"`{program.label}`", ", ".join(f"`{op}`" for op in launching()[program.label])]
    for found, order in ((of_pairs, ()), (of_sizes, ("error", "output"))):
        rules = ", ".join(f"{count} {rule}" for rule, count in found.rules().items())
        cells += [found.count, *(found.by(how) for how in order), rules or "0"]
    return f"| {' | '.join(map(str, cells))} |"


def main(arguments: list[str]) -> None:
    named = [a for a in arguments if not a.startswith("--")]
    print(HEAD)
    for program in programs():
        if (named and program.label not in named) or program.label not in launching():
            continue
        pairs, sizes = swept(program, ("pair",), relaxed=True), swept(program, mutate.OPERATORS)
        print(row(program, pairs, sizes), flush=True)
        if "--left" in arguments:
            for m in (*pairs.unexplained, *sizes.unexplained):
                print(f"  left: {m.kind} line {m.line}: {m.text}", flush=True)
            for v in (*pairs.contradicted, *sizes.contradicted):
                print(f"  against a rule: {v.mutant.kind} line {v.mutant.line}: {v.message}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
