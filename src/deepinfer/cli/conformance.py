"""`deepinfer conformance`: whether a backend keeps the op contract."""

from __future__ import annotations

import shlex
import textwrap
from pathlib import Path
from typing import Any

import click

TIERS = ("quick", "full", "deep")
INTERRUPTED = 130
"""Exit status of a run that the user broke off, as shells give it for SIGINT."""


@click.group("conformance")
def command() -> None:
    """Judge a backend by the op contract: agreement, invariance, determinism, refusals."""


@command.command("run", short_help="Judge a backend; exit status 1 if a case fails.")
@click.option("--backend", required=True, metavar="NAME", help="Backend or accelerator: reference (cpu), cuda, …")
@click.option("--device", default="", metavar="DEVICE", help="Device to run on, such as cuda:1. [default: its first]")
@click.option("--ops", multiple=True, metavar="GLOB", help="Only ops of such names, for instance '*_fp8'. Repeatable.")
@click.option(
    "--suite",
    "tier",
    type=click.Choice(TIERS),
    default="quick",
    show_default=True,
    help="How much: edge cases and small sizes; every sample, real widths and memory beyond 2 GiB included; "
    "hundreds of generated shapes per op on top.",
)
@click.option("--only", multiple=True, metavar="SUITE", help="Only suites of such names (see --list). Repeatable.")
@click.option("--case", "cases", multiple=True, metavar="ID", help="Only the case of this id. Repeatable.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write DIR/results.jsonl, and shapes that fail to DIR/failing_shapes.jsonl, which later runs try first.",
)
@click.option(
    "--fallback",
    type=click.Choice(["reference"]),
    help="Suite model: ops without a kernel of the backend run on the reference's, on the same device. They are named, "
    "and such a case is not counted as passed by the backend.",
)
@click.option("--require-all", is_flag=True, help="A required case that is skipped counts as a failure, too.")
@click.option("--isolate", is_flag=True, help="Run cases in a child process: a crash or a hang is a failed case.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="Longest that a case may take with --isolate.",
)
@click.option("--list", "listing", is_flag=True, help="Print the suites and the ids of the cases, and run nothing.")
def run_command(listing: bool, out: Path | None, require_all: bool, **options: Any) -> None:
    """Run the conformance suite on a backend.

    Every case names what it found: the output, the worst element, what came, what was wanted, the limit. The last line
    is the verdict, 'passed N of M required'; M is the required set of the contract for the ops and suites asked for. A
    case is skipped only where the backend declares a call unsupported (or has no kernel of its own for the op), or
    where something is unavailable on this machine: that lowers N, not M.

    \b
    Exit status: 0 no case failed, 1 a case failed (with --require-all: or was skipped), 2 the command is wrong,
    130 broken off.

    \b
    deepinfer conformance run --backend reference --ops rms_norm
    deepinfer conformance run --backend cuda --suite full --isolate --out results
    """
    from ..conformance.run import Request

    options["fallback"] = options["fallback"] or ""
    request = Request(out=str(out) if out is not None else "", **options)
    if listing:
        _list(request)
        return
    if not _judge(request, require_all):
        raise SystemExit(1)


@command.command("record", short_help="Keep what a backend gives, for other machines to be held against.")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--backend", required=True, metavar="NAME", help="Backend or accelerator: reference (cpu), cuda, …")
@click.option("--device", default="", metavar="DEVICE", help="Device to run on, such as cuda:1. [default: its first]")
@click.option("--ops", multiple=True, metavar="GLOB", help="Only ops of such names. Repeatable.")
@click.option("--commit", metavar="TEXT", help="Commit of the code, where git cannot say. [default: what it says]")
@click.option("--exact", is_flag=True, help="Keep small outputs of exact ops as well, beside their digests.")
def record_command(
    folder: Path, backend: str, device: str, ops: tuple[str, ...], commit: str | None, exact: bool
) -> None:
    """Run small calls of every op that the backend has kernels for, and write FOLDER/recording.json and
    FOLDER/outputs.safetensors: digests of arguments and outputs, and the outputs of ops that are not exact."""
    from tqdm import tqdm

    from ..conformance import recording, run
    from ..conformance.recording_format import FACTS, OUTPUTS

    with run.invariant_kernels():
        planned = run.plan(run.Request(backend, device=device, ops=ops, only=("ops",)))
        with tqdm(planned.ops, unit="op", leave=False, disable=None) as bar:
            facts = recording.record(
                planned.backend,
                planned.device,
                planned.ops,
                folder,
                lambda op: bar.update(),
                commit=commit,
                exact=exact,
            )
    named = {call["op"] for call in facts["calls"]}
    size = sum(path.stat().st_size for path in (folder / FACTS, folder / OUTPUTS)) / 2**20
    click.echo(f"{len(facts['calls'])} calls of {len(named)} ops on {facts['device']} are in {folder}, {size:.1f} MiB")


