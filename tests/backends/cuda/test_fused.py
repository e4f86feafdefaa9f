"""Index scores and top-k in one: the parts' own results, chunk by chunk, in any batch."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from cuda_calls import PLAIN, SPOILT, STRIDED, assert_kept, given, run, sample
from deepinfer.backends.cuda import fused, index

SLOW = "mixed batch, ratio 1"


@pytest.mark.parametrize(
    ("label", "variant"),
    [
        ("no rows", PLAIN),
        ("padding rows only", PLAIN),
        ("odd chunk, ratio 1", STRIDED),
        ("odd chunk, ratio 1, candidate blocks", SPOILT),
        ("odd chunk, ratio 2", PLAIN),
        pytest.param(f"{SLOW}", PLAIN, marks=pytest.mark.slow),
        pytest.param(f"{SLOW}, candidate blocks", PLAIN, marks=pytest.mark.slow),
    ],
)
def test_samples(label: str, variant: str) -> None:
    assert_kept("index_topk", sample("index_topk", label).args, variant)


def mixed(blocks: bool, rows: list[int]) -> tuple[Any, ...]:
    """Some rows of a batch of prompts and decodes, one of them padding, one of scores that are all NaN."""
    args = given("index_topk", sample("index_topk", SLOW + (", candidate blocks" if blocks else "")).args)
    for name in ("query", "head_weight", "visible", "row_seq", "blocks"):
        if args[name] is not None:
            args[name] = args[name][rows]
    return tuple(args.values())


ROWS = [3, 7, 8, 40, 88, 91]


@pytest.mark.parametrize("blocks", [False, True])
def test_parts_and_chunks_give_the_same(blocks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bits of index scores and top-k one by one; in chunks of two rows; and of a row alone."""
    args = mixed(blocks, ROWS)
    indices, scores = run("index_topk", *args)
    query, weight, pages, visible, row_seq, table, some, ratio, entries, size, k = args
    seen = torch.where(row_seq < 0, 0, visible)
    where = (query, weight, pages, seen, row_seq, table)
    if blocks:
        (whole,) = run("index_score_blocks", *where[:3], some, *where[3:], ratio, size)
    else:
        (whole,) = run("index_score", *where, ratio, entries)
    (want,) = run("topk_select", whole, seen, k, some, size)
    assert torch.equal(indices, want)
    assert (row_seq < 0).any() and whole[:1].isnan().any(), "the cases that this is about"
    monkeypatch.setattr(fused, "LEAST", 2)
    monkeypatch.setattr(fused, "CHUNK", 1)
    for again, rows in ((args, range(len(ROWS))), (mixed(blocks, ROWS[2:3]), range(2, 3))):
        chosen, values = run("index_topk", *again)
        for i, row in enumerate(rows):
            held = int((indices[row] >= 0).sum())
            assert torch.equal(chosen[i], indices[row])
            assert torch.equal(values[i, :held].view(torch.int16), scores[row, :held].view(torch.int16))


def test_scratch_does_not_grow_with_a_prompt() -> None:
    query = torch.empty((4096, 32, 68), dtype=torch.uint8)
    args = (query, *[torch.empty(0)] * 5, None, 1, 32768, 8, 512)
    queries = index.query_bytes(query[:512])
    assert fused.topk_bytes(*args) == queries + (32 << 20), "512 rows at a time"
    few = (query[:3], *[torch.empty(0)] * 5, None, 1, 131, 8, 512)
    assert fused.topk_bytes(*few) == 3 * 32 * 128 * 2 + 2 * 3 * 136, "rows of scores are aligned"
