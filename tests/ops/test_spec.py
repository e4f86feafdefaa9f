"""What specs say beyond shapes: terms of a sum, unspecified elements, and widths that the reference refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from deepinfer import ops
from deepinfer.backends import reference
from deepinfer.hal.errors import ContractError, KernelError
from deepinfer.ops.spec import BF16, E4M3, F32, I32, I64, SPECS, U8

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def kernels() -> None:
    reference.backend.load()


def samples(name: str) -> list[Any]:
    return list(SPECS[name].samples(np.random.default_rng(1), CPU))


def test_terms_of_an_absent_argument_count_nothing() -> None:
    spec = SPECS["sparse_attention"]
    seen = set()
    for sample in samples("sparse_attention"):
        dims = spec.dims(*sample.args)
        assert spec.terms(*sample.args) == dims["window"] + dims.get("K", 0)
        seen.add("K" in dims)
    assert seen == {True, False}
    with pytest.raises(ContractError, match="rms_norm.*rounded"):
        SPECS["rms_norm"].terms(*samples("rms_norm")[0].args)


def test_defined_elements_are_those_that_the_semantics_name() -> None:
    for sample in samples("index_score"):
        _, _, _, visible, row_seq, _, _, entries = sample.args
        (mask,) = SPECS["index_score"].defined(*sample.args)
        assert mask is not None and mask.shape == (len(visible), entries)
        assert mask.sum(1).tolist() == [v if s >= 0 else 0 for v, s in zip(visible, row_seq, strict=True)]
    for sample in samples("index_score_blocks"):
        _, _, _, blocks, visible, row_seq, _, _, size = sample.args
        (mask,) = SPECS["index_score_blocks"].defined(*sample.args)
        assert mask is not None
        for t, c in np.ndindex(*mask.shape):
            block = int(blocks[t, c // size])
            want = block >= 0 and block * size + c % size < int(visible[t]) and int(row_seq[t]) >= 0
            assert bool(mask[t, c]) == want
    for sample in samples("grouped_linear"):
        xq, _, _, source_row, offsets = sample.args
        (mask,) = SPECS["grouped_linear"].defined(*sample.args)
        rows = len(xq) if source_row is None else len(source_row)
        assert mask is not None and mask.flatten().tolist() == [i < int(offsets[-1]) for i in range(rows)]


@pytest.mark.parametrize("name", sorted(SPECS))
def test_words_and_mask_of_unspecified_elements_come_together(name: str) -> None:
    for out in SPECS[name].outs:
        assert bool(out.unspecified) == (out.defined is not None)


def zeros(*shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    return torch.zeros(shape, dtype=U8).view(E4M3) if dtype == E4M3 else torch.zeros(shape, dtype=dtype)


ROWS = zeros(3, dtype=I32)
TABLE = zeros(4, 4, 2, dtype=F32)
BLOCKS = zeros(1, 1, dtype=I32)
NARROW: dict[str, tuple[Callable[[], Any], str]] = {
    "window_pack": (lambda: ops.window_pack(zeros(3, 40), ROWS, TABLE), "d must be a positive multiple of 32, got 40"),
    "window_pack, rotated": (lambda: ops.window_pack(zeros(3, 32), ROWS, zeros(4, 20, 2, dtype=F32)), "2F = 40"),
    "index_query_pack": (lambda: ops.index_query_pack(zeros(3, 2, 40), ROWS, TABLE), "di must be .* got 40"),
    "rope": (lambda: ops.rope(zeros(3, 2, 4), ROWS, TABLE, False), "d must hold 2F = 8 channels, got 4"),
    "index_key_store": (
        lambda: ops.index_key_store(zeros(3, 40), zeros(3, 128 * 21, dtype=U8), ROWS, ROWS, BLOCKS, TABLE, 1),
        "di must be",
    ),
    "linear_fp8_grouped": (
        lambda: ops.linear_fp8_grouped_prepare(zeros(2, 40, 64, dtype=E4M3), zeros(2, 1, 2, dtype=U8)),
        "N must be a positive multiple of 32, got 40",
    ),
    "swiglu_quant": (lambda: ops.swiglu_quant(zeros(3, 96), None, 1.0), "N must be a positive multiple of 64"),
    "sparse_attention": (
        lambda: ops.sparse_attention(
            zeros(3, 2, 40),
            zeros(3, 41, dtype=U8),
            zeros(2, 8, 41, dtype=U8),
            zeros(2, dtype=F32),
            ROWS,
            ROWS,
            ROWS,
            ROWS[:1],
            ROWS[:1],
            ROWS[:1],
            None,
            None,
            None,
            4,
            0,
            1.0,
            "fp4_16",
        ),
        "d must be a positive multiple of 32, got 40",
    ),
    "engram_gather": (
        lambda: ops.engram_gather(zeros(2, 40, dtype=E4M3), zeros(2, 1, dtype=U8), zeros(3, 2, dtype=I64)),
        "dh must be",
    ),
    "engram_hash": (
        lambda: ops.engram_hash(
            zeros(3, 3, dtype=I32), ROWS, zeros(3, dtype=I64), zeros(5, dtype=I64), zeros(5, dtype=I64), 0
        ),
        "C a multiple of n - 1",
    ),
}


@pytest.mark.parametrize("name", NARROW)
def test_widths_that_are_no_whole_groups_are_refused_in_words(name: str) -> None:
    call, words = NARROW[name]
    with pytest.raises(KernelError, match=words):
        call()
