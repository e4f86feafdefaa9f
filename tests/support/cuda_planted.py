"""A kernel with a fault, to see that a tool looks through our launcher."""

from __future__ import annotations

import torch
import triton.language as tl

from deepinfer.backends.cuda.jit import jit


@jit
def write_beside_kernel(x_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), 1.0)


def write_beside(device: str = "cuda") -> None:
    """Write twice as much as a tensor holds."""
    x = torch.zeros(64, device=device)
    write_beside_kernel[(1,)](x, BLOCK=128, num_warps=4)
