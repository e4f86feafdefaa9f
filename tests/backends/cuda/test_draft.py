"""Drafting: the classes, rows of the draft pass, ranks of equal survivals, bits of stored drafts."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from cuda_calls import assert_kept, run, sample
from cuda_family import family_tests

OPS = {
    "draft_tap": "three streams",
    "draft_inputs": "first token",
    "draft_logits": "banned",
    "draft_confidence": "clamped",
    "draft_store": "one draft",
    "correct_q": "NaN, infinite",
    "correct_k": "37 sequences",
}
"""Ops, and the sample of each that has its edges."""
EMPTY = {
    **dict.fromkeys(("draft_inputs", "draft_confidence", "draft_store", "correct_k"), "0 sequences"),
    **dict.fromkeys(("draft_tap", "draft_logits"), "0 rows"),
    "correct_q": "no sequences",
}


test_samples, test_no_rows, test_every_required_call = family_tests(OPS, EMPTY)


@pytest.mark.parametrize("op", ["draft_inputs", "draft_store", "correct_q"])
def test_more_sequences_than_a_tile(op: str) -> None:
    label = "261 sequences" if op != "correct_q" else "37 sequences"
    assert_kept(op, sample(op, label).args)


def test_logits_in_tiles_and_tails() -> None:
    assert_kept("draft_logits", sample("draft_logits", "two tiles").args)


@pytest.mark.parametrize("total", range(4, 13, 2))
def test_equal_survivals_go_to_the_lower_sequence_first(total: int) -> None:
    confidence = torch.tensor([[0.5, 0.5, 0.5], [0.5, 0.5, 1.0], [0.25, 1.0, 0.0], [torch.nan, 1.0, 1.0]])
    (q,) = run("correct_q", confidence, torch.tensor([2, 0, 1, 3], dtype=torch.int32), total)
    assert q.sum() == total
    assert_kept("correct_q", (confidence, torch.tensor([2, 0, 1, 3], dtype=torch.int32), total))
