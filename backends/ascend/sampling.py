"""Adjusted logits, kept sets, draws of tokens, log-probabilities."""

from __future__ import annotations

import torch
from torch import Tensor

from ...hal.registry import Signature
from .program import Program, recast
from .register import kernel
from .scratch import Part, nothing, scratch_bytes, take

SAMPLE_DRAW = Program("sampling_kernels.py", "sample_draw", needs=("parts_math.py",))
_PARTS = ("parts_math.py", "parts_weights.py")
LOG_SUMS = Program("sampling_sums_kernels.py", "log_sums", needs=_PARTS)
TOKEN_WEIGHTS = Program("token_weights.cpp", "token_weights")
PIECE = 8192
ADJUST_LOGITS = Program("adjust_logits.cpp", "adjust_logits")
SELECT_TOKENS = Program("select_tokens.cpp", "select_tokens")
MOST = 4096  # tokens in a list
_WIDEST = (1 << 22) - 1  # sums of 16 bits of the weights stay below 2^32 in each of 64 lanes


def _narrow(signature: Signature) -> str | None:
    width = signature.dims["V"]
    return None if width <= _WIDEST else f"V up to {_WIDEST}, got {width}"


def _few(signature: Signature) -> str | None:
    k = signature.scalars["k"]
    return _narrow(signature) if k <= MOST else f"k up to {MOST}, got {k}"


