"""Mixture of experts but its products: choice of experts, rows by expert, activation, combination."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...hal.registry import Signature
from ...ops.spec import WeightHandle
from . import moe_kernels as device
from .register import kernel
from .strides import power_of_two

MOST_EXPERTS = 2048
"""Experts whose keys a program holds."""
AT_ONCE = 4096
"""Slots that one launch packs."""
BLOCK = 128
"""Slots that are compared with one another where they are more."""
FEW_GATES = 256
"""Rows whose experts are chosen by more than a warp each."""
PARTS = 4
"""Parts of a router's sums, made side by side."""
COLUMNS = 1024


def few_experts(signature: Signature) -> str | None:
    """A program holds the keys of all experts."""
    experts = signature.dims["E"]
    return None if experts <= MOST_EXPERTS else f"E must be up to {MOST_EXPERTS}, got {experts}"


def gate_sizes(experts: int, k: int) -> dict[str, int]:
    """Constants of `gate_kernel`."""
    padded = power_of_two(experts)
    return {
        "E": experts,
        "E_PADDED": padded,
        "K": k,
        "K_PADDED": power_of_two(k),
        "ROWS": max(1, 512 // padded),
    }


def gate_warps(experts: int, rows: int) -> int:
    """Warps of a program of `gate_kernel`: more where rows do not fill the GPU. What is chosen is the same."""
    return 4 if rows <= FEW_GATES or experts > 512 else 1


def _gate_outputs(rows: int, k: int, x: Tensor) -> tuple[Tensor, Tensor]:
    weights = torch.empty((rows, k), dtype=torch.float32, device=x.device)
    return weights, torch.empty((rows, k), dtype=torch.int32, device=x.device)


@kernel("moe_gate", version=0, supports=few_experts)
def moe_gate(
    logits: Tensor,
    bias: Tensor,
    bias_vl: Tensor,
    image: Tensor,
    k: int,
    scaling: float,
    out: tuple[Tensor, Tensor] | None,
) -> tuple[Tensor, Tensor]:
    rows, experts = logits.shape
    if out is None:
        out = _gate_outputs(rows, k, logits)
    if rows:
        sizes = gate_sizes(experts, k)
        device.gate_kernel[(-(-rows // sizes["ROWS"]),)](
            logits,
            None,
            bias,
            bias_vl,
            image,
            *out,
            rows,
            scaling,
            PARTS=0,
            **sizes,
            num_warps=gate_warps(experts, rows),
        )
    return out


CHANNELS = 64
"""Parts of the sums are multiples of so many channels."""
ROUTER_TILES = (
    (64, {"ROWS": 64, "EXPERTS": 16, "num_warps": 4, "num_stages": 4}),
    (1023, {"ROWS": 64, "EXPERTS": 64, "num_warps": 4, "num_stages": 4}),
    (None, {"ROWS": 128, "EXPERTS": 128, "num_warps": 8, "num_stages": 3}),
)
"""Tiles of `router_kernel` up to so many rows: for a few as many programs as read the weight fast, for thousands the
most use of what a program reads. The sums over the channels, and so the bits, are the same."""


def router_parts(channels: int) -> tuple[int, int]:
    """Parts of the channels, and how many tiles of CHANNELS each has. They follow from the weight alone."""
    tiles = -(-channels // CHANNELS)
    steps = -(-tiles // PARTS)
    return -(-tiles // steps), steps


def router_sizes(experts: int, channels: int, rows: int) -> dict[str, int]:
    """Constants of `router_kernel` for so many rows, num_warps and num_stages."""
    parts, steps = router_parts(channels)
    most, tile = next(found for found in ROUTER_TILES if found[0] is None or rows <= found[0])
    wide = 2 if most == ROUTER_TILES[0][0] and steps % 2 == 0 else 1
    return {"E": experts, "K": channels, "STEPS": steps // wide, "PARTS": parts, "BLOCK": CHANNELS * wide, **tile}


def router_scratch(x: Tensor, gate: WeightHandle, *args: Any) -> int:
    """Bytes of the logits' parts."""
    return 4 * x.shape[0] * router_parts(gate.dims["K"])[0] * int(gate.dims["E"])


@kernel("moe_route", version=0, supports=few_experts, workspace=router_scratch)
def moe_route(
    x: Tensor,
    gate: WeightHandle,
    bias: Tensor,
    bias_vl: Tensor,
    image: Tensor,
    k: int,
    scaling: float,
    out: tuple[Tensor, ...] | None,
    workspace: Tensor | None = None,
) -> tuple[Tensor, ...]:
    rows, (weight,) = x.shape[0], gate.tensors
    sizes = router_sizes(*weight.shape, rows)
    if out is None:
        logits = torch.empty((rows, sizes["E"]), dtype=torch.float32, device=x.device)
        out = *_gate_outputs(rows, k, x), logits
    if not rows:
        return out
    needed = router_scratch(x, gate)
    if workspace is None:
        workspace = torch.empty(needed, dtype=torch.uint8, device=x.device)
    sums = workspace[:needed].view(torch.float32)
    grid = (-(-rows // sizes["ROWS"]), -(-sizes["E"] // sizes["EXPERTS"]), sizes["PARTS"])
    device.router_kernel[grid](x, weight, sums, rows, **sizes)
    chosen = gate_sizes(sizes["E"], k)
    device.gate_kernel[(-(-rows // chosen["ROWS"]),)](
        out[2], sums, bias, bias_vl, image, out[0], out[1], rows, scaling, PARTS=sizes["PARTS"], **chosen,
        num_warps=gate_warps(sizes["E"], rows),
    )  # fmt: skip
    return out


def few_buckets(signature: Signature) -> str | None:
    """A program compares slots with all local experts."""
    count = signature.scalars["count"]
    return None if count <= MOST_EXPERTS else f"count must be up to {MOST_EXPERTS}, got {count}"


def buckets(count: int) -> int:
    """Local experts, those of others, and slots that there are not."""
    return power_of_two(count + 2, least=16)


def pack_scratch(experts: Tensor, weights: Tensor, first: int, count: int) -> int:
    """Bytes of the counts of every block of slots, and of all; 0 where one program does everything."""
    slots = experts.numel()
    return 0 if slots <= AT_ONCE else 4 * (-(-slots // BLOCK) + 1) * buckets(count)


def few_sizes(count: int) -> dict[str, int]:
    """Constants of `pack_at_once`: keys of up to (MOST_EXPERTS + 2) * AT_ONCE are integers of 32 bits."""
    return {"COUNT": count, "MOST": AT_ONCE, "BLOCK": 16, "STEP": 256}


@kernel("moe_pack", version=0, supports=few_buckets, workspace=pack_scratch)
def moe_pack(
    experts: Tensor,
    weights: Tensor,
    first: int,
    count: int,
    out: tuple[Tensor, Tensor, Tensor, Tensor] | None,
    workspace: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    (tokens, k), slots = experts.shape, experts.numel()
    if out is None:
        source, offsets, position = (
            torch.empty(shape, dtype=torch.int32, device=experts.device)
            for shape in ((slots,), (count + 1,), (tokens, k))
        )
        out = source, torch.empty(slots, dtype=torch.float32, device=experts.device), offsets, position
    if slots <= AT_ONCE:
        sizes = few_sizes(count)
        grid = (-(-max(slots, count + 1) // sizes["BLOCK"]),)
        device.pack_at_once[grid](experts, weights, *out, slots, first, K=max(k, 1), **sizes, num_warps=4)
        return out
    sizes = {"COUNT": count, "BUCKETS": buckets(count), "BLOCK": BLOCK}
    needed = pack_scratch(experts, weights, first, count)
    if workspace is None:
        workspace = torch.empty(needed, dtype=torch.uint8, device=experts.device)
    counts = workspace[:needed].view(torch.int32)
    blocks = -(-slots // BLOCK)
    totals = counts[blocks * sizes["BUCKETS"] :]
    device.count_slots[(blocks,)](experts, counts, slots, first, **sizes, num_warps=4)
    device.add_blocks[(-(-sizes["BUCKETS"] // 16),)](
        counts, totals, blocks, BUCKETS=sizes["BUCKETS"], COLUMNS=16, STEP=256, num_warps=4
    )
    device.pack_blocks[(blocks,)](experts, weights, counts, totals, *out, slots, first, K=k, **sizes, num_warps=4)
    return out


def whole_halves(signature: Signature) -> str | None:
    """Two halves of whole groups of 32."""
    n = signature.dims["N"]
    return None if n > 0 and n % 64 == 0 else f"N must be a positive multiple of 64, got {n}"


def swiglu_sizes(channels: int) -> dict[str, int]:
    """Constants of `swiglu_kernel`: tiles of some 2,048 channels."""
    block = min(256, power_of_two(channels))
    return {"N": channels, "BLOCK_T": 2048 // block, "BLOCK_N": block}


@kernel("swiglu_quant", version=0, supports=whole_halves)
def swiglu_quant(
    gate_up: Tensor, weight: Tensor | None, limit: float, out: tuple[Tensor, Tensor] | None
) -> tuple[Tensor, Tensor]:
    rows, n = gate_up.shape[0], gate_up.shape[1] // 2
    if out is None:
        codes = torch.empty((rows, n), dtype=torch.float8_e4m3fn, device=gate_up.device)
        out = codes, torch.empty((rows, n // 32), dtype=torch.uint8, device=gate_up.device)
    if rows:
        sizes = swiglu_sizes(n)
        grid = (-(-rows // sizes["BLOCK_T"]) * -(-n // sizes["BLOCK_N"]),)
        device.swiglu_kernel[grid](gate_up, weight, out[0].view(torch.uint8), out[1], rows, limit, **sizes, num_warps=4)
    return out


def combine_sizes(k: int, width: int) -> dict[str, int]:
    """Constants of `combine_kernel`."""
    return {"K": k, "D": width, "BLOCK": min(COLUMNS, power_of_two(width, least=32))}


@kernel("moe_combine", version=0)
def moe_combine(y: Tensor, position: Tensor, shared: Tensor, out: Tensor | None) -> Tensor:
    rows, width = shared.shape
    if out is None:
        out = torch.empty(shared.shape, dtype=shared.dtype, device=shared.device)
    if rows and width:
        sizes = combine_sizes(position.shape[1], width)
        grid = (rows * -(-width // sizes["BLOCK"]),)
        device.combine_kernel[grid](y, position, shared, out, y.shape[0], **sizes, num_warps=4)
    return out
