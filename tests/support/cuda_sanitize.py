"""NVIDIA's compute-sanitizer over small samples of every CUDA kernel: a table of ops and tools.

python tests/support/cuda_sanitize.py [--tool memcheck] [--op GLOB] [--jobs 4] [--seconds 300] [--json FILE]

Each tool runs in child processes that say which op they are at, so that what the tool says belongs to an op; a child
that dies costs that op, and another goes on behind it. Every tensor has memory of its own (no caching allocator), with
padding between, so that memcheck sees an access beside a tensor. A cell is 'ok', the number of errors, 'crash', 'time',
or 'refused' where the tool does not take the machine or the kernel. Exit status 1: errors, a crash, or a planted write
beside a tensor that memcheck does not see; 2: there is no tool or no GPU. The first run compiles what the samples need.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
SAMPLES = 3
"""Samples of an op: of few rows, the smallest of each form first."""
ROWS = 40
FILLED = ("index_topk",)
"""Ops that read scratch memory in whole vectors and pay no heed to the part that nobody wrote: it is filled first, for
initcheck asks only whether memory was written. `test_fused.py` shows that what lies there chooses nothing."""
PLANTED = "(planted write beside a tensor)"
MARK, DONE = "@@ begins ", "@@ ended "
ERROR = re.compile(
    r"^========= +(Invalid|Error:|Warning:|Uninitialized|Barrier error|Divergent|Misaligned|Program hit|Race|Potential|"
    r"Out-of-range|Stack overflow|Illegal|Internal)"
)
REFUSED = re.compile(r"not supported|Unable to|not compatible|Internal Sanitizer Error", re.IGNORECASE)


def find_tool() -> str | None:
    """The program: on the path, of a toolkit, or of the wheel nvidia-cuda-sanitizer-api."""
    places = [
        *sorted(Path("/usr/local").glob("cuda*/bin")),
        *sorted(Path("/usr/local").glob("cuda*/compute-sanitizer")),
    ]
    for folder in map(Path, sys.path):
        places += sorted(folder.glob("nvidia/**/compute-sanitizer")) if (folder / "nvidia").is_dir() else []
    return shutil.which("compute-sanitizer") or next(
        (found for place in places if (found := shutil.which("compute-sanitizer", path=str(place)))), None
    )


# ---- the child ------------------------------------------------------------------------------------------------------


def small_samples(op: str) -> list[Any]:
    """The samples of an op that are run."""
    from deepinfer.conformance.calls import samples
    from deepinfer.ops.required import form_of, row_count
    from deepinfer.ops.spec import SPECS

    spec = SPECS[op]
    found = [s for s in samples(spec) if not s.label.startswith("real") and 0 < row_count(spec, s) <= ROWS]
    found.sort(key=lambda s: row_count(spec, s))
    forms: dict[Any, Any] = {}
    for sample in found:
        forms.setdefault(form_of(sample), sample)
    chosen = list(forms.values())[:SAMPLES]
    return chosen + [s for s in found[::-1] if s not in chosen][: SAMPLES - len(chosen)]


def child(ops: Sequence[str]) -> None:
    """Run the samples of some ops, saying which op it is at."""
    import torch

    from cuda_calls import TARGET, on_cuda
    from deepinfer.conformance.calls import Unsupported, call, to_target
    from deepinfer.ops.spec import SPECS

    with on_cuda():
        for op in ops:
            print(MARK + op, flush=True)
            if op == PLANTED:
                import cuda_planted

                cuda_planted.write_beside()
                torch.cuda.synchronize()
            ran = 0
            for sample in small_samples(op) if op != PLANTED else ():
                try:
                    args = to_target(SPECS[op], sample.args, TARGET)
                    size = SPECS[op].workspace(*args) if op in FILLED else 0
                    scratch = torch.full((size,), 0xFF, dtype=torch.uint8, device=TARGET.device) if size else None
                    call(SPECS[op], args, TARGET, workspace=scratch)
                    ran += 1
                except Unsupported:
                    continue
                torch.cuda.synchronize()
            print(f"{DONE}{op} {ran}", flush=True)


def own_ops() -> list[str]:
    """Ops that the backend has kernels for."""
    from deepinfer.hal.catalog import CATALOG
    from deepinfer.hal.registry import REGISTRY

    CATALOG.load("reference")
    CATALOG.load("cuda")
    return sorted({kernel.op for kernel in REGISTRY.kernels() if kernel.backend == "cuda"})


# ---- the parent -----------------------------------------------------------------------------------------------------


def read(lines: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What a child's output says of the ops it was at: errors, the first of them, and how many samples ran."""
    op, found = "", {}
    for line in [*lines, MARK]:
        if line.startswith(MARK):
            if op:
                yield op, found
            op, found = line.removeprefix(MARK).strip(), {"errors": 0, "first": "", "samples": None}
        elif line.startswith(DONE) and op:
            found["samples"] = int(line.split()[-1])
        elif op and ERROR.match(line):
            found["errors"] += 1
            found["first"] = found["first"] or line.removeprefix("=========").strip()


