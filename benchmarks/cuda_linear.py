"""Linear layers on a GPU: FP8, FP4 and bf16 weights at the released widths, beside their floors and bars.

    python benchmarks/cuda_linear.py [--json] [--only TEXT]

The floor is the larger of the bytes of the weights that are read over the copy rate, and the products over the bf16
rate, both measured in the same run. Of few rows the bar is a share of the time in which the weights are read; of 4,096
rows a share of what cuBLAS takes with bf16 weights of the same shape; of experts with 512 rows each a share of the bf16
rate. Cases with a floor under 8 us are shown and not judged. Times are medians of graph replays; where weights are the
limit, over sets of inputs that do not fit the L2 cache together. Calls follow each other at once: a kernel that is
launched early begins to read its weights while the one before ends.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from cuda_rates import Rates, options_of, replay_time, run
from torch import Tensor

from deepinfer.ops.spec import SPECS

LEAST_JUDGED_US = 8.0
L2 = 120 << 20
LINE = "{case:40} {us:9.1f} us, floor {floor_us:8.1f} ({limit}), share {share:.2f}, bar {bar}"


@dataclass(frozen=True)
class Case:
    """A weight and rows.

    Attributes:
        op: which. name: of the weight. groups, n, k: of the weight; groups are experts of `grouped_linear`.
            Of `image_attention`: heads, and twice their channels.
        rows: of x; of `grouped_linear` tokens, six experts of 384 each, or rows of every expert with `even`.
        draw: how tokens choose experts.
    """

    op: str
    name: str
    groups: int
    n: int
    k: int
    rows: int
    draw: str = ""

    @property
    def label(self) -> str:
        return f"{self.name} {self.rows} rows{', ' if self.draw else ''}{self.draw}"


def cases() -> Iterator[Case]:
    """FP8 weights from one row to many, experts, bf16 weights."""
    for rows in (1, 16, 32, 64, 96, 128, 192, 256, 1024, 4096):
        yield Case("linear_fp8", "q_b", 1, 32768, 1280, rows)
        yield Case("linear_fp8", "o_b", 1, 5120, 8192, rows)
        yield Case("linear_fp8_grouped", "o_a", 8, 1024, 4096, rows)
        yield Case("linear_fp8", "shared w13", 1, 4608, 5120, rows)
    for name, n, k in (("experts w13", 4608, 5120), ("experts w2", 5120, 2304)):
        for draw in ("even draw", "skewed draw"):
            yield Case("grouped_linear", name, 48, n, k, 128, draw)
        for rows in (8, 16, 24, 32, 48, 64, 96, 128, 192, 512):
            yield Case("grouped_linear", name, 48, n, k, rows, "each")
    for rows in (1, 64, 128):
        yield Case("linear_bf16", "head", 1, 129280, 5120, rows)
    for rows in (1, 64, 4096):
        yield Case("linear_bf16", "router", 1, 384, 5120, rows)
    yield Case("vision_linear", "image qkv", 1, 3072, 1024, 4096)
    for rows in (1024, 4096):
        yield Case("image_attention", "image attention", 16, 64, 64, rows)


def codes(generator: torch.Generator, *shape: int) -> Tensor:
    """E4M3 codes without NaN."""
    made = torch.randn(shape, device=generator.device, generator=generator).mul_(60)
    return made.to(torch.float8_e4m3fn)


def scales(generator: torch.Generator, *shape: int) -> Tensor:
    """E8M0 bytes."""
    return torch.randint(112, 122, shape, dtype=torch.uint8, device=generator.device, generator=generator)


def routed(case: Case, generator: torch.Generator) -> Tensor:
    """Rows of each expert."""
    if case.draw == "each":
        return torch.full((case.groups,), case.rows, device=generator.device)
    weight = torch.ones(384, device=generator.device)
    if case.draw == "skewed draw":
        weight = torch.rand(384, device=generator.device, generator=generator).pow(-0.7)
    chosen = torch.multinomial(weight.expand(case.rows, 384), 6, generator=generator)
    return torch.bincount(chosen.flatten(), minlength=384)[: case.groups]


def arguments(case: Case, generator: torch.Generator) -> tuple[tuple[Any, ...], int]:
    """Arguments of a call, and how many of its groups have rows."""
    g, n, k, rows = case.groups, case.n, case.k, case.rows
    spec = SPECS[case.op]
    if case.op == "grouped_linear":
        count = routed(case, generator)
        offsets = torch.cat((count.new_zeros(1), count.cumsum(0))).int()
        used = int(offsets[-1])
        tokens = rows if case.draw != "each" else used // 6
        most = used if case.draw == "each" else rows * 6
        source = torch.randint(0, tokens, (most,), dtype=torch.int32, device=count.device, generator=generator)
        weight = torch.randint(0, 256, (g, n, k // 2), dtype=torch.uint8, device=count.device, generator=generator)
        handle = spec.prepare(weight, scales(generator, g, n, k // 32))
        x = codes(generator, tokens, k), scales(generator, tokens, k // 32)
        return (*x, handle, source, offsets), int((count > 0).sum())
    if case.op == "image_attention":
        x = (torch.randn((rows, g, k), device=generator.device, generator=generator).bfloat16() for _ in "qkv")
        begin = torch.zeros(rows, dtype=torch.int32, device=generator.device)
        return (*x, begin, begin + rows, k**-0.5), 1
    if case.op == "linear_fp8_grouped":
        handle = spec.prepare(codes(generator, g, n, k), scales(generator, g, n // 32, k // 32))
        return (codes(generator, rows, g, k), scales(generator, rows, g, k // 32), handle), g
    if case.op == "linear_fp8":
        handle = spec.prepare(codes(generator, n, k), scales(generator, n // 32, k // 32))
        return (codes(generator, rows, k), scales(generator, rows, k // 32), handle), 1
    x, w = (torch.randn(s, device=generator.device, generator=generator).bfloat16() for s in ((rows, k), (n, k)))
    return (x, spec.prepare(w), *((True,) if case.op == "linear_bf16" else (None, None, "none"))), 1


def floors(case: Case, args: tuple[Any, ...], touched: int, rates: Rates) -> tuple[float, float]:
    """Microseconds for the bytes and for the products."""
    if case.op == "image_attention":
        return 0.0, 4 * case.rows**2 * case.groups * case.k / rates.bf16 * 1e6
    rows = int(args[4][-1]) if case.op == "grouped_linear" else case.rows
    products = rows * case.n * case.k * (case.groups if case.op == "linear_fp8_grouped" else 1)
    weights = args[2] if case.op in ("grouped_linear", "linear_fp8", "linear_fp8_grouped") else args[1]
    moved = weights.nbytes * touched / case.groups
    return moved / rates.copy * 1e6, 2 * products / rates.bf16 * 1e6


def call(case: Case, args: tuple[Any, ...]) -> Callable[[], Any]:
    """A function that launches one call, into memory of its own."""
    spec = SPECS[case.op]
    out = spec.run(*args)
    size = spec.workspace(*args)
    scratch = (torch.empty(size, dtype=torch.uint8, device=out.device),) if size else ()
    return lambda: spec.run(*args, out, *scratch)


def measure(case: Case, rates: Rates, device: torch.device) -> dict[str, Any]:
    """Time, floor and bar of a case."""
    generator = torch.Generator(device=device).manual_seed(1)
    args, touched = arguments(case, generator)
    weights, products = floors(case, args, touched, rates)
    copies = min(4, 1 + int(L2 / (weights * rates.copy / 1e6))) if case.rows <= 256 and weights else 1
    sets = [args, *(arguments(case, generator)[0] for _ in range(copies - 1))]
    time = replay_time([call(case, made) for made in sets])
    floor = max(weights, products)
    found = {"case": case.label, "us": time, "floor_us": floor, "limit": "weights" if floor == weights else "products",
             "share": floor / time, "bar": "-", "missed": False}  # fmt: skip
    bar = None
    if case.op == "grouped_linear":
        if case.draw != "each":
            bar, reached = 0.55, weights / time
        elif case.rows == 512:
            bar, reached = 0.5, products / time
    elif case.op.startswith("linear_fp8") and case.rows <= 64:
        bar, reached = 0.6, weights / time
    elif case.op.startswith("linear_fp8") and case.rows == 4096:
        bar, reached = 0.6, cublas(case, generator) / time
    if bar is not None:
        judged = floor >= LEAST_JUDGED_US
        found["missed"] = judged and reached < bar
        verdict = " MISSED" if found["missed"] else "" if judged else " (not judged)"
        found["bar"] = f"{reached:.2f} of {bar}{verdict}"
    return found


def cublas(case: Case, generator: torch.Generator) -> float:
    """Microseconds of the same products with bf16 weights in cuBLAS."""
    g, device = case.groups, generator.device
    x = torch.randn((g, case.rows, case.k), device=device, generator=generator).bfloat16()
    w = torch.randn((g, case.n, case.k), device=device, generator=generator).bfloat16()
    out = torch.empty((g, case.rows, case.n), device=device, dtype=torch.bfloat16)
    return replay_time([lambda: torch.bmm(x, w.mT, out=out)])


def main() -> int:
    options = options_of(__doc__).parse_args()

    def all_cases(rates: Rates, device: torch.device) -> bool:
        missed = False
        for case in cases():
            if options.only in case.label:
                found = measure(case, rates, device)
                missed |= found["missed"]
                print(json.dumps(found) if options.json else LINE.format(**found), flush=True)
                torch.cuda.empty_cache()
        return missed

    return run(options.json, all_cases)


if __name__ == "__main__":
    sys.exit(main())
