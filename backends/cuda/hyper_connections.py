"""Hyper-connections: the streams' mixes before and behind a sub-layer, and their coefficients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...hal.registry import Signature
from . import hyper_connections_kernels as device
from .compile_list import CompileCase
from .norm import normed_outputs
from .register import kernel
from .strides import power_of_two
from .wide_rows import row_sizes, whole_rows

MOST_STREAMS = 8
SPLITS = 40
"""Parts of the channels whose sums are made side by side: for a few rows as many programs as keep a GPU's memory busy.
No more than follows from the width alone, or the sums' order would depend on the rows."""
CHANNELS = 64
"""Channels of a tile of the product with `fn`."""
PRODUCT_TILES = (
    (1023, {"ROWS": 64, "num_warps": 4, "num_stages": 3}),
    (None, {"ROWS": 128, "num_warps": 8, "num_stages": 3}),
)
"""Rows of such a tile, up to so many rows in all: each program splits the weight anew. The sums are the same."""
TOGETHER = 2
"""Rows whose matrices a warp balances: with four streams a number for each of its threads, which need no barrier."""
COLUMNS = 1024
"""Channels of a program of the mixes."""


def few_streams(signature: Signature) -> str | None:
    """A program holds a channel of every stream."""
    m = signature.dims["m"]
    if not 0 < m <= MOST_STREAMS:
        return f"m must be 1 to {MOST_STREAMS}, got {m}"
    return None if signature.dims["D"] > 0 else "D must be positive, got 0"


def normable(signature: Signature) -> str | None:
    """A program takes a row whole, in groups of codes."""
    return few_streams(signature) or whole_rows("D", 32)(signature)


def mix_sizes(streams: int, width: int) -> dict[str, Any]:
    """Constants of `hc_collapse` and `hc_expand`."""
    return {"M": streams, "D": width, "BLOCK": min(COLUMNS, power_of_two(width, least=32))}


