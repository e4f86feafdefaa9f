"""Tensors as the bytes that kernels move by DMA."""

from __future__ import annotations

import torch
from torch import Tensor

from .program import flat


def as_bytes(tensor: Tensor) -> Tensor:
    """The memory of a tensor from its first to its last element as bytes; kernels address it by strides in bytes.

    Of an empty tensor, bytes that no kernel reads.
    """
    return flat(tensor).view(torch.uint8)
