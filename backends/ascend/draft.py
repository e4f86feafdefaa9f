"""Drafting: taps, rows of the draft pass, bigram correction, confidences, and how rows are shared out."""

from __future__ import annotations

import torch
from torch import Tensor

from ...hal.registry import Signature
from ...ops.spec import WeightHandle
from .embed import gather_rows
from .linear import COLUMNS, LINEAR_BF16, ROWS
from .program import Program, flat
from .register import kernel
from .sampling_rows import some
from .scratch import Part, scratch_bytes, take

THREADS, PIECE, PER, GROUP, DRAFTS, MOST = 256, 8192, 64, 256, 32, 8192
DRAFT_INPUTS = Program("draft_kernels.py", "draft_inputs", threads=THREADS)
DRAFT_STORE = Program("draft_kernels.py", "draft_store", threads=THREADS)
DRAFT_TAP = Program("draft_kernels.py", "draft_tap", piece=PIECE)
CORRECT_K = Program("draft_kernels.py", "correct_k", threads=THREADS)
CORRECT_Q = Program("draft_kernels.py", "correct_q", per=PER, group=GROUP, drafts=DRAFTS)
DRAFT_CONFIDENCE = Program("draft_kernels.py", "draft_confidence", most=MOST)
FEW = 16  # rows of a tile of the matrix unit where there are no more: a step of few sequences fills one in part
LINEAR_FEW = Program("linear_kernels.py", "linear_bf16", out="float32", rows=FEW)
DRAFT_ADD = Program("draft_kernels.py", "draft_add", piece=PIECE)


