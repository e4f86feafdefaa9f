"""What each op of the Ascend backend costs at least on a 950PR, from counts of the simulator: no time was measured.

    python benchmarks/ascend_costs.py [--ops OP ...] [--json] [--write]

Of each op the largest sample that its kernels take is run once on the simulator. Its bytes from and to global memory
by the published rate, and its steps of the matrix unit by the clock, give the floor; the larger one bounds the op. Also
how many lanes were at work, in vector registers (SIMD) and in threads (SIMT). `--write` keeps the table in
docs/ascend_costs.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from deepinfer.backends.ascend import backend
from deepinfer.backends.ascend.architecture import PCIE, SERVER, floor
from deepinfer.backends.ascend.program import Run, watched
from deepinfer.backends.ascend.register import SIMULATED
from deepinfer.conformance.calls import call, samples, to_target
from deepinfer.conformance.case import Target
from deepinfer.hal.catalog import CATALOG
from deepinfer.hal.registry import REGISTRY
from deepinfer.ops.spec import SPECS, Sample

PAGE = Path(__file__).resolve().parents[1] / "docs" / "ascend_costs.md"
TARGET = Target("ascend", torch.device("cpu"))
COLUMNS = ("op", "sample", "launches", "KB moved", "cube steps", "server us", "PCIe us", "bound", "SIMD", "SIMT")
INTRODUCTION = f"""# Least costs on Ascend

Made by `python benchmarks/ascend_costs.py --write`. Of each op the largest sample of the contract that its kernels
take, run once on the simulator: an estimate of a floor from counts and published rates ({SERVER.memory / 1e12} TB/s and
{SERVER.cube_cores} matrix units at {SERVER.clock / 1e9} GHz of the {SERVER.name}; {PCIE.memory / 1e12} TB/s and
{PCIE.cube_cores} of the {PCIE.name}). Nothing was measured on a device; launches, latencies and vector work are not in
it, and what threads read counts each time, cached or not. SIMD and SIMT are the shares of lanes at work. How kernels
are written: [kernels for Ascend](ascend_kernels.md).

"""


def largest(op: str) -> Sample | None:
    """The largest sample that the backend's kernels take."""
    spec, found = SPECS[op], []
    for sample in samples(spec):
        verdicts = REGISTRY.explain(spec.signature(*to_target(spec, sample.args, TARGET)))
        if any(v.chosen and v.kernel.backend == "ascend" for v in verdicts):
            found.append(sample)
    return max(found, key=_elements, default=None)


def _elements(sample: Sample) -> int:
    parts = [p for value in sample.args for p in (getattr(value, "tensors", None) or (value,))]
    return sum(p.numel() for p in parts if isinstance(p, torch.Tensor))


def simulated(op: str, sample: Sample) -> list[Run]:
    """The launches of one call."""
    spec = SPECS[op]
    placed = to_target(spec, sample.args, TARGET)
    with watched() as runs:
        call(spec, placed, TARGET)
    return runs


def line(op: str, sample: Sample, runs: Sequence[Run]) -> dict[str, Any]:
    """The row of an op."""
    server, pcie = floor(runs), floor(runs, PCIE)
    lanes = {}
    for kind in ("simd", "simt"):
        busy, offered = (sum(getattr(run.report, kind)[i] for run in runs) for i in (0, 1))
        lanes[kind.upper()] = round(busy / offered, 2) if offered else None
    return {
        "op": op,
        "sample": sample.label,
        "launches": len(runs),
        "KB moved": round(server.moved / 1e3, 1),
        "cube steps": server.steps,
        "server us": round(server.seconds * 1e6, 3),
        "PCIe us": round(pcie.seconds * 1e6, 3),
        "bound": "cube" if server.cube > server.memory else "memory",
        **lanes,
    }


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    lines = [f"| {' | '.join(COLUMNS)} |", "| --- " * len(COLUMNS) + "|"]
    for row in rows:
        cells = [f"`{row['op']}`", *("" if row[name] is None else str(row[name]) for name in COLUMNS[1:])]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", nargs="+", metavar="OP", help="these only")
    parser.add_argument("--json", action="store_true", help="a JSON object for each op")
    parser.add_argument("--write", action="store_true", help="keep the table in docs/ascend_costs.md")
    given = parser.parse_args(arguments)
    CATALOG.load("reference")
    backend.load()
    ops = sorted({kernel.op for kernel in REGISTRY.kernels() if kernel.backend == "ascend"})
    if unknown := sorted(set(given.ops or ()) - set(ops)):
        parser.error(f"--ops {unknown[0]}: the backend has no kernel of that name")
    rows = []
    with REGISTRY.using("ascend", SIMULATED):
        for op in given.ops or ops:
            if sample := largest(op):
                rows.append(line(op, sample, simulated(op, sample)))
                print(json.dumps(rows[-1]) if given.json else " ".join(map(str, rows[-1].values())), file=sys.stderr)
    print("\n".join(map(json.dumps, rows)) if given.json else markdown(rows), end="" if not given.json else "\n")
    if given.write:
        PAGE.write_text(INTRODUCTION + markdown(rows), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
