"""The exact class: every bit."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..case import Finding
from .report import index_of, shown, worst_of

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def bits(x: Tensor) -> Tensor:
    """The bit pattern of each element, as integers. All NaN of bf16 and fp32 become one: which operand's payload
    survives an addition is the compiler's choice, so no result may depend on it."""
    if x.dtype in (torch.bfloat16, torch.float32):
        x = x.masked_fill(x.isnan(), torch.nan)
    return x.contiguous().view(_INTEGERS[x.element_size()])


def same_bits(a: Any, b: Any) -> bool:
    """Equality of tensors, or of tuples of tensors, in dtype, shape and every bit; all NaN count as equal."""
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same_bits, a, b))
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return a.numel() == 0 or torch.equal(bits(a), bits(b))


def compare_form(name: str, got: Tensor, want: Tensor) -> Finding | None:
    """Dtype and shape, which every other comparison relies on."""
    if got.dtype != want.dtype:
        return Finding("dtype", f"{name} is {_dtype(got)}, must be {_dtype(want)}")
    if got.shape != want.shape:
        return Finding("shape", f"{name} has shape {list(got.shape)}, must be {list(want.shape)}")
    return None


def compare_bits(
    name: str, got: Tensor, want: Tensor, defined: Tensor | None = None, *, check: str = "bits", than: str = "want"
) -> Finding | None:
    """None if two tensors agree in every bit where `defined`, else the first element that differs.

    Args:
        check, than: the finding's check, and what it calls the value wanted.
    """
    if (wrong_form := compare_form(name, got, want)) is not None:
        return wrong_form
    if got.numel() == 0 or (defined is None and torch.equal(bits(got), bits(want))):
        return None
    wrong = bits(got) != bits(want)
    if defined is not None:
        wrong &= defined
    if not wrong.any():
        return None
    flat = worst_of(wrong)
    a, b = got.flatten()[flat], want.flatten()[flat]
    pattern = f" (bits {_pattern(a)} and {_pattern(b)})" if a.dtype.is_floating_point else ""
    return Finding(
        check,
        f"{name}{index_of(flat, got.shape)}: got {shown(a)}, {than} {shown(b)}{pattern}, "
        f"limit 0; {int(wrong.sum())} of {wrong.numel()} elements differ",
    )


def _pattern(value: Tensor) -> str:
    """The bits of one element, as an unsigned number."""
    size = 8 * value.element_size()
    return f"{bits(value).item() % (1 << size):#0{2 + size // 4}x}"


def _dtype(x: Tensor) -> str:
    return str(x.dtype).removeprefix("torch.")
