"""Compiling ahead of time, without a GPU: every case of `compile_list` into the cache that launches look in.

python -m deepinfer.backends.cuda.build --arch sm_90 --json     what CI records; `deepinfer build` is the command
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ...hal.errors import DeepInferError, InvalidArgumentError, NotSupportedError
from .register import ARCHS

SHARED_LIMIT = 227 << 10
"""Bytes of shared memory that a block can have on SM90 and SM100."""


@dataclass(frozen=True)
class Report:
    """What one kernel uses on one chip.

    Attributes:
        module, name: the case. arch: the chip.
        registers: per thread. spills: bytes per thread stored and loaded for want of registers.
        shared: bytes per block. seconds: that compiling took; 0 where the binary was in the cache.
        error: why there is no binary; the numbers are then 0.
    """

    module: str
    name: str
    arch: str
    registers: int = 0
    spills: int = 0
    shared: int = 0
    seconds: float = 0.0
    error: str = ""


def check_archs(archs: Iterable[str]) -> tuple[str, ...]:
    """The chips, each once.

    Raises:
        InvalidArgumentError: a chip that no kernel is for.
    """
    found = tuple(dict.fromkeys(archs))
    for arch in found or ("",):
        if arch not in ARCHS:
            raise InvalidArgumentError("arch", arch, ", ".join(ARCHS))
    return found


def build(
    archs: Sequence[str] = ARCHS,
    ops: Sequence[str] = (),
    *,
    names: Sequence[str] = (),
    progress: Callable[[int, int, str], None] = lambda done, total, name: None,
) -> list[Report]:
    """Compile what is not in the cache yet.

    Args:
        archs: chips, as in `register.ARCHS`.
        ops: only kernels of these ops' families and of the self-test; all by default.
        names: only cases whose names contain one of these.
        progress: called with how many are done, how many there are, and what comes next.

    Returns:
        One report for each case and chip. A case that does not compile is reported, and does not keep others from it.

    Raises:
        InvalidArgumentError: an unknown chip or op.
        NotSupportedError: the interpreter is turned on, so there is nothing to compile.
    """
    from . import backend, compile_list
    from .jit import INTERPRETED

    archs = check_archs(archs)
    if INTERPRETED:
        raise NotSupportedError("compiling under TRITON_INTERPRET=1", "unset it")
    backend.load()
    entries = compile_list.listed()
    if ops:
        entries = compile_list.for_ops(entries, ops)
    if names:
        entries = [entry for entry in entries if any(part in entry.name for part in names)]
    work = [(entry, arch) for entry in entries for arch in archs if arch in entry.case.archs]
    reports = []
    for done, (entry, arch) in enumerate(work):
        progress(done, len(work), f"{entry.name} {arch}")
        reports.append(build_one(entry, arch))
    progress(len(work), len(work), "")
    return reports


def build_one(entry: Any, arch: str) -> Report:
    """Compile one `compile_list.Listed` for a chip, unless the cache holds it; a failure is in the report."""
    from . import cache
    from .compile_list import CompileCase

    start, before = time.perf_counter(), cache.compilations
    try:
        if isinstance(entry.case, CompileCase):
            numbers = compile_case(entry.case, arch)
            compiled = cache.compilations != before
        else:
            built = entry.case.build(arch)
            found = built.resources[entry.case.entry]
            numbers = found.registers, found.spills, found.shared + entry.case.shared
            compiled = True
    except Exception as error:  # whatever a compiler raises is one line of the report
        return Report(entry.module, entry.name, arch, error=f"{type(error).__name__}: {error}"[:2000])
    seconds = round(time.perf_counter() - start, 2) if compiled else 0.0
    return Report(entry.module, entry.name, arch, *numbers, seconds)


def compile_case(case: Any, arch: str) -> tuple[int, int, int]:
    """Registers, spilled bytes and shared bytes of a case on a chip; it is in the cache afterwards."""
    from .jit import binary_of

    binary = binary_of(case.kernel, int(arch.removeprefix("sm_")), *case.arguments())
    return binary.registers, binary.spills, binary.shared


def table(reports: Sequence[Report]) -> str:
    """The reports as text, one line each."""
    rows = [("kernel", "arch", "registers", "spills", "shared", "seconds")]
    for r in reports:
        seconds = f"{r.seconds:.1f}" if r.seconds else "kept"
        numbers = (str(r.registers), f"{r.spills} B", f"{r.shared / 1024:.1f} KiB", seconds)
        rows.append((r.name, r.arch, *(("failed", "", "", "") if r.error else numbers)))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    return "\n".join([*lines, *(f"{r.name} {r.arch}: {r.error}" for r in reports if r.error)])


def main(arguments: Sequence[str] | None = None) -> int:
    """The command without click, for child processes that have another Triton on their path."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--arch", default=",".join(ARCHS))
    parser.add_argument("--op", action="append", default=[])
    parser.add_argument("--name", action="append", default=[])
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    try:
        reports = build(given.arch.split(","), given.op, names=given.name)
    except DeepInferError as error:
        print(error, file=sys.stderr)
        return 2
    print(json.dumps([asdict(r) for r in reports]) if given.json else table(reports))
    return int(any(r.error for r in reports))


if __name__ == "__main__":
    os.environ.pop("TRITON_INTERPRET", None)
    sys.exit(main())