@command.command("compare", short_help="Hold two recordings against each other; exit status 1 outside the class.")
@click.argument("a", type=click.Path(file_okay=False, path_type=Path))
@click.argument("b", type=click.Path(file_okay=False, path_type=Path))
@click.option("--oracle", is_flag=True, help="Judge equal outputs as well, and say which is nearer the oracle.")
@click.option("--ops", multiple=True, metavar="GLOB", help="Only ops of such names. Repeatable.")
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), metavar="DIR", help="Write DIR/comparison.jsonl."
)
def compare_command(a: Path, b: Path, oracle: bool, ops: tuple[str, ...], out: Path | None) -> None:
    """Hold the recordings A and B against each other, op by op.

    Outputs of exact ops must have the same bits. Others that differ must both lie in the class of their op, for the
    recorded arguments. 'Furthest apart' is the element in which the two differ most, in units in the last place.

    \b
    Exit status: 0 they agree, 1 something lies outside its class, 2 one is damaged or no recording, they have no
    call in common, or none of the outputs of those calls can be compared.
    """
    from tqdm import tqdm

    from ..conformance.comparison import compare_recordings
    from .conformance_tables import comparison_text

    with tqdm(unit="op", leave=False, disable=None) as bar:
        found = compare_recordings(a, b, ops, oracle=oracle, report=lambda op: bar.update())
    click.echo(comparison_text(found))
    if out is not None:
        click.echo(f"comparison: {found.write(out)}")
    if found.findings:
        raise SystemExit(1)


@command.command("report", short_help="Op × backend × suite: how far each op stands, from results and recordings.")
@click.argument("paths", nargs=-1, type=click.Path(exists=True, path_type=Path), metavar="[RESULTS]...")
@click.option(
    "--html", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="One page, for a browser."
)
@click.option(
    "--jsonl", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="A JSON object per line."
)
def report_command(paths: tuple[Path, ...], html: Path | None, jsonl: Path | None) -> None:
    """Print how far every op stands on every backend: specified, reference, cross-compiled, lowered, interpreted,
    simulated, or run on which chip; and what came of its cases.

    RESULTS are folders that `conformance run --out` and `conformance record` wrote. Without any, levels are those that
    the tests of the installed backends hold.

    \b
    deepinfer conformance report results tests/recordings/h200 --html report.html
    """
    from ..conformance.report import of_installed, write_html, write_lines
    from .conformance_tables import matrix_text

    found = of_installed(paths)
    click.echo(matrix_text(found))
    for file, write in ((html, write_html), (jsonl, write_lines)):
        if file is not None:
            write(found, file)
            click.echo(f"report: {file}")


def _list(request: Any) -> None:
    from ..conformance import run

    with run.invariant_kernels():
        planned = run.plan(request)
        found = run.survey(planned)
    for suite in planned.suites:
        count = sum(i.startswith(f"{suite.name}/") for i in found.ids)
        click.echo(f"{suite.name}: {count} cases; {suite.about}")
    click.echo("")
    for name in found.ids:
        click.echo(name if name in found.required else f"{name} (not required)")


def _judge(request: Any, require_all: bool) -> bool:
    """Run, showing failures as they come; whether nothing failed and, if asked for, all that is required passed."""
    from tqdm import tqdm

    from ..conformance import run
    from ..conformance.results import FILE, Result

    done: list[Result] = []
    bar: Any = tqdm(desc=f"{request.backend}, {request.tier}", unit="case", leave=False, disable=None)

    def start(found: Any) -> None:
        bar.total = len(found.ids)
        bar.refresh()

    def report(result: Result) -> None:
        if result.status == "failed":
            tqdm.write(f"FAILED {result.id}")
            for finding in result.outcome.findings:
                tqdm.write(textwrap.indent(str(finding), "    "))
            tqdm.write(f"    to run it alone: {_again(request, result.id)}")
        done.append(result)
        bar.update()

    try:
        verdict = run.run(request, report, start)
    except KeyboardInterrupt:
        bar.close()
        _interrupted(request, done, bar.total)
        raise SystemExit(INTERRUPTED) from None
    finally:
        bar.close()
    for name in verdict.missing:
        click.echo(f"FAILED {name}\n    missing: required, and no suite has such a case")
    for name, ops, notes in verdict.borrowed():
        click.echo(f"passed with ops on fallback: {name}{''.join(f'; {note}' for note in notes)}")
        click.echo(textwrap.indent(textwrap.fill(f"on the reference's kernels: {', '.join(ops)}", 116), "    "))
    for reason, count in verdict.skips():
        click.echo(f"skipped {count}: {reason}")
    if wrapped := run.wrappers(request.backend, request.ops if not request.cases else _ops_of(done)):
        click.echo(f"wrappers over torch, not kernels of their own: {', '.join(wrapped)}")
    if request.out:
        click.echo(f"results: {Path(request.out) / FILE}")
    click.echo(str(verdict))
    return not verdict.failed and (verdict.passed == verdict.required or not require_all)


def _interrupted(request: Any, done: list[Any], total: int | None) -> None:
    """What a run knows that the user broke off."""
    from ..conformance.results import FILE

    failed = sum(result.status == "failed" for result in done)
    click.echo(f"interrupted after {len(done)} of {total or 'an unknown number of'} cases, {failed} failed; no verdict")
    if request.out and total:
        click.echo(f"results so far: {Path(request.out) / FILE}")


def _ops_of(done: list[Any]) -> tuple[str, ...]:
    """The ops of cases that were run; those of suite `model`, whose cases are of the whole model, are all."""
    parts = [result.id.split("/", 2)[:2] for result in done]
    return () if any(suite == "model" for suite, _ in parts) else tuple({op for _, op in parts})


def _again(request: Any, case: str) -> str:
    """The command that runs one case alone."""
    words = ["deepinfer", "conformance", "run", "--backend", request.backend, "--suite", request.tier, "--case", case]
    if request.device:
        words += ["--device", request.device]
    if request.fallback:
        words += ["--fallback", request.fallback]
    if request.isolate:
        words.append("--isolate")
    return shlex.join(words)
