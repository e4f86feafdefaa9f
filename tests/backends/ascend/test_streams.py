"""What torch_npu may lack of graphs; `tests/hal/test_torch_streams.py` has the rest."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any

import pytest
import torch

from deepinfer.backends.ascend.streams import NpuGraphs, npu_graphs
from deepinfer.hal.device import Device
from deepinfer.hal.graph import GraphsUnavailable, NoGraphReason
from fake_streams import FakeLibrary

NPU = Device("npu", 0)


@pytest.fixture
def npu(monkeypatch: pytest.MonkeyPatch) -> FakeLibrary:
    fake = FakeLibrary()
    monkeypatch.setattr(torch, "npu", fake, raising=False)
    monkeypatch.setattr(Device, "torch", property(lambda self: torch.device("meta", 0)))
    return fake


def test_a_torch_npu_without_pools_or_without_graphs(npu: FakeLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def plain(graph: Any) -> Any:
        npu.log.append("plain")
        yield

    monkeypatch.setattr(npu, "graph", plain)
    graphs = npu_graphs(NPU)
    assert isinstance(graphs, NpuGraphs)
    graphs.capture(lambda: None)
    assert npu.log == ["plain"]
    monkeypatch.delattr(npu, "NPUGraph")
    none = npu_graphs(NPU)
    assert isinstance(none, GraphsUnavailable) and none.reason is NoGraphReason.NOT_BUILT
