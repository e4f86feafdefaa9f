"""The index ops of the Ascend backend: equal bits of both scores, what is read, far addresses, blocks of any size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ascend import needs_compiler
from ascend_ops import findings, launch, on_ascend, ops
from deepinfer.backends.ascend.index import INDEX_SCORE
from deepinfer.ops import cache_steps as build
from deepinfer.ops.cache_samples import candidates, score_inputs
from deepinfer.ops.layouts import FP4_32_INDEX
from deepinfer.ops.spec import SPECS

CPU = torch.device("cpu")
OPS = ops()  # registers the kernels

pytestmark = needs_compiler


def bits(x: Tensor) -> Tensor:
    return x.contiguous().view(torch.int16)


def call(spans: Any, ratio: int, heads: int, di: int, padding: int = 0) -> tuple[build.Step, list[Any]]:
    """A step and the arguments of `index_score`."""
    rng = np.random.default_rng(3)
    step = build.make_step(rng, CPU, spans, padding)
    visible = step.visible(ratio)
    where = (visible, step.row_seq, step.block_table, ratio, int(visible.max()))
    return step, [*score_inputs(rng, step, heads, di, ratio), *where]


def run(op: str, *args: Any) -> Tensor:
    with on_ascend():
        out: Tensor = SPECS[op].run(*args, None)
    return out


def test_scores_are_block_scaled_products_of_the_matrix_unit() -> None:
    assert INDEX_SCORE.signature().kind == "mix"
    assert "asc_mmad_mx(" in INDEX_SCORE.text()
    _, args = call(((130, 131),), 1, 4, 64)
    _, runs = launch("index_score", tuple(args))
    assert sum(r.report.cube_steps for r in runs) == 2 * 8  # two tiles of 128 keys, 16 rows, 64 channels


@pytest.mark.parametrize(("size", "di", "ratio"), [(1, 64, 1), (8, 32, 2), (16, 128, 1), (64, 64, 2), (128, 128, 1)])
def test_scores_of_blocks_are_the_full_scores(size: int, di: int, ratio: int) -> None:
    step, args = call(((470, 473), (8, 9)), ratio, 5, di, padding=1)
    data = FP4_32_INDEX.data_bytes(di)  # scales far apart: sums are rounded, and have to be in the same order
    rng = np.random.default_rng(5)
    args[0][..., data:] = torch.from_numpy(rng.integers(100, 150, args[0][..., data:].shape, dtype=np.uint8))
    full = run("index_score", *args)
    blocks = candidates(rng, step, ratio, size, 20)
    compact = run("index_score_blocks", *args[:3], blocks, *args[3:7], size)
    compared = 0
    for t, seen in enumerate(args[3].tolist()):
        entry = (blocks[t].long()[:, None] * size + torch.arange(size)).flatten()
        lanes = torch.nonzero((blocks[t].repeat_interleave(size) >= 0) & (entry < seen)).flatten()
        assert torch.equal(bits(compact[t, lanes]), bits(full[t, entry[lanes]]))
        compared += lanes.numel()
    assert compared >= 3 * min(20 * size, 8)


def test_a_row_alone_has_the_bits_it_has_beside_others() -> None:
    _, args = call(((190, 199),), 1, 5, 32)
    many = run("index_score", *args)
    for row in (0, 4, 8):
        seen = int(args[3][row])
        part = [x[row : row + 1] if i in (0, 1, 3, 4) else x for i, x in enumerate(args[:-1])]
        assert torch.equal(bits(run("index_score", *part, seen)[0]), bits(many[row, :seen]))


def test_nothing_of_entries_that_are_not_visible_is_read() -> None:
    """Bytes behind the last entry, pages of nobody and absent pages: any content gives the same bits."""
    _, args = call(((133, 134),), 1, 4, 32)
    args[5] = torch.cat((args[5], torch.tensor([[2**31 - 1]], dtype=torch.int32)), dim=1)
    args[7] = 3 * 128
    clean = run("index_score", *args)
    dirty = args[2].clone()
    dirty[args[5][0, 1], 6 * 16 : 128 * 16] = 0x77
    dirty[args[5][0, 1], 128 * 16 + 6 :] = 0xFF
    dirty[0] = 0xFF
    args[2] = dirty
    assert torch.equal(bits(clean[0, :134]), bits(run("index_score", *args)[0, :134]))
    assert not clean[0, :134].isnan().any()


def test_a_score_of_nan_stays_nan_and_alone() -> None:
    _, args = call(((133, 134),), 1, 4, 64)
    page, codes = int(args[5][0, 0]), 128 * 32
    clean = run("index_score", *args)
    args[2][page, codes + 2 * 7] = 0xFF  # the scale of channels 0 to 31 of entry 7
    out = run("index_score", *args)
    assert out[0].isnan().nonzero().flatten().tolist() == [7]
    assert torch.equal(bits(out[0, 8:]), bits(clean[0, 8:]))


@pytest.mark.slow
def test_scores_of_pages_past_two_gigabytes() -> None:
    """Those of the same data in low pages."""
    step, args = call(((133, 135),), 1, 4, 32)
    blocks = candidates(np.random.default_rng(0), step, 1, 8, 9)
    full, compact = run("index_score", *args), run("index_score_blocks", *args[:3], blocks, *args[3:7], 8)
    width, stride, first = args[2].shape[1], 147712, 14537
    places = torch.tensor([[first, first + 2]], dtype=torch.int32)
    far = torch.empty((first + 3) * stride, dtype=torch.uint8).as_strided((first + 3, width), (stride, 1))
    for page, place in zip(args[5][0, :2].tolist(), places[0].tolist(), strict=True):
        far[place] = args[2][page]
    args[2], args[5] = far, places
    again, compact_again = run("index_score", *args), run("index_score_blocks", *args[:3], blocks, *args[3:7], 8)
    for t, seen in enumerate(args[3].tolist()):
        assert torch.equal(bits(again[t, :seen]), bits(full[t, :seen]))
        entry = (blocks[t].long()[:, None] * 8 + torch.arange(8)).flatten()
        lanes = torch.nonzero((entry >= 0) & (entry < seen)).flatten()
        assert torch.equal(bits(compact_again[t, lanes]), bits(compact[t, lanes]))


@pytest.mark.parametrize("size", [1, 16, 128])
def test_blocks_of_other_sizes(size: int) -> None:
    """Blocks of one entry, and of more than a vector; a last block in part, rows longer than what UB holds at once."""
    scores = (torch.randn(4, 17000) * 2).round().bfloat16()
    scores[:, ::3] = torch.nan
    visible = torch.tensor([0, 1, 16385, 17000], dtype=torch.int32)
    assert findings("block_select", (scores, visible, size, 40)) == []


def test_the_chosen_entries_of_many_rows_do_not_depend_on_the_scratch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows whose scores do not fit at once go in chunks."""
    from deepinfer.backends.ascend import fused

    _, args = call(((60, 130),), 1, 4, 32)
    args = [*args[:6], None, args[6], args[7], 8, 16]
    want = launch("index_topk", tuple(args))[0]
    monkeypatch.setattr(fused, "CHUNK", 1)
    got, runs = launch("index_topk", tuple(args))
    assert len(runs) == 6 and all(torch.equal(a, b) for a, b in zip(got, want, strict=True))
