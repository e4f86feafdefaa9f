"""`deepinfer ascend`: AscendC kernels without a device: their text, and a run on the simulator."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ..backends.ascend.sample import Sample
    from ..backends.ascend.sim import Kernel, Schedule

_PARAMETER = click.option(
    "-p", "--parameter", "parameters", multiple=True, metavar="NAME=VALUE", help="An argument of the function (JSON)."
)


@click.group("ascend", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """AscendC kernels without a device: show their text, run them on the simulator.

    KERNEL is FILE.py:FUNCTION, a function that returns a TileLang-Ascend kernel (needs the ascend-sim extra), or
    FILE.cpp, an AscendC source. The simulator needs g++. docs/ascend.md says what a simulation proves.
    """


@command.command("lower", short_help="Print a kernel's AscendC text.")
@click.argument("kernel")
@_PARAMETER
def lower_command(kernel: str, parameters: tuple[str, ...]) -> None:
    """Print the AscendC text of KERNEL."""
    click.echo(_text(kernel, _values(parameters)), nl=False)


@command.command("sim", short_help="Run a kernel's sample on the simulator.")
@click.argument("kernel")
@_PARAMETER
@click.option(
    "--sample",
    metavar="FILE.py:FUNCTION",
    help="Function that returns the Sample to run. Default: the function of the kernel's name in NAME_samples.py "
    "beside NAME_kernels.py, or `sample` in FILE.py beside FILE.cpp.",
)
@click.option("--schedule", "schedule_name", metavar="NAME", help="eager, lazy, last:PIPE, first:PIPE, random:SEED …")
@click.option("--all-schedules", is_flag=True, help="Run under every schedule and compare bits.")
@click.option("--relaxed", is_flag=True, help="Without the rules of flags and races: only data betrays a gap.")
@click.option("--lines", type=click.IntRange(0), default=40, show_default=True, help="Timeline lines for each core.")
def sim_command(
    kernel: str,
    parameters: tuple[str, ...],
    sample: str | None,
    schedule_name: str | None,
    all_schedules: bool,
    relaxed: bool,
    lines: int,
) -> None:
    """Run the sample of KERNEL, compare with what is expected, and print what happened.

    Prints a timeline of the pipes (order, not time), how full UB, L1 and L0 were, and an estimate of bytes and cycles.
    Exit status 1: wrong output, or output that depends on the schedule; 2: a fault that the simulator found.
    """
    import torch

    from ..backends.ascend import sample as samples
    from ..backends.ascend.sim import Kernel, KernelFault, Schedule, parse, report, schedules

    schedule = parse(schedule_name) if schedule_name else Schedule()
    torch.manual_seed(0)
    given = _sample(kernel, sample)
    built = Kernel(_text(kernel, {**given.parameters, **_values(parameters)}), given.blocks)
    try:
        outcome = samples.run(built, given, schedule, relaxed=relaxed, trace=lines > 0)
    except KernelFault:
        click.echo("\n".join(report.caveat()) + "\n")
        raise
    click.echo(f"{built.signature.name}: {given.blocks} blocks, kind {built.signature.kind}, schedule {schedule}\n")
    click.echo(report.text(outcome.report, built.signature.simt, lines))
    wrong = outcome.wrong
    if all_schedules and not wrong:
        wrong = _under_all(built, given, schedules(), relaxed)
    if wrong:
        click.echo(f"\nwrong: {wrong}")
        raise SystemExit(1)
    click.echo("\noutputs as expected" + (f" under {len(schedules())} schedules, with equal bits" * all_schedules))


@command.command("mutate", short_help="Plant faults in a kernel and see which are noticed.")
@click.argument("kernel")
@_PARAMETER
@click.option(
    "--sample", "named", multiple=True, metavar="FILE.py:FUNCTION", help="As for `sim`; several, of one text."
)
@click.option("--kind", "kinds", multiple=True, help="Only these: line, pair, or an operator. Default: all.")
@click.option("--relaxed", is_flag=True, help="Without the rules of flags and races: only data betrays a gap.")
@click.option(
    "--seeds", type=click.IntRange(0), default=2, show_default=True, help="Random schedules besides all others."
)
def mutate_command(
    kernel: str, parameters: tuple[str, ...], named: tuple[str, ...], kinds: tuple[str, ...], relaxed: bool, seeds: int
) -> None:
    """Leave out each synchronisation of KERNEL, and change each size, stride and index, one mutant after the other.

    Prints the mutants that neither the model nor the outputs betray under any schedule, with the rule by which they
    change nothing where there is one. Exit status 1: some have none.
    """
    import torch

    from ..backends.ascend.sim import mutate, report, schedules
    from ..backends.ascend.sweep import sweep
    from ..hal.errors import InvalidArgumentError

    every_kind = ("line", "pair", *mutate.OPERATORS)
    if unknown := set(kinds) - set(every_kind):
        raise InvalidArgumentError("--kind", sorted(unknown), ", ".join(every_kind))
    torch.manual_seed(0)
    every = [_sample(kernel, name) for name in named or (None,)]
    if any(s.parameters != every[0].parameters for s in every):
        raise InvalidArgumentError("--sample", named, "samples of the same parameters")
    text = _text(kernel, {**every[0].parameters, **_values(parameters)})
    swept = sweep(text, every, kinds or every_kind, relaxed=relaxed, seeds=seeds)
    left = [*swept.redundant, *((mutant, "") for mutant in swept.unexplained)]
    for mutant, rule in left:
        click.echo(f"not noticed ({rule or 'no rule'}): {mutant.kind} in line {mutant.line}: {mutant.text[:100]}")
    for verdict in swept.contradicted:
        mutant = verdict.mutant
        click.echo(f"noticed against its rule: {mutant.kind} in line {mutant.line}: {verdict.message}")
    click.echo(
        f"{swept.count} mutants under up to {len(schedules(seeds))} schedules: {swept.by('error')} ended by the model, "
        f"{swept.by('output')} seen in the outputs, {len(left)} not noticed, {len(swept.unexplained)} without a rule\n"
    )
    click.echo("\n".join(report.caveat()))
    if swept.unexplained or swept.contradicted:
        raise SystemExit(1)


def _under_all(kernel: Kernel, sample: Sample, schedules: list[Schedule], relaxed: bool) -> str:
    from ..backends.ascend import sample as samples

    return samples.differing(kernel, sample, schedules, relaxed=relaxed)


def _values(parameters: tuple[str, ...]) -> dict[str, Any]:
    from ..hal.errors import InvalidArgumentError

    found = {}
    for parameter in parameters:
        name, equals, value = parameter.partition("=")
        if not equals or not name.isidentifier():
            raise InvalidArgumentError("--parameter", parameter, "NAME=VALUE")
        try:
            found[name] = json.loads(value)
        except json.JSONDecodeError:
            found[name] = value
    return found


def _text(kernel: str, parameters: dict[str, Any]) -> str:
    from ..backends.ascend.lower import lower
    from ..hal.errors import InvalidArgumentError

    if kernel.endswith(".cpp"):
        if not Path(kernel).is_file():
            raise InvalidArgumentError("KERNEL", kernel, "a file")
        if parameters:
            raise InvalidArgumentError("--parameter", parameters, "none for an AscendC source")
        return Path(kernel).read_text(encoding="utf-8")
    file, name = _split(kernel, "KERNEL")
    return lower(file, name, parameters)


def _split(text: str, what: str) -> tuple[Path, str]:
    from ..hal.errors import InvalidArgumentError

    file, _, name = text.rpartition(":")
    if not file.endswith(".py") or not name.isidentifier():
        raise InvalidArgumentError(what, text, "FILE.py:FUNCTION" + (" or FILE.cpp" if what == "KERNEL" else ""))
    return Path(file), name


def _sample(kernel: str, named: str | None) -> Sample:
    from ..backends.ascend.sample import Sample
    from ..hal.errors import InvalidArgumentError

    if named:
        file, name = _split(named, "--sample")
    elif kernel.endswith(".cpp"):
        file, name = Path(kernel).with_suffix(".py"), "sample"
    else:
        of, name = _split(kernel, "KERNEL")
        file = of.with_name(of.name.replace("kernels", "samples"))
    make = _function(file, name)
    made = make()
    if not isinstance(made, Sample):
        raise InvalidArgumentError("--sample", f"{file}:{name}", "a function that returns a Sample")
    return made


def _function(file: Path, name: str) -> Callable[[], Any]:
    from ..hal.errors import InvalidArgumentError

    spec = importlib.util.spec_from_file_location(file.stem, file) if file.is_file() else None
    if spec is None or spec.loader is None:
        raise InvalidArgumentError("--sample", f"{file}:{name}", "a Python file with a function that returns a Sample")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = getattr(module, name, None)
    if not callable(found):
        raise InvalidArgumentError("--sample", f"{file}:{name}", f"a function of {file.name}")
    return found  # type: ignore[no-any-return]
