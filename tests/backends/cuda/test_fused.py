"""Index scores and top-k in one: the parts' own results, chunk by chunk, in any batch."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from cuda_calls import DEVICE, PLAIN, SPOILT, STRIDED, TARGET, assert_kept, given, on_cuda, run, sample
from deepinfer.backends.cuda import fused, index
from deepinfer.conformance.calls import call, to_target
from deepinfer.hal.errors import ContractError
from deepinfer.ops.fused import index_topk
from deepinfer.ops.index import topk_select
from deepinfer.ops.spec import SPECS

SLOW = "mixed batch, ratio 1"


@pytest.mark.parametrize(
    ("label", "variant"),
    [
        ("no rows", PLAIN),
        ("padding rows only", PLAIN),
        ("odd chunk, ratio 1", STRIDED),
        ("odd chunk, ratio 1, candidate blocks", SPOILT),
        ("odd chunk, ratio 2", PLAIN),
        pytest.param(f"{SLOW}", PLAIN, marks=pytest.mark.gpu),
        pytest.param(f"{SLOW}, candidate blocks", PLAIN, marks=pytest.mark.gpu),
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


@pytest.mark.parametrize("blocks", [False, True])
def test_scores_that_nobody_wrote_choose_nothing(blocks: bool) -> None:
    """Scratch holds scores behind what a row sees, which are read in whole vectors: infinity, NaN or zeros there."""
    args = mixed(blocks, ROWS)
    spec = SPECS["index_topk"]
    found = []
    with on_cuda():
        placed = to_target(spec, args, TARGET)
        for pattern in (0x7F80, -1, 0):
            size = spec.workspace(*placed) // 2
            scratch = torch.full((size,), pattern, dtype=torch.int16, device=DEVICE).view(torch.uint8)
            indices, scores = call(spec, placed, TARGET, workspace=scratch)
            found.append((indices.cpu(), torch.where(indices >= 0, scores, 0).cpu()))
    assert (found[0][0] < 0).any() and (found[0][0] >= 0).any()
    for indices, scores in found[1:]:
        assert torch.equal(indices, found[0][0])
        assert torch.equal(scores.view(torch.int16), found[0][1].view(torch.int16))


def test_scratch_does_not_grow_with_a_prompt() -> None:
    query = torch.empty((4096, 32, 68), dtype=torch.uint8)
    args = (query, *[torch.empty(0)] * 5, None, 1, 32768, 8, 512)
    queries = index.query_bytes(query[:512])
    assert fused.topk_bytes(*args) == queries + (32 << 20), "512 rows at a time"
    few = (query[:3], *[torch.empty(0)] * 5, None, 1, 131, 8, 512)
    assert fused.topk_bytes(*few) == 3 * 32 * 128 * 2 + 2 * 3 * 136, "rows of scores are aligned"


@pytest.mark.skipif(DEVICE.type != "cpu", reason="the calls of the suite try this on the device")
def test_pages_past_two_gigabytes_choose_what_low_pages_do() -> None:
    """A stride times a page id wraps in 32 bits; memory that nothing touches is not there."""
    args = list(sample("index_topk", "odd chunk, ratio 1").args)
    indices, scores = run("index_topk", *args)
    first, stride, pages, table = 29077, 147712, args[2], args[5]
    used = [page for page in table.flatten().tolist() if page >= 0]
    far = torch.empty((first + max(used) + 1) * stride, dtype=torch.uint8)
    far = far.as_strided((first + max(used) + 1, pages.shape[1]), (stride, 1))
    for page in used:
        far[first + page] = pages[page]
    args[2], args[5] = far, torch.where(table >= 0, table + first, table)
    with on_cuda():
        again, values = SPECS["index_topk"].run(*args)
    assert (indices >= 0).any() and torch.equal(again, indices)
    kept = indices >= 0
    assert torch.equal(values[kept].view(torch.int16), scores[kept].view(torch.int16))


def test_scores_wider_than_their_tables_are_refused_in_words() -> None:
    """On the host, before any launch; both sizes are named."""
    args = [t.to(DEVICE) if isinstance(t, torch.Tensor) else t for t in sample("index_topk", "odd chunk").args]
    held = args[5].shape[1] * 128
    with on_cuda():
        with pytest.raises(ContractError, match=rf"entries is {held + 1}; .* holds 0 to {held}"):
            index_topk(*args[:8], held + 1, *args[9:])
        scores = torch.zeros(1, 4096, device=DEVICE)
        seen, blocks = (torch.full(shape, 32, dtype=torch.int32, device=DEVICE) for shape in ((1,), (1, 32)))
        with pytest.raises(ContractError, match="scores are 4096 wide; 32 blocks of 64 entries need 2048"):
            topk_select(scores, seen, 16, blocks, 64)
