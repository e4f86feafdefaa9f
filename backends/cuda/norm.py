"""Root-mean-square normalisation, alone and with the codes of what it gives."""

from __future__ import annotations

from typing import Any

import torch
import triton.language as tl
from torch import Tensor

from .compile_list import CompileCase
from .jit import jit
from .portable import bf16_to_f32, to_bf16
from .register import kernel
from .strides import alignment
from .wide_rows import inverse_rms, load_part, load_weight, part_mask, row_sizes, store_codes, tree_sum, whole_rows


@jit
def store_normed(
    y_ptr, code_ptr, scale_ptr, weight_ptr, x, inverse, row, keep,
    START: tl.constexpr, SIZE: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """y = bf16(x * inverse * weight) for channels START .. of rows [ROWS] (int64), and its codes, unless None."""
    y = to_bf16(x * inverse[:, None] * load_weight(weight_ptr, START, SIZE, D))
    place = y_ptr + (row.to(tl.int64) * D)[:, None] + (START + tl.arange(0, SIZE))[None, :]
    tl.store(place, y, mask=part_mask(keep, START, SIZE, D))
    if code_ptr is not None:
        store_codes(code_ptr, scale_ptr, bf16_to_f32(y), row, keep, START, SIZE, D)


@jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, code_ptr, scale_ptr, rows, x_stride: tl.int64, eps,
    ALIGN: tl.constexpr, D: tl.constexpr, FIRST: tl.constexpr, REST: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """ROWS rows of bf16 [T, D]. x_stride: of rows, in units of ALIGN elements."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    keep = row < rows
    given = x_ptr + row * x_stride * ALIGN
    x = load_part(given, keep, 0, FIRST, D)
    total = tree_sum(x * x)
    if REST > 0:
        tail = load_part(given, keep, FIRST, REST, D)
        total += tree_sum(tail * tail)
    inverse = inverse_rms(total, eps, D)
    store_normed(y_ptr, code_ptr, scale_ptr, weight_ptr, x, inverse, row, keep, 0, FIRST, D)
    if REST > 0:
        store_normed(y_ptr, code_ptr, scale_ptr, weight_ptr, tail, inverse, row, keep, FIRST, REST, D)


def normed_outputs(rows: int, width: int, device: torch.device) -> tuple[Tensor, ...]:
    """Normed rows, their codes and scales, not filled."""
    kinds = ((width, torch.bfloat16), (width, torch.float8_e4m3fn), (width // 32, torch.uint8))
    return tuple(torch.empty((rows, columns), dtype=dtype, device=device) for columns, dtype in kinds)


def _launch(x: Tensor, weight: Tensor, eps: float, group: int, y: Tensor, *codes: Tensor | None) -> None:
    rows, width = x.shape
    if not rows:
        return
    sizes, align = row_sizes(width, group), alignment(x) // 2
    rms_norm_kernel[(-(-rows // sizes["ROWS"]),)](
        x, weight, y, *codes, rows, x.stride(0) // align, eps, ALIGN=align, **sizes
    )


@kernel("rms_norm", version=0, supports=whole_rows("D"))
def rms_norm(x: Tensor, weight: Tensor, eps: float, out: Tensor | None) -> Tensor:
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    _launch(x, weight, eps, 1, out, None, None)
    return out


@kernel("rms_norm_quant", version=0, supports=whole_rows("D", 32))
def rms_norm_quant(x: Tensor, weight: Tensor, eps: float, out: tuple[Tensor, ...] | None) -> tuple[Tensor, ...]:
    if out is None:
        out = normed_outputs(*x.shape, x.device)
    _launch(x, weight, eps, 32, out[0], out[1].view(torch.uint8), out[2])
    return out


def _case(width: int, quantised: bool) -> CompileCase:
    sizes: dict[str, Any] = row_sizes(width, 32 if quantised else 1)
    codes = "*u8" if quantised else None
    return CompileCase(
        rms_norm_kernel,
        {
            "x_ptr": "*bf16",
            "weight_ptr": "*bf16",
            "y_ptr": "*bf16",
            "code_ptr": codes,
            "scale_ptr": codes,
            "rows": "i32",
            "x_stride": "i64",
            "eps": "fp32",
        },
        {"ALIGN": 8, **{name: size for name, size in sizes.items() if name != "num_warps"}},
        num_warps=sizes["num_warps"],
        label=f"{width}, codes" if quantised else str(width),
    )


COMPILES = [_case(width, quantised) for quantised in (False, True) for width in (512, 1280, 5120)]
