"""Graphs on a CPU: what is captured is called again, as nearly as a device would replay it."""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import Any

import pytest
import torch

from deepinfer.hal.device import Device
from deepinfer.hal.graph import EagerGraphs, Graph
from deepinfer.runtime.graphs import DecodeGraphs


class Strict(EagerGraphs):
    """Replays only what was captured, and counts."""

    def __init__(self) -> None:
        super().__init__(Device("cpu"))
        self.captured: list[Graph] = []

    def _capture(self, body: Any) -> Graph:
        self.captured.append(super()._capture(body))
        return self.captured[-1]


def as_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on a replay writes the tensors of its capture, and leaves the step's attributes as they are."""
    body_of = DecodeGraphs._body

    def body(self: DecodeGraphs, step: Any, part: str, plain: bool) -> Any:
        run, runs, before, behind = body_of(self, step, part, plain), 0, {}, {}

        def recorded() -> Any:
            nonlocal runs, before, behind
            runs += 1
            if runs <= 2:  # warm-up and capture
                before = dict(vars(step))
                result = run()
                behind = dict(vars(step))
                return result
            now = dict(vars(step))
            vars(step).update(before)
            result = run()
            for name, value in vars(step).items():
                if value is not before[name]:
                    overwrite(behind[name], value)
            vars(step).update(now)
            return result

        return recorded

    monkeypatch.setattr(DecodeGraphs, "_body", body)


def overwrite(kept: Any, fresh: Any) -> None:
    """The numbers of one structure of tensors, into the tensors of another."""
    if isinstance(kept, torch.Tensor) and kept is not fresh:
        kept.copy_(fresh.clone())
    elif isinstance(kept, tuple):
        for old, new in zip(kept, fresh, strict=True):
            overwrite(old, new)
    elif isinstance(kept, dict):
        for key, old in kept.items():
            overwrite(old, fresh[key])
    elif is_dataclass(kept):
        overwrite(vars(kept), vars(fresh))
