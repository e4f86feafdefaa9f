"""Parameters of rows, masks and candidate lists against loops."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from deepinfer import ops
from deepinfer.backends import reference
from deepinfer.conformance.compare.exact import same_bits
from deepinfer.conformance.oracle.expected import BITS, load_oracles
from deepinfer.hal.errors import ContractError
from deepinfer.ops.spec import SPECS

CPU = torch.device("cpu")
INF, NAN = float("inf"), float("nan")


@pytest.fixture(autouse=True)
def kernels() -> None:
    load_oracles()
    reference.backend.load()


def i32(values: Any) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def samples(name: str, seed: int = 0) -> Iterator[tuple[str, tuple[Any, ...]]]:
    for sample in SPECS[name].samples(np.random.default_rng(seed), CPU):
        yield sample.label, sample.args


@pytest.mark.parametrize("name", ["expand_params", "lookup_candidates"])
@pytest.mark.parametrize("seed", range(2))
def test_parameters_and_candidates_by_definition(name: str, seed: int) -> None:
    for label, args in samples(name, seed):
        found = SPECS[name].run(*args)
        found = found if isinstance(found, tuple) else (found,)
        for got, want in zip(found, BITS[name](*args), strict=True):
            assert want is not None and same_bits(got, want.want), label


def test_positions_do_not_wrap_at_32_bits() -> None:
    i64 = torch.zeros(1, dtype=torch.int64)
    got = ops.expand_params(i32([0]), i32([3]), torch.ones(1), i32([0]), i64, i64, i64, i64 + 2**31 - 1)
    assert got.positions.tolist() == [2**31 + 2]


@pytest.mark.parametrize("wrong", [1, -2, 2**31 - 1])
def test_requests_that_do_not_exist_are_refused(wrong: int) -> None:
    i64 = torch.zeros(1, dtype=torch.int64)
    with pytest.raises(ContractError, match=f"request holds {wrong}"):
        ops.expand_params(i32([0, wrong]), i32([0, 0]), torch.ones(1), i32([0]), i64, i64, i64, i64)


@pytest.mark.parametrize("seed", range(2))
def test_masks_by_definition(seed: int) -> None:
    applied = 0
    for label, (logits, words, request, offset, first) in samples("mask_rows", seed):
        if label.startswith("real") and seed:
            continue
        before = logits.clone()
        (want,) = BITS["mask_rows"](logits, words, request, offset, first)
        ops.mask_rows(logits, words, request, offset, first)
        assert want is not None and same_bits(logits, want.want), label
        applied += int(not same_bits(before, logits))
    assert applied >= 3


def test_the_last_row_of_a_request_is_its_own() -> None:
    """Offsets at the border: a row of the next request is not touched."""
    logits = torch.zeros(5, 40)
    none = i32([[0, 0]])
    ops.mask_rows(logits, none, i32([0]), i32([2]), i32([0, 2, 5]))
    assert not logits.isinf().any()
    ops.mask_rows(logits, none, i32([0]), i32([1]), i32([0, 2, 5]))
    assert logits.isinf().all(1).tolist() == [False, True, False, False, False]


def test_two_masks_keep_what_both_allow_and_nan_is_banned() -> None:
    logits = torch.tensor([[1.0, 2.0, NAN, 4.0]])
    ops.mask_rows(logits, i32([[0b0011], [0b1001]]), i32([0, 0]), i32([0, 0]), i32([0, 1]))
    assert logits.tolist() == [[1.0, -INF, -INF, -INF]]


@pytest.mark.parametrize(
    ("owner", "first", "words"),
    [([2], [0, 2, 4], "request"), ([-2], [0, 2, 4], "request"), ([0], [0, 2, 5], "first_row holds 5"),
     ([0], [2, 0, 4], "first_row must not descend"), ([0], [], "request")],
)  # fmt: skip
def test_masks_of_nobody_are_refused(owner: list[int], first: list[int], words: str) -> None:
    with pytest.raises(ContractError, match=words):
        ops.mask_rows(torch.zeros(4, 8), i32([[0]]), i32(owner), i32([0]), i32(first))


def test_lists_of_two_steps_are_aligned() -> None:
    draft, target = i32([[7, 2, 9, -1]]), i32([[2, 5, 7, -1]])
    got = ops.lookup_candidates(draft, torch.tensor([[-1.0, -2.0, -0.0, NAN]]), target)
    assert got.tolist() == [[-2.0, -INF, -1.0, -INF]]
