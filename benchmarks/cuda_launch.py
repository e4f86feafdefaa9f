"""Cost of an op on a GPU's host: eight tensors, a Triton kernel that does nothing, against `torch.add`, one thread.

    python benchmarks/cuda_launch.py [--json]

`dispatch` is the choice of a kernel for a call, with a kernel that is an empty Python function; `launch` is a launch
without that; `op` is both, what a model pays for each op. They are timed in turns, at most a thousand launches before
the device is waited for, so that its queue never fills. The bar is 4 times a `torch.add` of two small tensors, of the
same run, for `op`. Triton's own launcher stands beside ours where it works. Exit status 1 above the bar.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from time import perf_counter
from typing import Any

import torch
import triton
import triton.language as tl
from dispatch import BAR, OP, make_op
from torch import Tensor

from deepinfer.backends.cuda.jit import jit
from deepinfer.hal.catalog import Catalog
from deepinfer.hal.null import NullBackend
from deepinfer.hal.registry import REGISTRY, kernel
from deepinfer.ops.spec import BF16, SPECS

LAUNCHES, ROUNDS = 1000, 15


def nothing(a_ptr, b_ptr, c_ptr, d_ptr, e_ptr, f_ptr, g_ptr, h_ptr, rows, stride: tl.int64, BLOCK: tl.constexpr):
    if rows < 0:
        tl.store(h_ptr + stride, tl.load(a_ptr) + BLOCK)


ours = jit(nothing)
theirs = triton.jit(nothing)


def launch(*args: Tensor) -> Tensor:
    ours[(1,)](*args[:8], 5, 64, BLOCK=64, num_warps=4)
    return args[7]


@contextmanager
def op_of_eight() -> Iterator[Callable[..., Any]]:
    """An op that has a kernel of the backend 'null' that does nothing, and one of 'cuda' that launches."""
    catalog = Catalog()
    catalog.add(NullBackend(((OP, 0),)))
    catalog.load("null")
    spec = make_op()
    kernel(OP, version=0, backend="cuda", source="triton", device_types=("cuda",))(launch)
    try:
        yield spec.run
    finally:
        del SPECS[OP]
        for each in REGISTRY.kernels(OP):
            REGISTRY.remove(each)


def microseconds(call: Callable[[], object]) -> float:
    """Of one call, on the host."""
    torch.cuda.synchronize()
    start = perf_counter()
    for _ in range(LAUNCHES):
        call()
    taken = perf_counter() - start
    torch.cuda.synchronize()
    return taken / LAUNCHES * 1e6


def measure() -> dict[str, float]:
    """Microseconds of each, medians."""
    x = [torch.zeros(4, 64, dtype=BF16, device="cuda") for _ in range(8)]
    a, b, out = x[0], x[1], torch.zeros(4, 64, dtype=BF16, device="cuda")
    host = [torch.zeros(4, 64, dtype=BF16) for _ in range(8)]
    times: dict[str, list[float]] = {}
    with op_of_eight() as run:
        calls: dict[str, tuple[str, Callable[[], object]]] = {
            "torch.add": ("cuda", lambda: torch.add(a, b, out=out)),
            "dispatch": ("null", lambda: run(host[0], host[1], host[2], host[3], host[4], host[5], host[6], host[7])),
            "launch": ("cuda", lambda: launch(*x)),
            "op": ("cuda", lambda: run(x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7])),
            "launch, Triton's": ("cuda", lambda: theirs[(1,)](*x, 5, 64, BLOCK=64, num_warps=4)),
        }
        for turn in range(ROUNDS + 1):
            for name, (backend, call) in calls.items():
                with REGISTRY.using(backend):
                    taken = microseconds(call)
                if turn:  # the first compiles
                    times.setdefault(name, []).append(taken)
    return {name: median(each) for name, each in times.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON line")
    as_json = parser.parse_args().json
    if not torch.cuda.is_available():
        print("needs a GPU that torch can use", file=sys.stderr)
        return 2
    torch.set_num_threads(1)
    found = measure()
    ratio = found["op"] / found["torch.add"]
    if as_json:
        print(
            json.dumps({"benchmark": "cuda_launch", "device": torch.cuda.get_device_name(), "us": found, "op": ratio})
        )
    else:
        for name, us in found.items():
            print(f"{name:18} {us:6.2f} us, {us / found['torch.add']:.2f} x torch.add")
        print(f"op: {ratio:.2f} x torch.add, bar {BAR:g} x: {'pass' if ratio <= BAR else 'FAIL'}")
    return int(ratio > BAR)


if __name__ == "__main__":
    sys.exit(main())
