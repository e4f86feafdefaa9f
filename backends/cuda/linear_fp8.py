"""FP8 weights in Triton: which there are, how they are prepared, and the launches of a call. `linear.py` registers it.

Weights lie in blocks of 64 outputs by 64 channels, so that what is read together lies together, unless they have no
whole blocks; prepared weights are called `linear_launches.BLOCKS` whatever their size. `linear.py` says which ways a
call can go.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ...hal.registry import Signature
from ...ops.spec import WeightHandle
from .linear_launches import (
    BLOCK,
    CLEAN_DTYPE,
    FEW,
    GROUP,
    MANY,
    add_launch,
    aligned,
    blocked,
    clean_scale,
    dealt,
    in_blocks,
    many_launch,
    packed_launch,
    part_of,
    unpack_launch,
)  # fmt: skip
from .portable_weights import FP8_CLEAN


def whole_groups(signature: Signature) -> str | None:
    """Channels have scales in groups of 32."""
    k = signature.dims["K"]
    return None if k % GROUP == 0 and k else f"K must be a multiple of {GROUP} and not 0, got {k}"


def whole_blocks(signature: Signature) -> str | None:
    """Scales are for blocks of 32 outputs by 32 channels."""
    n, k = signature.dims["N"], signature.dims["K"]
    return (
        None if n % GROUP == 0 and k % GROUP == 0 and n and k else f"N and K must be multiples of 32, got {n} and {k}"
    )


def fp8_prepare(weight: Tensor, scale: Tensor) -> tuple[Tensor, ...]:
    """Codes in blocks where they fill them, scales marked where the weight is clean. Waits for the device."""
    weight, scale = aligned(in_blocks(weight, BLOCK) if blocked(*weight.shape[-2:]) else weight, scale)
    return weight, clean_scale(scale, FP8_CLEAN, weight)


def _fp8_scratch(rows: int, groups: int, n: int, k: int) -> tuple[int, int, int]:
    """Bytes for unpacked rows, for unpacked weights, for parts."""
    x = 2 * rows * groups * dealt(k) if rows > FEW else 0
    if rows >= MANY:
        return x, 2 * groups * n * dealt(k), 0
    parts = -(-k // part_of(groups * n, k))
    return x, 0, 4 * parts * rows * groups * n if parts > 1 else 0


def sizes_of(weights: tuple[Tensor, ...]) -> tuple[int, int, int]:
    """Groups, 1 of a plain weight, outputs of each, and channels."""
    *groups, n, k = weights[0].shape
    return groups[0] if groups else 1, n, k


def scratch(xq: Tensor, xs: Tensor, weight: WeightHandle) -> int:
    """Scratch of `linear_fp8` and `linear_fp8_grouped`."""
    return sum(_fp8_scratch(xq.shape[0], *sizes_of(weight.tensors)))


Run = Callable[[Tensor, Tensor, tuple[Tensor, ...], Tensor, Tensor | None, int], None]


def launcher(run: Run, module: str) -> Callable[..., Tensor]:
    """The function of `linear_fp8` or `linear_fp8_grouped` that multiplies with `run`, whose arguments are `run`'s
    below.

    Args:
        module: that registers it, and lists what is compiled ahead for it.
    """

    def launch(
        xq: Tensor, xs: Tensor, weight: WeightHandle, out: Tensor | None, workspace: Tensor | None = None
    ) -> Tensor:
        if out is None:
            shape = (xq.shape[0], *weight.tensors[0].shape[:-1])
            out = torch.empty(shape, dtype=torch.bfloat16, device=xq.device)
        run(xq, xs, weight.tensors, out, workspace, sizes_of(weight.tensors)[0])
        return out

    launch.__module__ = module
    return launch


def run(
    xq: Tensor, xs: Tensor, weights: tuple[Tensor, ...], out: Tensor, workspace: Tensor | None, groups: int
) -> None:
    """y of an FP8 weight, of `groups` groups.

    Args:
        weights: as `fp8_prepare` gives them. out: [rows, groups, N]. workspace: scratch, None to allocate.
    """
    weight, scale = weights[0], weights[1].view(torch.uint8)
    clean = weights[1].dtype == CLEAN_DTYPE
    rows, (n, k) = xq.shape[0], weight.shape[-2:]
    if not out.numel():
        return
    x, w = xq.view(torch.uint8), weight.view(torch.uint8)
    sizes = _fp8_scratch(rows, groups, n, k)
    if workspace is None:
        workspace = torch.empty(sum(sizes), dtype=torch.uint8, device=xq.device)
    x_bytes, w_bytes, _ = sizes
    if x_bytes:
        unpacked = workspace[:x_bytes].view(torch.bfloat16)
        unpack_launch(rows * groups, k, 1)(x, xs, unpacked, rows * groups)
        x = unpacked
    if w_bytes:
        wide = workspace[x_bytes : x_bytes + w_bytes].view(torch.bfloat16)
        # Blocks of 32 outputs lie across groups as well, as a group has whole blocks where there are several.
        unpack_launch(groups * n, k, GROUP, blocks=blocked(n, k))(w, scale, wide, groups * n)
        part = part_of(groups * n, k)
        many_launch(rows, groups, n, dealt(k), part, False)(x, wide, None, None, out, rows)
        return
    parts = -(-k // part_of(groups * n, k))
    y = out if parts == 1 else workspace[x_bytes : sum(sizes)].view(torch.float32)
    packed_launch(rows, groups, n, k, clean, not x_bytes)(x, None if x_bytes else xs, w, scale, y, rows)
    if parts > 1:
        add_launch(out.numel(), n, parts, False)(y, None, None, out, out.numel())
