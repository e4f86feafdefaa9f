"""Cost of the conformance suite: `quick` on the reference, against the reference's own op tests.

    python benchmarks/conformance.py [--json]

Both run as programs of their own, one after the other, on one thread. The bar is 3 times, by processor seconds of the
whole program, start included: on a busy machine they change less than the time on the clock, which is printed as well.
Exit status 1 above the bar or when a program fails.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BAR = 3.0
TESTS = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/ops", "tests/backends/reference")
SUITE = ("-m", "deepinfer", "conformance", "run", "--backend", "reference", "--suite", "quick")


def measure(arguments: Sequence[str]) -> dict[str, Any]:
    """Run python with arguments: clock and processor seconds, exit status, last line of output."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    after, seconds = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - start
    used = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    lines = done.stdout.strip().splitlines()
    return {"seconds": seconds, "cpu_seconds": used, "status": done.returncode, "says": lines[-1] if lines else ""}


def run(tests: Sequence[str] = TESTS, suite: Sequence[str] = SUITE) -> dict[str, Any]:
    """Measure both."""
    found = {"tests": measure(tests), "suite": measure(suite)}
    ratios = {
        "ratio": found["suite"]["cpu_seconds"] / found["tests"]["cpu_seconds"],
        "clock_ratio": found["suite"]["seconds"] / found["tests"]["seconds"],
        "bar": BAR,
    }
    return {**found, **ratios}


def main() -> int:
    """Command line; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON line")
    options = parser.parse_args()
    found = run()
    if options.json:
        print(json.dumps({"benchmark": "conformance", **found}))
    else:
        for name in ("tests", "suite"):
            part = found[name]
            print(f"{name}: {part['seconds']:.1f} s, processor {part['cpu_seconds']:.1f} s; {part['says']}")
        print(f"suite / tests: {found['ratio']:.2f} by processor, {found['clock_ratio']:.2f} by clock (bar {BAR:g})")
    failed = any(found[name]["status"] for name in ("tests", "suite"))
    return int(failed or found["ratio"] > BAR)


if __name__ == "__main__":
    sys.exit(main())
