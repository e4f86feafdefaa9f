"""What betrays each mutant of each op's kernels: the table in docs/ascend_mutants.md.

    python tests/support/ascend_op_mutants.py --write     # rows of programs whose text has changed since
    python tests/support/ascend_op_mutants.py LABEL ...   # prints rows, and what nothing betrayed, with its place
    python tests/support/ascend_op_mutants.py --left=LOG  # rows of such an output, as they would be now

A whole table takes hours of one core; each row is kept as soon as it is there. With `--left`, only mutants that nothing
betrayed are tried, and only on the samples of `ascend_mutant_samples.py`; rules and reasons are those of now. Where
that cannot tell what a whole sweep would print, it says so. `--write` and labels go with it.
"""

from __future__ import annotations

import fcntl
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from pathlib import Path

import torch

from ascend_equivalent import reason
from ascend_mutant_log import Logged, read
from ascend_mutant_samples import EXTRA
from ascend_ops import TARGET, differences, launch, on_ascend, ops, size, supported
from deepinfer.backends.ascend.build import programs
from deepinfer.backends.ascend.program import Fault, Program, watched
from deepinfer.backends.ascend.sim import Kernel, KernelFault, Schedule, mutate, redundant, schedules
from deepinfer.backends.ascend.sim.mutate import Mutant, Verdict
from deepinfer.backends.ascend.sweep import Swept, Try, sweep_mutants
from deepinfer.conformance.calls import call, to_target
from deepinfer.hal.registry import REFERENCE, REGISTRY
from deepinfer.ops.spec import SPECS, Sample

PAGE = Path(__file__).parents[2] / "docs" / "ascend_mutants.md"
HEAD = (
    "| program | text | ops | pairs | redundant | left | sizes, indices | faults | in outputs | redundant | left |\n"
    + "| --- " * 11
    + "|"
)
LARGEST = 40_000
"""Elements of a sample on which mutants are tried, where an op has any so small."""
SLOW = {"select_tokens": "261x24"}
"""Samples on which a program's mutants are not tried, by what their labels begin with: a call takes seconds, and what
nothing betrays is tried under 31 schedules. The program's other samples are 34, rows of several chunks among them."""
SECONDS = 20.0
ELSEWHERE = {"pair_scales-threads_512": ("grouped_linear",), "index_score": ("index_topk",)}
"""Programs that ops of another family launch too, where that family shows more."""


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
    own |= set(ELSEWHERE.get(program.label, ()))
    return tuple(op for op in ops() if op in own and any(launches(op, s, program) for s in chosen(op)))


def holds(function: Callable[..., object], program: Program) -> bool:
    """Whether the module of a function has a program, alone or in a dict."""
    values = vars(sys.modules[function.__module__]).values()
    return any(program in v.values() if isinstance(v, dict) else v is program for v in values)


def launched_by(op: str, sample: Sample) -> tuple[Program, ...]:
    if id(sample) not in _LAUNCHED:
        _LAUNCHED[id(sample)] = sample, tuple(run.program for run in launch(op, sample.args)[1])
    return _LAUNCHED[id(sample)][1]


_LAUNCHED: dict[int, tuple[Sample, tuple[Program, ...]]] = {}  # a sample is kept, so that its id stays its own


def launches(op: str, sample: Sample, program: Program) -> bool:
    return program in launched_by(op, sample)


@cache
def chosen(op: str) -> tuple[Sample, ...]:
    """Samples on which an op's mutants are tried."""
    every = supported(op)
    return (*([s for s in every if size(s) <= LARGEST] or every[:2]), *extra(op))


@cache
def extra(op: str) -> tuple[Sample, ...]:
    """Samples for mutants alone."""
    ops()  # loads the kernels
    with REGISTRY.using(REFERENCE):
        return tuple(EXTRA[op]()) if op in EXTRA else ()


def tried(op: str, sample: Sample, text: Text) -> Try:
    """Outputs with a mutant on against those without; memory that nothing wrote is NaN.

    Raises:
        KernelFault: without any mutant, a schedule ends a run or changes an output.
    """
    want, _ = filled(op, sample, Schedule(), None)
    for schedule in schedules(0):
        if wrong := differences(op, filled(op, sample, schedule, None)[0], want, sample.args):
            raise KernelFault(f"wrong without any mutant: {op}, {sample.label}, {schedule}: {wrong[0]}")

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
    slow = SLOW.get(program.label)
    tries = [
        tried(op, sample, text)
        for op in launching(program)
        for sample in chosen(op)
        if launches(op, sample, program) and not (slow and sample.label.startswith(slow))
    ]
    return sweep_mutants(text.text, text.made.mutants if of is None else of, tries, kinds, relaxed=relaxed)


def digest(program: Program) -> str:
    """Of a program's text, as the table names it."""
    return sha256(program.text().encode()).hexdigest()[:8]


def explained(program: Program, mutant: Mutant) -> str:
    """The rule or reason by which a mutant changes nothing, "" for none."""
    return redundant.rule(mutant, program.text()) or reason(program.label, mutant)


@dataclass(frozen=True)
class Part:
    """What the table says of a program's pairs, or of its sizes and indices.

    Attributes:
        count: of the mutants.
        errors: ended by the model.
        outputs: seen in the outputs.
        redundant: how many by each rule and reason.
        left: betrayed by nothing, and nobody has explained them.
        contrary: betrayed, although a rule or reason says that it changes nothing.
    """

    count: int
    errors: int
    outputs: int
    redundant: dict[str, int]
    left: tuple[Mutant, ...]
    contrary: tuple[tuple[str, Verdict], ...]


