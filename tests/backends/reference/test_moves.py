"""Copies between slots, windows between rings, and records as keys, against loops over bytes."""

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
from deepinfer.hal.errors import ContractError, InvalidArgumentError
from deepinfer.ops.spec import SPECS

CPU = torch.device("cpu")
HOLE = 1_078_000_000
"""Bytes from one row to the next of a pool whose third row lies past 2**31. Memory nobody touches costs nothing."""


@pytest.fixture(autouse=True)
def kernels() -> None:
    load_oracles()
    reference.backend.load()


def i32(values: Any) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def samples(name: str, seed: int = 0) -> Iterator[tuple[str, tuple[Any, ...]]]:
    for sample in SPECS[name].samples(np.random.default_rng(seed), CPU):
        yield sample.label, sample.args


def everything(view: torch.Tensor) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8).set_(view.untyped_storage())


def far_rows(content: torch.Tensor) -> torch.Tensor:
    """The rows of uint8 [3, W] so far apart that the last lies past 2**31 bytes."""
    memory = torch.empty(2 * HOLE + content.shape[1], dtype=torch.uint8)
    return memory.as_strided((3, content.shape[1]), (HOLE, 1)).copy_(content)


@pytest.mark.parametrize("seed", range(2))
def test_copies_against_a_loop_and_no_other_byte_changes(seed: int) -> None:
    for label, (pool, pairs) in samples("copy_slots", seed):
        before = everything(pool).clone()
        old = pool.clone()
        (want,) = BITS["copy_slots"](pool, pairs)
        ops.copy_slots(pool, pairs)
        after = everything(pool).clone()
        assert want is not None and pool.equal(want.want), label
        pool.copy_(old)
        assert everything(pool).equal(before), label
        assert pairs.numel() == 0 or (pairs[:, 1] == -1).all() or not after.equal(before)


def test_wide_slots_are_copied_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    from deepinfer.backends.reference import moves

    monkeypatch.setattr(moves, "COLUMNS", 16)
    pool = torch.randint(1, 256, (4, 41), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    want = pool[[0, 0, 2, 3]] * torch.tensor([[1], [1], [1], [0]], dtype=torch.uint8)
    ops.copy_slots(pool, i32([[0, 1], [-1, 3]]))
    assert pool.equal(want)


def test_copies_past_two_gigabytes() -> None:
    content = torch.arange(3 * 72, dtype=torch.uint8).view(3, 72)
    pool = far_rows(content)
    ops.copy_slots(pool, i32([[0, 2], [-1, 1]]))
    assert pool[2].equal(content[0]) and not pool[1].any() and pool[0].equal(content[0])


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        ([[0, 1], [2, 1]], "target of pairs repeats"),
        ([[-1, 1], [2, 1]], "target of pairs repeats"),
        ([[0, 1], [1, 2]], "target that is a source as well"),
        ([[1, 1]], "target that is a source as well"),
        ([[4, 1]], "source of pairs holds 4"),
        ([[-2, 1]], "source of pairs holds -2"),
        ([[0, -2]], "target of pairs holds -2"),
        ([[0, 4]], "target of pairs holds 4"),
    ],
)
def test_lists_whose_order_would_matter_are_refused(pairs: list[list[int]], words: str) -> None:
    pool = torch.ones(4, 8, dtype=torch.uint8)
    with pytest.raises(ContractError, match=words):
        ops.copy_slots(pool, i32(pairs))
    assert pool.all()


@pytest.mark.parametrize("seed", range(2))
def test_windows_against_a_loop_and_no_other_byte_changes(seed: int) -> None:
    for label, args in samples("ring_move", seed):
        target = args[1]
        (want,) = BITS["ring_move"](*args)
        outside = everything(target).clone()
        old = target.clone()
        ops.ring_move(*args)
        assert want is not None and target.equal(want.want), label
        target.copy_(old)
        assert everything(target).equal(outside), label


def test_a_window_goes_to_a_short_ring_and_back() -> None:
    window, rec = 4, 8
    long, short, back = (torch.full((2, n, rec), 0xFF, dtype=torch.uint8) for n in (11, 6, 11))
    for p in range(20, 31):
        long[1, p % 11] = p
    args = (i32([31 - window]), i32([31]))
    ops.ring_move(long, short, i32([1]), i32([0]), *args)
    ops.ring_move(short, back, i32([0]), i32([1]), *args)
    for p in range(31 - window, 31):
        assert short[0, p % 6].tolist() == back[1, p % 11].tolist() == [p] * rec
    assert (short == 0xFF).all(-1).sum() == 12 - window and (back == 0xFF).all(-1).sum() == 22 - window


