"""Launchers take no memory of the device but outputs and the workspace that they have declared. Nothing is launched."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ascend_allocations import taken
from ascend_ops import LARGEST, ops, size
from deepinfer.backends.ascend import hyper_connections, linear, scratch
from deepinfer.conformance.calls import samples
from deepinfer.ops.spec import SPECS


@pytest.mark.parametrize("op", ops())
def test_nothing_is_taken_beside_outputs_and_workspace(op: str) -> None:
    wrong = {}
    for sample in samples(SPECS[op]):
        for odd in (False, True):
            if size(sample) <= LARGEST and (found := taken(op, sample.args, odd=odd)):
                wrong[f"{sample.label}{', at odd addresses' if odd else ''}"] = found
    assert not wrong


def _small(op: str) -> tuple[Any, ...]:
    return min((s for s in samples(SPECS[op]) if size(s) > 100), key=size).args


def test_a_launcher_that_passes_over_its_workspace_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    taking = scratch.take
    monkeypatch.setattr(hyper_connections, "take", lambda given, device, *parts: taking(None, device, *parts))
    found = taken("hc_coefficients", _small("hc_coefficients"))
    assert len(found) == 1 and "with out and workspace given" in found[0]


def test_a_blank_that_is_made_anew_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "nothing", scratch.nothing.__wrapped__)
    found = taken("grouped_linear", _small("grouped_linear"))
    assert any("aten.zeros.default of 4 bytes" in one for one in found), found


def test_more_than_what_is_declared_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hyper_connections, "_sums", lambda x, fn: (torch.float32, (2 * x.numel() * fn.numel(),)))
    size_of = scratch.scratch_bytes
    monkeypatch.setattr(hyper_connections, "scratch_bytes", lambda *parts: size_of(*parts) // 2)
    with pytest.raises(RuntimeError):
        taken("hc_coefficients", _small("hc_coefficients"))


def test_parts_lie_behind_one_another_on_their_boundaries() -> None:
    parts = (torch.uint8, (3,)), (torch.int64, (2, 5)), (torch.float32, (0, 4)), (torch.int32, (1,))
    workspace = torch.zeros(scratch.scratch_bytes(*parts), dtype=torch.uint8)
    taken_parts = scratch.take(workspace, workspace.device, *parts)
    assert [(t.dtype, tuple(t.shape)) for t in taken_parts] == list(parts)
    for value, part in enumerate(taken_parts, 1):
        part.fill_(value)
    assert [t.flatten().tolist() for t in taken_parts] == [[1] * 3, [2] * 10, [], [4]]
    assert scratch.scratch_bytes() == 0
