"""Cost models: the fewest bytes a call must move, from its dims and dtypes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import deepinfer.ops  # noqa: F401 - defines the specs
from deepinfer.backends import reference
from deepinfer.ops.overlap import named_tensors
from deepinfer.ops.spec import SPECS, Cost, OpSpec

CPU = torch.device("cpu")


def calls(op: str) -> Iterator[tuple[str, tuple[Any, ...]]]:
    reference.backend.load()
    for sample in SPECS[op].samples(np.random.default_rng(0), CPU):
        yield sample.label, sample.args


def size(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def bytes_of_outputs(spec: OpSpec, args: tuple[Any, ...]) -> int:
    """From the spec alone: the narrowest dtype, and no rows where only an absent argument would say how many."""
    dims = spec.dims(*args)
    dims.setdefault("M", dims.get("X", 0))
    return sum(int(np.prod([d.value(dims) for d in o.dims])) * min(t.itemsize for t in o.dtypes) for o in spec.outs)


@pytest.mark.parametrize("op", sorted(SPECS))
def test_every_output_byte_counts_and_no_byte_counts_twice(op: str) -> None:
    spec = SPECS[op]
    for label, args in calls(op):
        written, counted = bytes_of_outputs(spec, args), spec.work(*args).bytes
        wider = 2 if any(len(o.dtypes) > 1 for o in spec.outs) else 1
        held = sum(size(t) for _, t in named_tensors(spec, args)) + wider * written
        assert written <= counted <= held, label


@pytest.mark.parametrize("op", sorted(SPECS))
def test_cost_grows_with_rows_and_is_never_negative(op: str) -> None:
    spec = SPECS[op]
    *_, (_, args) = calls(op)
    dims = spec.dims(*args)
    few = spec.cost({**dims, **dict.fromkeys(spec.dynamic, 1)})
    many = spec.cost({**dims, **dict.fromkeys(spec.dynamic, 64)})
    assert 0 <= few.flops <= many.flops and 0 < few.bytes < many.bytes


def cost(op: str, **dims: int) -> Cost:
    return SPECS[op].cost(dims)


def test_scores_count_queries_keys_and_scores() -> None:
    got = cost("index_score", T=3, H=32, qb=68, S=2, P=100, B=4, ratio=1, entries=300)
    queries, keys, scores = 3 * 32 * (68 + 2), 2 * 300 * 68, 3 * 300 * 2
    assert got.bytes == queries + keys + scores + 3 * 8 + 2 * 3 * 4


def test_rows_that_share_candidates_do_not_count_more_keys_than_there_are() -> None:
    got = cost("index_score_blocks", T=500, H=32, qb=68, S=1, P=2, B=4, ratio=2, KB=9, block_size=8)
    assert got.bytes == 500 * 32 * 70 + 2 * 64 * 68 + 500 * 72 * 2 + 500 * (9 * 4 + 8)


def test_rings_count_the_rows_they_keep() -> None:
    step = {"T": 300, "S": 2, "Z": 9}
    assert cost("window_store", **step, R=22, rec=66).bytes == 2 * 44 * 66 + 300 * 8 + 2 * 8
    assert cost("compressor_ring_store", **step, L=7, d=64).bytes == 2 * 14 * 64 * 8 + 300 * 8 + 2 * 8
    assert cost("window_store", T=3, S=2, Z=9, R=22, rec=66).bytes == 2 * 3 * 66 + 3 * 8 + 2 * 8


def test_attention_counts_the_window_of_a_chunk_once() -> None:
    dims = {"T": 1000, "h": 1, "d": 64, "S": 1, "Z": 2, "R": 133, "window": 128, "ratio": 0}
    assert cost("sparse_attention", **dims).bytes == 1000 * 4 * 64 + (1000 + 127) * 66 + 4 + 1000 * 12 + 12
    one = dims | {"T": 1}
    assert cost("sparse_attention", **one).bytes == 4 * 64 + 128 * 66 + 4 + 12 + 12


def test_dtypes_count() -> None:
    def work(op: str, *args: Any) -> float:
        return SPECS[op].work(*args).bytes

    scores, seen = torch.zeros(2, 50), torch.zeros(2, dtype=torch.int32)
    wide = work("topk_select", scores, seen, 4, None, 8)
    assert wide - work("topk_select", scores.bfloat16(), seen, 4, None, 8) == 2 * 50 * 2
    x = torch.zeros(3, 64)
    assert work("quant_fp8", x) - work("quant_fp8", x.bfloat16()) == 3 * 64 * 2
    rows = torch.zeros(5, dtype=torch.int32)
    assert work("gather_rows", x, rows) == 2 * work("gather_rows", x.bfloat16(), rows) - 5 * 4
    weight = SPECS["linear_bf16"].prepare(torch.zeros(8, 64, dtype=torch.bfloat16))
    assert (
        work("linear_bf16", x.bfloat16(), weight, True) - work("linear_bf16", x.bfloat16(), weight, False) == 3 * 8 * 2
    )
