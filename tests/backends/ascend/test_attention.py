"""Attention of the Ascend backend: odd shapes, empty slots, what is read and how often, far addresses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ascend import needs_compiler
from ascend_ops import findings, launch, on_ascend, ops
from deepinfer.backends.ascend.attention import SPARSE_ATTENTION
from deepinfer.backends.ascend.program import Program
from deepinfer.backends.ascend.vision_attention import IMAGE_ATTENTION
from deepinfer.ops import cache_steps as build
from deepinfer.ops.cache_samples import _attention
from deepinfer.ops.spec import SPECS

OP = "sparse_attention"
NAMES = [arg.name for arg in SPECS[OP].args]
CPU = torch.device("cpu")
OPS = ops()  # registers the kernels

pytestmark = needs_compiler


def bits(x: Tensor) -> Tensor:
    return x.contiguous().view(torch.int16)


def call(spans: Any, heads: int = 4, d: int = 64, padding: int = 0, **options: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    step = build.make_step(rng, CPU, spans, padding)
    return dict(zip(NAMES, _attention(rng, step, "", heads, d, **options).args, strict=True))


def run(named: dict[str, Any]) -> Tensor:
    with on_ascend():
        out: Tensor = SPECS[OP].run(*named.values(), None)
    return out


@pytest.mark.parametrize("program", [SPARSE_ATTENTION, IMAGE_ATTENTION], ids=lambda p: p.label)
def test_both_products_are_those_of_the_matrix_unit(program: Program) -> None:
    assert program.signature().kind == "mix"
    assert program.text().count("asc_mmad(") == 2


def test_keys_are_fetched_once_for_both_products_and_all_heads() -> None:
    """One row: the query, 70 records of the window, 70 selected ones, their indices, the sinks; nothing else."""
    named = call(((100, 101),), window=70, ratio=1, k=70)
    _, runs = launch(OP, tuple(named.values()))
    fetched = sum(r.report.bytes["MTE2"] for r in runs)
    assert fetched == 4 * 64 * 2 + 70 * (64 + 2) + 70 * (32 + 4) + 2 * 4 * 70 + 4 * 4  # indices for each vector core
    assert sum(r.report.moved for r in runs) == fetched + 4 * 64 * 2, "cores hand each other what is not of memory"


@pytest.mark.parametrize(("heads", "d"), [(67, 96), (33, 288)])
def test_heads_of_two_blocks_and_channels_that_fill_no_tile(heads: int, d: int) -> None:
    """Of 96 channels the scales of FP4-16 begin within a line of 32 bytes."""
    named = call(((100, 102),), heads, d, window=70, ratio=2, k=40)
    assert findings(OP, tuple(named.values())) == []


def test_empty_columns_are_empty_slots_wherever_they_are() -> None:
    """Within a tile, and a whole tile of them between others; a tile at the end changes no bit."""
    named = call(((300, 302),), window=16, ratio=1, k=200)
    named["indices"][0, 3], named["indices"][1, 64:128] = -1, -1
    assert findings(OP, tuple(named.values())) == []
    wider = torch.cat((named["indices"], torch.full((2, 70), -1, dtype=torch.int32)), dim=1)
    assert torch.equal(bits(run(named)), bits(run(named | {"indices": wider})))


def test_chunk_borders_change_no_bit() -> None:
    """The last row of a chunk of 3, and the same row decoded after the others were stored into the ring."""
    named = call(((100, 103),), window=70, ratio=1, k=70)
    want = bits(run(named))[2]
    ring = named["ring"].clone()
    for row in range(2):
        ring[int(named["state_slot"][0]), (100 + row) % ring.shape[1]] = named["fresh"][row]
    rest = {name: named[name][2:] for name in ("q", "fresh", "first_key", "last_key", "row_seq", "indices")}
    rest |= {"ring": ring, "seq_start": torch.tensor([102], dtype=torch.int32)}
    assert torch.equal(bits(run(named | rest))[0], want)


def test_scores_of_minus_infinity_alone_give_nan() -> None:
    named = call(((0, 2),), window=4)
    named["fresh"][:, 0] = 0x38  # 1.0 in channel 0 of every key
    named["q"][1, 2, 0], named["q"][1, 3, 0] = -torch.inf, torch.inf
    assert run(named).isnan().all(2).tolist() == [[False] * 4, [False, False, True, True]]
    assert findings(OP, tuple(named.values())) == []


@pytest.mark.parametrize("place", [0, 63, 64, 65])
def test_a_nan_among_a_rows_own_keys_reaches_all_its_outputs_and_no_other_rows(place: int) -> None:
    """A code at either end, and both scales."""
    named = call(((20, 21), (30, 31)), window=8)
    clean = run(named)
    fresh = named["fresh"].clone()
    fresh[0, place] = 0xFF
    out = run(named | {"fresh": fresh})
    assert out[0].isnan().all()
    assert torch.equal(bits(out[1]), bits(clean[1]))


@pytest.mark.slow
@pytest.mark.parametrize("which", ["pages", "ring"])
def test_pages_and_slots_past_two_gigabytes(which: str) -> None:
    """A page id, and a state slot, times the stride beyond 2^31 bytes."""
    named = call(((130, 131),), window=16, ratio=1, k=16)
    want = bits(run(named))
    stride, count, width = 1 << 20, 2_050, named["pages"].shape[1]
    pool = torch.empty((count, stride), dtype=torch.uint8)
    if which == "pages":
        table = named["block_table"].clone()
        for column, page in ((0, 2_047), (1, 2_049)):
            pool[page, 512 : 512 + width] = named["pages"][int(table[0, column])]
            table[0, column] = page
        far = {"pages": pool[:, 512 : 512 + width], "block_table": table}
    else:
        slots, record = named["ring"].shape[1:]
        pool[2_049, : slots * record] = named["ring"][int(named["state_slot"][0])].flatten()
        far = {"ring": pool.as_strided((count, slots, record), (stride, record, 1))}
        far |= {"state_slot": torch.tensor([2_049], dtype=torch.int32)}
    assert torch.equal(bits(run(named | far)), want)


def test_values_that_a_row_does_not_have_reach_no_image() -> None:
    """Keys and values of the image before are still there behind the few of this one; widths that fill no group."""
    q, k, v = (torch.randn(75, 2, 24).bfloat16() for _ in range(3))
    k[:70], v[:70] = torch.nan, torch.inf
    begin, end = (torch.tensor([a] * 70 + [b] * 5, dtype=torch.int32) for a, b in ((0, 70), (70, 75)))
    args = (q, k, v, begin, end, 0.2)
    assert findings("image_attention", args) == []
    (out,), _ = launch("image_attention", args)
    assert out[70:].isfinite().all() and out[:70].isnan().all()
