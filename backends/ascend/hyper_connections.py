"""Hyper-connections: residual streams mixed by coefficients computed from the streams themselves."""

from __future__ import annotations

import torch
from torch import Tensor

from ...hal.registry import Signature
from .program import Program
from .register import kernel
from .scratch import Part, scratch_bytes, take

CHUNK, STREAMS = 2048, 8
HC_COLLAPSE = Program("hyper_connections_kernels.py", "hc_collapse", chunk=CHUNK, streams=STREAMS)
HC_EXPAND = Program("hyper_connections_kernels.py", "hc_expand", chunk=CHUNK, streams=STREAMS)

LINES, BLOCK, MIXED = 24, 8, 4
HC_SUMS = Program("hyper_connections_kernels.py", "hc_sums", lines=LINES, block=BLOCK)
HC_MIX = Program("hyper_connections_kernels.py", "hc_mix", streams=MIXED)


def _streams(signature: Signature) -> str | None:
    m, d = signature.dims["m"], signature.dims["D"]
    return None if 0 < m <= STREAMS and d else f"1 to {STREAMS} streams of at least 1 channel, got {m} of {d}"


def _pieces(rows: int, width: int) -> dict[str, int]:
    pieces = -(-width // CHUNK)
    return {"pieces": pieces, "items": rows * pieces, "m": rows, "D": width}


@kernel("hc_collapse", version=0, supports=_streams)
def hc_collapse(x: Tensor, pending: Tensor, out: Tensor | None) -> Tensor:
    rows, streams, width = x.shape
    u = torch.empty((rows, width), dtype=torch.bfloat16, device=x.device) if out is None else out
    shared = _pieces(rows, width)
    HC_COLLAPSE(shared["items"], X=x, W=pending, Y=u, n=streams, **shared)
    return u


@kernel("hc_expand", version=0, supports=_streams)
def hc_expand(x: Tensor, y: Tensor, post: Tensor, comb: Tensor, out: Tensor | None) -> Tensor:
    rows, streams, width = x.shape
    z = torch.empty_like(x) if out is None else out
    shared = _pieces(rows, width)
    HC_EXPAND(shared["items"], X=x, Y=y, P=post, C=comb.view(rows, streams**2), Z=z, n=streams, **shared)
    return z


def _mixed(signature: Signature) -> str | None:
    m, d = signature.dims["m"], signature.dims["D"]
    return None if 0 < m <= MIXED and d else f"1 to {MIXED} streams of at least 1 channel, got {m} of {d}"


def _sums(x: Tensor, fn: Tensor) -> Part:
    """Of each token its products with the lines of `fn`, and its square."""
    return torch.float32, (x.shape[0] * (fn.shape[0] + 1),)


def _sums_scratch(x: Tensor, fn: Tensor, *rest: object) -> int:
    return scratch_bytes(_sums(x, fn))


@kernel("hc_coefficients", version=0, supports=_mixed, workspace=_sums_scratch)
def hc_coefficients(
    x: Tensor,
    fn: Tensor,
    base: Tensor,
    scale: Tensor,
    norm_eps: float,
    hc_eps: float,
    iterations: int,
    out: tuple[Tensor, Tensor, Tensor] | None,
    workspace: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    tokens, streams, width = x.shape
    if out is None:
        shapes = (tokens, streams), (tokens, streams), (tokens, streams, streams)
        pre, post, comb = (torch.empty(shape, dtype=torch.float32, device=x.device) for shape in shapes)
        out = pre, post, comb
    lines, channels = fn.shape
    (sums,) = take(workspace, x.device, _sums(x, fn))
    rows = max(
        1, min(BLOCK, tokens // 64)
    )  # of a core at a time: `fn` is read once for them, few rows have a core each
    items = -(-tokens // rows)
    shared: dict[str, Tensor | int] = {"W": sums, "span": sums.numel(), "m": tokens}
    HC_SUMS(items, X=x.view(tokens, channels), F=fn, n=lines, K=channels, rows=rows, items=items, **shared)
    groups = -(-tokens // 64)
    HC_MIX(
        groups,
        B=base,
        A=scale,
        PRE=out[0].view(-1),
        POST=out[1].view(-1),
        COMB=out[2].view(-1),
        N=lines,
        n=streams,
        single=tokens * streams,
        double=tokens * streams**2,
        channels=float(channels),
        norm_eps=norm_eps,
        eps=hc_eps,
        steps=iterations,
        items=groups,
        **shared,
    )
    return out