def part(program: Program, found: Swept) -> Part:
    of = found.rules()
    for m in found.unexplained:
        if why := reason(program.label, m):
            of[why] = of.get(why, 0) + 1
    contrary = [("a rule", v) for v in found.contradicted]
    contrary += [("a reason", v) for v in found.noticed if reason(program.label, v.mutant)]
    left = tuple(m for m in found.unexplained if not reason(program.label, m))
    return Part(found.count, found.by("error"), found.by("output"), of, left, tuple(contrary))


def parts(program: Program) -> tuple[Part, Part]:
    """Of a whole sweep."""
    of_pairs, of_sizes = swept(program, ("pair",), relaxed=True), swept(program, mutate.OPERATORS)
    return part(program, of_pairs), part(program, of_sizes)


class SweepAgainError(Exception):
    """Only a whole sweep can tell the row."""


def parts_now(program: Program, logged: Logged) -> tuple[Part, Part]:
    """What a whole sweep would find now, from what one found before.

    Raises:
        SweepAgainError: the text is another one, or rules and reasons do not fit what was found.
    """
    if logged.digest != digest(program):
        raise SweepAgainError("the text has changed")
    if not set(ELSEWHERE.get(program.label, ())) <= set(logged.ops):
        raise SweepAgainError("samples of other ops are tried now")
    if logged.contrary:
        raise SweepAgainError("something was betrayed against a rule or reason")
    text = Text(program)
    every = text.made.mutants
    left = [m for m in every if (m.kind, m.line, m.at, "" if m.at >= 0 else m.text) in logged.left]
    if len(left) != len(logged.left):
        raise SweepAgainError("what was left is not in the text")
    tries = [tried(op, sample, text) for op in logged.ops for sample in extra(op) if program in launched_by(op, sample)]
    found = []
    for before, kinds in ((logged.pairs, ("pair",)), (logged.sizes, mutate.OPERATORS)):
        if sum(m.kind in kinds for m in every) != before.count:
            raise SweepAgainError("there are other mutants now")
        silent = [m for m in every if m.kind in kinds and (m in left or explained(program, m))]
        # This rule is asked only of what data has not betrayed.
        if redundant.RACE_FREE not in before.redundant:
            silent = [m for m in silent if m in left or explained(program, m) != redundant.RACE_FREE]
        known: dict[str, int] = {}
        for m in silent:
            if m not in left:
                known[explained(program, m)] = known.get(explained(program, m), 0) + 1
        if known != before.redundant:
            raise SweepAgainError(f"redundant of those that were not left: {known}, before {before.redundant}")
        now = part(program, sweep_mutants(text.text, silent, tries, kinds, relaxed=kinds == ("pair",)))
        found.append(
            replace(now, count=before.count, errors=before.errors + now.errors, outputs=before.outputs + now.outputs)
        )
    return found[0], found[1]


def row(program: Program, names: Sequence[str], of_pairs: Part, of_sizes: Part) -> str:
    cells: list[object] = [f"`{program.label}`", f"`{digest(program)}`", ", ".join(f"`{op}`" for op in names)]
    for of, shown in ((of_pairs, ()), (of_sizes, (of_sizes.errors, of_sizes.outputs))):
        why = ", ".join(f"{count} {rule}" for rule, count in sorted(of.redundant.items()))
        cells += [of.count, *shown, why or "0", len(of.left)]
    return f"| {' | '.join(map(str, cells))} |"


def rows(text: str = "") -> dict[tuple[str, str], str]:
    """The rows of the page, or of a text of it, by label and digest."""
    text = text or PAGE.read_text(encoding="utf-8")
    return {(m[1], m[2]): m[0] for m in re.finditer(r"^\| `([^`]+)` \| `([0-9a-f]{8})` \|.*$", text, re.M)}


def write(new: dict[tuple[str, str], str]) -> None:
    """Put rows on the page, and keep those of the programs' present texts."""
    keys = [(program.label, digest(program)) for program in programs() if program.current()]
    with PAGE.open("r+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # others may be at it
        text = file.read()
        known = {**rows(text), **new}
        body = "\n".join(known[key] for key in keys if key in known)
        file.seek(0)
        file.write(f"{text.split('| program |')[0]}{HEAD}\n{body}\n")
        file.truncate()


def main(arguments: list[str]) -> None:
    writes, logs = "--write" in arguments, [Path(a[7:]) for a in arguments if a.startswith("--left=")]
    named = [a for a in arguments if not a.startswith("--")]
    logged = {label: found for log in logs for label, found in read(log.read_text(encoding="utf-8")).items()}
    for program in programs():
        if named and program.label not in named or logs and program.label not in logged or not program.current():
            continue
        names = logged[program.label].ops if logs else launching(program)
        if (writes and not logs and not named and (program.label, digest(program)) in rows()) or not names:
            continue
        try:
            found = parts_now(program, logged[program.label]) if logs else parts(program)
        except SweepAgainError as error:
            print(f"# {program.label} has to be swept again: {error}", flush=True)
            continue
        line = row(program, names, *found)
        print(line, flush=True)
        for of in found:
            for m in of.left:
                print(f"  left: {m.kind} line {m.line} at {m.at}: {place(program, m)}", flush=True)
            for what, v in of.contrary:
                where = f"{v.mutant.kind} line {v.mutant.line} at {v.mutant.at}"
                print(f"  against {what}: {where}: {v.message}", flush=True)
        if writes:
            write({(program.label, digest(program)): line})


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
