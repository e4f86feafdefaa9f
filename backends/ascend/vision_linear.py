"""Linears of the vision tower: products on the matrix unit, then bias, activation and residual."""

from __future__ import annotations

import torch
from torch import Tensor

from ...hal.registry import Signature
from ...ops.spec import WeightHandle
from .linear import LINEAR_BF16, tiles
from .program import Program
from .register import kernel

VISION_EPILOGUE = Program("vision_linear_kernels.py", "vision_epilogue", needs=("parts_math.py",), most=8192)


def _some(signature: Signature) -> str | None:
    n, k = signature.dims["N"], signature.dims.get("K", 1)
    return None if n > 0 and k > 0 else f"N and K from 1 on, got N = {n}, K = {k}"


def _sums_scratch(x: Tensor, handle: WeightHandle, *rest: object) -> int:
    """The products, fp32."""
    return 4 * x.shape[0] * handle.tensors[0].shape[0]


@kernel("vision_linear", version=0, supports=_some, workspace=_sums_scratch)
def vision_linear(
    x: Tensor,
    handle: WeightHandle,
    bias: Tensor | None,
    residual: Tensor | None,
    activation: str,
    out: Tensor | None,
    workspace: Tensor | None = None,
) -> Tensor:
    (weight,) = handle.tensors
    (m, k), n = x.shape, weight.shape[0]
    y = torch.empty((m, n), dtype=torch.bfloat16, device=x.device) if out is None else out
    if not m:
        return y
    if workspace is None:
        workspace = torch.empty(4 * m * n, dtype=torch.uint8, device=x.device)
    sums = workspace[: 4 * m * n].view(torch.float32).view(m, n)
    lie = tiles(m, n)
    LINEAR_BF16[True](lie["tiles"], X=x, W=weight, Y=sums, m=m, N=n, K=k, **lie)
    given = {"X": sums, "B": weight.view(-1) if bias is None else bias, "R": y if residual is None else residual}
    which = {"biased": int(bias is not None), "added": int(residual is not None), "active": int(activation == "gelu")}
    VISION_EPILOGUE(m, **given, Y=y, **which, m=m, N=n, n=given["B"].shape[0], q=m)
    return y
