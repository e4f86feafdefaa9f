"""`deepinfer ops`: the op contract, what a backend implements of it, and why a kernel was chosen."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click

_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
_BACKEND = click.option(
    "--backend", help="Backend or accelerator: reference (cpu), … Default: DEEPINFER_ACCELERATOR, or what is detected."
)


@click.group("ops")
def command() -> None:
    """The op contract: list, show, support status, and why a kernel was chosen."""


@command.command("list")
@_JSON
def list_command(as_json: bool) -> None:
    """List every op with its family, version and numerics class."""
    from ..ops import describe

    rows = [describe.summary(spec) for spec in describe.ordered()]
    if as_json:
        _print_json(rows)
    else:
        _print_table(("op", "family", "version", "numerics"), (row.values() for row in rows))


@command.command("show", short_help="Show the specification of one op.")
@click.argument("name")
@_JSON
def show_command(name: str, as_json: bool) -> None:
    """Show the whole specification of the op NAME: arguments, edge cases, numerics, cost of its samples."""
    from ..hal.catalog import CATALOG
    from ..ops import describe

    spec = describe.find(name)
    CATALOG.load("reference")  # samples hold prepared weights
    found = describe.details(spec)
    if as_json:
        _print_json(found)
        return
    click.echo(f"{found['name']}, version {found['version']}, family {found['family']}\n")
    click.echo(click.wrap_text(found["semantics"], width=100))
    click.echo(f"\nDims that vary from call to call: {' '.join(found['dynamic']) or 'none'}\n")
    _print_table(("argument", "kind", "shape", "dtypes", "notes"), _argument_rows(found))
    limits = ", ".join(f"{k} {v}" for k, v in found["numerics"].items() if k != "class")
    click.echo(f"\nNumerics: {found['numerics']['class']}{f' ({limits})' if limits else ''}\n")
    rows = [(s["label"], _pairs(s["dims"]), f"{s['flops']:,}", f"{s['bytes']:,}") for s in found["samples"]]
    _print_table(("sample", "dims", "FLOPs", "bytes moved"), rows)
    click.echo("\nWhat holds for every op: deepinfer ops conventions")


@command.command("conventions")
def conventions_command() -> None:
    """Show what holds for every op: padding, indices, arithmetic, calls, aliasing, and where algorithms are."""
    from ..ops import describe

    for text in describe.CONVENTIONS:
        click.echo(click.wrap_text(text, width=100) + "\n")


@command.command("status")
@_BACKEND
@_JSON
def status_command(backend: str | None, as_json: bool) -> None:
    """Show which ops a backend implements, and which run on a fallback.

    Only a kernel launched from Triton, TileLang, CUDA or AscendC source counts as a backend's own. The first
    table lists the installed backends.
    """
    from ..hal.catalog import CATALOG
    from ..ops import describe

    chosen = CATALOG.select(backend)
    loaded = CATALOG.activate(chosen.backend.name)
    rows = describe.status(loaded.name)
    known = _backend_rows(CATALOG)
    plugins = [{"name": e.name, "origin": e.origin, "error": e.error} for e in CATALOG.plugins().values()]
    capability = loaded.capability(loaded.devices()[0])
    if as_json:
        _print_json(
            {
                "backend": loaded.name,
                "contract_version": loaded.contract_version,
                "chosen_by": chosen.asked_by,
                "passed_over": chosen.passed_over,
                "device": capability.as_dict(),
                "graphs": str(loaded.graphs(capability.device)) if not capability.graphs else "available",
                "backends": known,
                "kernel_plugins": plugins,
                "ops": rows,
            }
        )
        return
    _print_table(("backend", "from", "state"), (row.values() for row in known))
    for plugin in plugins:
        click.echo(f"kernel plug-in {plugin['name']} of {plugin['origin']}: {plugin['error'] or 'loaded'}")
    click.echo(
        f"\n{loaded.name} (contract version {loaded.contract_version}, chosen by {chosen.asked_by}) on "
        f"{capability.device}: {capability.name}, {capability.arch}"
    )
    click.echo(f"{'graphs available' if capability.graphs else loaded.graphs(capability.device)}\n")
    _print_table(("op", "version", "status", "kernels"), (_status_row(row) for row in rows))
    counts = {mark: sum(row["status"] == mark for row in rows) for mark in sorted({row["status"] for row in rows})}
    click.echo(f"\n{len(rows)} ops: " + ", ".join(f"{n} {mark}" for mark, n in counts.items()))


@command.command("explain", short_help="Say which kernel of an op is chosen, and why.")
@click.argument("name")
@_BACKEND
@_JSON
def explain_command(name: str, backend: str | None, as_json: bool) -> None:
    """Say which kernel of the op NAME is chosen for each sample signature, and why each other is not."""
    from ..hal.catalog import CATALOG
    from ..ops import describe

    spec = describe.find(name)
    CATALOG.activate(CATALOG.select(backend).backend.name)
    rows = describe.explain(spec)
    if as_json:
        _print_json(rows)
        return
    for row in rows:
        click.echo(row["signature"])
        click.echo(f"  samples: {'; '.join(row['samples'])}")
        for verdict in row["verdicts"]:
            mark = "->" if verdict["chosen"] else "  "
            click.echo(f"  {mark} {verdict['kernel']} ({verdict['kind']}): {verdict['reason']}")
        if row["chosen"] is None:
            click.echo("  -> nothing can run it")


@command.command("docs", short_help="Write the reference page of the contract.")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), default="docs/ops.md")
@click.option("--check", is_flag=True, help="Write nothing; fail if FILE is not up to date.")
def docs_command(file: Path, check: bool) -> None:
    """Write the reference page of the contract to FILE (docs/ops.md)."""
    from ..hal.errors import InvalidArgumentError
    from ..ops import describe

    text = describe.markdown()
    if not check:
        file.write_text(text, encoding="utf-8")
    elif not file.is_file() or file.read_text(encoding="utf-8") != text:
        raise InvalidArgumentError("file", str(file), "the page as generated; run 'deepinfer ops docs'")


def _argument_rows(found: dict[str, Any]) -> list[tuple[str, ...]]:
    from ..ops.describe import notes

    rows: list[tuple[str, ...]] = []
    for arg in found["args"]:
        for part in arg.get("parts", [arg]):
            name = arg["name"] if part is arg else f"{arg['name']}.{part['name']}"
            shape = " ".join(part.get("dims", []))
            rows.append((name, arg["kind"], shape, " ".join(part["dtypes"]), notes(part)))
    for out in found["outs"]:
        rows.append((out["name"], "output", " ".join(out["dims"]), " ".join(out["dtypes"]), notes(out)))
    return rows


def _backend_rows(catalog: Any) -> list[dict[str, str]]:
    from ..hal.backend import Available

    rows = []
    for entry in catalog.entries().values():
        verdict = catalog.probe(entry.name)
        state = verdict.detail or "available" if isinstance(verdict, Available) else f"unavailable: {verdict}"
        rows.append({"name": entry.name, "from": entry.origin, "state": state})
    return rows


def _status_row(row: dict[str, Any]) -> tuple[str, ...]:
    kernels = []
    for kernel in row["kernels"]:
        archs = "/".join(kernel["archs"] or kernel["device_types"])
        words = [kernel["source"], f"priority {kernel['priority']}", archs, "fast" if kernel["fast"] else ""]
        kernels.append(f"{kernel['id']} ({', '.join(filter(None, words))})")
    return row["name"], str(row["version"]), row["status"], "; ".join(kernels) or "runs on the reference"


def _pairs(dims: dict[str, int]) -> str:
    return " ".join(f"{name}={size}" for name, size in dims.items())


def _print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=1, ensure_ascii=False))


def _print_table(heads: Sequence[str], rows: Iterable[Iterable[Any]]) -> None:
    """Columns separated by two blanks; the last one may be long."""
    cells = [list(map(str, heads)), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(heads))]
    for row in cells:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
