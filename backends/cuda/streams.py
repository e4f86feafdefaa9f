"""Streams, events, pinned memory and graphs of an NVIDIA GPU: torch's, behind `hal.stream` and `hal.graph`."""

from __future__ import annotations

from typing import Any

import torch

from ...hal.torch_streams import TorchGraphs, TorchStreams


class CudaStreams(TorchStreams):
    """Streams of one GPU."""

    @property
    def library(self) -> Any:
        return torch.cuda


class CudaGraphs(TorchGraphs):
    """Captures CUDA graphs."""

    @property
    def library(self) -> Any:
        return torch.cuda

    def new_graph(self) -> Any:
        return self.library.CUDAGraph()
