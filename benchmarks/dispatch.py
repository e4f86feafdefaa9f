"""Cost of dispatch: an op of eight tensors whose kernel does nothing, against `torch.add`, on one thread.

    python benchmarks/dispatch.py [--json]

Both are timed in turns in one process, so that a machine that changes speed changes both. The bar is 4 times a
`torch.add` of two small tensors. Exit status 1 above it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from statistics import median
from timeit import Timer
from typing import Any

import torch

from deepinfer.hal.catalog import Catalog
from deepinfer.hal.null import NullBackend
from deepinfer.hal.registry import REGISTRY
from deepinfer.ops.numerics import Exact
from deepinfer.ops.spec import BF16, F32, SPECS, Cost, OpSpec, define, result, tensor

BAR = 4.0
TENSORS = 8
OP = "benchmark_nothing"


def make_op() -> OpSpec:
    """An op of eight tensors with static, dynamic and strided dims, as those of the model have."""
    return define(
        OP,
        version=0,
        family="benchmark",
        args=[tensor(f"x{i}", "T D", BF16, F32, layout="rows") for i in range(TENSORS)],
        outs=[result("y", "T D", BF16)],
        dynamic="T",
        semantics="Does nothing.",
        numerics=Exact(),
        cost=lambda dims: Cost(0, 0),
        samples=lambda rng, device: iter(()),
    )


def measure(calls: dict[str, Callable[[], Any]], repeats: int, number: int) -> dict[str, float]:
    """Median seconds per call of each, over `repeats` turns of `number` calls."""
    timers = {name: Timer(call) for name, call in calls.items()}
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, timer in timers.items():
            seconds[name].append(timer.timeit(number) / number)
    return {name: median(found) for name, found in seconds.items()}


def run(repeats: int = 30, number: int = 2000) -> dict[str, float]:
    """Measure; returns microseconds per call and the ratio."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    catalog = Catalog()
    catalog.add(NullBackend(((OP, 0),)))
    catalog.load("null")
    spec = make_op()  # after the reference has checked that every op of the contract has a kernel of its own
    try:
        x = [torch.zeros(4, 64, dtype=BF16) for _ in range(TENSORS)]
        call = spec.run
        with REGISTRY.using("null"):
            found = measure(
                {
                    "dispatch": lambda: call(x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]),
                    "torch.add": lambda: torch.add(x[0], x[1]),
                },
                repeats,
                number,
            )
    finally:
        torch.set_num_threads(threads)
        del SPECS[OP]
        for kernel in REGISTRY.kernels(OP):
            REGISTRY.remove(kernel)
    return {
        "dispatch_us": found["dispatch"] * 1e6,
        "torch_add_us": found["torch.add"] * 1e6,
        "ratio": found["dispatch"] / found["torch.add"],
        "bar": BAR,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON line")
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--number", type=int, default=2000)
    arguments = parser.parse_args()
    found = run(arguments.repeats, arguments.number)
    if arguments.json:
        print(json.dumps({"benchmark": "dispatch", "tensors": TENSORS, "torch": torch.__version__, **found}))
    else:
        print(
            f"dispatch of {TENSORS} tensors {found['dispatch_us']:.2f} us, torch.add {found['torch_add_us']:.2f} us: "
            f"{found['ratio']:.2f} x, bar {BAR:g} x"
        )
    return 0 if found["ratio"] <= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
