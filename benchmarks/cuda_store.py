"""Memory-bound ops on a GPU: rotary embedding, quantisation, cache stores and moves, beside their byte floors.

    python benchmarks/cuda_store.py [--json] [--only TEXT]

The floor is what an op's cost model says must move over the copy rate of the same run. The bar is 60 % of it at 4,096
rows; cases with a floor below 8 us are reported, not judged. Times are medians of graph replays over sets of inputs
that do not fit the L2 cache together. Exit status 1 below the bar.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import torch
from cuda_rates import Rates, options_of, replay_time, run
from torch import Tensor

from deepinfer.ops.spec import SPECS

BAR, JUDGED_US = 0.6, 8.0
ROWS, CONTEXT = 4096, 8192
Make = Callable[[torch.device], tuple[Any, ...]]


def ints(values: Any, device: torch.device) -> Tensor:
    return torch.as_tensor(values, dtype=torch.int32).to(device)


def random(device: torch.device, *shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.randn(shape, device=device).to(dtype)


def table(device: torch.device) -> Tensor:
    return random(device, CONTEXT, 32, 2, dtype=torch.float32)


def chunk(device: torch.device) -> tuple[Tensor, Tensor]:
    """positions and row_seq of a chunk of one prompt."""
    return ints(torch.arange(CONTEXT - ROWS, CONTEXT), device), ints(torch.zeros(ROWS), device)


def pages(device: torch.device, record: int, ratio: int) -> tuple[Tensor, Tensor]:
    """Pages with the stride of whole pages, and a block table."""
    count = CONTEXT // 128
    whole = torch.zeros((count + 1, 114048), dtype=torch.uint8, device=device)
    order = torch.randperm(count, device=device).int() + 1
    return whole[:, : 128 // ratio * record], order.view(1, count)


def rope(device: torch.device) -> tuple[Any, ...]:
    return random(device, ROWS, 64, 512), chunk(device)[0], table(device), True


def quant(width: int, dtype: torch.dtype) -> Make:
    return lambda device: (random(device, ROWS, width, dtype=dtype),)


def window_pack(device: torch.device) -> tuple[Any, ...]:
    return random(device, ROWS, 512), chunk(device)[0], table(device)


def query_pack(device: torch.device) -> tuple[Any, ...]:
    return random(device, ROWS, 32, 128), chunk(device)[0], table(device)


def compressed(ratio: int) -> Make:
    def make(device: torch.device) -> tuple[Any, ...]:
        pool, block_table = pages(device, 288, ratio)
        return random(device, ROWS, 512), pool, *chunk(device), block_table, table(device), ratio, "fp4_16"

    return make


def index_keys(device: torch.device) -> tuple[Any, ...]:
    pool, block_table = pages(device, 68, 1)
    return random(device, ROWS, 128), pool, *chunk(device), block_table, table(device), 1


def rings(device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """positions, row_seq, seq_end, state_slot of 32 sequences of 128 rows."""
    sequence = torch.arange(32).repeat_interleave(128)
    positions = torch.arange(128).repeat(32)
    return ints(positions, device), ints(sequence, device), ints([128] * 32, device), ints(range(1, 33), device)


def window_store(device: torch.device) -> tuple[Any, ...]:
    records = torch.randint(0, 256, (ROWS, 528), dtype=torch.uint8, device=device)
    return records, torch.zeros((33, 134, 528), dtype=torch.uint8, device=device), *rings(device)


def compress_pool(device: torch.device) -> tuple[Any, ...]:
    value, gate = (random(device, ROWS, 512, dtype=torch.float32) for _ in range(2))
    return value, gate, random(device, 33, 7, 2, 512, dtype=torch.float32), *rings(device)


def copy_slots(device: torch.device) -> tuple[Any, ...]:
    pool = torch.randint(0, 256, (64, 3128928), dtype=torch.uint8, device=device)
    return pool, ints([[i, 32 + i] for i in range(32)], device)


def load_records(device: torch.device) -> tuple[Any, ...]:
    pool, block_table = pages(device, 288, 1)
    order = block_table.flatten().tolist()
    return pool, ints([[page, 0, 128, 128 * i] for i, page in enumerate(order)], device), CONTEXT, 128, 512, "fp4_16"


CASES: tuple[tuple[str, str, Make], ...] = (
    ("inverse rope, 64 heads of 512", "rope", rope),
    ("5120 channels, bf16", "quant_fp8", quant(5120, torch.bfloat16)),
    ("8192 channels, bf16", "quant_fp8", quant(8192, torch.bfloat16)),
    ("5120 channels, fp32", "quant_fp8", quant(5120, torch.float32)),
    ("512 channels", "window_pack", window_pack),
    ("32 heads of 128", "index_query_pack", query_pack),
    ("512 channels, ratio 1", "compressed_store", compressed(1)),
    ("512 channels, ratio 2", "compressed_store", compressed(2)),
    ("128 channels, ratio 1", "index_key_store", index_keys),
    ("32 sequences of 128 rows", "window_store", window_store),
    ("512 channels", "compress_pool", compress_pool),
    ("32 slots of 3 MB", "copy_slots", copy_slots),
    ("8192 entries of 512", "load_records", load_records),
)


def measure(label: str, op: str, make: Make, copy: float, device: torch.device) -> dict[str, Any]:
    """Time and floor of a case at 4,096 rows."""
    spec = SPECS[op]
    first = make(device)
    needed = spec.work(*first).bytes
    sets = [first, *(make(device) for _ in range(min(15, int((120 << 20) / needed))))]
    outs = [spec.run(*args) for args in sets]
    calls = [_call(spec.run, args, out) for args, out in zip(sets, outs, strict=True)]
    time, floor = replay_time(calls), needed / copy * 1e6
    verdict = "reported" if floor < JUDGED_US else "pass" if floor >= BAR * time else "fail"
    return {"case": f"{op}, {label}", "us": time, "floor_us": floor, "share": floor / time, "bar": verdict}


def _call(run: Callable[..., Any], args: tuple[Any, ...], out: Any) -> Callable[[], Any]:
    return lambda: run(*args, out)


def main() -> int:
    options = options_of(__doc__).parse_args()

    def cases(rates: Rates, device: torch.device) -> bool:
        missed = False
        for label, op, make in CASES:
            if options.only in f"{op}, {label}":
                found = measure(label, op, make, rates.copy, device)
                line = "{case:48} {us:8.1f} us, floor {floor_us:7.1f}, share {share:.2f}  {bar}"
                print(json.dumps(found) if options.json else line.format(**found), flush=True)
                missed |= found["bar"] == "fail"
        return missed

    return run(options.json, cases)


if __name__ == "__main__":
    sys.exit(main())
