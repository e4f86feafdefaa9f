"""Definitions of the exact ops of the families embed, quant, MoE and Engram, row by row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from .expected import Bits, bits
from .formats import f64, q8
from .formulas import engram_rows


def _rows(x: Tensor, ids: Tensor) -> Tensor:
    """x[ids], zeros for ids that x does not have."""
    found = torch.zeros((len(ids), *x.shape[1:]), dtype=x.dtype)
    for row, i in enumerate(ids.tolist()):
        if 0 <= i < len(x):
            found[row] = x[i]
    return found


@bits("embed_streams")
def embed_streams(ids: Tensor, weight: Tensor, streams: int) -> Sequence[Bits]:
    pending = torch.zeros(len(ids), streams)
    pending[:, 0] = 1
    return Bits(_rows(weight, ids).unsqueeze(1).repeat(1, streams, 1)), Bits(pending)


@bits("gather_rows")
def gather_rows(x: Tensor, rows: Tensor) -> Sequence[Bits]:
    return (Bits(_rows(x, rows)),)


@bits("quant_fp8")
def quant_fp8(x: Tensor) -> Sequence[Bits]:
    codes, scale = q8(f64(x))
    return Bits(torch.from_numpy(codes).view(torch.float8_e4m3fn)), Bits(torch.from_numpy(scale))


@bits("moe_pack")
def moe_pack(experts: Tensor, weights: Tensor, first: int, count: int) -> Sequence[Bits]:
    routed = [(e - first, t, j) for t, row in enumerate(experts.tolist()) for j, e in enumerate(row)]
    local = sorted(entry for entry in routed if 0 <= entry[0] < count)
    source, packed = torch.full((experts.numel(),), -1, dtype=torch.int32), torch.zeros(experts.numel())
    position = torch.full(experts.shape, -1, dtype=torch.int32)
    for place, (_, t, j) in enumerate(local):
        source[place], packed[place], position[t, j] = t, weights[t, j], place
    offsets = [sum(e < bound for e, _, _ in local) for bound in range(count + 1)]
    return Bits(source), Bits(packed), Bits(torch.tensor(offsets, dtype=torch.int32)), Bits(position)


@bits("engram_gather")
def engram_gather(weight: Tensor, scale: Tensor, rows: Tensor) -> Sequence[Bits]:
    def picked(table: Tensor) -> Tensor:
        made = torch.zeros((*rows.shape, table.shape[1]), dtype=torch.uint8)
        for t, row in enumerate(rows.tolist()):
            for c, i in enumerate(row):
                made[t, c] = table[i]
        return made.flatten(1)

    return Bits(picked(weight.view(torch.uint8)).view(weight.dtype)), Bits(picked(scale))


@bits("engram_hash")
def engram_hash(
    ngrams: Tensor, lookup: Tensor, multipliers: Tensor, primes: Tensor, offsets: Tensor, pad: int
) -> Sequence[Bits]:
    known, factors, sizes, begins = (x.tolist() for x in (lookup, multipliers, primes, offsets))
    rows = [engram_rows(ngram, known, factors, sizes, begins, pad) for ngram in ngrams.tolist()]
    return (Bits(torch.from_numpy(np.array(rows, dtype=np.int64).reshape(len(ngrams), len(primes)))),)
