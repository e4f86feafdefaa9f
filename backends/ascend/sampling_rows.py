"""Parameters of logit rows, masks on some rows, values of candidate lists."""

from __future__ import annotations

import torch
from torch import Tensor

from ...ops.sampling import FIXED_ONE
from .program import Program
from .register import kernel
from .scratch import nothing

THREADS, PIECE, WIDE = 256, 8192, 512
MASK_ROWS = Program("sampling_rows_kernels.py", "mask_rows", threads=THREADS, piece=PIECE)
EXPAND_PARAMS = Program("sampling_rows_kernels.py", "expand_params", threads=THREADS)
LOOKUP_CANDIDATES = Program("sampling_rows_kernels.py", "lookup_candidates", wide=WIDE)


@kernel("mask_rows", version=0)
def mask_rows(logits: Tensor, words: Tensor, request: Tensor, offset: Tensor, first_row: Tensor, out: None) -> None:
    (rows, width), masks = logits.shape, len(words)
    if not rows:
        return
    pieces = -(-width // PIECE)
    MASK_ROWS(
        masks * pieces, Z=logits, W=words, Q=request, O=offset, F=first_row, pieces=pieces, items=masks * pieces,
        m=rows, V=width, G=masks, N=words.shape[1], R=len(first_row),
    )  # fmt: skip


@kernel("expand_params", version=0)
def expand_params(
    request: Tensor, offset: Tensor, inv_temperature: Tensor, top_k: Tensor, top_p: Tensor, min_p: Tensor,
    seeds: Tensor, base: Tensor, out: tuple[Tensor, ...] | None,
) -> tuple[Tensor, ...]:  # fmt: skip
    values = (inv_temperature, top_k, top_p, min_p, seeds, base)
    if out is None:
        out = tuple(torch.empty(request.shape, dtype=v.dtype, device=v.device) for v in values)
    chunks = -(-len(request) // THREADS)
    given: dict[str, Tensor] = {f"A{i}": some(v) for i, v in enumerate(values)}
    given |= {f"Y{i}": v for i, v in enumerate(out)}
    sizes = {"m": len(request), "R": max(1, len(seeds)), "chunks": chunks}
    EXPAND_PARAMS(chunks, Q=request, O=offset, **given, one=FIXED_ONE, **sizes)
    return out


def some(tensor: Tensor) -> Tensor:
    """The tensor, or where it is empty one element that no kernel reads."""
    return tensor if tensor.numel() else nothing(tensor.device, tensor.dtype)


@kernel("lookup_candidates", version=0)
def lookup_candidates(ids: Tensor, values: Tensor, wanted: Tensor, out: Tensor | None) -> Tensor:
    (rows, most), count = ids.shape, wanted.shape[1]
    found = torch.empty(wanted.shape, dtype=torch.float32, device=values.device) if out is None else out
    pieces = -(-count // WIDE)
    LOOKUP_CANDIDATES(
        rows * pieces, I=some(ids), X=some(values), W=wanted, Y=found, pieces=max(1, pieces), items=rows * pieces,
        m=rows, K=most, J=count,
    )  # fmt: skip
    return found
