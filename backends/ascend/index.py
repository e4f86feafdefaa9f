"""Exact selection over index scores."""

from __future__ import annotations

import torch
from torch import Tensor

from ...hal.registry import Signature
from .program import Program
from .register import kernel

MOST = 4096
TOPK_SELECT = {
    (dtype, blocks): Program("index_kernels.py", "topk_select", dtype=name, blocks=blocks, most=MOST)
    for dtype, name in ((torch.bfloat16, "bfloat16"), (torch.float32, "float32"))
    for blocks in (False, True)
}


def _fits(signature: Signature) -> str | None:
    k, size = signature.scalars["k"], signature.scalars["block_size"]
    if "blocks" in signature.args and (size < 4 or size & (size - 1) or size > 8192):
        return f"blocks of a power of two of entries, 4 to 8192, got {size}"
    return None if k <= MOST else f"k up to {MOST}, got {k}"


@kernel("topk_select", version=0, supports=_fits)
def topk_select(
    scores: Tensor, visible: Tensor, k: int, blocks: Tensor | None, block_size: int, out: Tensor | None
) -> Tensor:
    rows, lanes = scores.shape
    chosen = torch.empty((rows, k), dtype=torch.int32, device=scores.device) if out is None else out
    given: dict[str, Tensor | int] = {"X": scores, "V": visible, "I": chosen, "m": rows, "N": lanes, "k": k}
    if blocks is not None:
        shift = block_size.bit_length() - 1
        given |= {"B": blocks, "KB": blocks.shape[1], "size": block_size, "shift": shift}
    TOPK_SELECT[scores.dtype, blocks is not None](rows, **given)
    return chosen