@kernel("draft_tap", version=0)
def draft_tap(x: Tensor, taps: Tensor, place: int, out: None) -> None:
    rows, streams, width = x.shape
    pieces = -(-width // PIECE)
    items = rows * pieces
    DRAFT_TAP(
        items, X=x, Y=taps, place=place, scale=1.0 / streams, pieces=max(1, pieces), items=items, m=rows, M=streams,
        D=width, N=taps.shape[1],
    )  # fmt: skip


@kernel("draft_inputs", version=0)
def draft_inputs(
    tokens: Tensor, base: Tensor, accepted: Tensor, valid_start: Tensor, block: int, window: int, noise: int,
    out: tuple[Tensor, ...] | None,
) -> tuple[Tensor, ...]:  # fmt: skip
    count = len(tokens)
    if out is None:
        shapes = (*((count * block,) for _ in range(5)), (count,), (count,), (block, count))
        kinds = (*(torch.int32 for _ in range(7)), torch.int64)
        out = tuple(torch.empty(s, dtype=kind, device=tokens.device) for s, kind in zip(shapes, kinds, strict=True))
    chunks = -(-count * block // THREADS)
    DRAFT_INPUTS(
        chunks, X=tokens, B=base, A=accepted, F=valid_start, **{f"Y{i}": y for i, y in enumerate(out)}, window=window,
        noise=noise, chunks=chunks, s=count, n=count * block, d=block,
    )  # fmt: skip
    return out


@kernel("draft_store", version=0)
def draft_store(
    tokens: Tensor, confidence: Tensor, stop: Tensor | None, slots: Tensor, pool_tokens: Tensor,
    pool_confidence: Tensor, out: None,
) -> None:  # fmt: skip
    count, places = tokens.shape
    entries = count * places
    chunks = -(-entries // THREADS)
    ends = (slots if stop is None else stop).view(torch.uint8)
    DRAFT_STORE(
        chunks, X=flat(tokens), C=flat(confidence), E=ends, O=slots, Y0=some(pool_tokens), Y1=some(pool_confidence),
        stops=int(stop is not None), chunks=chunks, s=count, n=entries, d=places, z=max(1, len(pool_tokens)),
    )  # fmt: skip


def _places(signature: Signature) -> str | None:
    places = signature.dims["n"]
    return None if 0 < places <= DRAFTS else f"1 to {DRAFTS} drafts of a sequence, got {places}"


@kernel("correct_q", version=0, supports=_places)
def correct_q(confidence: Tensor, remap: Tensor, total: int, out: Tensor | None) -> Tensor:
    rows = torch.empty_like(remap) if out is None else out
    count, places = len(remap), confidence.shape[1]
    chunks = -(-count // PER)
    CORRECT_Q(
        chunks, C=some(confidence), R=remap, Y=rows, budget=total - count, chunks=chunks, n=count,
        z=max(1, len(confidence)), d=places,
    )  # fmt: skip
    return rows


@kernel("correct_k", version=0)
def correct_k(base: Tensor, q: Tensor, remap: Tensor, assumed: Tensor, accepted: Tensor, out: Tensor | None) -> Tensor:
    lengths = torch.empty_like(base) if out is None else out
    chunks = -(-len(base) // THREADS)
    CORRECT_K(
        chunks, B=base, Q=q, R=remap, A=assumed, C=some(accepted), Y=lengths, chunks=chunks, n=len(base),
        z=max(1, len(accepted)),
    )  # fmt: skip
    return lengths


def _narrow(signature: Signature) -> str | None:
    d, r = signature.dims["D"], signature.dims["r"]
    return None if 0 < d <= MOST and 0 < r <= MOST else f"D and r from 1 to {MOST}, got D = {d}, r = {r}"


@kernel("draft_confidence", version=0, supports=_narrow)
def draft_confidence(
    hidden: Tensor, tokens: Tensor, embed: Tensor, weight: Tensor, inv_temperature: Tensor, out: Tensor | None
) -> Tensor:
    confidence = torch.empty(tokens.shape, dtype=torch.float32, device=tokens.device) if out is None else out
    (count, places, width), rank = hidden.shape, embed.shape[1]
    DRAFT_CONFIDENCE(
        count * places, X=flat(hidden).view(-1, width) if hidden.numel() else hidden, I=flat(tokens), E=some(embed),
        W=weight[:width], WE=weight[width:], R=inv_temperature, Y=flat(confidence), m=count * places, D=width, K=rank,
        n=places, N=len(embed),
    )  # fmt: skip
    return confidence


def _ranked(signature: Signature) -> str | None:
    v, r = signature.dims["V"], signature.dims["r"]
    return None if v > 0 and r > 0 else f"V and r from 1 on, got V = {v}, r = {r}"


def _gathered(tokens: Tensor, embed: Tensor) -> Part:
    """The tokens' rows of the table."""
    return embed.dtype, (len(tokens), embed.shape[1])


def _gathered_scratch(base: Tensor, tokens: Tensor, embed: Tensor, *rest: object) -> int:
    return scratch_bytes(_gathered(tokens, embed))


@kernel("draft_logits", version=0, supports=_ranked, workspace=_gathered_scratch)
def draft_logits(
    base: Tensor,
    tokens: Tensor,
    embed: Tensor,
    handle: WeightHandle,
    out: Tensor | None,
    workspace: Tensor | None = None,
) -> Tensor:
    (weight,) = handle.tensors
    (rows, width), rank = base.shape, embed.shape[1]
    logits = torch.empty((rows, width), dtype=torch.float32, device=base.device) if out is None else out
    if rows:
        (x,) = take(workspace, base.device, _gathered(tokens, embed))
        gather_rows(embed, tokens, x)
        linear, tile = (LINEAR_FEW, FEW) if rows <= FEW else (LINEAR_BF16[True], ROWS)
        across = -(-rows // tile)
        tiles = across * -(-width // COLUMNS)
        linear(tiles, X=x, W=weight, Y=logits, across=across, tiles=tiles, m=rows, N=width, K=rank)
        pieces = -(-width // PIECE)
        DRAFT_ADD(
            rows * pieces, X=flat(base), Y=logits, stride=base.stride(0), pieces=pieces, items=rows * pieces, m=rows,
            V=width, span=flat(base).numel(),
        )  # fmt: skip
    return logits
