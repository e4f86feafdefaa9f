"""Sparse attention on a GPU at the model's widths, beside FlashMLA's times and the floors.

    python benchmarks/cuda_attention.py [--json] [--only TEXT] [--kernel NAME]

64 heads of 512 channels, a window of 128 keys and 512 selected entries of 8,192 per row, a sink. The bar is FlashMLA's
time on an H200 of the same shape, measured there with its own FP8 cache, times 1.15 (1.2 for prompts), and scaled by
how this run's matrix rate compares with that run's. Floors: the products over the bf16 rate, and the bytes over the
copy rate. Times are medians of graph replays; inputs that fit the L2 cache are rotated. Last, what decode with few rows
gains where batch invariance is given up: each kernel of the contract beside `fast`; not judged.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import torch
from cuda_rates import Rates, options_of, replay_time, run
from torch import Tensor

from deepinfer.hal.errors import KernelError
from deepinfer.hal.registry import REGISTRY
from deepinfer.ops.layouts import LAYOUTS
from deepinfer.ops.spec import SPECS

HEADS, CHANNELS, WINDOW, SELECTED, RING = 64, 512, 128, 512, 134
PAGE_STRIDE = 114_048
"""Bytes between pages: those of all owners of the released model."""
ANCHOR_BF16 = 702e12
"""Rate of the 8192^3 product in the run that FlashMLA's times are from."""
LINE = "{case:36} {us:8.1f} us, bar {bar:7.1f} {verdict:4}, floors {products_us:6.1f} {bytes_us:6.1f}"


@dataclass(frozen=True)
class Case:
    """Rows per sequence at the end of `context` tokens; `flashmla`: microseconds; `factor`: of the bar."""

    sequences: int
    rows: int
    flashmla: float
    record: str = "fp4_16"
    context: int = 8192
    factor: float = 1.15

    @property
    def label(self) -> str:
        return f"{self.sequences} x {self.rows} rows, {self.context} keys, {self.record}"


DECODE = ((2, 1, 17.4), (32, 1, 29.7), (64, 1, 48.9), (128, 1, 53.0), (256, 1, 95.0), (128, 2, 94.8), (32, 6, 88.7),
          (128, 6, 255.6), (256, 6, 499.6))  # fmt: skip
CASES = tuple(
    Case(sequences, rows, us, record) for record in ("fp4_16", "fp8_32") for sequences, rows, us in DECODE
) + tuple(
    Case(1, 4096, us, record, context, 1.2)
    for record in ("fp4_16", "fp8_32")
    for context, us in ((8192, 651.0), (32768, 699.0))
)
FAST_CASES = tuple(Case(sequences, 1, 0.0, record) for record in ("fp4_16", "fp8_32") for sequences in (2, 8, 32, 128))


def records(kind: str, count: int, random: torch.Generator) -> Tensor:
    """Random records [count, bytes] with values of the order of 1."""
    layout, device = LAYOUTS[kind], random.device
    data = torch.randint(
        0, 256, (count, layout.data_bytes(CHANNELS)), dtype=torch.uint8, device=device, generator=random
    )
    low, high, mask = (120, 122, 0xB7) if layout.bits == 8 else (0x20, 0x38, 0xFF)
    scale = torch.randint(
        low, high, (count, layout.scale_bytes(CHANNELS)), dtype=torch.uint8, device=device, generator=random
    )
    return torch.cat((data & mask, scale), dim=1)


