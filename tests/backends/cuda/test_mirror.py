"""Mirror layout and replayed rows: lengths around the pieces, more sequences and rows than a tile."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from cuda_calls import assert_kept, run, sample
from cuda_family import family_tests

OPS = {"mirror_rows": "around the pieces", "replay_rows": "around the pieces"}
"""Ops, and the sample of each that has its edges."""
EMPTY = dict.fromkeys(OPS, "no rows")


test_samples, test_no_rows, test_every_required_call = family_tests(OPS, EMPTY)


@pytest.mark.parametrize("label", ["sequences without", "shorter than", "one rank", "three ranks, rank 1"])
@pytest.mark.parametrize("op", OPS)
def test_lengths(op: str, label: str) -> None:
    assert_kept(op, sample(op, label).args)


@pytest.mark.parametrize("own", [0, 1])
def test_more_sequences_and_rows_than_a_tile(own: int) -> None:
    query = torch.arange(70, dtype=torch.int32) % 5
    keep = (query * 3 // 4).int()
    key = query + torch.arange(70, dtype=torch.int32)
    rows, total = int((2 * ((query + 3) // 4)).sum()) + 3, int(query.sum()) + 2
    ratios = torch.tensor([1, 2], dtype=torch.int32)
    assert_kept("mirror_rows", (query, key, torch.zeros(70, dtype=torch.int32), ratios, 2, own, rows, total))
    assert_kept("replay_rows", (query, keep, 2, own, int(keep.sum()) + 1, rows))


def test_the_ranks_hold_every_row_once() -> None:
    lengths = torch.tensor([7, 0, 16, 1], dtype=torch.int32)
    zeros, ratios = torch.zeros(4, dtype=torch.int32), torch.tensor([1], dtype=torch.int32)
    held = [run("mirror_rows", lengths, lengths, zeros, ratios, 2, own, 16, 24) for own in range(2)]
    local = torch.cat([rank[0] for rank in held])
    assert sorted(local[local >= 0].tolist()) == list(range(24))
    assert torch.equal(local[held[0][1].long()], torch.arange(24, dtype=torch.int32))
