"""Linear layers over weights that are transposed once, at load."""

from __future__ import annotations

import torch
from torch import Tensor

from deepinfer.hal.registry import kernel
from deepinfer.ops.spec import WeightHandle

LAYOUT = "compiled-transposed"
ROWS = 16
"""Rows of one library call. Fewer rows are filled up with zeros: a matrix library picks the order of its sums by the
shape of the call, and a row must give the same bits alone and among others."""
CHANNELS = 256
"""Channels of one library call; longer sums are cut, since a library splits them over its threads."""


def transpose(weight: Tensor) -> tuple[Tensor]:
    """The weight [N, K] as fp32 [K, N], N filled up with zeros to a multiple of 16."""
    n, k = weight.shape
    prepared = torch.zeros(k, -(-n // ROWS) * ROWS, dtype=torch.float32, device=weight.device)
    prepared[:, :n] = weight.t()
    return (prepared,)


def multiply(x: Tensor, prepared: Tensor, n: int) -> Tensor:
    """x [T, K] times the prepared weight: fp32 [T, n]."""
    rows, k = x.shape
    padded = torch.zeros(-(-rows // ROWS) * ROWS, k)
    padded[:rows] = x
    y = torch.zeros(padded.shape[0], prepared.shape[1])
    for part, result in zip(padded.split(ROWS), y.split(ROWS), strict=True):
        for first in range(0, k, CHANNELS):
            result.addmm_(part[:, first : first + CHANNELS], prepared[first : first + CHANNELS])
    return y[:rows, :n].contiguous()  # outputs are contiguous


@kernel("linear_bf16", version=0, backend="compiled", layout=LAYOUT, prepare=transpose, device_types=("cpu",))
def linear_bf16(x: Tensor, weight: WeightHandle, fp32_out: bool, out: Tensor | None) -> Tensor:
    y = multiply(x, weight.tensors[0], weight.dims["N"]).to(torch.float32 if fp32_out else torch.bfloat16)
    return y if out is None else out.copy_(y)
