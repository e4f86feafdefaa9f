"""Oracles of the linear family and of the experts' grouped product."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from .expected import BF16, Within, accumulated, floats, largest_run, terms_of
from .formats import f64, fp4, fp8, fp8_blocks
from .formulas import product


@floats("linear_fp8")
def linear_fp8(*args: Any) -> list[Within]:
    xq, xs, weight = args
    want, magnitude = product(fp8(xq, xs), fp8_blocks(*weight.tensors))
    return [accumulated(terms_of("linear_fp8", args), magnitude, want)]


@floats("linear_fp8_grouped")
def linear_fp8_grouped(*args: Any) -> list[Within]:
    xq, xs, weight = args
    x, w = fp8(xq, xs), fp8_blocks(*weight.tensors)
    with np.errstate(invalid="ignore"):
        want = np.stack([x[:, g] @ w[g].T for g in range(len(w))], axis=1)
        magnitude = np.stack([np.abs(x[:, g]) @ np.abs(w[g]).T for g in range(len(w))], axis=1)
    return [accumulated(terms_of("linear_fp8_grouped", args), magnitude, want)]


@floats("linear_bf16")
def linear_bf16(*args: Any) -> list[Within]:
    x, weight, fp32_out = args
    wide, w, dtype = f64(x), f64(weight.tensors[0]), torch.float32 if fp32_out else BF16
    want, magnitude = product(wide, w)
    return [accumulated(terms_of("linear_bf16", args), largest_run(wide, w) if fp32_out else magnitude, want, dtype)]


@floats("grouped_linear")
def grouped_linear(*args: Any) -> list[Within]:
    xq, xs, weight, source_row, offsets = args
    x, bounds = fp8(xq, xs), offsets.tolist()
    rows = len(x) if source_row is None else len(source_row)
    want, magnitude = np.zeros((2, rows, weight.tensors[0].shape[1]))
    for e, (begin, end) in enumerate(zip(bounds, bounds[1:], strict=False)):
        if begin < end:
            part = x[begin:end] if source_row is None else x[source_row[begin:end].long().numpy()]
            w = fp4(weight.tensors[0][e], weight.tensors[1][e])
            want[begin:end], magnitude[begin:end] = product(part, w)
    found = accumulated(terms_of("grouped_linear", args), magnitude, want)
    defined = (torch.arange(rows) < bounds[-1]).unsqueeze(1).expand(found.want.shape)
    return [Within(found.want, found.limit, defined)]
