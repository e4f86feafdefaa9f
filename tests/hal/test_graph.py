"""Graph capture: the protocol, its errors, and typed absence."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from deepinfer.hal import graph
from deepinfer.hal.device import Device
from deepinfer.hal.graph import EagerGraphs, GraphError, GraphsUnavailable, NoGraphReason

CPU = Device("cpu")


def test_replay_reads_the_inputs_anew_and_writes_the_captured_outputs() -> None:
    source, calls = torch.tensor([1.0, 2.0]), []

    def body() -> tuple[torch.Tensor, list[Any]]:
        calls.append(None)
        return source * 2, [source + 1, None]

    captured = EagerGraphs(CPU).capture(body, warmup=2)
    assert len(calls) == 3
    doubled, (plus, nothing) = captured.result
    source.copy_(torch.tensor([5.0, 7.0]))
    assert doubled.tolist() == [2.0, 4.0], "a capture must not follow its inputs before a replay"
    again = captured.replay()
    assert again[0] is doubled and doubled.tolist() == [10.0, 14.0]
    assert plus.tolist() == [6.0, 8.0] and nothing is None
    captured.release()


def test_a_released_graph_cannot_be_replayed() -> None:
    captured = EagerGraphs(CPU).capture(lambda: None)
    captured.release()
    captured.release()
    with pytest.raises(GraphError, match="released"):
        captured.replay()


def test_captures_cannot_be_nested_and_recover_from_errors() -> None:
    graphs = EagerGraphs(CPU)
    with pytest.raises(GraphError, match="nested"):
        graphs.capture(lambda: graphs.capture(lambda: None))
    with pytest.raises(ZeroDivisionError):
        graphs.capture(lambda: 1 / 0)
    graphs.capture(lambda: None).release()


def test_a_capture_needs_a_warm_up() -> None:
    with pytest.raises(GraphError, match="at least one warm-up"):
        EagerGraphs(CPU).capture(lambda: None, warmup=0)


def test_live_graphs_are_released_before_communicators_close() -> None:
    graph.release_all()
    captured = EagerGraphs(CPU).capture(lambda: torch.zeros(1))
    assert graph.release_all() == 1 and graph.release_all() == 0
    with pytest.raises(GraphError):
        captured.replay()


def test_absence_says_why() -> None:
    absent = GraphsUnavailable(CPU, NoGraphReason.NO_DEVICE_QUEUE)
    assert str(absent) == f"no graphs on cpu: {NoGraphReason.NO_DEVICE_QUEUE.value}"
    assert (
        str(GraphsUnavailable(Device("cuda"), NoGraphReason.SOFTWARE, "driver 1.0"))
        == "no graphs on cuda:0: driver 1.0"
    )
