"""Index queries and scores: the class, equal bits however the work is cut, nothing read or written beside it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("triton")

import numpy as np
import triton.language as tl

from cuda_calls import DEVICE, PLAIN, SPOILT, STRIDED, assert_kept, every_call, on_cuda, run, sample
from deepinfer.backends.cuda import index, index_kernels
from deepinfer.backends.cuda.jit import jit
from deepinfer.backends.reference.formats import dequantize_fp4_pow2
from deepinfer.ops import cache_steps as build
from deepinfer.ops.cache_samples import candidates
from deepinfer.ops.layouts import FP4_32_INDEX
from deepinfer.ops.spec import SPECS

CPU = torch.device("cpu")
OPS = ("index_query_pack", "index_score", "index_score_blocks")


def bits(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous().view(torch.int16)


def call(rng: np.random.Generator, spans: Any, ratio: int, heads: int = 32, di: int = 128, padding: int = 0) -> Any:
    """Step and arguments of index_score: query, head_weight, pages, visible, row_seq, block_table, ratio, entries."""
    step = build.make_step(rng, CPU, spans, padding)
    query = torch.from_numpy(build.records(rng, FP4_32_INDEX, (step.rows, heads), di))
    weight = build.normal(rng, CPU, step.rows, heads)
    pages = build.filled_pages(rng, step, FP4_32_INDEX, di, ratio)
    visible = step.visible(ratio)
    return step, [query, weight, pages, visible, step.row_seq, step.block_table, ratio, int(visible.max())]


@pytest.mark.parametrize("variant", [PLAIN, STRIDED, SPOILT])
@pytest.mark.parametrize("op", OPS)
def test_small_calls_in_every_form(op: str, variant: str) -> None:
    label = {"index_query_pack": "odd chunk", "index_score": "odd chunk, ratio 2", "index_score_blocks": "odd chunk"}
    assert_kept(op, sample(op, label[op]).args, variant)


def test_no_rows_and_padding_rows_alone() -> None:
    for op in OPS:
        for label in ("no rows", "padding rows only"):
            assert_kept(op, sample(op, label).args)


@pytest.mark.parametrize("ratio", [1, 2])
def test_real_widths_two_tiles_and_a_tail(ratio: int) -> None:
    rng = np.random.default_rng(ratio)
    end = 300 * ratio
    _, args = call(rng, ((end, end + 2), (end - 41, end - 40)), ratio, padding=1)
    assert_kept("index_score", tuple(args))


def test_real_queries_of_more_rows_than_a_program_has() -> None:
    rng = np.random.default_rng(3)
    q = build.normal(rng, CPU, 3, 32, 128)
    q[1, 5, 0], q[2, 31, 127] = torch.nan, torch.inf
    assert_kept("index_query_pack", (q, torch.tensor([0, 127, 5], dtype=torch.int32), build.rope_table(128, 64, CPU)))


def test_block_scores_are_the_full_scores() -> None:
    rng = np.random.default_rng(5)
    step, args = call(rng, ((270, 273), (8, 9)), 1, heads=8, di=64, padding=1)
    # Scales far apart: sums of products are rounded, and have to be in the same order.
    data = FP4_32_INDEX.data_bytes(64)
    args[0][..., data:] = torch.from_numpy(rng.integers(100, 150, args[0][..., data:].shape, dtype=np.uint8))
    (full,) = run("index_score", *args)
    blocks = candidates(rng, step, 1, 8, 20)
    (compact,) = run("index_score_blocks", *args[:3], blocks, *args[3:7], 8)
    compared = 0
    for t, seen in enumerate(args[3].tolist()):
        entry = (blocks[t].long()[:, None] * 8 + torch.arange(8)).flatten()
        lanes = torch.nonzero((entry >= 0) & (entry < seen)).flatten()
        assert torch.equal(bits(compact[t, lanes]), bits(full[t, entry[lanes]]))
        compared += lanes.numel()
    assert compared > 400


@pytest.mark.parametrize("together", [1, 2, 4])
def test_a_row_alone_has_the_bits_it_has_beside_others(together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone a row keeps still and keys pass by; beside others of its sequence it is the other way round."""
    monkeypatch.setitem(index.FEW_LAUNCH, "ROWS", together)
    rng = np.random.default_rng(7)
    _, args = call(rng, ((190, 199),), 1, heads=5, di=32)
    (many,) = run("index_score", *args)
    for row in (0, 4, 8):
        seen = int(args[3][row])
        part = [x[row : row + 1] if i in (0, 1, 3, 4) else x for i, x in enumerate(args)]
        (alone,) = run("index_score", *part[:-1], seen)
        assert torch.equal(bits(alone[0]), bits(many[row, :seen]))


def test_groups_of_rows_across_sequences_and_padding() -> None:
    """Rows of a group change sequence inside it, and lanes behind a row's last entry are not written."""
    rng = np.random.default_rng(9)
    step, args = call(rng, ((130, 135), (4, 7), (0, 1), (250, 256)), 1, heads=4, di=32, padding=5)
    assert step.rows >= index.FEW * step.block_table.shape[0]
    assert_kept("index_score", tuple(args))
    (many,) = run("index_score", *args)
    order = torch.randperm(step.rows, generator=torch.Generator().manual_seed(1))
    shuffled = [x[order] if i in (0, 1, 3, 4) else x for i, x in enumerate(args)]
    (mixed,) = run("index_score", *shuffled)
    for at, row in enumerate(order.tolist()):
        seen = int(args[3][row])
        assert torch.equal(bits(mixed[at, :seen]), bits(many[row, :seen]))


