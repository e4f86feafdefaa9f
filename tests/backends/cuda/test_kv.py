"""Cache records: bytes of the class, each at its place, nothing beside them, and addresses past 2^31 bytes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("triton")

import numpy as np

from cuda_calls import DEVICE, FAR, PLAIN, SPOILT, STRIDED, assert_kept, every_call, on_cuda, run, sample
from deepinfer.backends.reference import kv as reference
from deepinfer.ops import cache_steps as build
from deepinfer.ops.layouts import FP4_16, FP4_32_INDEX, FP8_32
from deepinfer.ops.spec import SPECS

CPU = torch.device("cpu")
OPS = (
    "window_pack",
    "window_store",
    "compress_pool",
    "compressor_ring_store",
    "compressed_store",
    "index_key_store",
)
SMALL = ("no rows", "padding rows only", "odd chunk")


@pytest.mark.parametrize("label", SMALL)
@pytest.mark.parametrize("op", OPS)
def test_small_calls(op: str, label: str) -> None:
    assert_kept(op, sample(op, label).args)


@pytest.mark.parametrize("variant", [STRIDED, SPOILT])
@pytest.mark.parametrize("op", OPS)
def test_odd_addresses_and_numbers_that_are_none(op: str, variant: str) -> None:
    if variant == STRIDED or op in ("window_pack", "compress_pool", "compressor_ring_store"):
        assert_kept(op, sample(op, "odd chunk").args, variant)


def test_groups_of_zeros_tiny_infinite_and_huge_numbers() -> None:
    assert_kept("window_pack", sample("window_pack", "zero, tiny").args)


def entries(rng: np.random.Generator, record: Any, d: int, ratio: int, spans: Any, padding: int = 1) -> tuple[Any, ...]:
    """Arguments of compressed_store or index_key_store; latents of rows that complete nothing are NaN."""
    step = build.make_step(rng, CPU, spans, padding)
    x = build.normal(rng, CPU, step.rows, d)
    complete = (step.row_seq >= 0) & ((step.positions + 1) % ratio == 0)
    x[~complete] = torch.nan
    args = (x, build.empty_pages(step, record, d, ratio), step.positions, step.row_seq, step.block_table)
    table = build.rope_table(512, 64, CPU)
    return (*args, table, ratio, *(() if record is FP4_32_INDEX else (record.name,)))


@pytest.mark.parametrize(
    ("op", "record", "d", "ratio"),
    [
        ("compressed_store", FP4_16, 512, 1),
        ("compressed_store", FP4_16, 512, 2),
        ("compressed_store", FP8_32, 512, 2),
        ("index_key_store", FP4_32_INDEX, 128, 1),
        ("index_key_store", FP4_32_INDEX, 128, 2),
    ],
)
def test_released_widths_across_pages(op: str, record: Any, d: int, ratio: int) -> None:
    """Several programs and a tail; the bytes are the reference's, as both round at the same places."""
    rng = np.random.default_rng(d + ratio)
    args = entries(rng, record, d, ratio, ((120, 135), (7, 8)))
    assert_kept(op, args)
    (pages,) = run(op, *args)
    want = args[1].clone()
    getattr(reference, op)(args[0], want, *args[2:], None)
    assert torch.equal(pages, want)


def test_widths_that_are_no_power_of_two() -> None:
    rng = np.random.default_rng(1)
    kv, place = build.normal(rng, CPU, 5, 96), torch.arange(5, dtype=torch.int32)
    assert_kept("window_pack", (kv, place, build.rope_table(8, 32, CPU)))
    args = entries(rng, FP4_32_INDEX, 96, 1, ((3, 9),))
    assert_kept("index_key_store", args)


def test_released_rings_take_the_last_rows_alone() -> None:
    rng = np.random.default_rng(2)
    step = build.make_step(rng, CPU, ((1, 9), (999, 1000)), padding=1)
    fresh = torch.from_numpy(build.records(rng, FP8_32, (step.rows,), 512))
    ring = build.window_ring(rng, step, 6, 512)
    assert_kept("window_store", (fresh, ring, step.positions, step.row_seq, step.seq_end, step.state_slot))
    value, gate = (build.normal(rng, CPU, step.rows, 512, dtype=torch.float32) for _ in range(2))
    ring = build.compressor_ring(rng, step, 7, 512)
    assert_kept(
        "compressor_ring_store", (value, gate, ring, step.positions, step.row_seq, step.seq_end, step.state_slot)
    )
    assert_kept("compress_pool", (value, gate, ring, step.positions, step.row_seq, step.seq_start, step.state_slot))


