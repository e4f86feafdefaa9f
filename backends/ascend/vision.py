"""The vision tower but its products and attention: patches and their merging, rotary embedding, gate, scatter."""

from __future__ import annotations

import torch
from torch import Tensor

from ...hal.registry import Signature
from .program import Program
from .register import kernel
from .scratch import nothing

GATED, SCATTERED, MERGED, PATCHES, TURNED, CHANNELS = 4096, 16384, 1024, 16, 8192, 16384
SILU_MUL = Program("vision_kernels.py", "silu_mul", chunk=GATED)
SCATTER_EMBEDS = Program("vision_kernels.py", "scatter_embeds", chunk=SCATTERED)
MERGE_PATCHES = Program("vision_kernels.py", "merge_patches", chunk=MERGED, most=PATCHES)
IMAGE_ROPE = Program("vision_kernels.py", "image_rope", most=TURNED)
IMAGE_PATCHES = Program("vision_kernels.py", "image_patches", most=CHANNELS)


def _pieces(rows: int, width: int, chunk: int) -> dict[str, int]:
    pieces = -(-width // chunk)
    return {"pieces": pieces, "items": rows * pieces, "m": rows}


def _even_halves(signature: Signature) -> str | None:
    n = signature.dims["N"]
    return None if n > 0 and n % 2 == 0 else f"N a positive even number, got {n}"


@kernel("silu_mul", version=0, supports=_even_halves)
def silu_mul(gate_up: Tensor, out: Tensor | None) -> Tensor:
    rows, both = gate_up.shape
    y = torch.empty((rows, both // 2), dtype=torch.bfloat16, device=gate_up.device) if out is None else out
    shared = _pieces(rows, both // 2, GATED)
    SILU_MUL(shared["items"], X=gate_up, Y=y, N=both, n=both // 2, **shared)
    return y


def _channels(signature: Signature) -> str | None:
    d, m = signature.dims["D"], signature.dims["m"]
    return None if d and m else f"at least one stream of one channel, got {m} of {d}"


@kernel("scatter_embeds", version=0, supports=_channels)
def scatter_embeds(x: Tensor, values: Tensor, marks: Tensor, source: Tensor, out: Tensor | None) -> Tensor:
    rows, streams, width = x.shape
    y = torch.empty_like(x) if out is None else out
    shared = _pieces(rows, width, SCATTERED)
    SCATTER_EMBEDS(
        shared["items"],
        X=x,
        VALUES=values if values.numel() else nothing(x.device, torch.bfloat16),
        MARKS=marks if marks.numel() else nothing(x.device, torch.bfloat16),
        S=source,
        Y=y,
        n=streams,
        D=width,
        V=values.shape[0],
        K=marks.shape[0],
        **shared,
    )
    return y


def _few_patches(signature: Signature) -> str | None:
    s, c = signature.dims["S"], signature.dims["C"]
    return None if 0 < s <= PATCHES and c else f"1 to {PATCHES} patches of at least one channel, got {s} of {c}"


@kernel("merge_patches", version=0, supports=_few_patches)
def merge_patches(x: Tensor, source: Tensor, out: Tensor | None) -> Tensor:
    (vectors, patches), channels = source.shape, x.shape[1]
    width = channels * patches
    y = torch.empty((vectors, width), dtype=torch.bfloat16, device=x.device) if out is None else out
    shared = _pieces(vectors, channels, MERGED)
    MERGE_PATCHES(
        shared["items"], X=x if x.numel() else y, I=source, Y=y, s=patches, N=x.shape[0], C=channels, W=width, **shared
    )
    return y


def _quarters(signature: Signature) -> str | None:
    d, h = signature.dims["d"], signature.dims["h"]
    fits = d and d % 4 == 0 and 0 < 2 * h * d <= TURNED
    return None if fits else f"d a multiple of 4, 2 h d from 1 to {TURNED}; got d = {d}, h = {h}"


@kernel("image_rope", version=0, supports=_quarters)
def image_rope(qkv: Tensor, place: Tensor, table: Tensor, out: Tensor | None) -> Tensor:
    rows, _, heads, d = qkv.shape
    y = torch.empty_like(qkv) if out is None else out
    width = heads * d
    IMAGE_ROPE(
        rows,
        X=qkv.view(rows, 3 * width),
        P=place,
        C=table.view(table.shape[0], d // 2),
        Y=y.view(rows, 3 * width),
        width=2 * width,
        quarter=d // 4,
        inverse=4.0 / d,
        m=rows,
        W=3 * width,
        M=table.shape[0],
        A=d // 2,
    )
    return y


def _small_patches(signature: Signature) -> str | None:
    patch = signature.scalars["patch"]
    return None if 3 * patch**2 <= CHANNELS else f"3 patch^2 up to {CHANNELS}, got a patch of {patch}"


@kernel("image_patches", version=0, supports=_small_patches)
def image_patches(place: Tensor, pixels: Tensor, images: Tensor, patch: int, out: Tensor | None) -> Tensor:
    rows, channels = place.shape[0], 3 * patch**2
    y = torch.empty((rows, channels), dtype=torch.bfloat16, device=place.device) if out is None else out
    IMAGE_PATCHES(
        rows,
        P=place,
        X=pixels if pixels.numel() else nothing(pixels.device, pixels.dtype),
        I=images if images.numel() else nothing(images.device, images.dtype, (1, 5)),
        Y=y,
        images=images.shape[0],
        patch=patch,
        m=rows,
        B=max(1, pixels.numel()),
        count=max(1, images.shape[0]),
        E=channels,
    )
    return y
