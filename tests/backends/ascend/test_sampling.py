"""Kernels of the sampling family where the judge's samples do not reach."""

from __future__ import annotations

import torch

from ascend import needs_compiler
from ascend_ops import launch, ops
from deepinfer.backends.ascend.sim import deterministic

pytestmark = needs_compiler


def test_pieces_of_logits_without_any_list_are_handed_on_one_by_one() -> None:
    """The vector pipe has nothing to do for them, and must not set its flag for a store before the one before it."""
    ops()  # loads the kernels
    logits, offsets, nothing = torch.randn(10, 24), torch.zeros(11, dtype=torch.int32), torch.empty(0)
    args = (logits, *(None,) * 4, offsets, nothing.int(), nothing, None)
    for schedule in deterministic():
        (adjusted,), runs = launch("adjust_logits", args, schedule)
        assert torch.equal(adjusted, logits) and len(runs) == 1, schedule
