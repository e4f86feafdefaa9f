"""Fused ops: several of other families in one kernel, or one launch after the other with nothing in between."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...hal.registry import Signature
from ...ops.spec import WeightHandle
from . import index
from .linear import LINEAR_BF16, tiles
from .moe import few_experts, moe_gate
from .program import Program, flat
from .register import kernel
from .scratch import nothing

MOST, STREAMS = 8192, 4
HC_COLLAPSE_NORM = Program(
    "hyper_connections_norm_kernels.py", "hc_collapse_norm", needs=("parts_quant.py",), most=MOST, streams=STREAMS
)

RMS_NORM_QUANT = Program("norm_quant_kernels.py", "rms_norm_quant", needs=("parts_quant.py",), most=MOST)


def _collapsed(signature: Signature) -> str | None:
    d, m = signature.dims["D"], signature.dims["m"]
    if d % 32 or not 0 < d <= MOST or not 0 < m <= STREAMS:
        return f"D a multiple of 32 from 32 to {MOST}, and 1 to {STREAMS} streams; got {d} and {m}"
    return None


@kernel("hc_collapse_norm", version=0, supports=_collapsed)
def hc_collapse_norm(
    x: Tensor, pending: Tensor, weight: Tensor, eps: float, out: tuple[Tensor, ...] | None
) -> tuple[Tensor, ...]:
    rows, streams, width = x.shape
    if out is None:
        out = (
            torch.empty((rows, width), dtype=torch.bfloat16, device=x.device),
            torch.empty((rows, width), dtype=torch.float8_e4m3fn, device=x.device),
            torch.empty((rows, width // 32), dtype=torch.uint8, device=x.device),
        )
    y, q, e = out
    HC_COLLAPSE_NORM(rows, X=x, A=pending, W=weight, Y=y, Q=q, E=e, width=width, eps=eps, m=rows, n=streams, K=width)
    return out


def _fits(signature: Signature) -> str | None:
    d = signature.dims["D"]
    return None if d % 32 == 0 and 0 < d <= MOST else f"D a multiple of 32 from 32 to {MOST}, got {d}"


@kernel("rms_norm_quant", version=0, supports=_fits)
def rms_norm_quant(x: Tensor, weight: Tensor, eps: float, out: tuple[Tensor, ...] | None) -> tuple[Tensor, ...]:
    rows, width = x.shape
    if out is None:
        out = (
            torch.empty((rows, width), dtype=torch.bfloat16, device=x.device),
            torch.empty((rows, width), dtype=torch.float8_e4m3fn, device=x.device),
            torch.empty((rows, width // 32), dtype=torch.uint8, device=x.device),
        )
    given = {"X": flat(x), "W": weight, "Y": out[0], "Q": out[1], "E": out[2]}
    RMS_NORM_QUANT(rows, **given, stride=x.stride(0), width=width, eps=eps, m=rows, K=width)
    return out


def _routable(signature: Signature) -> str | None:
    k = signature.dims.get("K", 1)
    return few_experts(signature) if k > 0 else "K from 1 on, got 0"


@kernel("moe_route", version=0, supports=_routable)
def moe_route(
    x: Tensor,
    gate: WeightHandle,
    bias: Tensor,
    bias_vl: Tensor,
    image: Tensor,
    k: int,
    scaling: float,
    out: tuple[Tensor, ...] | None,
) -> tuple[Tensor, ...]:
    (weight,) = gate.tensors
    (rows, width), experts = x.shape, weight.shape[0]
    if out is None:
        out = (
            torch.empty((rows, k), dtype=torch.float32, device=x.device),
            torch.empty((rows, k), dtype=torch.int32, device=x.device),
            torch.empty((rows, experts), dtype=torch.float32, device=x.device),
        )
    lie = tiles(rows, experts)
    LINEAR_BF16[True](lie["tiles"], X=x, W=weight, Y=out[2], m=rows, N=experts, K=width, **lie)
    moe_gate(out[2], bias, bias_vl, image, k, scaling, (out[0], out[1]))
    return out


CHUNK, ROWS = 32 << 20, 64
"""Bytes of index scores at a time, a part of the L2; a chunk of rows is a multiple of so many. No bit depends on it."""
INDEX_PICK = Program("index_pick.cpp", "index_pick")


def _chunk(rows: int, lanes: int) -> int:
    """Rows whose scores are held at once."""
    return min(rows, max(ROWS, CHUNK // max(1, 2 * lanes) // ROWS * ROWS))


def _selection(signature: Signature) -> str | None:
    """What both parts take."""
    return index.takes_scores(signature) or index.takes_selection(signature)


def _topk_bytes(*args: Any) -> int:
    """Scratch: what each row sees, and the scores of a chunk of rows."""
    query, blocks, entries, block_size = args[0], args[6], args[8], args[9]
    rows, lanes = query.shape[0], entries if blocks is None else blocks.shape[1] * block_size
    return int(_chunk(rows, lanes) * (4 + 2 * lanes))


@kernel("index_topk", version=0, source="ascendc", supports=_selection, workspace=_topk_bytes)
def index_topk(
    query: Tensor, head_weight: Tensor, pages: Tensor, visible: Tensor, row_seq: Tensor, block_table: Tensor,
    blocks: Tensor | None, ratio: int, entries: int, block_size: int, k: int, out: tuple[Tensor, Tensor] | None,
    workspace: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Scores of a chunk of rows, selection and look-up of what was chosen; then the next chunk in the same scratch."""
    rows, lanes = query.shape[0], entries if blocks is None else blocks.shape[1] * block_size
    if out is None:
        indices = torch.empty((rows, k), dtype=torch.int32, device=query.device)
        out = indices, torch.empty((rows, k), dtype=torch.bfloat16, device=query.device)
    if not rows:
        return out
    size = _topk_bytes(query, None, None, None, None, None, blocks, ratio, entries, block_size)
    if workspace is None:
        workspace = torch.empty(size, dtype=torch.uint8, device=query.device)
    chunk = _chunk(rows, lanes)
    held, scores = workspace[: 4 * chunk].view(torch.int32), workspace[4 * chunk : size].view(torch.bfloat16)
    scores = scores.view(chunk, lanes)
    for first in range(0, rows, chunk):
        part = slice(first, min(first + chunk, rows))
        count = part.stop - first
        some = None if blocks is None else blocks[part]
        index.launch_scores(
            query[part], head_weight[part], pages, some, visible[part], row_seq[part], block_table, ratio, block_size,
            scores[:count], held[:count],
        )  # fmt: skip
        index.select(scores[:count], held[:count], k, some, block_size, out[0][part])
        searched = nothing(query.device, torch.int32, (1, 1)) if some is None else some
        INDEX_PICK(
            count,
            scores=flat(scores[:count]),
            blocks=flat(searched),
            chosen=out[0][part],
            y=out[1][part],
            rows=count,
            lanes=lanes,
            k=k,
            block_count=0 if some is None else some.shape[1],
            block_shift=block_size.bit_length() - 1,
        )
    return out
