"""Verification of drafts: what they were drawn from, which are accepted, what a step has produced."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...ops.sampling import Purpose
from .program import Program, flat, recast
from .register import kernel
from .sampling import SAMPLE_DRAW, log_sums, sums_parts, sums_scratch
from .sampling_rows import some
from .scratch import Part, scratch_bytes, take

CHUNK, THREADS = 8192, 128
VERIFY_DRAFTS = Program("verify_drafts.cpp", "verify_drafts")
ACCEPT_PREFIX = Program("verify_kernels.py", "accept_prefix", threads=THREADS)


_DISTRIBUTION, _TEST, _FINISH = range(3)


@dataclass(frozen=True)
class _Rows:
    """What every launch of verify_drafts.cpp takes."""

    logits: Tensor
    inverse: Tensor
    threshold: Tensor
    last: Tensor
    count: Tensor
    tokens: Tensor
    sums: Tensor
    pool: Tensor
    slots: Tensor | None


def _launch(what: int, items: int, of: _Rows, **given: Tensor | int) -> None:
    """One of the launches; what it does not read may be left out."""
    tokens, pool = of.tokens, of.pool
    blank: dict[str, Tensor | int] = dict.fromkeys(("A", "N", "F", "D", "Y"), tokens)
    words = tokens.view(torch.uint32)
    row: dict[str, Tensor | int] = {
        "Z": of.logits, "R": of.inverse, "H": of.threshold, "L": of.last, "C": of.count, "X": tokens, "M": of.sums,
        "Q": flat(pool), "O": tokens if of.slots is None else of.slots, "SEED": words, "AT": words,
        "B": tokens.view(torch.uint8), "stride": pool.stride(0), "pieces": 1, "items": items, "start": 0, "purpose": 0,
        "pooled": int(of.slots is not None and pool.numel() > 0), "shared": 0, "V": of.logits.shape[1], "what": what,
    }  # fmt: skip
    VERIFY_DRAFTS(items, **{**blank, **row, **given})


@kernel("draft_distribution", version=0, source="ascendc", workspace=sums_scratch)
def draft_distribution(
    logits: Tensor, inv_temperature: Tensor, threshold: Tensor, last_id: Tensor, count: Tensor, tokens: Tensor,
    slots: Tensor, pool: Tensor, place: int, out: None, workspace: Tensor | None = None,
) -> None:  # fmt: skip
    rows, width = logits.shape
    if not rows:
        return
    sums, unread = take(workspace, logits.device, *sums_parts(logits))
    log_sums(sums, unread, logits, inv_temperature, threshold, last_id)
    pieces = -(-width // CHUNK)
    of = _Rows(logits, inv_temperature, threshold, last_id, count, tokens, sums, pool, slots)
    _launch(_DISTRIBUTION, rows * pieces, of, start=place * pool.stride(1), pieces=pieces)


def _verify_parts(logits: Tensor) -> tuple[Part, ...]:
    """Sums of the rows, and of each whether the draw has to be made, what has become of the draft, and the draw."""
    return *sums_parts(logits), *((torch.int32, (logits.shape[0],)) for _ in range(3))


def _verify_scratch(logits: Tensor, *rest: object) -> int:
    return scratch_bytes(*_verify_parts(logits))


@kernel("verify_drafts", version=0, source="ascendc", workspace=_verify_scratch)
def verify_drafts(
    logits: Tensor, inv_temperature: Tensor, threshold: Tensor, last_id: Tensor, count: Tensor, max_id: Tensor,
    drafts: Tensor, seeds: Tensor, positions: Tensor, log2q: Tensor | None, draft_row: Tensor | None, shared: bool,
    out: tuple[Tensor, Tensor] | None, workspace: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    rows, width = logits.shape
    if out is None:
        out = torch.empty_like(drafts), torch.empty(drafts.shape, dtype=torch.bool, device=drafts.device)
    if not rows:
        return out
    sums, unread, several, fate, drawn = take(workspace, logits.device, *_verify_parts(logits))
    log_sums(sums, unread, logits, inv_temperature, threshold, last_id)
    pool = sums if log2q is None else log2q
    of = _Rows(logits, inv_temperature, threshold, last_id, count, drafts, sums, pool, draft_row)
    seed, at = (recast(t, torch.uint32).view(rows, 2) for t in (seeds, positions))
    _launch(_TEST, rows, of, SEED=seed, AT=at, N=several, F=fate, purpose=int(Purpose.ACCEPTANCE), shared=int(shared))
    SAMPLE_DRAW(
        rows, Z=logits, R=inv_temperature, H=threshold, L=last_id, C=several, A=max_id, SEED=seed, AT=at, Y=drawn,
        purpose=int(Purpose.TARGET), m=rows, V=width,
    )  # fmt: skip
    tokens, accepted = out
    _launch(
        _FINISH, rows, of, SEED=seed, AT=at, A=max_id, D=drawn, F=fate, Y=tokens, B=accepted.view(torch.uint8),
        purpose=int(Purpose.RESIDUAL),
    )  # fmt: skip
    return out


@kernel("accept_prefix", version=0)
def accept_prefix(
    tokens: Tensor, accepted: Tensor, drafts: Tensor | None, golden: Tensor | None, begin: Tensor, rows: Tensor,
    stop_ids: Tensor | None, width: int, out: tuple[Tensor, ...] | None,
) -> tuple[Tensor, ...]:  # fmt: skip
    count = len(rows)
    if out is None:
        shapes = ((count,), (count, width), (count,), (count,), (count,))
        kinds = (torch.int32, torch.int32, torch.int32, torch.int32, torch.bool)
        out = tuple(torch.empty(s, dtype=kind, device=rows.device) for s, kind in zip(shapes, kinds, strict=True))
    chunks = -(-count // THREADS)
    given = {f"Y{i}": value for i, value in enumerate(out)}
    ACCEPT_PREFIX(
        chunks,
        X=some(tokens),
        A=some(accepted).view(torch.uint8),
        D=some(tokens if drafts is None else drafts),
        G=some(tokens if golden is None else golden),
        B=begin,
        N=rows,
        P=some(rows if stop_ids is None else stop_ids),
        **{**given, "Y4": out[4].view(torch.uint8)},
        stops=0 if stop_ids is None else stop_ids.shape[1],
        forced=int(golden is not None),
        chunks=chunks,
        m=max(1, len(tokens)),
        s=count,
        C=1 if stop_ids is None else stop_ids.shape[1],
        W=width,
    )
    return out