def test_nothing_of_entries_that_are_not_visible_is_read() -> None:
    """Bytes behind the last entry, pages of nobody and absent pages: any content gives the same bits."""
    rng = np.random.default_rng(11)
    _, args = call(rng, ((133, 134),), 1, heads=4, di=32)
    args[5] = torch.cat((args[5], torch.tensor([[-1]], dtype=torch.int32)), dim=1)
    args[7] = 3 * 128
    (clean,) = run("index_score", *args)
    used = args[5][0, 1]
    dirty = args[2].clone()
    dirty[used, 6 * 16 : 128 * 16] = 0x77
    dirty[used, 128 * 16 + 6 :] = 0xFF
    dirty[0] = 0xFF
    args[2] = dirty
    (again,) = run("index_score", *args)
    assert torch.equal(bits(clean[0, :134]), bits(again[0, :134]))
    assert not clean[0, :134].isnan().any()


@pytest.mark.skipif(DEVICE.type != "cpu", reason="the calls of the suite try this on the device")
def test_scores_of_pages_past_two_gigabytes() -> None:
    """Full and block scores equal those of the same data in low pages; memory that nothing touches is not there."""
    rng = np.random.default_rng(15)
    step, args = call(rng, ((133, 135),), 1, heads=4, di=32)
    blocks = candidates(rng, step, 1, 8, 9)
    (full,), (compact,) = run("index_score", *args), run("index_score_blocks", *args[:3], blocks, *args[3:7], 8)
    width, stride, first = args[2].shape[1], 147712, 29077
    places = torch.tensor([[first, first + 2]], dtype=torch.int32)
    far = torch.empty((first + 3) * stride, dtype=torch.uint8).as_strided((first + 3, width), (stride, 1))
    for page, place in zip(args[5][0, :2].tolist(), places[0].tolist(), strict=True):
        far[place] = args[2][page]
    args[2], args[5] = far, places
    with on_cuda():
        again = SPECS["index_score"].run(*args)
        compact_again = SPECS["index_score_blocks"].run(*args[:3], blocks, *args[3:7], 8)
    for t, seen in enumerate(args[3].tolist()):
        assert torch.equal(bits(again[t, :seen]), bits(full[t, :seen]))
        entry = (blocks[t].long()[:, None] * 8 + torch.arange(8)).flatten()
        lanes = torch.nonzero((entry >= 0) & (entry < seen)).flatten()
        assert torch.equal(bits(compact_again[t, lanes]), bits(compact[t, lanes]))


@jit
def unpack(code_ptr, scale_ptr, even_ptr, odd_ptr):
    at = tl.program_id(0) * 4096 + tl.arange(0, 4096)[None, :]
    even, odd = index_kernels.unpack_scaled(tl.load(code_ptr + at), index_kernels.e8m0_to_bf16(tl.load(scale_ptr + at)))
    tl.store(even_ptr + at, even)
    tl.store(odd_ptr + at, odd)


def test_every_code_with_every_scale() -> None:
    """Subnormal numbers, infinity and NaN included."""
    code = torch.arange(256, dtype=torch.uint8).repeat(256)
    scale = torch.arange(256, dtype=torch.uint8).repeat_interleave(256)
    even, odd = (torch.empty(65536, dtype=torch.bfloat16, device=DEVICE) for _ in range(2))
    unpack[(16,)](code.to(DEVICE), scale.to(DEVICE), even, odd)
    groups = code.view(-1, 1).expand(-1, 16).contiguous()
    want = dequantize_fp4_pow2(groups, scale.view(-1, 1)).to(torch.bfloat16)
    for got, column in ((even.cpu(), 0), (odd.cpu(), 1)):
        same = (bits(got) == bits(want[:, column])) | (got.isnan() & want[:, column].isnan())
        assert same.all()


@pytest.mark.gpu
@pytest.mark.parametrize("op", OPS)
def test_every_required_call(op: str) -> None:
    for label, args, variant in every_call(op):
        try:
            assert_kept(op, args, variant)
        except AssertionError as error:
            raise AssertionError(f"{op}, {label}: {error}") from None


@pytest.mark.gpu
def test_bits_at_released_sizes_over_the_ways_to_cut() -> None:
    """1 to 300 rows, other positions and neighbours, full scan and blocks, with scales far apart."""
    rng = np.random.default_rng(13)
    step, args = call(rng, ((2100, 2400),), 1)
    for part, width in ((args[0], 64), (args[2], 0)):
        if width:
            part[..., width:] = torch.from_numpy(rng.integers(105, 150, part[..., width:].shape, dtype=np.uint8))
    (many,) = run("index_score", *args)
    for start, count in ((0, 1), (1, 2), (7, 9), (100, 64), (3, 70), (299, 1), (150, 150)):
        rows = slice(start, start + count)
        part = [x[rows] if i in (0, 1, 3, 4) else x for i, x in enumerate(args)]
        (some,) = run("index_score", *part)
        for row in range(count):
            seen = int(part[3][row])
            assert torch.equal(bits(some[row, :seen]), bits(many[start + row, :seen])), (start, count, row)
    blocks = candidates(rng, step, 1, 8, 250)
    (compact,) = run("index_score_blocks", *args[:3], blocks, *args[3:7], 8)
    for t, seen in enumerate(args[3].tolist()):
        entry = (blocks[t].long()[:, None] * 8 + torch.arange(8)).flatten()
        lanes = torch.nonzero((entry >= 0) & (entry < seen)).flatten()
        assert torch.equal(bits(compact[t, lanes]), bits(many[t, entry[lanes]])), t
