"""`deepinfer build`: compile or lower kernels ahead of time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

Progress = Callable[[int, int, str], None]


@click.command("build")
@click.option(
    "--arch",
    "archs",
    default="sm_90,sm_100",
    show_default=True,
    help="Chips, comma-separated: sm_90, sm_100 (CUDA), dav-3510 (Ascend 950).",
)
@click.option("--op", "ops", multiple=True, metavar="OP", help="Only kernels of this op's family; may be repeated.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="dav-3510: where texts and images go. Default: ascend/dav-3510 in DEEPINFER_CACHE_DIR.",
)
@click.option(
    "--check",
    is_flag=True,
    help="dav-3510: lower every kernel anew, and compare with the texts of the package; exit status 1 if one differs.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(archs: str, ops: tuple[str, ...], out: Path | None, check: bool, as_json: bool) -> None:
    """Compile the kernels of the CUDA backend into the kernel cache, or lower those for Ascend. Needs no device.

    CUDA needs Triton. What is in the cache is kept. Prints registers and spilled bytes for each thread, and shared
    memory for each block. The cache is DEEPINFER_JIT_CACHE_DIR; copied to another machine it serves there with the same
    version of Triton.

    dav-3510 writes the AscendC text of every kernel, and a device image of it where CANN's compiler bisheng is on the
    PATH or in BISHENG_HOME. Texts that are part of the package need nothing; others are lowered, which needs tilelang.

    Exit status 1: a kernel does not compile or cannot be lowered.
    """
    from ..backends.ascend.versions import ARCH
    from ..hal.errors import InvalidArgumentError

    wanted = archs.split(",")
    if ARCH in wanted:
        if len(set(wanted)) > 1:
            raise InvalidArgumentError("arch", archs, f"{ARCH} alone, or chips of CUDA")
        failed = _ascend(ops, out, check, as_json)
    else:
        for name, value in (("out", out), ("check", check)):
            if value:
                raise InvalidArgumentError(name, value, f"with --arch {ARCH} only")
        failed = _cuda(wanted, ops, as_json)
    if failed:
        raise SystemExit(1)


@contextmanager
def _progress() -> Iterator[Progress]:
    from tqdm import tqdm

    with tqdm(unit="kernel", disable=None, leave=False) as bar:

        def progress(done: int, total: int, name: str) -> None:
            bar.total = total
            bar.set_description(name)
            bar.update(done - bar.n)

        yield progress


def _print(found: list[Any], table: str, as_json: bool) -> None:
    click.echo(json.dumps([asdict(one) for one in found], indent=1) if as_json else table)


def _cuda(archs: list[str], ops: tuple[str, ...], as_json: bool) -> bool:
    from ..backends.ascend.versions import ARCH
    from ..backends.cuda import triton_version
    from ..backends.cuda.build import ARCHS, build, check_archs, table
    from ..hal.backend import Unavailable
    from ..hal.errors import BackendError, InvalidArgumentError

    if unknown := [arch for arch in archs if arch not in ARCHS]:
        raise InvalidArgumentError("arch", unknown[0], ", ".join((*ARCHS, ARCH)))
    chosen = check_archs(archs)
    triton = triton_version()
    if isinstance(triton, Unavailable):
        raise BackendError(str(triton))
    with _progress() as progress:
        reports = build(chosen, ops, progress=progress)
    _print(reports, table(reports), as_json)
    return any(r.error for r in reports)


def _ascend(ops: tuple[str, ...], out: Path | None, check: bool, as_json: bool) -> bool:
    from ..backends.ascend.ahead import build_ahead, folder, table
    from ..backends.ascend.discovery import Host, compiler_paths

    where = folder() if out is None else out
    with _progress() as progress:
        built = build_ahead(where, ops, check=check, progress=progress)
    _print(built, table(built, where, compiler_paths(Host()) is not None), as_json)
    return any(one.error or one.differs for one in built)
