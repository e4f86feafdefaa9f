"""Moves of cache bytes: exact, gaps and other slots untouched, lists with unused entries, offsets past 2^31 bytes."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from cuda_calls import DEVICE, STRIDED, assert_kept, every_call, on_cuda, run, sample
from deepinfer.ops.spec import SPECS

OPS = ("copy_slots", "ring_move", "load_records")
LABELS = {
    "copy_slots": ("no pairs", "unused pairs", "cleared only", "one source", "odd width"),
    "ring_move": ("no items", "long to short", "short to long", "one slot", "empty, reversed"),
    "load_records": ("no rows", "rows of no plan", "ranges, fp8", "ranges, fp4_16", "ranges, fp4_32", "every code"),
}


def ints(*rows: object) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.int32)


@pytest.mark.parametrize(("op", "label"), [(op, label) for op in OPS for label in LABELS[op]])
def test_samples(op: str, label: str) -> None:
    assert_kept(op, sample(op, label).args)


@pytest.mark.parametrize("op", OPS)
def test_odd_addresses(op: str) -> None:
    assert_kept(op, sample(op, {"ring_move": "long", "load_records": "ranges, fp4_32"}.get(op, "odd")).args, STRIDED)


def test_slots_of_several_chunks_and_a_tail() -> None:
    pool = torch.randint(0, 256, (5, 2 * 8192 + 77), dtype=torch.uint8)
    assert_kept("copy_slots", (pool, ints((0, 3), (-1, 4), (7, -1))))


def test_released_ring_and_entries() -> None:
    source, target = (torch.randint(0, 256, (2, n, 528), dtype=torch.uint8) for n in (11, 7))
    assert_kept("ring_move", (source, target, ints(1, 0), ints(0, 1), ints(20, 5), ints(27, 8)))
    pages = torch.randint(0, 120, (2, 4 * 528), dtype=torch.uint8)
    assert_kept("load_records", (pages, ints((1, 1, 4, 2), (0, 0, 1, 0)), 6, 4, 512, "fp8_32"))


def test_plans_of_more_pieces_than_are_looked_at_together() -> None:
    pages = torch.randint(0, 120, (3, 8 * 33), dtype=torch.uint8)
    order = torch.randperm(150, generator=torch.Generator().manual_seed(2)).tolist()
    plan = ints(*((i % 3, i % 8, i % 8 + 1, order[i]) for i in range(150)))
    assert_kept("load_records", (pages, plan, 155, 8, 32, "fp8_32"))


def test_wrong_places_are_left_alone() -> None:
    pool = torch.randint(0, 256, (3, 40), dtype=torch.uint8)
    with on_cuda():
        before = pool.clone()
        SPECS["copy_slots"].run(pool.to(DEVICE), ints((0, 3), (3, 1), (1, 2**31 - 1)).to(DEVICE))
    assert torch.equal(pool, before)


def test_slots_past_two_gigabytes() -> None:
    """Memory that nothing touches is not there."""
    if DEVICE.type != "cpu":
        pytest.skip("the calls of the suite try this on the device")
    stride, last = 1077120, 1994
    pool = torch.empty((last + 1) * stride, dtype=torch.uint8).as_strided((last + 1, 700), (stride, 1))
    pool[0] = torch.arange(700).to(torch.uint8)
    with on_cuda():
        SPECS["copy_slots"].run(pool, ints((0, last)))
        assert torch.equal(pool[last], pool[0])
        SPECS["copy_slots"].run(pool, ints((last, 1)))
        far = pool.as_strided((last + 1, 660), (stride, 1))
        keys = run_there(far, ints((last, 0, 20, 0)))
    assert torch.equal(pool[1], pool[0])
    (near,) = run("load_records", pool[:1, :660].contiguous(), ints((0, 0, 20, 0)), 20, 20, 32, "fp8_32")
    assert torch.equal(keys.view(torch.int16), near.view(torch.int16))


def run_there(pages: torch.Tensor, plan: torch.Tensor) -> torch.Tensor:
    """load_records of the pages as they lie; `run` would copy them."""
    keys: torch.Tensor = SPECS["load_records"].run(pages, plan, 20, 20, 32, "fp8_32")
    return keys


@pytest.mark.gpu
@pytest.mark.parametrize("op", OPS)
def test_every_required_call(op: str) -> None:
    for label, args, variant in every_call(op):
        try:
            assert_kept(op, args, variant)
        except AssertionError as error:
            raise AssertionError(f"{op}, {label}: {error}") from None
