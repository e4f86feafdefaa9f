"""FlashInfer's `rmsnorm` and `silu_and_mul`: the ops of the contract whose data and rounding are the same.

Both read and write 16 bytes at a time. Tensors that lie otherwise are copied first, so that what is chosen depends on
widths alone.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import Tensor

from ....hal.registry import Signature
from ..register import kernel
from ..strides import WIDEST

ELEMENTS = WIDEST // 2
"""Of bf16, in one access."""


def _library() -> Any:
    return importlib.import_module("flashinfer")


def _placed(x: Tensor) -> Tensor:
    """The tensor, or a copy of it where its rows are not made of whole accesses."""
    whole = x.data_ptr() % WIDEST == 0 and all(stride % ELEMENTS == 0 for stride in x.stride()[:-1])
    return x if whole else x.clone(memory_format=torch.contiguous_format)


def _into(out: Tensor | None, x: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """What is returned, and what the library writes: the same where that begins on an access."""
    if out is None:
        out = torch.empty((x.shape[0], width), dtype=x.dtype, device=x.device)
    return out, out if out.data_ptr() % WIDEST == 0 else torch.empty_like(out)


def _finish(out: Tensor, written: Tensor) -> Tensor:
    return out if written is out else out.copy_(written)


def whole_rows(signature: Signature) -> str | None:
    """Rows of whole accesses."""
    width = signature.dims["D"]
    return None if width > 0 and width % ELEMENTS == 0 else f"D must be a multiple of {ELEMENTS}, got {width}"


def whole_halves(signature: Signature) -> str | None:
    """Halves of whole accesses."""
    n = signature.dims["N"]
    return None if n > 0 and n % (2 * ELEMENTS) == 0 else f"N must be a multiple of {2 * ELEMENTS}, got {n}"


@kernel("rms_norm", version=0, name="flashinfer", priority=-10, source="torch", supports=whole_rows, fast=True)
def rms_norm(x: Tensor, weight: Tensor, eps: float, out: Tensor | None) -> Tensor:
    out, written = _into(out, x, x.shape[1])
    if x.shape[0]:
        _library().rmsnorm(_placed(x), _placed(weight), eps, out=written)
        if eps == 0:  # the library multiplies a row of zeros by infinity
            written.masked_fill_((x == 0).all(-1, keepdim=True), 0)
    return _finish(out, written)


@kernel("silu_mul", version=0, name="flashinfer", priority=-10, source="torch", supports=whole_halves, fast=True)
def silu_mul(gate_up: Tensor, out: Tensor | None) -> Tensor:
    out, written = _into(out, gate_up, gate_up.shape[1] // 2)
    if gate_up.shape[0]:
        _library().silu_and_mul(_placed(gate_up), out=written)
    return _finish(out, written)
