"""Engram: hashed n-gram memories written into the residual streams."""

from __future__ import annotations

import torch
from torch import Tensor

from ...hal.registry import Signature, kernel
from .common import check_index, finish, tree_sum, widths
from .formats import FP8_GROUP
from .norm import inverse_rms
from .portable import sigmoid

GATE_FLOOR = 1e-6


def whole_sizes(signature: Signature) -> str | None:
    """Columns belong to n-gram sizes 2 .. n, as many to each."""
    n, columns = signature.dims["n"], signature.dims["C"]
    if n < 2 or columns % (n - 1):
        return f"n must be at least 2 and C a multiple of n - 1, got n = {n} and C = {columns}"
    return None


@kernel("engram_hash", version=0, backend="reference", supports=whole_sizes)
def engram_hash(
    ngrams: Tensor, lookup: Tensor, multipliers: Tensor, primes: Tensor, offsets: Tensor, pad: int, out: Tensor | None
) -> Tensor:
    inside = (ngrams >= 0) & (ngrams < lookup.shape[0])
    unbroken = inside.cummin(dim=1).values
    ids = torch.where(unbroken, lookup[torch.where(inside, ngrams, 0)].long(), pad)
    products = ids * multipliers
    state = products[:, 0]
    hashes = []
    for size in range(1, ngrams.shape[1]):
        state = state ^ products[:, size]
        hashes.append(state)
    heads = primes.shape[0] // len(hashes)
    columns = torch.stack(hashes, dim=1).repeat_interleave(heads, dim=1)
    return finish(columns % primes + offsets, out)


@kernel("engram_gather", version=0, backend="reference", supports=widths(dh=32))
def engram_gather(
    weight: Tensor, scale: Tensor, rows: Tensor, out: tuple[Tensor, Tensor] | None
) -> tuple[Tensor, Tensor]:
    wanted = check_index("engram_gather", "rows", rows, weight.shape[0]).flatten().to(weight.device)
    # Row selection of bytes: only the rows asked for are read, so a memory-mapped table stays on disk.
    codes = weight.view(torch.uint8).index_select(0, wanted)
    scales = scale.index_select(0, wanted)
    count, columns = rows.shape
    q = codes.view(count, columns * weight.shape[1]).to(rows.device).view(torch.float8_e4m3fn)
    s = scales.view(count, columns * (weight.shape[1] // FP8_GROUP)).to(rows.device)
    return finish((q, s), out)


@kernel("engram_gate", version=0, backend="reference")
def engram_gate(
    x: Tensor, kv: Tensor, q_weight: Tensor, k_weight: Tensor, image: Tensor, eps: float, out: Tensor | None
) -> Tensor:
    rows, m, width = x.shape
    streams = x.to(torch.float32)
    key, value = kv.to(torch.float32).view(rows, m + 1, width).split((m, 1), dim=1)
    weight = q_weight.to(torch.float32) * k_weight.to(torch.float32)
    dot = tree_sum(streams * weight * key) * inverse_rms(streams, eps) * inverse_rms(key, eps) * width**-0.5
    gate = sigmoid(torch.copysign(dot.abs().clamp_(min=GATE_FLOOR).sqrt_(), dot))
    updated = (streams + gate * value).to(torch.bfloat16)
    return finish(torch.where(image.view(rows, 1, 1), x, updated), out)
