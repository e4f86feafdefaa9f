"""The experts' FP4 weights and few rows on SM90, in CUDA C++ (`source/linear_sm90.cu`), above the Triton kernel.

A block finds by the offsets which expert and which of its rows it has, if any, and takes as many rows of the matrix
unit as there are. More rows, and weights that are not clean, go the Triton way. Bits are the same.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...hal.registry import Signature
from ...ops.spec import WeightHandle
from . import grouped
from .linear_launches import BLOCKS, CLEAN_DTYPE
from .register import kernel
from .source import SourceKernel

MEAN = 16
"""Up to so many rows for each expert, a call goes this way."""
TILE = 32
"""Most rows of a block."""
OUTPUTS = 128
"""Outputs of a block."""
KERNEL = SourceKernel(
    "linear_sm90.cu", "grouped", "PPPPPPPiii", threads=256, shared=98304, defines={"FP4": 1}, archs=("sm_90",)
)
SOURCES = [KERNEL]


def supports(signature: Signature) -> str | None:
    """Whole tiles of outputs; 256 channels at a time."""
    n, k = signature.dims["N"], 2 * signature.dims["H"]
    if n % OUTPUTS or k % 256 or not n or not k:
        return f"N must be a multiple of {OUTPUTS} and channels of 256, got {n} and {k}"
    return None


def takes(rows: int, weights: tuple[Tensor, ...]) -> bool:
    """Whether a call goes this way."""
    return rows <= MEAN * weights[0].shape[0] and weights[1].dtype == CLEAN_DTYPE


def scratch(xq: Tensor, xs: Tensor, weight: WeightHandle, source_row: Tensor | None, offsets: Tensor) -> int:
    """Scratch of `grouped_linear`."""
    rows = (xq if source_row is None else source_row).shape[0]
    return 0 if takes(rows, weight.tensors) else grouped.scratch(xq, xs, weight, source_row, offsets)


@kernel(
    "grouped_linear", version=0, name="sm90", priority=2, source="cuda", archs=("sm_90",), supports=supports,
    layout=BLOCKS, prepare=grouped.prepare, workspace=scratch,
)  # fmt: skip
def grouped_linear(
    xq: Tensor,
    xs: Tensor,
    handle: WeightHandle,
    source_row: Tensor | None,
    offsets: Tensor,
    out: Tensor | None,
    workspace: Tensor | None = None,
) -> Tensor:
    rows = (xq if source_row is None else source_row).shape[0]
    weight, scale = handle.tensors
    if not takes(rows, handle.tensors):
        return grouped.grouped_linear(xq, xs, handle, source_row, offsets, out, workspace)
    (experts, n), k = weight.shape[:2], xq.shape[1]
    if out is None:
        out = torch.empty((rows, n), dtype=torch.bfloat16, device=xq.device)
    if not out.numel() or not experts or not xq.shape[0]:
        return out
    source = 0 if source_row is None else source_row.data_ptr()
    KERNEL.launch(
        (grouped.tiles_of(rows, experts, TILE) * (n // OUTPUTS), 1, 1), xq.device.index, xq.data_ptr(), xs.data_ptr(),
        weight.data_ptr(), scale.data_ptr(), source, offsets.data_ptr(), out.data_ptr(), experts, n, k,
    )  # fmt: skip
    return out
