"""`deepinfer build`: compile the kernels of the CUDA backend ahead of time."""

from __future__ import annotations

import json
from dataclasses import asdict

import click


@click.command("build")
@click.option("--arch", "archs", default="sm_90,sm_100", show_default=True, help="Chips, comma-separated.")
@click.option("--op", "ops", multiple=True, metavar="OP", help="Only kernels of this op's family; may be repeated.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(archs: str, ops: tuple[str, ...], as_json: bool) -> None:
    """Compile the kernels of the CUDA backend into the kernel cache. Needs Triton, and no GPU.

    What is in the cache is kept. Prints registers and spilled bytes for each thread, and shared memory for each block.
    The cache is DEEPINFER_JIT_CACHE_DIR; copied to another machine it serves there with the same version of Triton.
    Exit status 1: a kernel does not compile.
    """
    from tqdm import tqdm

    from ..backends.cuda import triton_version
    from ..backends.cuda.build import build, check_archs, table
    from ..hal.backend import Unavailable
    from ..hal.errors import BackendError

    chosen = check_archs(archs.split(","))
    triton = triton_version()
    if isinstance(triton, Unavailable):
        raise BackendError(str(triton))
    with tqdm(unit="kernel", disable=None, leave=False) as bar:

        def progress(done: int, total: int, name: str) -> None:
            bar.total = total
            bar.set_description(name)
            bar.update(done - bar.n)

        reports = build(chosen, ops, progress=progress)
    click.echo(json.dumps([asdict(r) for r in reports], indent=1) if as_json else table(reports))
    if any(r.error for r in reports):
        raise SystemExit(1)