@kernel("hc_collapse", version=0, supports=few_streams)
def hc_collapse(x: Tensor, pending: Tensor, out: Tensor | None) -> Tensor:
    rows, streams, width = x.shape
    if out is None:
        out = torch.empty((rows, width), dtype=x.dtype, device=x.device)
    if rows:
        sizes = mix_sizes(streams, width)
        device.collapse_kernel[(rows * -(-width // sizes["BLOCK"]),)](x, pending, out, **sizes, num_warps=4)
    return out


@kernel("hc_expand", version=0, supports=few_streams)
def hc_expand(x: Tensor, y: Tensor, post: Tensor, comb: Tensor, out: Tensor | None) -> Tensor:
    rows, streams, width = x.shape
    if out is None:
        out = torch.empty_like(x)
    if rows:
        sizes = mix_sizes(streams, width)
        grid = (rows * -(-width // sizes["BLOCK"]),)
        device.expand_kernel[grid](x, y, post, comb, out, **sizes, STREAMS=power_of_two(streams), num_warps=4)
    return out


@kernel("hc_collapse_norm", version=0, supports=normable)
def hc_collapse_norm(
    x: Tensor, pending: Tensor, weight: Tensor, eps: float, out: tuple[Tensor, ...] | None
) -> tuple[Tensor, ...]:
    rows, streams, width = x.shape
    if out is None:
        out = normed_outputs(rows, width, x.device)
    if rows:
        sizes = row_sizes(width, group=32)
        device.collapse_norm_kernel[(-(-rows // sizes["ROWS"]),)](
            x, pending, weight, out[0], out[1].view(torch.uint8), out[2], rows, eps, M=streams, **sizes
        )
    return out


def product_sizes(streams: int, width: int) -> dict[str, Any]:
    """Constants of the product with `fn` [N, K], whose sums are made in parts of STEPS tiles of channels."""
    n, k = (2 + streams) * streams, streams * width
    tiles = -(-k // CHANNELS)
    steps = -(-tiles // SPLITS)
    return {
        "K": k,
        "N": n,
        "N_PADDED": power_of_two(n, least=16),
        "STEPS": steps,
        "PARTS": -(-tiles // steps),
        "BLOCK": CHANNELS,
    }


def product_tile(rows: int) -> dict[str, int]:
    """The tile for so many rows."""
    return next(tile for most, tile in PRODUCT_TILES if most is None or rows <= most)


def product_scratch(x: Tensor, *args: Any) -> int:
    """Bytes of the sums of every part: N products and the squares."""
    sizes = product_sizes(*x.shape[1:])
    return 4 * x.shape[0] * sizes["PARTS"] * (sizes["N"] + 1)


@kernel("hc_coefficients", version=0, supports=few_streams, workspace=product_scratch)
def hc_coefficients(
    x: Tensor,
    fn: Tensor,
    base: Tensor,
    scale: Tensor,
    norm_eps: float,
    hc_eps: float,
    iterations: int,
    out: tuple[Tensor, Tensor, Tensor] | None,
    workspace: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    rows, streams, width = x.shape
    if out is None:
        shapes = (rows, streams), (rows, streams), (rows, streams, streams)
        pre, post, comb = (torch.empty(shape, dtype=torch.float32, device=x.device) for shape in shapes)
        out = pre, post, comb
    if not rows:
        return out
    if workspace is None:
        workspace = torch.empty(product_scratch(x), dtype=torch.uint8, device=x.device)
    sizes = product_sizes(streams, width)
    sums = workspace[: product_scratch(x)].view(torch.float32)
    tile = product_tile(rows)
    device.product_kernel[(-(-rows // tile["ROWS"]), sizes["PARTS"])](x, fn, sums, rows, **sizes, **tile)
    device.coefficients_kernel[(-(-rows // TOGETHER),)](
        sums, base, scale, *out, rows, norm_eps, hc_eps, iterations, M=streams, STREAMS=power_of_two(streams),
        K=sizes["K"], PARTS=sizes["PARTS"], ROWS=TOGETHER, num_warps=1,
    )  # fmt: skip
    return out


def _cases() -> list[CompileCase]:
    m, d = 4, 5120
    sizes: dict[str, Any] = row_sizes(d, group=32)
    warps = sizes.pop("num_warps")
    normed = {"weight_ptr": "*bf16", "y_ptr": "*bf16", "code_ptr": "*u8", "scale_ptr": "*u8"}
    product = product_sizes(m, d)
    return [
        CompileCase(
            device.collapse_kernel,
            {"x_ptr": "*bf16", "pending_ptr": "*fp32", "out_ptr": "*bf16"},
            mix_sizes(m, d),
        ),
        CompileCase(
            device.expand_kernel,
            {"x_ptr": "*bf16", "y_ptr": "*bf16", "post_ptr": "*fp32", "comb_ptr": "*fp32", "out_ptr": "*bf16"},
            {**mix_sizes(m, d), "STREAMS": 4},
        ),
        CompileCase(
            device.collapse_norm_kernel,
            {"x_ptr": "*bf16", "pending_ptr": "*fp32", **normed, "rows": "i32", "eps": "fp32"},
            {**sizes, "M": m},
            num_warps=warps,
        ),
        *(
            CompileCase(
                device.product_kernel,
                {"x_ptr": "*bf16", "fn_ptr": "*fp32", "sum_ptr": "*fp32", "rows": "i32"},
                {**product, "ROWS": tile["ROWS"]},
                num_warps=tile["num_warps"],
                num_stages=tile["num_stages"],
                label=f"{tile['ROWS']} rows",
            )
            for _, tile in PRODUCT_TILES
        ),
        CompileCase(
            device.coefficients_kernel,
            {
                **dict.fromkeys(("sum_ptr", "base_ptr", "scale_ptr", "pre_ptr", "post_ptr", "comb_ptr"), "*fp32"),
                "rows": "i32",
                "norm_eps": "fp32",
                "hc_eps": "fp32",
                "iterations": "i32",
            },
            {"M": m, "STREAMS": 4, "K": product["K"], "PARTS": product["PARTS"], "ROWS": TOGETHER},
            num_warps=1,
        ),
    ]


COMPILES = _cases()
