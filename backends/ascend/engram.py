"""Engram: hashed n-gram memories written into the residual streams."""

from __future__ import annotations

import torch
from torch import Tensor

from ...hal.registry import Signature
from .program import Program, flat
from .register import kernel
from .row_bytes import as_bytes

CHUNK, THREADS, CHANNELS = 16384, 256, 8192
ENGRAM_GATHER = Program("engram_kernels.py", "engram_gather", chunk=CHUNK)
ENGRAM_HASH = Program("engram_kernels.py", "engram_hash", threads=THREADS)
ENGRAM_GATE = Program("engram_kernels.py", "engram_gate", most=CHANNELS)


def _table_row(signature: Signature) -> str | None:
    width = signature.dims["dh"]
    fits = width % 32 == 0 and 0 < width <= CHUNK
    return None if fits else f"dh a multiple of 32 from 32 to {CHUNK}, got {width}"


@kernel("engram_gather", version=0, supports=_table_row)
def engram_gather(
    weight: Tensor, scale: Tensor, rows: Tensor, out: tuple[Tensor, Tensor] | None
) -> tuple[Tensor, Tensor]:
    (count, columns), width = rows.shape, weight.shape[1]
    if out is None:
        out = (
            torch.empty((count, columns * width), dtype=torch.float8_e4m3fn, device=weight.device),
            torch.empty((count, columns * (width // 32)), dtype=torch.uint8, device=weight.device),
        )
    ENGRAM_GATHER(
        count * columns,
        X=as_bytes(weight),
        SCALE=scale,
        R=rows.view(-1),
        Q=as_bytes(out[0]),
        E=out[1],
        N=weight.shape[0],
        L=count * columns,
        W=width,
    )
    return out


def _whole_sizes(signature: Signature) -> str | None:
    n, columns = signature.dims["n"], signature.dims["C"]
    if n < 2 or columns % (n - 1) or not columns:
        return f"n of at least 2 and C a multiple of n - 1, got n = {n} and C = {columns}"
    return None


@kernel("engram_hash", version=0, supports=_whole_sizes)
def engram_hash(
    ngrams: Tensor, lookup: Tensor, multipliers: Tensor, primes: Tensor, offsets: Tensor, pad: int, out: Tensor | None
) -> Tensor:
    (count, n), columns = ngrams.shape, primes.shape[0]
    rows = torch.empty((count, columns), dtype=torch.int64, device=ngrams.device) if out is None else out
    ENGRAM_HASH(
        count * columns,
        GRAM=ngrams,
        LOOKUP=flat(lookup),
        FACTOR=multipliers,
        PRIME=primes,
        OFFSET=offsets,
        Y=flat(rows),
        pad=pad,
        heads=columns // (n - 1),
        m=count,
        n=n,
        V=lookup.shape[0],
        C=columns,
        items=count * columns,
    )
    return rows


def _streams(signature: Signature) -> str | None:
    m, width = signature.dims["m"], signature.dims["D"]
    fits = 0 < width <= CHANNELS and m
    return None if fits else f"a stream or more of 1 to {CHANNELS} channels, got {m} of {width}"


@kernel("engram_gate", version=0, supports=_streams)
def engram_gate(
    x: Tensor, kv: Tensor, q_weight: Tensor, k_weight: Tensor, image: Tensor, eps: float, out: Tensor | None
) -> Tensor:
    rows, m, width = x.shape
    y = torch.empty_like(x) if out is None else out
    ENGRAM_GATE(
        rows,
        X=x,
        KV=kv,
        QW=q_weight,
        KW=k_weight,
        IMAGE=image.view(torch.uint8),
        Y=y,
        size=width,
        root=width**-0.5,
        eps=eps,
        m=rows,
        M=m,
        D=width,
        width=(m + 1) * width,
    )
    return y
