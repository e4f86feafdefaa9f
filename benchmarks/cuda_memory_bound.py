"""Ops that read and write rows once, on a GPU: norms, hyper-connections, SwiGLU, experts' rows, Engram, taps, vision.

    python benchmarks/cuda_memory_bound.py [--json] [--only TEXT]

The floor is what an op's cost model says must move over the copy rate of the same run. The bar is 60 % of it at 4,096
rows; cases with a floor below 8 us, and those that are products or integers, are reported, not judged. Times are
medians of graph replays over sets of inputs that do not fit the L2 cache together. Exit status 1 below the bar.

Beside it, reported: 1 and 64 rows, as in a step of decoding, where launches and steps one after the other count. Their
inputs are the same in every replay, and so in the L2 cache, as what the op before has written would be.
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
Make = Callable[[torch.device, int], tuple[Any, ...]]


def bf16(device: torch.device, *shape: int) -> Tensor:
    return torch.randn(shape, device=device).bfloat16()


def f32(device: torch.device, *shape: int) -> Tensor:
    return torch.randn(shape, device=device)


def ids(device: torch.device, below: int, *shape: int) -> Tensor:
    return torch.randint(0, below, shape, device=device, dtype=torch.int32)


def norm(width: int) -> Make:
    return lambda device, n: (bf16(device, n, width), bf16(device, width), EPS)


def streams(device: torch.device, n: int) -> Tensor:
    return bf16(device, n, STREAMS, WIDTH)


def expand(device: torch.device, n: int) -> tuple[Any, ...]:
    post, comb = f32(device, n, STREAMS), f32(device, n, STREAMS, STREAMS)
    return streams(device, n), bf16(device, n, WIDTH), post, comb


def coefficients(device: torch.device, n: int) -> tuple[Any, ...]:
    outputs = (2 + STREAMS) * STREAMS
    fn = f32(device, outputs, STREAMS * WIDTH) * WIDTH**-0.5
    return streams(device, n), fn, f32(device, outputs), f32(device, 3), EPS, 1e-6, 20


def gate(device: torch.device, n: int) -> tuple[Any, ...]:
    bias, bias_vl = (f32(device, EXPERTS) * 0.1 for _ in range(2))
    return bias, bias_vl, torch.rand(n, device=device) < 0.3, CHOSEN, 1.5


def route(device: torch.device, n: int) -> tuple[Any, ...]:
    weight = SPECS["moe_route"].prepare(bf16(device, EXPERTS, WIDTH))
    return bf16(device, n, WIDTH), weight, *gate(device, n)


def chosen(device: torch.device, n: int) -> Tensor:
    return torch.rand(n, EXPERTS, device=device).topk(CHOSEN).indices.int()


def combine(device: torch.device, n: int) -> tuple[Any, ...]:
    position = torch.randperm(n * CHOSEN, device=device).int().view(n, CHOSEN)
    return bf16(device, n * CHOSEN, WIDTH), position, bf16(device, n, WIDTH)


def engram(device: torch.device, n: int) -> tuple[Any, ...]:
    weights = bf16(device, STREAMS, WIDTH), bf16(device, STREAMS, WIDTH)
    image = torch.zeros(n, dtype=torch.bool, device=device)
    return streams(device, n), bf16(device, n, (STREAMS + 1) * WIDTH), *weights, image, EPS


def table(device: torch.device, n: int) -> tuple[Any, ...]:
    codes = torch.randint(0, 0x7F, (1 << 20, 256), device=device, dtype=torch.uint8).view(torch.float8_e4m3fn)
    scale = torch.full((1 << 20, 8), 120, device=device, dtype=torch.uint8)
    return codes, scale, torch.randint(0, 1 << 20, (n, 24), device=device)


def bigram(device: torch.device, n: int) -> tuple[Any, ...]:
    head = SPECS["draft_logits"].prepare(bf16(device, 129280, 256))
    return f32(device, 64, 129280), ids(device, 129280, 64), bf16(device, 129280, 256), head


def image_rope(device: torch.device, n: int) -> tuple[Any, ...]:
    return bf16(device, n, 3, 16, 64), ids(device, 348, n, 3), f32(device, 348, 16, 2)


def scatter(device: torch.device, n: int) -> tuple[Any, ...]:
    return streams(device, n), bf16(device, n, WIDTH), bf16(device, 3, WIDTH), ids(device, n, n)


CASES: tuple[tuple[str, str, Make], ...] = (
    ("5120 channels", "rms_norm", norm(WIDTH)),
    ("5120 channels", "rms_norm_quant", norm(WIDTH)),
    ("1280 channels", "rms_norm_quant", norm(1280)),
    ("4 streams", "hc_collapse", lambda d, n: (streams(d, n), f32(d, n, STREAMS))),
    ("4 streams", "hc_collapse_norm", lambda d, n: (streams(d, n), f32(d, n, STREAMS), bf16(d, WIDTH), EPS)),
    ("4 streams", "hc_expand", expand),
    ("4 streams", "hc_coefficients", coefficients),
    ("2304 channels", "swiglu_quant", lambda d, n: (bf16(d, n, 2 * HIDDEN) * 4, f32(d, n), 10.0)),
    ("2304 channels, 6 a row", "swiglu_quant", lambda d, n: (bf16(d, 6 * n, 2 * HIDDEN), f32(d, 6 * n), 10.0)),
    ("6 of 384", "moe_gate", lambda d, n: (f32(d, n, EXPERTS) * 4, *gate(d, n))),
    ("6 of 384", "moe_route", route),
    ("6 of 384, 48 here", "moe_pack", lambda d, n: (chosen(d, n), f32(d, n, CHOSEN), 96, 48)),
    ("6 products", "moe_combine", combine),
    ("4 streams", "embed_streams", lambda d, n: (ids(d, 129280, n), bf16(d, 129280, WIDTH), STREAMS)),
    ("rows of 20480", "gather_rows", lambda d, n: (bf16(d, n, STREAMS * WIDTH), ids(d, n, n))),
    ("4 streams", "engram_gate", engram),
    ("24 rows of 256", "engram_gather", table),
    ("4 streams", "draft_tap", lambda d, n: (streams(d, n), bf16(d, n, 3, WIDTH), 1)),
    ("64 rows", "draft_logits", bigram),
    ("2816 channels", "silu_mul", lambda d, n: (bf16(d, n, 5632),)),
    ("16 heads of 64", "image_rope", image_rope),
    ("9 patches of 1024", "merge_patches", lambda d, n: (bf16(d, n * 9, 1024), ids(d, n * 9, n, 9))),
    ("4 streams", "scatter_embeds", scatter),
)
REPORTED = ("hc_coefficients", "moe_gate", "moe_route", "moe_pack", "draft_logits")
"""Products, choices and lists: memory is not what limits them."""


FEW = (1, 64)
LARGE = ("draft_logits",)
"""Ops whose case is not one of rows."""


def measure(label: str, op: str, make: Make, copy: float, device: torch.device) -> dict[str, Any]:
    """Times and floor of a case."""
    spec = SPECS[op]
    first = make(device, ROWS)
    needed = spec.work(*first).bytes
    sets = [first, *(make(device, ROWS) for _ in range(min(15, int((120 << 20) / needed))))]
    outs = [spec.run(*args) for args in sets]
    calls = [_call(spec.run, args, out) for args, out in zip(sets, outs, strict=True)]
    time, floor = replay_time(calls), needed / copy * 1e6
    few = {} if op in LARGE else {f"us_{n}": _alone(spec.run, make(device, n)) for n in FEW}
    judged = floor >= JUDGED_US and op not in REPORTED
    verdict = ("pass" if floor >= BAR * time else "fail") if judged else "reported"
    return {"case": f"{op}, {label}", "us": time, "floor_us": floor, "share": floor / time, "bar": verdict, **few}


def _alone(run: Callable[..., Any], args: tuple[Any, ...]) -> float:
    return replay_time([_call(run, args, run(*args))])


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
                few = "".join(f"  {n} rows {found[f'us_{n}']:5.1f}" for n in FEW if f"us_{n}" in found)
                print(f"{found['case']:44}{times}  {found['bar']:8}{few}", flush=True)
        return failed

    return run(given.json, cases)


if __name__ == "__main__":
    sys.exit(main())
