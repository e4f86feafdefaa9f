"""What the binaries of Triton kernels and of CUDA sources share: where they are kept, and when none may be made.

It loads no Triton.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...hal import env
from ...hal.errors import KernelError

_frozen = ""


class CacheWarning(UserWarning):
    """An entry of a cache was damaged and is made anew, or the cache cannot be written."""


def folder() -> Path:
    """Root of the caches: DEEPINFER_JIT_CACHE_DIR, else `deepinfer/jit` in the user's cache directory."""
    chosen = env.get("DEEPINFER_JIT_CACHE_DIR")
    if chosen is not None:
        return Path(chosen)
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home, "deepinfer", "jit")


@contextmanager
def no_compile(because: str = "the warm-up is over") -> Iterator[None]:
    """In a with block, a launch that would have to compile is an error that names the kernel and its signature.

    Loading a binary that the cache holds is allowed.

    Args:
        because: why nothing may compile, for the message.
    """
    before = _frozen
    forbid_compiling(because)
    try:
        yield
    finally:
        forbid_compiling(before)


def forbid_compiling(because: str) -> None:
    """The state behind `no_compile`, for good: what an engine sets after its warm-up. '' allows compiling again."""
    global _frozen
    _frozen = because


def check_may_compile(what: str) -> None:
    """Refuse a compilation where it is forbidden.

    Raises:
        KernelError: names what would have to compile, and why it may not.
    """
    if _frozen:
        raise KernelError(f"{what} is not compiled, and {_frozen}")