def _empty(like: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return torch.empty(shape, dtype=dtype, device=like.device)


@kernel("adjust_logits", version=0, source="ascendc")
def adjust_logits(
    logits: Tensor, penalties: Tensor | None, stat_offsets: Tensor | None, stat_ids: Tensor | None,
    stat_counts: Tensor | None, bias_offsets: Tensor | None, bias_ids: Tensor | None, bias_values: Tensor | None,
    bitmask: Tensor | None, out: Tensor | None,
) -> Tensor:  # fmt: skip
    rows, width = logits.shape
    adjusted = torch.empty_like(logits) if out is None else out
    pieces = -(-width // PIECE)
    none, real = nothing(logits.device, torch.int32), nothing(logits.device, torch.float32)
    ADJUST_LOGITS(
        rows * pieces,
        Z=logits,
        P=nothing(logits.device, torch.float32, (1, 4)) if penalties is None else penalties,
        SO=none if stat_offsets is None else stat_offsets,
        SI=_or(stat_ids, none),
        SC=_or(stat_counts, none),
        BO=none if bias_offsets is None else bias_offsets,
        BI=_or(bias_ids, none),
        BV=_or(bias_values, real),
        W=none if bitmask is None else bitmask,
        Y=adjusted,
        penal=int(penalties is not None),
        biased=int(bias_offsets is not None),
        masked=int(bitmask is not None),
        pieces=pieces,
        items=rows * pieces,
        m=rows,
        V=width,
        N=0 if stat_ids is None else len(stat_ids),
        B=0 if bias_ids is None else len(bias_ids),
        C=-(-width // 32),
        Q=rows,
    )
    return adjusted


def _or(tensor: Tensor | None, other: Tensor) -> Tensor:
    """The tensor, or the other one where it is None or empty."""
    return tensor if tensor is not None and tensor.numel() else other


def _filter_parts(logits: Tensor) -> tuple[Part, ...]:
    """The weight of every token, and of each row the largest logit and the sum of weights."""
    rows, width = logits.shape
    return (torch.int32, (rows, width)), (torch.float32, (rows,)), (torch.int64, (rows,))


def _filter_scratch(logits: Tensor, *rest: object) -> int:
    return scratch_bytes(*_filter_parts(logits))


@kernel("sample_filter", version=0, source="ascendc", supports=_narrow, workspace=_filter_scratch)
def sample_filter(
    logits: Tensor, inv_temperature: Tensor, top_k: Tensor | None, top_p: Tensor | None, min_p: Tensor | None,
    force_top_k: int, out: tuple[Tensor, ...] | None, workspace: Tensor | None = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    rows, width = logits.shape
    if out is None:
        kinds = (torch.float32, torch.int32, torch.float32, torch.int32, torch.int32, torch.int64)
        out = tuple(_empty(logits, (rows,), kind) for kind in kinds)
    if rows:
        weight, top, total = take(workspace, logits.device, *_filter_parts(logits))
        weight_sums(logits, inv_temperature, top, total, weight=weight)
        _select(
            logits, rows=rows, W=weight, R=inv_temperature, M=top, K=top_k, P=top_p, Q=min_p, S=total, out=out,
            force=max(0, min(force_top_k, width)), tempered=1,
        )  # fmt: skip
    return out


def weight_sums(
    logits: Tensor, inverse: Tensor, top: Tensor, total: Tensor, *, weight: Tensor | None = None,
    below: tuple[Tensor, Tensor, Tensor] | None = None,
) -> None:  # fmt: skip
    """Sums of weights [L] i64 to `total`: all, with the weights to `weight` and the maxima to `top`, or, with
    threshold, last_id and tokens in `below` and the maxima given in `top`, of kept tokens below those tokens."""
    rows, width = logits.shape
    none = total.view(torch.int32)
    threshold, last, token = (top, none, none) if below is None else below
    TOKEN_WEIGHTS(
        rows, Z=logits, R=inverse, M=top, H=threshold, L=last, I=token, Y=none.view(rows, 2),
        W=none.view(rows, 2) if weight is None else weight, given=int(below is not None),
        below=int(below is not None), stored=int(weight is not None), m=rows, V=width,
    )  # fmt: skip


def _select(logits: Tensor, rows: int, out: tuple[Tensor, ...], **given: Tensor | int | None) -> None:
    """Launch `select_tokens`; what is not given is not read."""
    bits = logits.view(torch.int32)
    pair = given["S"]
    assert isinstance(pair, Tensor)
    flags = {"force": 0, "filtered": 0, "k": 0, **{f"has_{n.lower()}": int(given.get(n) is not None) for n in "KPQ"}}
    names = ("IDS", "VALUES") if given.get("k") else ("Y0", "Y1", "Y2", "Y3", "Y4", "Y5")
    tensors = {n: t.view(torch.int32) if n in ("Y0", "Y2") else t for n, t in zip(names, out, strict=True)}
    blank = {
        **dict.fromkeys(("W", "K", "H", "L", "Y0", "Y1", "Y2", "Y3", "Y4", "IDS"), bits),
        **dict.fromkeys(("P", "Q", "Y5"), pair),
        **dict.fromkeys(("R", "VALUES"), logits),
    }
    chosen = {**flags, **{n: v for n, v in given.items() if v is not None}}
    SELECT_TOKENS(rows, **{**blank, **tensors, **chosen, "Z": bits, "m": rows, "V": logits.shape[1]})


def sums_parts(logits: Tensor) -> tuple[Part, Part]:
    """Scratch of `log_sums`: sums, and what it writes where nobody asks for log-probabilities."""
    rows = logits.shape[0]
    return (torch.float32, (rows, 2)), (torch.float32, (rows,))


def sums_scratch(logits: Tensor, *rest: object) -> int:
    """Bytes of it."""
    return scratch_bytes(*sums_parts(logits))


def log_sums(
    sums: Tensor, values: Tensor, logits: Tensor, inverse: Tensor | None, threshold: Tensor | None,
    last_id: Tensor | None, tokens: Tensor | None = None,
) -> None:  # fmt: skip
    """To `sums` [L, 2] f32: maximum, NaN in rows with NaN, and log2 of the sum of kept powers; log-probabilities of the
    tokens to `values` [L], which is scratch without tokens."""
    rows, width = logits.shape
    if rows:
        LOG_SUMS(
            rows,
            Z=logits,
            R=sums if inverse is None else inverse,
            H=sums if threshold is None else threshold,
            L=sums.view(torch.int32) if last_id is None else last_id,
            I=sums.view(torch.int32) if tokens is None else tokens,
            Y=sums,
            P=values,
            tempered=int(inverse is not None),
            filtered=int(threshold is not None),
            picks=int(tokens is not None),
            m=rows,
            V=width,
        )


@kernel("token_logprobs", version=0, workspace=sums_scratch)
def token_logprobs(
    logits: Tensor, tokens: Tensor, inv_temperature: Tensor | None, threshold: Tensor | None, last_id: Tensor | None,
    out: Tensor | None, workspace: Tensor | None = None,
) -> Tensor:  # fmt: skip
    values = _empty(logits, tokens.shape, torch.float32) if out is None else out
    sums, _ = take(workspace, logits.device, *sums_parts(logits))
    log_sums(sums, values, logits, inv_temperature, threshold, last_id, tokens)
    return values


@kernel("smaller_mass", version=0, source="ascendc", supports=_narrow)
def smaller_mass(
    logits: Tensor, inv_temperature: Tensor, max_logit: Tensor, threshold: Tensor, last_id: Tensor, tokens: Tensor,
    out: Tensor | None,
) -> Tensor:  # fmt: skip
    mass = _empty(logits, tokens.shape, torch.int64) if out is None else out
    if len(tokens):
        weight_sums(logits, inv_temperature, max_logit, mass, below=(threshold, last_id, tokens))
    return mass


@kernel("top_logprobs", version=0, source="ascendc", supports=_few, workspace=sums_scratch)
def top_logprobs(
    logits: Tensor, inv_temperature: Tensor | None, threshold: Tensor | None, last_id: Tensor | None, k: int,
    out: tuple[Tensor, Tensor] | None, workspace: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    rows = len(logits)
    if out is None:
        out = _empty(logits, (rows, k), torch.int32), _empty(logits, (rows, k), torch.float32)
    if rows and k:
        sums, unread = take(workspace, logits.device, *sums_parts(logits))
        log_sums(sums, unread, logits, inv_temperature, threshold, last_id)
        edges = (None, None) if threshold is None or last_id is None else (threshold.view(torch.int32), last_id)
        _select(
            logits, rows=rows, R=inv_temperature, M=sums, H=edges[0], L=edges[1], S=nothing(logits.device, torch.int64),
            k=k, tempered=int(inv_temperature is not None), filtered=int(threshold is not None), out=out,
        )  # fmt: skip
    return out


@kernel("sample_draw", version=0)
def sample_draw(
    logits: Tensor,
    inv_temperature: Tensor,
    threshold: Tensor,
    last_id: Tensor,
    count: Tensor,
    max_id: Tensor,
    seeds: Tensor,
    positions: Tensor,
    purpose: int,
    out: Tensor | None,
) -> Tensor:
    rows, width = logits.shape
    tokens = torch.empty((rows,), dtype=torch.int32, device=logits.device) if out is None else out
    if rows:
        SAMPLE_DRAW(
            rows,
            Z=logits,
            R=inv_temperature,
            H=threshold,
            L=last_id,
            C=count,
            A=max_id,
            SEED=recast(seeds, torch.uint32).view(rows, 2),
            AT=recast(positions, torch.uint32).view(rows, 2),
            Y=tokens,
            purpose=purpose,
            m=rows,
            V=width,
        )
    return tokens
