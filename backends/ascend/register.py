"""Registration of this backend's kernels: `hal.registry.kernel` with what they all share filled in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...hal.registry import CONTRACT_LAYOUT, Signature, Source, Supports
from ...hal.registry import kernel as _kernel

CHIP, SIMULATED = "ascend950", "ascend950-simulated"
ARCHS = (CHIP, SIMULATED)
"""Chips that kernels are made for, as the backend's capability names them."""


def _where(supports: Supports | None) -> Supports:
    """Arguments in host memory are simulated only where the simulator is all there is: beside a chip, an op on them is
    the reference's."""

    def of(signature: Signature) -> str | None:
        simulated = signature.arch == SIMULATED
        if simulated != (signature.device_type == "cpu"):
            return f"arguments {'in host memory' if simulated else 'on an NPU'}, not on {signature.device_type}"
        return None if supports is None else supports(signature)

    return of


def kernel(
    op: str,
    *,
    version: int,
    name: str = "",
    priority: int = 0,
    source: Source = "tilelang",
    supports: Supports | None = None,
    layout: str = CONTRACT_LAYOUT,
    prepare: Callable[..., tuple[Any, ...]] | None = None,
    workspace: Callable[..., int] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: register a launcher as a kernel of this backend. The parameters are those of `hal.registry.Kernel`;
    `source` is "ascendc" for a kernel by hand."""
    return _kernel(
        op,
        version=version,
        backend="ascend",
        name=name,
        priority=priority,
        source=source,
        device_types=("npu", "cpu"),
        archs=ARCHS,
        supports=_where(supports),
        layout=layout,
        prepare=prepare,
        workspace=workspace,
    )
