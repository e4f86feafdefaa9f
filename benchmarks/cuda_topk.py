"""Exact top-k and candidate blocks on a GPU, beside one read of the scores and `torch.topk`.

    python benchmarks/cuda_topk.py [--json] [--only TEXT]

`topk_select` with k = 512 over fp32 scores and over bf16 ones with the ties that the model's have (some ten equal the
last chosen), with whole and with ragged rows, and over 2,048 candidate blocks of 8; `block_select` of 2,048 blocks of
8. The bar is a fifth of the time of `torch.topk` of the same shape and dtype in the same run, which knows no lengths
and no order of ties. The goal is 2 reads from 256 rows up, and 8 us for whole rows of 64 x 32,768. `block_select` has
no bar; its torch.topk is that of the blocks' maxima, which are made beforehand. The floor is the bytes that have to
move over the copy rate. Times are medians of graph replays, in turn over sets of scores that do not fit the L2 cache
together. Exit status 1 where a bar is missed.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Any

import torch
from cuda_rates import Rates, options_of, replay_time, run
from torch import Tensor

from deepinfer.ops.spec import SPECS

K, BLOCKS, SIZE = 512, 2048, 8
TIMES, READS, MANY, QUICK_US = 5.0, 2.0, 256, 8.0
"""The bar in times of torch.topk; the goal in reads from MANY rows up, and in us of 64 x 32,768."""
SHAPES = ((64, 8192), (64, 32768), (256, 32768), (64, 262144), (4096, 8192), (4096, 32768))
BLOCK_ROWS = (64, 256, 4096)
LINE = (
    "{case:44} {us:8.1f} us, floor {floor_us:6.1f}, share {share:.2f}, torch.topk {torch_us:8.1f} ({times:5.1f} x), "
    "ties {ties:4.1f}  {bar}"
)


@dataclass(frozen=True)
class Case:
    """A selection. kind: 'whole', 'ragged', 'compact' (of candidate blocks) or 'blocks' (`block_select`)."""

    kind: str
    rows: int
    lanes: int
    dtype: torch.dtype

    @property
    def label(self) -> str:
        name = "block_select" if self.kind == "blocks" else f"topk_select {self.kind}"
        return f"{name} {self.rows} x {self.lanes} {'fp32' if self.dtype == torch.float32 else 'bf16'}"

    @property
    def k(self) -> int:
        return BLOCKS if self.kind == "blocks" else K

    @cached_property
    def shift(self) -> float:
        """Of normal numbers, so that the last chosen is about 1.5, where bf16 has a step of 2^-7: some ten ties."""
        return 1.5 - NormalDist().inv_cdf(1 - K / self.lanes)


def cases() -> Iterator[Case]:
    for dtype in (torch.float32, torch.bfloat16):
        for kind in ("whole", "ragged"):
            yield from (Case(kind, *shape, dtype) for shape in SHAPES)
    yield from (Case("compact", rows, BLOCKS * SIZE, torch.bfloat16) for rows in BLOCK_ROWS)
    yield from (Case("blocks", *shape, torch.bfloat16) for shape in SHAPES if shape[1] > BLOCKS * SIZE)


@dataclass(frozen=True)
class Given:
    """Scores [rows, lanes], what is visible [rows], and candidate blocks [rows, BLOCKS] or None."""

    scores: Tensor
    visible: Tensor
    blocks: Tensor | None


def inputs(case: Case, device: torch.device, seed: int) -> Given:
    random = torch.Generator(device=device).manual_seed(seed)
    scores = torch.empty((case.rows, case.lanes), dtype=case.dtype, device=device)
    for part in scores.split(256):
        part.copy_(torch.randn(part.shape, device=device, generator=random) + case.shift)
    visible = torch.full((case.rows,), case.lanes, dtype=torch.int32, device=device)
    if case.kind == "ragged":
        visible = torch.randint(1, case.lanes + 1, (case.rows,), device=device, generator=random, dtype=torch.int32)
    if case.kind != "compact":
        return Given(scores, visible, None)
    context = 8 * case.lanes
    chosen = torch.rand((case.rows, context // SIZE), device=device, generator=random).topk(BLOCKS)[1]
    return Given(scores, visible * 8, chosen.sort()[0].int().contiguous())


def call(case: Case, given: Given) -> Callable[[], Any]:
    """A function that launches the op, into memory of its own."""
    out = torch.empty((case.rows, case.k), dtype=torch.int32, device=given.scores.device)
    if case.kind == "blocks":
        block_select = SPECS["block_select"].run
        return lambda: block_select(given.scores, given.visible, SIZE, case.k, out)
    topk_select = SPECS["topk_select"].run
    return lambda: topk_select(given.scores, given.visible, case.k, given.blocks, SIZE, out)


def by_torch(case: Case, given: Given) -> Callable[[], Any]:
    scores = given.scores
    if case.kind == "blocks":
        scores = scores.view(case.rows, -1, SIZE).amax(2)
    return lambda: scores.topk(case.k)


def ties(case: Case, given: Given) -> float:
    """Scores of a whole row that equal the last chosen, on average."""
    if case.kind in ("ragged", "blocks"):
        return math.nan
    some = given.scores[:64]
    last = some.topk(case.k)[0][:, -1:]
    return float((some == last).sum(1).float().mean())


def verdict(case: Case, us: float, read_us: float, torch_us: float) -> str:
    if case.kind == "blocks":
        return "reported"
    if us * TIMES > torch_us:
        return "fail"
    if case.rows >= MANY:
        return "goal" if us <= READS * read_us else "pass"
    quick = case.kind == "whole" and (case.rows, case.lanes) == (64, 32768)
    return "goal" if quick and us <= QUICK_US else "pass"


def measure(case: Case, rates: Rates, device: torch.device) -> dict[str, Any]:
    size = case.rows * case.lanes * case.dtype.itemsize
    sets = [inputs(case, device, seed) for seed in range(max(1, min(16, -(-(120 << 20) // size))))]
    us = replay_time([call(case, given) for given in sets])
    torch_us = replay_time([by_torch(case, given) for given in sets])
    seen = sum(int(given.visible.clamp(max=case.lanes).sum()) for given in sets) / len(sets)
    read = seen * case.dtype.itemsize
    moved = read + 4 * case.rows * (case.k + 1 + (BLOCKS if case.kind == "compact" else 0))
    floor, read_us = moved / rates.copy * 1e6, read / rates.copy * 1e6
    return {"case": case.label, "us": us, "floor_us": floor, "read_us": read_us, "share": floor / us,
            "torch_us": torch_us, "times": torch_us / us, "ties": ties(case, sets[0]),
            "bar": verdict(case, us, read_us, torch_us)}  # fmt: skip


def main() -> int:
    options = options_of(__doc__).parse_args()

    def measured(rates: Rates, device: torch.device) -> bool:
        missed = False
        for case in cases():
            if options.only in case.label:
                found = measure(case, rates, device)
                print(json.dumps(found) if options.json else LINE.format(**found), flush=True)
                missed |= found["bar"] == "fail"
        return missed

    return run(options.json, measured)


if __name__ == "__main__":
    sys.exit(main())
