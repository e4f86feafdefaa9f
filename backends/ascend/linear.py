"""Dense linear layers: FP8 block weights and bf16 weights, on the matrix unit."""

from __future__ import annotations

import torch
from torch import Tensor

from ...hal.registry import Signature
from ...ops.spec import WeightHandle
from .program import Program, flat, recast
from .register import kernel
from .scratch import nothing

ROWS = COLUMNS = 128
LINEAR_BF16 = {
    fp32: Program("linear_kernels.py", "linear_bf16", out="float32" if fp32 else "bfloat16") for fp32 in (False, True)
}
LINEAR_FP8 = {channels: Program("linear_kernels.py", "linear_fp8", channels=channels) for channels in (256, 64)}
LINEAR_MX = Program("linear_mx.cpp", "linear_mx")
PAIR_SCALES = Program("scales_kernels.py", "pair_scales", threads=512)


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


def _whole(signature: Signature) -> str | None:
    if "K" in signature.dims and signature.dims["K"] % 32:
        return f"K in multiples of 32, got {signature.dims['K']}"
    return _some(signature)


def scale_rows(weight: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """The weight as it is, and its scales row by row and in pairs, as the matrix unit takes them.

    [..., N, 2 ceil(K/64)] for [..., ceil(N/32), K/32]; a one behind an odd number.
    """
    n = weight.shape[-2]
    rows = scale.repeat_interleave(32, -2)[..., :n, :]
    return weight, even_scales(rows).contiguous()


def even_scales(scale: Tensor) -> Tensor:
    """E8M0 bytes in pairs: a one at the end of an odd number of them."""
    return torch.nn.functional.pad(scale, (0, scale.shape[-1] % 2), value=127)


def pairs_of(groups: int) -> int:
    """Pairs of scale bytes for a number of groups of 32 channels."""
    return -(-groups // 2)


def pair_scales(
    scale: Tensor,
    rows: int,
    workspace: Tensor | None,
    *,
    source_row: Tensor | None = None,
    offsets: Tensor | None = None,
) -> Tensor:
    """Scales [X, groups] by `source_row`, in pairs: uint8 [rows, 2 ceil(groups/2)], in `workspace` where it is given.

    Rows from the last of `offsets` on are left as they are.
    """
    groups = scale.shape[-1]
    width = 2 * pairs_of(groups)
    paired = (
        torch.empty(rows * width, dtype=torch.uint8, device=scale.device)
        if workspace is None
        else workspace[: rows * width]
    )
    absent = nothing(scale.device, torch.int32)
    gather, counts = (absent if t is None else flat(t) for t in (source_row, offsets))
    lie = {"gathered": int(source_row is not None), "counted": int(offsets is not None), "last": counts.numel() - 1}
    tiles = -(-rows * width // 512)
    sizes = {"span": scale.numel(), "n": rows * width, "q": gather.numel(), "z": counts.numel(), "tiles": tiles}
    PAIR_SCALES(tiles, X=flat(scale), S=gather, C=counts, Y=paired, groups=groups, width=width, **lie, **sizes)
    return paired


def _paired_scratch(xq: Tensor, xs: Tensor, *rest: object) -> int:
    """Scales of the activations in pairs, where K is an odd number of groups of 32 or they begin at an odd byte."""
    groups = xs.shape[-1]
    return xs.numel() // groups * 2 * pairs_of(groups) if groups % 2 or xs.data_ptr() % 2 else 0


@kernel(
    "linear_fp8",
    version=0,
    supports=_whole,
    layout="ascend-scale-rows",
    prepare=scale_rows,
    workspace=_paired_scratch,
)
def linear_fp8(
    xq: Tensor, xs: Tensor, handle: WeightHandle, out: Tensor | None, workspace: Tensor | None = None
) -> Tensor:
    weight, scale = handle.tensors
    (m, k), n = xq.shape, weight.shape[0]
    y = torch.empty((m, n), dtype=torch.bfloat16, device=xq.device) if out is None else out
    lie = tiles(m, n)
    if m and k % 64:
        paired = pair_scales(xs, m, workspace)
        given = {"X": xq.view(torch.uint8), "SX": paired, "W": weight.view(torch.uint8), "SW": scale, "Y": y}
        LINEAR_MX(lie["tiles"], **given, m=m, G=1, N=n, K=k)
    elif m:
        if xs.data_ptr() % 2:
            xs = pair_scales(xs, m, workspace).view(xs.shape)
        given = {"X": xq, "SX": recast(xs, torch.uint16), "W": weight, "SW": recast(scale, torch.uint16), "Y": y}
        LINEAR_FP8[256 if k % 256 == 0 else 64](lie["tiles"], **given, m=m, N=n, K=k, **lie)
    return y


def _blocks(signature: Signature) -> str | None:
    n = signature.dims["N"]
    return _whole(signature) if n % 32 == 0 else f"N in multiples of 32, got {n}"


@kernel(
    "linear_fp8_grouped",
    version=0,
    supports=_blocks,
    source="ascendc",
    layout="ascend-scale-rows",
    prepare=scale_rows,
    workspace=_paired_scratch,
)
def linear_fp8_grouped(
    xq: Tensor, xs: Tensor, handle: WeightHandle, out: Tensor | None, workspace: Tensor | None = None
) -> Tensor:
    weight, scale = handle.tensors
    (m, g, k), n = xq.shape, weight.shape[1]
    y = torch.empty((m, g, n), dtype=torch.bfloat16, device=xq.device) if out is None else out
    if m:
        paired = pair_scales(xs.view(m * g, k // 32), m * g, workspace) if k % 64 else xs
        given = {"X": xq.view(torch.uint8), "SX": paired, "W": weight.view(torch.uint8), "SW": scale, "Y": y}
        LINEAR_MX(g * tiles(m, n)["tiles"], **given, m=m, G=g, N=n, K=k)
    return y
