"""Row metadata and tokens of a step on CUDA."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from cuda_calls import PLAIN, STRIDED, assert_kept, every_call, run, sample

CALLS = [
    (op, label, variant)
    for op in ("step_metadata", "step_tokens")
    for label, _, variant in every_call(op)
    if variant in (PLAIN, STRIDED)
]


@pytest.mark.parametrize(("op", "label", "variant"), CALLS)
def test_samples_in_every_form(op: str, label: str, variant: str) -> None:
    assert_kept(op, next(args for name, args, _ in every_call(op) if name == label), variant)


def test_more_sequences_than_a_tile_has() -> None:
    """Two tiles of sequences and a tail, some of them without rows, and rows of padding."""
    query = torch.arange(150, dtype=torch.int32) % 3
    key = query + 5 + torch.arange(150, dtype=torch.int32)
    rows = int(query.sum()) + 4
    ratios = torch.tensor([1, 2], dtype=torch.int32)
    assert_kept("step_metadata", (query, key, torch.zeros_like(query), ratios, rows))


def test_a_sequence_has_the_rows_it_has_alone() -> None:
    query, key, valid, ratios, rows = sample("step_metadata", "chunk, decoded row").args
    positions, owner, first, *_, visible = run("step_metadata", query, key, valid, ratios, rows)
    begin = 0
    for s, length in enumerate(query.tolist()):
        alone = run("step_metadata", query[s : s + 1], key[s : s + 1], valid[s : s + 1], ratios, length)
        part = slice(begin, begin + length)
        assert torch.equal(alone[0], positions[part]) and torch.equal(alone[2], first[part])
        assert torch.equal(alone[6], visible[:, part]) and set(owner[part].tolist()) <= {s}
        begin += length