def inputs(case: Case, device: torch.device, seed: int, pool: Tensor | None = None) -> tuple[Any, ...]:
    """All arguments of the op; `pool`: pages made before, which are as large as a cache."""
    random = torch.Generator(device=device).manual_seed(seed)

    def ints(values: Tensor) -> Tensor:
        return values.to(device, torch.int32).contiguous()

    rows, columns = case.sequences * case.rows, case.context // 128
    q = torch.randn((rows, HEADS, CHANNELS), device=device, generator=random).bfloat16()
    fresh = records("fp8_32", rows, random)
    ring = records("fp8_32", case.sequences * RING, random).view(case.sequences, RING, -1)
    start = case.context - case.rows
    position = torch.arange(start, case.context).repeat(case.sequences)
    sequence = torch.arange(case.sequences)
    pages = make_pool(case, random) if pool is None else pool
    table = torch.randperm(pages.shape[0] - 1, device=device, generator=random)[: case.sequences * columns] + 1
    order = torch.rand((rows, min(case.context, 8192)), device=device, generator=random)
    chosen = order.topk(SELECTED, dim=1).indices
    if case.context > 8192:  # spread over the context
        chosen = chosen * (case.context // 8192)
    indices = chosen.sort(dim=1).values.minimum(ints(position)[:, None])
    return (
        q, fresh, ring, torch.randn(HEADS, device=device, generator=random),
        ints(torch.zeros(rows)), ints(position), ints(sequence.repeat_interleave(case.rows)),
        ints(torch.full((case.sequences,), start)), ints(sequence * case.rows), ints(sequence),
        pages, ints(table).view(case.sequences, columns), ints(indices), WINDOW, 1, CHANNELS**-0.5, case.record,
    )  # fmt: skip


def make_pool(case: Case, random: torch.Generator) -> Tensor:
    """Pages [P, section bytes] with the stride of the released model's pages, full of records."""
    count = case.sequences * case.context // 128 + 1
    width = LAYOUTS[case.record].page_bytes(CHANNELS, 1)
    whole = torch.empty((count, PAGE_STRIDE), dtype=torch.uint8, device=random.device)
    pages = whole[:, 512 : 512 + width]
    some = records(case.record, min(count, 1024) * 128, random).view(-1, width)
    for first in range(0, count, 1024):
        part = pages[first : first + 1024]
        part.copy_(some[: part.shape[0]])
    return pages


def call(args: tuple[Any, ...]) -> Callable[[], Any]:
    """A function that launches one call, into memory of its own."""
    spec = SPECS["sparse_attention"]
    out = torch.empty_like(args[0])
    size = spec.workspace(*args)
    if not size:
        return lambda: spec.run(*args, out)
    scratch = torch.empty(size, dtype=torch.uint8, device=out.device)
    return lambda: spec.run(*args, out, scratch)


def floors(case: Case, rates: Rates) -> tuple[float, float]:
    """Microseconds for the products and for the bytes."""
    rows = case.sequences * case.rows
    flops = 4.0 * rows * HEADS * CHANNELS * (WINDOW + SELECTED)
    entries = min(rows * SELECTED, case.sequences * case.context) * LAYOUTS[case.record].record_bytes(CHANNELS)
    window = min(rows * WINDOW, rows + case.sequences * (WINDOW - 1)) * LAYOUTS["fp8_32"].record_bytes(CHANNELS)
    moved = rows * (4 * HEADS * CHANNELS + 4 * SELECTED) + entries + window
    return flops / rates.bf16 * 1e6, moved / rates.copy * 1e6


def measure(case: Case, rates: Rates, device: torch.device) -> dict[str, Any]:
    """Time, bar and floors of a case."""
    pool = make_pool(case, torch.Generator(device=device).manual_seed(1))
    rows = case.sequences * case.rows
    sets = max(1, min(8, (120 << 20) // (rows * 330_000)))
    time = replay_time([call(inputs(case, device, seed, pool)) for seed in range(sets)])
    products, memory = floors(case, rates)
    bar = case.factor * case.flashmla * ANCHOR_BF16 / rates.sustained
    return {"case": case.label, "us": time, "bar": bar, "verdict": "pass" if time <= bar else "fail",
            "products_us": products, "bytes_us": memory}  # fmt: skip


def measure_fast(case: Case, device: torch.device) -> dict[str, Any]:
    """Times of every kernel that takes a case."""
    pool = make_pool(case, torch.Generator(device=device).manual_seed(1))
    calls = [inputs(case, device, seed, pool) for seed in range(8)]
    times = {}
    for kernel in sorted(k.id for k in REGISTRY.kernels("sparse_attention") if k.backend == "cuda"):
        with REGISTRY.configured(allow_fast=True), REGISTRY.pin("sparse_attention", kernel), suppress(KernelError):
            times[kernel.removeprefix("cuda:")] = replay_time([call(args) for args in calls])
    return {"case": case.label, "us": times}


def main() -> int:
    parser = options_of(__doc__)
    parser.add_argument("--kernel", default="", help="pin a kernel, such as cuda or cuda:sm90")
    options = parser.parse_args()

    def cases(rates: Rates, device: torch.device) -> bool:
        missed = False
        for case in CASES:
            if options.only in case.label:
                found = measure(case, rates, device)
                print(json.dumps(found) if options.json else LINE.format(**found), flush=True)
                missed |= found["verdict"] == "fail"
        for case in FAST_CASES if not options.kernel else ():
            if options.only in case.label:
                found = measure_fast(case, device)
                times = ", ".join(f"{name} {us:.1f}" for name, us in found["us"].items())
                print(json.dumps(found) if options.json else f"{case.label:36} us by kernel: {times}", flush=True)
        return missed

    with REGISTRY.pin("sparse_attention", options.kernel) if options.kernel else nullcontext():
        return run(options.json, cases)


if __name__ == "__main__":
    sys.exit(main())