@pytest.mark.parametrize("op", [op for op in OPS if op != "compress_pool"])  # which pools the row before
def test_bits_depend_on_the_row_alone(op: str) -> None:
    """Rows in another order, and padding between them, write the same bytes."""
    args = sample(op, "mixed batch").args
    order = torch.randperm(args[0].shape[0], generator=torch.Generator().manual_seed(4))
    rows = {
        "window_pack": (0, 1),
        "window_store": (0, 2, 3),
        "compressor_ring_store": (0, 1, 3, 4),
        "compressed_store": (0, 2, 3),
        "index_key_store": (0, 2, 3),
    }[op]
    mixed = tuple(x[order] if i in rows else x for i, x in enumerate(args))
    (plain,), (again,) = run(op, *args), run(op, *mixed)
    want = plain[order] if op == "window_pack" else plain
    assert torch.equal(again.contiguous().view(torch.uint8), want.contiguous().view(torch.uint8))


def test_wrong_places_are_left_alone() -> None:
    """Absent pages, pages and slots that do not exist, and sequences beyond the last write nothing."""
    rng = np.random.default_rng(6)
    args = list(entries(rng, FP4_16, 64, 1, ((0, 3), (5, 6), (9, 10)), padding=0))
    args[5] = build.rope_table(16, 32, CPU)
    args[4] = args[4].clone()
    args[4][0, 0], args[4][1, 0], args[4][2, 0] = -1, args[1].shape[0], 2**31 - 1
    (pages,) = run("compressed_store", *args)
    assert torch.equal(pages, args[1])
    ring = torch.full((2, 3, 66), 9, dtype=torch.uint8)
    records, zeros = torch.zeros((3, 66), dtype=torch.uint8), torch.zeros(3, dtype=torch.int32)
    places = torch.tensor([0, 0, -1], dtype=torch.int32)
    slots = torch.tensor([2], dtype=torch.int32)
    (after,) = run("window_store", records, ring, zeros, places, zeros[:1] + 1, slots)
    assert torch.equal(after, ring)


@pytest.mark.parametrize(("page", "stride"), [(1994, 1077120), (29077, 147712)])
def test_pages_past_two_gigabytes(page: int, stride: int) -> None:
    """The packed stride of whole pages; memory that nothing touches is not there."""
    rng = np.random.default_rng(page)
    args = list(entries(rng, FP4_16, 64, 2, ((1, 4),), padding=0))
    args[5] = build.rope_table(16, 32, CPU)
    args[4] = torch.tensor([[page]], dtype=torch.int32)
    width = args[1].shape[1]
    far = torch.empty((page + 1) * stride, dtype=torch.uint8).as_strided((page + 1, width), (stride, 1))
    far[page] = 0xFF
    assert page * stride > 1 << 31
    near = torch.full((2, width), 0xFF, dtype=torch.uint8)
    if DEVICE.type != "cpu":
        pytest.skip("the calls of the suite try this on the device")
    with on_cuda():
        spec = SPECS["compressed_store"]
        spec.run(args[0], far, *args[2:])
        spec.run(args[0], near, *args[2:4], torch.tensor([[1]], dtype=torch.int32), *args[5:])
    assert torch.equal(far[page], near[1])
    assert (near[1] != 0xFF).any() and (near[0] == 0xFF).all()


def test_slot_four_million() -> None:
    """Slot times record bytes is past 2^31."""
    if DEVICE.type != "cpu":
        pytest.skip("the calls of the suite try this on the device")
    slot, rec = 4_000_000, 576 + 18
    ring = torch.empty((slot + 1) * rec, dtype=torch.uint8).view(slot + 1, 1, rec)
    records = torch.arange(rec, dtype=torch.int32).to(torch.uint8).view(1, rec)
    one = torch.zeros(1, dtype=torch.int32)
    with on_cuda():
        SPECS["window_store"].run(records, ring, one, one, one + 1, one + slot)
    assert torch.equal(ring[slot, 0], records[0])


@pytest.mark.gpu
@pytest.mark.parametrize("op", OPS)
def test_every_required_call(op: str) -> None:
    """Pools past 2^31 bytes are among them."""
    made = every_call(op)
    assert op in ("window_pack",) or any(variant.startswith(FAR) for _, _, variant in made)
    assert any(variant == PLAIN for _, _, variant in made)
    for label, args, variant in made:
        try:
            assert_kept(op, args, variant)
        except AssertionError as error:
            raise AssertionError(f"{op}, {label}: {error}") from None
