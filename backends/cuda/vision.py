"""The vision tower but its products: patches, rotary embedding, gate, merged patches, embeddings into the streams."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...hal.registry import Signature
from . import vision_kernels as device
from .compile_list import CompileCase
from .register import kernel
from .strides import power_of_two

TILE = 2048
"""Channels of a program."""


def patch_sizes(patch: int) -> dict[str, int]:
    """Constants of `patches_kernel`: PIXELS of a patch, their three channels one after another."""
    return {"PATCH": patch, "PIXELS": min(256, power_of_two(patch * patch, least=32))}


@kernel("image_patches", version=0)
def image_patches(place: Tensor, pixels: Tensor, images: Tensor, patch: int, out: Tensor | None) -> Tensor:
    rows = place.shape[0]
    if out is None:
        out = torch.empty((rows, 3 * patch * patch), dtype=torch.bfloat16, device=place.device)
    if rows:
        sizes = patch_sizes(patch)
        grid = (rows * -(-patch * patch // sizes["PIXELS"]),)
        device.patches_kernel[grid](place, pixels, images, out, images.shape[0], pixels.shape[0], **sizes, num_warps=1)
    return out


def even_halves(signature: Signature) -> str | None:
    """Two halves."""
    n = signature.dims["N"]
    return None if n > 0 and n % 2 == 0 else f"N must be a positive even number, got {n}"


def gate_sizes(channels: int) -> dict[str, int]:
    """Constants of `gate_rows_kernel`."""
    return {"N": channels, "BLOCK": min(1024, power_of_two(channels, least=32))}


@kernel("silu_mul", version=0, supports=even_halves)
def silu_mul(gate_up: Tensor, out: Tensor | None) -> Tensor:
    rows, n = gate_up.shape[0], gate_up.shape[1] // 2
    if out is None:
        out = torch.empty((rows, n), dtype=gate_up.dtype, device=gate_up.device)
    if rows:
        sizes = gate_sizes(n)
        device.gate_rows_kernel[(rows * -(-n // sizes["BLOCK"]),)](gate_up, out, **sizes, num_warps=4)
    return out


def quarters(signature: Signature) -> str | None:
    """Pairs are turned by two angles, and a program holds the channels of a head."""
    d = signature.dims["d"]
    return None if 0 < d <= TILE and d % 4 == 0 else f"d must be a positive multiple of 4 up to {TILE}, got {d}"


def turn_sizes(heads: int, width: int) -> dict[str, int]:
    """Constants of `turn_kernel`."""
    half = power_of_two(width // 2)
    return {"HEADS": heads, "D": width, "HALF": half, "BLOCK": max(1, TILE // (2 * half))}


@kernel("image_rope", version=0, supports=quarters)
def image_rope(qkv: Tensor, place: Tensor, table: Tensor, out: Tensor | None) -> Tensor:
    rows, _, heads, width = qkv.shape
    if out is None:
        out = torch.empty_like(qkv)
    if rows and heads:
        sizes = turn_sizes(heads, width)
        lines = rows * 3 * heads
        device.turn_kernel[(-(-lines // sizes["BLOCK"]),)](
            qkv, place, table, out, lines, table.shape[0], **sizes, num_warps=4
        )
    return out


def merge_sizes(channels: int, patches: int) -> dict[str, int]:
    """Constants of `merge_kernel`: a tile of channels and patches."""
    padded = power_of_two(patches)
    return {"C": channels, "S": patches, "S_PADDED": padded, "BLOCK": max(1, min(1024, TILE // padded))}


@kernel("merge_patches", version=0)
def merge_patches(x: Tensor, source: Tensor, out: Tensor | None) -> Tensor:
    (rows, patches), channels = source.shape, x.shape[1]
    if out is None:
        out = torch.empty((rows, channels * patches), dtype=x.dtype, device=x.device)
    if rows and channels and patches:
        sizes = merge_sizes(channels, patches)
        grid = (rows * -(-channels // sizes["BLOCK"]),)
        device.merge_kernel[grid](x.view(torch.int16), source, out.view(torch.int16), x.shape[0], **sizes, num_warps=4)
    return out


def scatter_sizes(streams: int, width: int) -> dict[str, int]:
    """Constants of `scatter_kernel`."""
    return {"M": streams, "D": width, "BLOCK": min(1024, power_of_two(width, least=32))}


@kernel("scatter_embeds", version=0)
def scatter_embeds(x: Tensor, values: Tensor, marks: Tensor, source: Tensor, out: Tensor | None) -> Tensor:
    rows, streams, width = x.shape
    if out is None:
        out = torch.empty_like(x)
    if rows and streams and width:
        sizes = scatter_sizes(streams, width)
        grid = (rows * -(-width // sizes["BLOCK"]),)
        device.scatter_kernel[grid](
            x.view(torch.int16), values.view(torch.int16), marks.view(torch.int16), source, out.view(torch.int16),
            values.shape[0], marks.shape[0], **sizes, num_warps=4,
        )  # fmt: skip
    return out


def _case(kernel: Any, types: dict[str, str], constants: dict[str, int], num_warps: int = 4) -> CompileCase:
    numbers = {name: kind or "i32" for name, kind in kernel.kinds.items() if kind != "constexpr"}
    return CompileCase(kernel, {**numbers, **types}, constants, num_warps=num_warps, label="vision")


COMPILES = [
    _case(
        device.patches_kernel,
        {"place_ptr": "*i32", "pixel_ptr": "*u8", "image_ptr": "*i64", "out_ptr": "*bf16"},
        patch_sizes(14),
        num_warps=1,
    ),
    _case(device.gate_rows_kernel, {"x_ptr": "*bf16", "out_ptr": "*bf16"}, gate_sizes(2816)),
    _case(
        device.turn_kernel,
        {"x_ptr": "*bf16", "place_ptr": "*i32", "table_ptr": "*fp32", "out_ptr": "*bf16"},
        turn_sizes(16, 64),
    ),
    _case(device.merge_kernel, {"x_ptr": "*i16", "source_ptr": "*i32", "out_ptr": "*i16"}, merge_sizes(1024, 9)),
    _case(
        device.scatter_kernel,
        {**dict.fromkeys(("x_ptr", "value_ptr", "mark_ptr", "out_ptr"), "*i16"), "source_ptr": "*i32"},
        scatter_sizes(4, 5120),
    ),
]
