"""Sampling over a vocabulary of 129,280 on a GPU: filter and race, beside one softmax pass of the same run.

    python benchmarks/cuda_sampling.py [--json] [--only TEXT]

The bar at 256 rows is 3 softmax passes for temperature, top-k, top-p and race together, the goal 1.5. `sort` is
sampling in torch by a sort of the row, cumulative sums and one exponential race; it is not exact, and not the same
draw. Logits are normal numbers of deviation 1 ('flat'), 3 ('usual'), 3 with a few tokens far above them ('sure'), and 1
rounded to halves ('tied'), where more tokens share a value than a list of candidates holds: rows are searched whole.
Times are medians of graph replays, in turn over sets of logits that do not fit the L2 cache together. Exit status 1
past the bar.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from cuda_rates import Rates, options_of, replay_time, run
from torch import Tensor

from deepinfer.ops import sampling as ops
from deepinfer.ops.sampling import fixed31, inverse_temperature

VOCABULARY = 129280
BAR, GOAL, JUDGED_ROWS = 3.0, 1.5, 256
KINDS = ("flat", "usual", "sure", "tied")
FILTERS = {
    "no filter": (None, None, None),
    "top-k 50": (50, None, None),
    "top-p 0.95": (None, 0.95, None),
    "top-k 50, top-p 0.95": (50, 0.95, None),
    "top-k 50, top-p 0.95, min-p 0.02": (50, 0.95, 0.02),
}
JUDGED = "top-k 50, top-p 0.95"


def logits(kind: str, rows: int, device: torch.device) -> Tensor:
    z = torch.randn((rows, VOCABULARY), device=device)
    if kind in ("usual", "sure"):
        z *= 3
    if kind == "tied":
        z = torch.round(z * 2) / 2
    if kind == "sure":
        z[:, torch.randint(0, VOCABULARY, (8,), device=device)] += torch.arange(8, device=device) * 2.0 + 8
    return z


def by_sort(z: Tensor, top_p: float) -> Tensor:
    """Temperature and top-p in torch, as it is usually written."""
    probabilities = torch.softmax(z / 0.8, -1)
    values, order = probabilities.sort(-1, descending=True)
    values[values.cumsum(-1) - values > top_p] = 0
    winner = (values / torch.empty_like(values).exponential_()).argmax(-1, keepdim=True)
    return order.gather(1, winner)


def cases(rows: int, device: torch.device) -> Iterator[tuple[str, str, list[Callable[[], Any]]]]:
    """Kind of logits, label, and the same work on several sets."""
    sets = max(1, -(-(120 << 20) // (rows * VOCABULARY * 4)))
    inverse = torch.full((rows,), inverse_temperature(0.8), device=device)
    seeds, positions = torch.arange(rows, device=device), torch.full((rows,), 77, device=device)
    for kind in KINDS:
        many = [logits(kind, rows, device) for _ in range(sets)]
        if kind == KINDS[0]:
            out = torch.empty_like(many[0])
            yield kind, "softmax", [lambda z=z, out=out: torch.softmax(z, -1, out=out) for z in many]
            yield kind, "sort", [lambda z=z: by_sort(z, 0.95) for z in many]
        for label, (k, p, m) in FILTERS.items():
            top_k = None if k is None else torch.full((rows,), k, dtype=torch.int32, device=device)
            top_p = None if p is None else torch.full((rows,), fixed31(p), device=device)
            min_p = None if m is None else torch.full((rows,), fixed31(m), device=device)

            def whole(z: Tensor, filters: tuple[Any, ...] = (top_k, top_p, min_p)) -> Tensor:
                kept = ops.sample_filter(z, inverse, *filters)
                return ops.sample_draw(z, inverse, kept, seeds, positions)

            def filtered(z: Tensor, filters: tuple[Any, ...] = (top_k, top_p, min_p)) -> Any:
                return ops.sample_filter(z, inverse, *filters)

            yield kind, label, [lambda z=z, f=whole: f(z) for z in many]
            yield kind, f"{label}: filter alone", [lambda z=z, f=filtered: f(z) for z in many]


def main() -> int:
    parser = options_of(f"{__doc__}\nThe softmax pass is measured whatever --only says.")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 32, 256])
    options = parser.parse_args()

    def measure(_: Rates, device: torch.device) -> bool:
        missed = False
        for rows in options.rows:
            pass_us = 0.0
            for kind, label, calls in cases(rows, device):
                if label != "softmax" and options.only not in f"{kind}, {label}":
                    continue
                us = replay_time(calls)
                pass_us = us if label == "softmax" else pass_us
                passes = us / pass_us
                verdict = "reported"
                if rows == JUDGED_ROWS and label == JUDGED:
                    verdict = "goal" if passes <= GOAL else "pass" if passes <= BAR else "fail"
                found = {"case": f"{rows} rows, {kind}, {label}", "us": us, "passes": passes, "bar": verdict}
                line = "{case:66} {us:8.1f} us, {passes:5.2f} softmax passes  {bar}"
                print(json.dumps(found) if options.json else line.format(**found), flush=True)
                missed |= verdict == "fail"
        return missed

    return run(options.json, measure)


if __name__ == "__main__":
    sys.exit(main())
