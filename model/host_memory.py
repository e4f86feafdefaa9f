"""Allocation of large host tensors."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from math import prod

import torch

_HUGE = 2 << 20
_MADVISE = getattr(mmap, "MADV_HUGEPAGE", None)  # Linux only


def empty(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """An uninitialised contiguous CPU tensor, like `torch.empty`.

    Tensors of several huge pages ask the kernel for huge pages: weights are filled once, and then the page faults of
    4 KiB pages cost more than the copy from the page cache.
    """
    nbytes = prod(shape) * dtype.itemsize
    if _MADVISE is None or nbytes < 4 * _HUGE:
        return torch.empty(tuple(shape), dtype=dtype)
    memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    try:
        memory.madvise(_MADVISE)
    except OSError:
        pass  # a kernel without huge pages: ordinary ones work
    return torch.frombuffer(memory, dtype=dtype).view(tuple(shape))
