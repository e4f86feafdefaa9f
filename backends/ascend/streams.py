"""Streams, events and graphs of an NPU: torch_npu's, behind `hal.stream` and `hal.graph`.

torch_npu has the names of torch.cuda under torch.npu. None of this has run on a device.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...hal.device import Device
from ...hal.graph import Graphs, GraphsUnavailable, NoGraphReason
from ...hal.torch_streams import TorchGraphs, TorchStreams


def _npu() -> Any:
    return torch.npu  # type: ignore[attr-defined]


class NpuStreams(TorchStreams):
    """Streams of one NPU."""

    @property
    def library(self) -> Any:
        return _npu()

    def pinned(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        return torch.empty(tuple(shape), dtype=dtype).pin_memory()


def npu_graphs(device: Device) -> Graphs | GraphsUnavailable:
    """Graph capture where torch_npu has it."""
    if all(hasattr(_npu(), name) for name in ("NPUGraph", "graph")):
        return NpuGraphs(device)
    return GraphsUnavailable(device, NoGraphReason.NOT_BUILT, "this torch_npu captures no graphs")


class NpuGraphs(TorchGraphs):
    """Captures torch_npu's graphs."""

    @property
    def library(self) -> Any:
        return _npu()

    def new_graph(self) -> Any:
        return self.library.NPUGraph()

    def options(self) -> dict[str, Any]:
        """What this torch_npu lets be said of a capture."""
        known = inspect.signature(self.library.graph).parameters
        options: dict[str, Any] = {}
        if "pool" in known and hasattr(self.library, "graph_pool_handle"):
            options["pool"] = self.pool()
        if "capture_error_mode" in known:
            options["capture_error_mode"] = "thread_local"
        return options
