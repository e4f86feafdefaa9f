"""Registration of this backend's kernels: `hal.registry.kernel` with what they all share filled in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...hal.registry import CONTRACT_LAYOUT, Source, Supports
from ...hal.registry import kernel as _kernel

ARCHS = ("sm_90", "sm_100")
"""Chips that kernels are made for, as `hal.device.Capability.arch` spells them."""


def kernel(
    op: str,
    *,
    version: int,
    name: str = "",
    priority: int = 0,
    source: Source = "triton",
    archs: tuple[str, ...] = ARCHS,
    supports: Supports | None = None,
    layout: str = CONTRACT_LAYOUT,
    prepare: Callable[..., tuple[Any, ...]] | None = None,
    workspace: Callable[..., int] | None = None,
    fast: bool = False,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: register a launcher as a kernel of this backend. The parameters are those of `hal.registry.Kernel`.

    Under TRITON_INTERPRET=1 Triton kernels take CPU tensors and run on any chip; those of another source stay with
    their GPU.
    """
    from .jit import INTERPRETED

    interpreted = INTERPRETED and source == "triton"
    return _kernel(
        op,
        version=version,
        backend="cuda",
        name=name,
        priority=priority,
        source=source,
        device_types=("cpu",) if interpreted else ("cuda",),
        archs=() if interpreted else archs,
        supports=supports,
        layout=layout,
        prepare=prepare,
        workspace=workspace,
        fast=fast,
    )
