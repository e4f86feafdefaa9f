"""What is compiled ahead of the mixture of experts but its products: experts of the released model and its drafter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from . import moe_kernels as device
from .compile_list import CompileCase
from .moe import (
    BLOCK,
    ROUTER_TILES,
    buckets,
    combine_sizes,
    few_sizes,
    gate_sizes,
    gate_warps,
    router_parts,
    router_sizes,
    swiglu_sizes,
)

WIDTH = 5120
EXPERTS = ((384, 6), (128, 3))
"""Experts and those chosen, of the model and of its drafter."""
LOCAL = (384, 192, 96, 48, 24, 12, 128, 64, 32, 16, 8)
"""Experts of a rank."""

_I32 = ("expert_ptr", "count_ptr", "total_ptr", "source_ptr", "offset_ptr", "position_ptr")
TYPES = {
    **dict.fromkeys(_I32, "*i32"),
    **dict.fromkeys(("logit_ptr", "sum_ptr", "bias_ptr", "bias_vl_ptr", "weight_ptr", "packed_ptr"), "*fp32"),
    **dict.fromkeys(("x_ptr", "gate_ptr", "y_ptr", "shared_ptr", "out_ptr"), "*bf16"),
    **dict.fromkeys(("code_ptr", "scale_ptr"), "*u8"),
    **dict.fromkeys(("scaling", "limit"), "fp32"),
    "image_ptr": "*i1",
}


def _case(kernel: Any, label: str, sizes: dict[str, int], absent: str = "", num_stages: int = 3) -> CompileCase:
    constants = {name: size for name, size in sizes.items() if not name.startswith("num_")}
    names = [name for name, kind in kernel.kinds.items() if kind != "constexpr"]
    signature = {name: None if name == absent else TYPES.get(name, "i32") for name in names}
    warps = sizes.get("num_warps", 4)
    return CompileCase(kernel, signature, constants, num_warps=warps, num_stages=num_stages, label=label)


def cases() -> Iterator[CompileCase]:
    """Every kernel at the released widths."""
    for experts, k in EXPERTS:
        gate, parts = gate_sizes(experts, k), router_parts(WIDTH)[0]
        for warps in sorted({gate_warps(experts, rows) for rows in (1, 1 << 20)}):
            name, sizes = f"{k} of {experts}, {warps} warps", {**gate, "num_warps": warps}
            yield _case(device.gate_kernel, name, {**sizes, "PARTS": 0}, absent="sum_ptr")
            yield _case(device.gate_kernel, f"{name}, router", {**sizes, "PARTS": parts})
        for most, _ in ROUTER_TILES:
            router = router_sizes(experts, WIDTH, most or 1 << 20)
            label = f"{experts}, {router['ROWS']} x {router['EXPERTS']}"
            yield _case(device.router_kernel, label, router, num_stages=router["num_stages"])
    made = {}
    for count in LOCAL:
        sizes = {"COUNT": count, "BUCKETS": buckets(count), "BLOCK": BLOCK}
        k = 3 if count & (count - 1) == 0 else 6
        made[sizes["BUCKETS"]] = True
        yield _case(device.pack_at_once, f"{k}, {count}", {**few_sizes(count), "K": k})
        yield _case(device.count_slots, str(count), sizes)
        yield _case(device.pack_blocks, f"{k}, {count}", {**sizes, "K": k})
    for size in made:
        yield _case(device.add_blocks, str(size), {"BUCKETS": size, "COLUMNS": 16, "STEP": 256})
    yield _case(device.swiglu_kernel, "", swiglu_sizes(2304))
    yield _case(device.swiglu_kernel, "no weight", swiglu_sizes(2304), absent="weight_ptr")
    for _, k in EXPERTS:
        yield _case(device.combine_kernel, str(k), combine_sizes(k, WIDTH))


COMPILES = list(cases())
