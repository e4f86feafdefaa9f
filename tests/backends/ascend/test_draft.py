"""What the drafting kernels of the Ascend backend refuse."""

from __future__ import annotations

import pytest
import torch

from deepinfer.backends.ascend import draft
from deepinfer.hal.errors import InvalidArgumentError


def test_correct_q_says_how_many_drafts_it_can_rank() -> None:
    """The number of sequences is not known when a kernel is chosen; all survivals of a step lie in UB."""
    rows = draft.PAIRS // 5 + 1
    with pytest.raises(InvalidArgumentError, match=f"{rows} sequences of 5 drafts'; allowed: up to {draft.PAIRS}"):
        draft.correct_q(torch.ones(1, 5), torch.zeros(rows, dtype=torch.int32), rows, None)
