"""Ops that read and write rows once, on a GPU: norms, hyper-connections, SwiGLU, experts' rows, Engram, taps, vision.

    python benchmarks/cuda_memory_bound.py [--json] [--only TEXT]

The floor is what an op's cost model says must move over the copy rate of the same run. The bar is 60 % of it at 4,096
rows; cases with a floor below 8 us, and those that are products or integers, are reported, not judged. Times are
medians of graph replays over sets of inputs that do not fit the L2 cache together. Exit status 1 below the bar.
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
ROWS, WIDTH, STREAMS, EXPERTS, CHOSEN, HIDDEN = 4096, 5120, 4, 384, 6, 2304
EPS = 1e-20
Make = Callable[[torch.device], tuple[Any, ...]]


def bf16(device: torch.device, *shape: int) -> Tensor:
    return torch.randn(shape, device=device).bfloat16()


def f32(device: torch.device, *shape: int) -> Tensor:
    return torch.randn(shape, device=device)


def ids(device: torch.device, below: int, *shape: int) -> Tensor:
    return torch.randint(0, below, shape, device=device, dtype=torch.int32)


def norm(width: int) -> Make:
    return lambda device: (bf16(device, ROWS, width), bf16(device, width), EPS)


def streams(device: torch.device) -> Tensor:
    return bf16(device, ROWS, STREAMS, WIDTH)


def expand(device: torch.device) -> tuple[Any, ...]:
    post, comb = f32(device, ROWS, STREAMS), f32(device, ROWS, STREAMS, STREAMS)
    return streams(device), bf16(device, ROWS, WIDTH), post, comb


def coefficients(device: torch.device) -> tuple[Any, ...]:
    outputs = (2 + STREAMS) * STREAMS
    fn = f32(device, outputs, STREAMS * WIDTH) * WIDTH**-0.5
    return streams(device), fn, f32(device, outputs), f32(device, 3), EPS, 1e-6, 20


def gate(device: torch.device) -> tuple[Any, ...]:
    bias, bias_vl = (f32(device, EXPERTS) * 0.1 for _ in range(2))
    return bias, bias_vl, torch.rand(ROWS, device=device) < 0.3, CHOSEN, 1.5


def route(device: torch.device) -> tuple[Any, ...]:
    weight = SPECS["moe_route"].prepare(bf16(device, EXPERTS, WIDTH))
    return bf16(device, ROWS, WIDTH), weight, *gate(device)


def chosen(device: torch.device) -> Tensor:
    return torch.rand(ROWS, EXPERTS, device=device).topk(CHOSEN).indices.int()


def combine(device: torch.device) -> tuple[Any, ...]:
    position = torch.randperm(ROWS * CHOSEN, device=device).int().view(ROWS, CHOSEN)
    return bf16(device, ROWS * CHOSEN, WIDTH), position, bf16(device, ROWS, WIDTH)


def engram(device: torch.device) -> tuple[Any, ...]:
    weights = bf16(device, STREAMS, WIDTH), bf16(device, STREAMS, WIDTH)
    image = torch.zeros(ROWS, dtype=torch.bool, device=device)
    return streams(device), bf16(device, ROWS, (STREAMS + 1) * WIDTH), *weights, image, EPS


def table(device: torch.device) -> tuple[Any, ...]:
    codes = torch.randint(0, 0x7F, (1 << 20, 256), device=device, dtype=torch.uint8).view(torch.float8_e4m3fn)
    scale = torch.full((1 << 20, 8), 120, device=device, dtype=torch.uint8)
    return codes, scale, torch.randint(0, 1 << 20, (ROWS, 24), device=device)


def bigram(device: torch.device) -> tuple[Any, ...]:
    head = SPECS["draft_logits"].prepare(bf16(device, 129280, 256))
    return f32(device, 64, 129280), ids(device, 129280, 64), bf16(device, 129280, 256), head


def image_rope(device: torch.device) -> tuple[Any, ...]:
    return bf16(device, ROWS, 3, 16, 64), ids(device, 348, ROWS, 3), f32(device, 348, 16, 2)


def scatter(device: torch.device) -> tuple[Any, ...]:
    return streams(device), bf16(device, ROWS, WIDTH), bf16(device, 3, WIDTH), ids(device, ROWS, ROWS) - 1


CASES: tuple[tuple[str, str, Make], ...] = (
    ("5120 channels", "rms_norm", norm(WIDTH)),
    ("5120 channels", "rms_norm_quant", norm(WIDTH)),
    ("1280 channels", "rms_norm_quant", norm(1280)),
    ("4 streams", "hc_collapse", lambda d: (streams(d), f32(d, ROWS, STREAMS))),
    ("4 streams", "hc_collapse_norm", lambda d: (streams(d), f32(d, ROWS, STREAMS), bf16(d, WIDTH), EPS)),
    ("4 streams", "hc_expand", expand),
    ("4 streams", "hc_coefficients", coefficients),
    ("2304 channels", "swiglu_quant", lambda d: (bf16(d, ROWS, 2 * HIDDEN) * 4, f32(d, ROWS), 10.0)),
    ("2304 channels, 24,576 rows", "swiglu_quant", lambda d: (bf16(d, 6 * ROWS, 2 * HIDDEN), f32(d, 6 * ROWS), 10.0)),
    ("6 of 384", "moe_gate", lambda d: (f32(d, ROWS, EXPERTS) * 4, *gate(d))),
    ("6 of 384", "moe_route", route),
    ("6 of 384, 48 here", "moe_pack", lambda d: (chosen(d), f32(d, ROWS, CHOSEN), 96, 48)),
    ("128 rows, 6 of 384, 48 here", "moe_pack", lambda d: (chosen(d)[:128], f32(d, 128, CHOSEN), 96, 48)),
    ("6 products", "moe_combine", combine),
    ("4 streams", "embed_streams", lambda d: (ids(d, 129280, ROWS), bf16(d, 129280, WIDTH), STREAMS)),
    ("rows of 20480", "gather_rows", lambda d: (bf16(d, ROWS, STREAMS * WIDTH), ids(d, ROWS, ROWS))),
    ("4 streams", "engram_gate", engram),
    ("24 rows of 256", "engram_gather", table),
    ("4 streams", "draft_tap", lambda d: (streams(d), bf16(d, ROWS, 3, WIDTH), 1)),
    ("64 rows", "draft_logits", bigram),
    ("2816 channels", "silu_mul", lambda d: (bf16(d, ROWS, 5632),)),
    ("16 heads of 64", "image_rope", image_rope),
    ("9 patches of 1024", "merge_patches", lambda d: (bf16(d, ROWS * 9, 1024), ids(d, ROWS * 9, ROWS, 9))),
    ("4 streams", "scatter_embeds", scatter),
)
REPORTED = ("hc_coefficients", "moe_gate", "moe_route", "moe_pack", "draft_logits")
"""Products, choices and lists: memory is not what limits them."""


def measure(label: str, op: str, make: Make, copy: float, device: torch.device) -> dict[str, Any]:
    """Time and floor of a case."""
    spec = SPECS[op]
    first = make(device)
    needed = spec.work(*first).bytes
    sets = [first, *(make(device) for _ in range(min(15, int((120 << 20) / needed))))]
    outs = [spec.run(*args) for args in sets]
    calls = [_call(spec.run, args, out) for args, out in zip(sets, outs, strict=True)]
    time, floor = replay_time(calls), needed / copy * 1e6
    judged = floor >= JUDGED_US and op not in REPORTED
    verdict = ("pass" if floor >= BAR * time else "fail") if judged else "reported"
    return {"case": f"{op}, {label}", "us": time, "floor_us": floor, "share": floor / time, "bar": verdict}


def _call(run: Callable[..., Any], args: tuple[Any, ...], out: Any) -> Callable[[], Any]:
    return lambda: run(*args, out=out)


def main() -> int:
    parser = options_of(__doc__)
    given = parser.parse_args()

    def cases(rates: Rates, device: torch.device) -> bool:
        failed = False
        for label, op, make in CASES:
            if given.only not in f"{op}, {label}":
                continue
            found = measure(label, op, make, rates.copy, device)
            failed |= found["bar"] == "fail"
            if given.json:
                print(json.dumps(found), flush=True)
            else:
                times = f"{found['us']:8.1f} us  floor {found['floor_us']:7.1f}  {found['share']:5.0%}"
                print(f"{found['case']:44}{times}  {found['bar']}", flush=True)
        return failed

    return run(given.json, cases)


if __name__ == "__main__":
    sys.exit(main())