def test_windows_past_two_gigabytes() -> None:
    source = far_rows(torch.arange(3 * 32, dtype=torch.uint8).view(3, 32)).unflatten(1, (4, 8))
    target = far_rows(torch.full((3, 24), 0xFF, dtype=torch.uint8)).unflatten(1, (3, 8))
    ops.ring_move(source, target, i32([2]), i32([2]), i32([5]), i32([7]))
    assert target[2, 2].equal(source[2, 1]) and target[2, 0].equal(source[2, 2]) and (target[2, 1] == 0xFF).all()


@pytest.mark.parametrize(
    ("lists", "words"),
    [
        (([0], [2], [0], [1]), "target_slot holds 2"),
        (([2], [0], [0], [1]), "source_slot holds 2"),
        (([0], [0], [0], [4]), "end - begin holds 4"),
        (([0], [0], [-1], [1]), "begin holds -1"),
        (([0, 0], [1, 1], [0, 1], [1, 2]), "target_slot repeats"),
    ],
)
def test_windows_that_do_not_fit_are_refused(lists: tuple[list[int], ...], words: str) -> None:
    rings = torch.zeros(2, 5, 8, dtype=torch.uint8), torch.zeros(2, 3, 8, dtype=torch.uint8)
    with pytest.raises(ContractError, match=words):
        ops.ring_move(*rings, *map(i32, lists))


def test_keys_by_definition() -> None:
    for label, args in samples("load_records"):
        (want,) = BITS["load_records"](*args)
        assert want is not None and same_bits(ops.load_records(*args), want.want), label


def test_keys_below_the_normal_range_round_to_even_and_stay() -> None:
    codes = torch.zeros(1, 33, dtype=torch.uint8)
    codes[0, :4] = torch.tensor([0x38, 0x3C, 0x01, 0x81])  # 1, 1.5, 2^-9, -2^-9
    got = ops.load_records(codes, i32([[0, 0, 1, 0]]), 1, 1, 32, "fp8_32").double()[0]  # scale 2^-127
    assert got[:4].tolist() == [2.0**-127, 1.5 * 2.0**-127, 0.0, 0.0]


def test_keys_past_two_gigabytes() -> None:
    near = torch.randint(0, 100, (3, 128 * 18), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    plan = i32([[2, 3, 9, 1], [0, 0, 1, 0]])
    near_keys, far_keys = (ops.load_records(p, plan, 8, 128, 32, "fp4_16") for p in (near, far_rows(near)))
    assert near_keys.equal(far_keys) and near_keys[1].any() and not near_keys[7].any()


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ([[3, 0, 1, 0]], "page of plan holds 3"),
        ([[0, 0, 5, 0]], "end of plan holds 5"),
        ([[0, -1, 2, 0]], "begin of plan holds -1"),
        ([[0, 0, 3, 4]], "last row of plan holds 6"),
        ([[0, 0, 3, -1]], "first row of plan holds -1"),
        ([[0, 0, 2, 0], [1, 0, 2, 1]], "row of plan repeats"),
    ],
)
def test_plans_that_do_not_fit_are_refused(plan: list[list[int]], words: str) -> None:
    with pytest.raises(ContractError, match=words):
        ops.load_records(torch.zeros(3, 4 * 33, dtype=torch.uint8), i32(plan), 6, 4, 32, "fp8_32")


def test_page_sizes_that_do_not_fit_are_refused() -> None:
    none = i32(np.zeros((0, 4), np.int32))
    with pytest.raises(ContractError, match="pages hold 132 bytes each; 3 entries of 32 channels as fp8_32 need 99"):
        ops.load_records(torch.zeros(3, 132, dtype=torch.uint8), none, 0, 3, 32, "fp8_32")
    with pytest.raises(InvalidArgumentError, match="multiple"):
        ops.load_records(torch.zeros(3, 132, dtype=torch.uint8), none, 0, 3, 40, "fp8_32")
