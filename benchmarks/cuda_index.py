"""Index scores on a GPU: full scan and candidate blocks, at the model's widths, beside their floors; and with top-k.

    python benchmarks/cuda_index.py [--json] [--only TEXT]

The floor is the larger of the bytes that have to move over the copy rate, and the products over the bf16 rate, both
measured in the same run: chips without FP4 matrix units multiply the codes as bf16. There is no bar, only the share.
A line of `index_topk` (k 512) is held against the scores' floor: `select` is what it takes beyond `index_score` of the
same call, all that one kernel for both could save.
Times are medians of graph replays over sets of inputs that do not fit the L2 cache together.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Any

import torch
from cuda_rates import Rates, options_of, replay_time, run
from torch import Tensor

from deepinfer.ops.spec import SPECS

HEADS, WIDTH, PAGE = 32, 68, 128
"""Index heads, bytes of a key or of a head's query, entries of a page."""
PRODUCTS = HEADS * 128
CANDIDATES = 2048
"""Candidate blocks of 8 entries."""
K = 512
LINE = "{case:54} {us:9.1f} us, floors {bytes_us:7.1f} (bytes) {products_us:7.1f} (products), share {share:.2f}"


@dataclass(frozen=True)
class Case:
    """Rows of `sequences` sequences with `context` entries each; `blocks`: candidate blocks instead of all entries."""

    sequences: int
    rows: int
    context: int
    blocks: bool = False

    @property
    def label(self) -> str:
        kind = "blocks" if self.blocks else "full"
        return f"{kind} {self.sequences} x {self.rows} rows, {self.context} entries"


CASES = (
    Case(1, 1, 8192),
    Case(1, 1, 131072),
    Case(32, 1, 32768),
    Case(64, 1, 8192),
    Case(128, 1, 32768),
    Case(128, 1, 131072),
    Case(32, 6, 32768),
    Case(128, 6, 32768),
    Case(1, 4096, 8192),
    Case(1, 4096, 32768),
    Case(1, 1, 131072, blocks=True),
    Case(128, 1, 131072, blocks=True),
    Case(128, 6, 131072, blocks=True),
    Case(1, 4096, 32768, blocks=True),
)


def inputs(case: Case, device: torch.device, seed: int) -> tuple[Any, ...]:
    """query, head_weight, pages, visible, row_seq, block_table."""
    random = torch.Generator(device=device).manual_seed(seed)

    def codes(*shape: int) -> Tensor:
        return torch.randint(0, 256, shape, dtype=torch.uint8, device=device, generator=random)

    def scales(*shape: int) -> Tensor:
        return torch.randint(122, 128, shape, dtype=torch.uint8, device=device, generator=random)

    rows, pages = case.sequences * case.rows, case.context // PAGE
    query = torch.cat((codes(rows, HEADS, 64), scales(rows, HEADS, 4)), dim=2)
    weight = torch.randn(rows, HEADS, device=device, generator=random).bfloat16()
    count = case.sequences * pages + 1
    pool = torch.cat((codes(count, PAGE * 64), scales(count, PAGE * 4)), dim=1)
    order = torch.randperm(count - 1, device=device, generator=random).int() + 1
    last = torch.arange(case.context - case.rows + 1, case.context + 1, device=device, dtype=torch.int32)
    sequence = torch.arange(case.sequences, device=device, dtype=torch.int32).repeat_interleave(case.rows)
    return query, weight, pool, last.repeat(case.sequences), sequence, order.view(case.sequences, pages)


def candidates(case: Case, rows: int, device: torch.device) -> Tensor:
    """Candidate blocks of every row, ascending: eight draws, in turn."""
    width = min(CANDIDATES, case.context // 8)
    blocks = torch.stack([torch.randperm(case.context // 8 - 1, device=device)[:width].sort()[0] for _ in range(8)])
    return blocks.int().repeat(-(-rows // 8), 1)[:rows].contiguous()


def call(case: Case, args: tuple[Any, ...]) -> Any:
    """A function that launches one call of a case, into memory of its own."""
    query, weight, pool, visible, sequence, table = args
    rows, device = query.shape[0], query.device
    unpacked = torch.empty(rows * HEADS * 256, dtype=torch.uint8, device=device)
    if not case.blocks:
        out = torch.empty((rows, case.context), dtype=torch.bfloat16, device=device)
        run = SPECS["index_score"].run
        return lambda: run(query, weight, pool, visible, sequence, table, 1, case.context, out, unpacked)
    blocks = candidates(case, rows, device)
    out = torch.empty((rows, blocks.shape[1] * 8), dtype=torch.bfloat16, device=device)
    run = SPECS["index_score_blocks"].run
    return lambda: run(query, weight, pool, blocks, visible, sequence, table, 1, 8, out, unpacked)


def topk_call(case: Case, args: tuple[Any, ...]) -> Any:
    """The same with top-k: a function that launches `index_topk`."""
    rows, device = args[0].shape[0], args[0].device
    blocks = candidates(case, rows, device) if case.blocks else None
    given = (*args, blocks, 1, case.context, 8, K)
    indices = torch.empty((rows, K), dtype=torch.int32, device=device)
    out = indices, torch.empty((rows, K), dtype=torch.bfloat16, device=device)
    spec = SPECS["index_topk"]
    scratch = torch.empty(spec.workspace(*given), dtype=torch.uint8, device=device)
    return lambda: spec.run(*given, out, scratch)


def floors(case: Case, rates: Rates) -> tuple[float, float]:
    """Microseconds for the bytes and for the products."""
    rows = case.sequences * case.rows
    lanes = min(CANDIDATES * 8, case.context) if case.blocks else case.context
    keys = min(rows * lanes, case.sequences * case.context)
    moved = rows * (HEADS * (WIDTH + 2) + 2 * lanes) + keys * WIDTH + (rows * lanes // 2 if case.blocks else 0)
    seen = rows * lanes if case.blocks else case.sequences * sum(case.context - i for i in range(case.rows))
    return moved / rates.copy * 1e6, 2 * seen * PRODUCTS / rates.bf16 * 1e6


def measure(case: Case, rates: Rates, device: torch.device) -> list[dict[str, Any]]:
    """Times and floors of a case: the scores, and the scores with top-k."""
    size = case.sequences * case.context * WIDTH + case.sequences * case.rows * HEADS * WIDTH
    sets = [inputs(case, device, seed) for seed in range(max(1, min(8, -(-(120 << 20) // size))))]
    memory, products = floors(case, rates)
    scores = replay_time([call(case, args) for args in sets])
    both = replay_time([topk_call(case, args) for args in sets])
    floor = {"bytes_us": memory, "products_us": products}
    return [
        {"case": case.label, "us": scores, **floor, "share": max(memory, products) / scores},
        {"case": f"  with top-k: {case.label}", "us": both, **floor, "share": max(memory, products) / both,
         "select": both - scores},
    ]  # fmt: skip


def main() -> int:
    options = options_of(__doc__).parse_args()

    def cases(rates: Rates, device: torch.device) -> bool:
        for case in CASES:
            if options.only in case.label:
                for found in measure(case, rates, device):
                    select = f", select {found['select']:.1f} us" if "select" in found else ""
                    print(json.dumps(found) if options.json else LINE.format(**found) + select, flush=True)
        return False

    return run(options.json, cases)


if __name__ == "__main__":
    sys.exit(main())