def run_tool(tool: str, program: str | None, ops: Sequence[str], seconds: float) -> dict[str, dict[str, Any]]:
    """Cells of one tool; without a tool the samples are run alone, which compiles them."""
    end, left, cells = time.monotonic() + seconds, list(ops), {}
    while left:
        spent = time.monotonic() >= end
        lines, ended = ([], "time") if spent else _run(tool, program, left, end - time.monotonic())
        seen = dict(read(lines))
        for op, found in seen.items():
            finished = found["samples"] is not None
            cell = str(found["errors"]) if found["errors"] else "ok" if finished and found["samples"] else "no sample"
            cells[op] = {**found, "cell": cell if finished else ended}
            left.remove(op)
        if not seen:  # it did not come to an op
            why = next((line for line in lines if REFUSED.search(line)), lines[-1] if lines else "")
            cells |= {
                op: {"errors": 0, "first": why.strip(), "samples": 0, "cell": ended if spent else "refused"}
                for op in left
            }
            break
    return cells


def _run(tool: str, program: str | None, ops: Sequence[str], seconds: float) -> tuple[list[str], str]:
    """Lines that a child and its tool wrote, and how it ended if not well."""
    front = [program, f"--tool={tool}", "--print-limit=100", *(["--padding=256"] if tool == "memcheck" else [])]
    command = [*(front if program else []), sys.executable, __file__, "child", *ops]
    alone = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"} if program else {}
    with tempfile.TemporaryFile("w+", errors="replace") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, **alone})
        try:
            ended = "crash" if process.wait(seconds) else ""
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            ended = "time"
        out.seek(0)
        return out.read().splitlines(), ended or "crash"


def table(cells: dict[str, dict[str, dict[str, Any]]]) -> str:
    """Ops down, tools across, and the first error of each cell that has one."""
    tools = list(cells)
    rows = [["op", *tools]]
    rows += [[op, *(cells[t].get(op, {}).get("cell", "") for t in tools)] for op in sorted(cells[tools[0]])]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    for tool in tools:
        lines += [f"{tool} {op}: {cell['first']}" for op, cell in sorted(cells[tool].items()) if cell["first"]]
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", action="append", choices=TOOLS, help="one of them; may be repeated")
    parser.add_argument("--op", action="append", metavar="GLOB", help="only such ops; may be repeated")
    parser.add_argument("--jobs", type=int, default=4, help="child processes at once for each tool [%(default)s]")
    parser.add_argument("--seconds", type=float, default=300, help="for each tool [%(default)s]")
    parser.add_argument("--json", metavar="FILE", help="write the cells there")
    given = parser.parse_args(arguments)
    import torch

    program = find_tool()
    if program is None or not torch.cuda.is_available():
        what = "no GPU that torch can use" if program else "no compute-sanitizer; a CUDA toolkit brings it"
        print(f"there is {what}", file=sys.stderr)
        return 2
    ops = [op for op in own_ops() if not given.op or any(fnmatch.fnmatchcase(op, glob) for glob in given.op)]
    parts = [ops[i :: given.jobs] for i in range(given.jobs) if ops[i :: given.jobs]]
    tools = given.tool or TOOLS
    with ThreadPoolExecutor(len(parts) * len(tools) + 1) as pool:
        list(pool.map(lambda part: run_tool("", None, part, given.seconds), parts))
        jobs = {t: [pool.submit(run_tool, t, program, part, given.seconds) for part in parts] for t in tools}
        planted = pool.submit(run_tool, "memcheck", program, [PLANTED], given.seconds)
        cells = {t: {op: cell for job in found for op, cell in job.result().items()} for t, found in jobs.items()}
        seen = planted.result()[PLANTED]["first"].startswith("Invalid __global__ write")
    print(table(cells))
    print(f"memcheck {PLANTED}: {'seen' if seen else 'NOT SEEN'}")
    if given.json:
        Path(given.json).write_text(json.dumps(cells, indent=1))
    bad = {cell["cell"] for found in cells.values() for cell in found.values()} - {"ok", "refused", "no sample", "time"}
    return int(bool(bad) or not seen)


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        child(sys.argv[2:])
    else:
        sys.exit(main(sys.argv[1:]))
