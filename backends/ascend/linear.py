"""Dense linear layers: FP8 block weights and bf16 weights, on the matrix unit."""

from __future__ import annotations

import torch
from torch import Tensor

from ...hal.registry import Signature
from ...ops.spec import WeightHandle
from .program import Program, recast
from .register import kernel

ROWS = COLUMNS = 128
LINEAR_BF16 = {
    fp32: Program("linear_kernels.py", "linear_bf16", out="float32" if fp32 else "bfloat16") for fp32 in (False, True)
}
LINEAR_FP8 = {channels: Program("linear_kernels.py", "linear_fp8", channels=channels) for channels in (256, 64)}


def tiles(rows: int, columns: int) -> dict[str, int]:
    """How the tiles of an output lie: `across` row tiles side by side, `tiles` in all."""
    across = -(-rows // ROWS)
    return {"across": across, "tiles": across * -(-columns // COLUMNS)}


def _some(signature: Signature) -> str | None:
    n, k = signature.dims["N"], signature.dims.get("K", 1)
    return None if n > 0 and k > 0 else f"N and K from 1 on, got N = {n}, K = {k}"


@kernel("linear_bf16", version=0, supports=_some)
def linear_bf16(x: Tensor, handle: WeightHandle, fp32_out: bool, out: Tensor | None) -> Tensor:
    (weight,) = handle.tensors
    (m, k), n = x.shape, weight.shape[0]
    y = (
        torch.empty((m, n), dtype=torch.float32 if fp32_out else torch.bfloat16, device=x.device)
        if out is None
        else out
    )
    lie = tiles(m, n)
    LINEAR_BF16[fp32_out](lie["tiles"], X=x, W=weight, Y=y, m=m, N=n, K=k, **lie)
    return y


def _pairs(signature: Signature) -> str | None:
    if "K" in signature.dims and signature.dims["K"] % 64:
        return f"K in multiples of 64, got {signature.dims['K']}"
    return _some(signature)


def scale_rows(weight: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """The weight as it is, and its scales row by row, as the matrix unit takes them: [N, K/32] for [N/32, K/32]."""
    n = weight.shape[-2]
    return weight, scale.repeat_interleave(32, -2)[..., :n, :].contiguous()


@kernel("linear_fp8", version=0, supports=_pairs, layout="ascend-scale-rows", prepare=scale_rows)
def linear_fp8(xq: Tensor, xs: Tensor, handle: WeightHandle, out: Tensor | None) -> Tensor:
    weight, scale = handle.tensors
    (m, k), n = xq.shape, weight.shape[0]
    y = torch.empty((m, n), dtype=torch.bfloat16, device=xq.device) if out is None else out
    if m:
        given = {"X": xq, "SX": recast(xs, torch.uint16), "W": weight, "SW": recast(scale, torch.uint16), "Y": y}
        lie = tiles(m, n)
        LINEAR_FP8[256 if k % 256 == 0 else 64](lie["tiles"], **given, m=m, N=n, K=k, **lie)
    return y
