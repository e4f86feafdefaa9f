"""What the GPU of a run can do: copy rate and bf16 matrix rate; and times of launches by graph replay.

    python benchmarks/cuda_rates.py

Benchmarks print these first, and hold their times against them: cards of one kind differ by some percent. `options_of`
and `run` are what the benchmarks of CUDA kernels begin with.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import torch

PRODUCTS = 2 * 8192**3
"""Operations of the product whose rate is measured."""


@dataclass(frozen=True)
class Rates:
    """Rates of one run.

    Attributes:
        device: its name.
        copy: bytes per second of a copy on the device, read and written bytes both counted.
        bf16: operations per second of cuBLAS's product of two 8192 x 8192 matrices of random bf16 numbers, in a graph
            of some ms: what floors are made of, as kernels are timed that way.
        sustained: the same by `triton.testing.do_bench`, its median, over 0.1 s, in which the chip's clock gives way to
            the power it takes. Anchors were measured beside this one, so it scales them.
    """

    device: str
    copy: float
    bf16: float
    sustained: float

    def __str__(self) -> str:
        short, long = (f"{rate / 1e12:,.0f}" for rate in (self.bf16, self.sustained))
        return f"{self.device}: copy {self.copy / 1e9:,.0f} GB/s, bf16 8192^3 {short} TFLOP/s, sustained {long}"

    def record(self) -> dict[str, Any]:
        """For JSON lines."""
        return asdict(self)


def measure_rates() -> Rates:
    """The rates, in about a second."""
    from triton.testing import do_bench

    device = torch.device("cuda")
    pair = torch.empty((2, 2 << 30), dtype=torch.uint8, device=device)
    pair[1].copy_(pair[0])
    copied = _timed(lambda: pair[1].copy_(pair[0]), 9)  # in a graph another engine copies, at two thirds of the rate
    factors = torch.randn((2, 8192, 8192), device=device).bfloat16()
    out = torch.empty_like(factors[0])

    def multiply() -> None:
        torch.mm(factors[0], factors[1], out=out)

    short, long = replay_time([multiply]), do_bench(multiply, return_mode="median") * 1e3
    copy, bf16, sustained = (work / us * 1e6 for work, us in ((4 << 30, copied), (PRODUCTS, short), (PRODUCTS, long)))
    return Rates(torch.cuda.get_device_name(), copy, bf16, sustained)


def replay_time(calls: Sequence[Callable[[], Any]], least_us: float = 2000.0) -> float:
    """Microseconds per call: calls in turn, captured in a graph that takes at least `least_us`, median of replays.

    Args:
        calls: the same work on different memory; together more than the L2 holds where memory is the limit.
    """
    for call in calls:
        call()  # compiles, and makes handles
    torch.cuda.synchronize()
    single = _timed(calls[0], 3)
    rounds = max(1, round(least_us / max(single, 1.0) / len(calls)))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(rounds):
            for call in calls:
                call()
    graph.replay()
    return _timed(graph.replay, 9) / (rounds * len(calls))


def _timed(run: Callable[[], Any], repeats: int) -> float:
    """Median microseconds of one run."""
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(repeats)]
    for first, last in events:
        first.record()
        run()
        last.record()
    torch.cuda.synchronize()
    return median(first.elapsed_time(last) * 1000 for first, last in events)


def options_of(description: str | None) -> argparse.ArgumentParser:
    """The options that every benchmark of kernels has."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON lines")
    parser.add_argument("--only", default="", help="cases whose name holds this text")
    return parser


def run(as_json: bool, measure: Callable[[Rates, torch.device], bool]) -> int:
    """Print the rates, then measure with the CUDA backend chosen.

    Args:
        as_json: print JSON lines.
        measure: prints its cases; whether one missed its bar.

    Returns:
        Exit status: 0, 1 where a bar was missed, 2 without a GPU.
    """
    from deepinfer.hal.catalog import CATALOG
    from deepinfer.hal.registry import REGISTRY

    if not torch.cuda.is_available():
        print("needs a GPU that torch can use", file=sys.stderr)
        return 2
    CATALOG.load("reference")
    CATALOG.load("cuda")
    rates = measure_rates()
    print(json.dumps(rates.record()) if as_json else rates)
    with REGISTRY.using("cuda", "sm_{}{}".format(*torch.cuda.get_device_capability())):
        return int(measure(rates, torch.device("cuda")))


def main() -> int:
    if not torch.cuda.is_available():
        print("needs a GPU that torch can use", file=sys.stderr)
        return 2
    print(measure_rates())
    return 0


if __name__ == "__main__":
    sys.exit(main())
