"""Cache stores of the reference: which bytes are written, with what, and that no other byte changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cache_world import CPU, same_bits
from deepinfer.conformance.oracle import attention as oracle
from deepinfer.conformance.oracle import formats
from deepinfer.hal.errors import ContractError
from deepinfer.ops import cache_steps as build
from deepinfer.ops import kv
from deepinfer.ops.cache_samples import MIXED
from deepinfer.ops.layouts import FP4_32_INDEX, FP8_32, LAYOUTS, entries_per_page

TABLE = build.rope_table(512, 16, CPU)


def step_of(*spans: tuple[int, int], padding: int = 0, seed: int = 0) -> build.Step:
    return build.make_step(np.random.default_rng(seed), CPU, spans, padding)


def numbers(rows: int, width: int, seed: int = 1, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return build.normal(np.random.default_rng(seed), CPU, rows, width, dtype=dtype)


# ---- window records and rings ---------------------------------------------------------------------------------------


def test_window_pack_bytes() -> None:
    step = step_of(*MIXED, padding=2)
    x = numbers(step.rows, 64)
    x[0], x[1], x[2] = 0.0, x[1] * 1e-6, x[2] * 1e4
    want = formats.encode(oracle.rotate(x, step.positions.tolist(), TABLE), "fp8_32")
    assert np.array_equal(kv.window_pack(x, step.positions, TABLE).numpy(), want)


@pytest.mark.parametrize("slots", [5, 22])
def test_window_store_writes_the_last_rows(slots: int) -> None:
    step = step_of((0, 7), (100, 150), (61, 62), padding=3)
    records = torch.from_numpy(build.records(np.random.default_rng(2), FP8_32, (step.rows,), 32))
    ring = build.window_ring(np.random.default_rng(3), step, slots, 32)
    assert not ring.is_contiguous()
    whole = ring.as_strided((ring.stride(0) * ring.shape[0],), (1,), 0)
    want = whole.clone()
    view = want.as_strided(ring.shape, ring.stride())
    for t in range(step.rows - 3):
        s, p = int(step.row_seq[t]), int(step.positions[t])
        if p >= step.spans[s][1] - slots:
            view[int(step.state_slot[s]), p % slots] = records[t]
    kv.window_store(records, ring, step.positions, step.row_seq, step.seq_end, step.state_slot)
    assert torch.equal(whole, want)


def test_rollback_is_overwritten() -> None:
    """Rows of rejected drafts are replaced when their positions come again; the window before them is untouched."""
    a, b = step_of((40, 46)), step_of((42, 44))
    old, new = (torch.from_numpy(build.records(np.random.default_rng(i), FP8_32, (6,), 32)) for i in (4, 5))
    ring = build.window_ring(np.random.default_rng(6), a, 22, 32).contiguous()
    kv.window_store(old, ring, a.positions, a.row_seq, a.seq_end, a.state_slot)
    slot = int(a.state_slot[0])
    before = ring.clone()
    kv.window_store(new[:2], ring, b.positions, b.row_seq, b.seq_end, a.state_slot)
    changed = (ring != before).flatten(2).any(2).nonzero().tolist()
    assert changed == [[slot, 42 % 22], [slot, 43 % 22]]


def test_large_slot_round_trip(tmp_path: Path) -> None:
    """Slot 4,000,000 of 576-byte rows: offsets pass 2**31."""
    ring = torch.from_file(str(tmp_path / "ring"), shared=True, size=4_000_001 * 576, dtype=torch.uint8).view(
        -1, 1, 576
    )
    records = torch.arange(528, dtype=torch.int32).to(torch.uint8)[None]
    one = torch.ones(1, dtype=torch.int32)
    kv.window_store(records, ring[:, :, :528], one * 0, one * 0, one, one * 4_000_000)
    assert torch.equal(ring[4_000_000, 0, :528], records[0]) and not ring[4_000_000, 0, 528:].any()
    wrapped = (4_000_000 * 576 - 2**32) % (4_000_001 * 576) // 576
    assert not ring[wrapped].any() and not ring[0].any()


def test_large_compressor_slots(tmp_path: Path) -> None:
    """State slots of the released size, 3,128,928 bytes, whose offsets pass 2**31: rows written are the ones pooled."""
    stride, slot, d = 3_128_928, 2**31 // 3_128_928 + 3, 64
    pool = torch.from_file(str(tmp_path / "state"), shared=True, size=(slot + 1) * stride, dtype=torch.uint8)
    ring = pool.view(-1, stride)[:, 4_096 : 4_096 + 7 * 2 * d * 4].view(torch.float32).unflatten(1, (7, 2, d))
    value, gate = numbers(6, d, 1, torch.float32), numbers(6, d, 2, torch.float32)
    outputs = []
    for z, where in ((ring, slot), (torch.full((2, 7, 2, d), torch.nan), 1)):
        at = torch.tensor([where], dtype=torch.int32)
        for rows in (slice(0, 3), slice(3, 6)):
            step = step_of((rows.start, rows.stop))
            c = kv.compress_pool(value[rows], gate[rows], z, step.positions, step.row_seq, step.seq_start, at)
            kv.compressor_ring_store(value[rows], gate[rows], z, step.positions, step.row_seq, step.seq_end, at)
        outputs.append((c, z[where, :6].clone()))
    (far, far_ring), (near, near_ring) = outputs
    assert near.any() and same_bits(far, near) and same_bits(far_ring, near_ring)
    wrapped = (slot * stride - 2**32) % pool.numel()
    assert not ring[0].any() and not pool[wrapped : wrapped + stride].any()


# ---- compressor -----------------------------------------------------------------------------------------------------


def pool(step: build.Step, value: torch.Tensor, gate: torch.Tensor, ring: torch.Tensor) -> torch.Tensor:
    return kv.compress_pool(value, gate, ring, step.positions, step.row_seq, step.seq_start, step.state_slot)


def test_pool_values() -> None:
    step = step_of((0, 9), padding=2)
    value, gate = numbers(11, 64, 1, torch.float32), numbers(11, 64, 2, torch.float32) * 4
    gate[:, 0] = torch.tensor([500.0, -500.0]).repeat(6)[:11]  # exp without the maximum would overflow
    value[9:], gate[9:] = torch.nan, torch.nan
    got = pool(step, value, gate, build.compressor_ring(np.random.default_rng(0), step, 7, 64)).double().numpy()
    g, v = gate.double().numpy(), value.double().numpy()
    for t in range(11):
        if t % 2 == 0 or t >= 9:
            assert not got[t].any(), t
            continue
        a = 1 / (1 + np.exp(g[t] - g[t - 1]))
        parts = a * v[t - 1], (1 - a) * v[t]
        bound = 2.0**-8 * np.abs(sum(parts)) + 2.0**-20 * (np.abs(parts[0]) + np.abs(parts[1]))
        assert (np.abs(got[t] - sum(parts)) <= bound).all(), t


@pytest.mark.parametrize("border", [1, 2, 3, 7, 8, 20])
def test_pool_and_ring_across_a_chunk_border(border: int) -> None:
    """The partner from the ring gives the bits of the partner from the chunk, whatever else the ring holds."""
    length = 21
    value, gate = numbers(length, 32, 1, torch.float32), numbers(length, 32, 2, torch.float32)
    ring = torch.full((3, 7, 2, 32), torch.nan)
    slot = torch.tensor([2], dtype=torch.int32)
    outputs = []
    for start, end in ((0, border), (border, length)):
        step = step_of((start, end))
        rows = slice(start, end)
        meta: dict[str, Any] = {"positions": step.positions, "row_seq": step.row_seq, "state_slot": slot}
        outputs.append(kv.compress_pool(value[rows], gate[rows], ring, seq_start=step.seq_start, **meta))
        kv.compressor_ring_store(value[rows], gate[rows], ring, seq_end=step.seq_end, **meta)
    whole = step_of((0, length))
    want = kv.compress_pool(
        value, gate, torch.full((3, 7, 2, 32), torch.nan), whole.positions, whole.row_seq, whole.seq_start, slot
    )
    assert same_bits(torch.cat(outputs), want) and torch.isfinite(want.float()).all()
    for p in range(length - 7, length):
        assert torch.equal(ring[2, p % 7, 0], gate[p]) and torch.equal(ring[2, p % 7, 1], value[p])
    assert ring[:2].isnan().all(), "other slots are not written"


def test_pool_row_alone_equals_row_in_a_batch() -> None:
    spans = ((0, 8), (33, 34), (51, 60))
    step = step_of(*spans, padding=1)
    value, gate = numbers(step.rows, 64, 1, torch.float32), numbers(step.rows, 64, 2, torch.float32)
    ring = build.compressor_ring(np.random.default_rng(3), step, 7, 64)
    whole = pool(step, value, gate, ring)
    single = step_of((33, 34))
    slot = step.state_slot[1:2]
    got = kv.compress_pool(value[8:9], gate[8:9], ring, single.positions, single.row_seq, single.seq_start, slot)
    assert got.any() and same_bits(got[0], whole[8])


# ---- pages ----------------------------------------------------------------------------------------------------------


def stored(step: build.Step, x: torch.Tensor, ratio: int, record: str, pages: torch.Tensor) -> None:
    meta = (step.positions, step.row_seq, step.block_table, TABLE, ratio)
    if record == FP4_32_INDEX.name:
        kv.index_key_store(x, pages, *meta)
    else:
        kv.compressed_store(x, pages, *meta, record)


def expected(step: build.Step, x: torch.Tensor, ratio: int, record: str, pages: torch.Tensor) -> torch.Tensor:
    """`pages` with every completed entry written by the definitions."""
    layout, width = LAYOUTS[record], x.shape[1]
    data = layout.data_bytes(width)
    result = pages.clone()
    for t in range(step.rows):
        s, p = int(step.row_seq[t]), int(step.positions[t])
        if s < 0 or (p + 1) % ratio:
            continue
        j = (p + 1) // ratio - 1
        entry = torch.from_numpy(formats.encode(oracle.rotate(x[t : t + 1], [j * ratio], TABLE), record)[0])
        page = result[int(step.block_table[s, j // entries_per_page(ratio)])]
        slot = j % entries_per_page(ratio)
        at, to = layout.data_offset(slot, width, ratio), layout.scale_offset(slot, width, ratio)
        page[at : at + data], page[to : to + len(entry) - data] = entry[:data], entry[data:]
    return result


@pytest.mark.parametrize("record", ["fp4_16", "fp8_32", "fp4_32_index"])
@pytest.mark.parametrize("ratio", [1, 2])
def test_entries_are_written_and_nothing_else(ratio: int, record: str) -> None:
    step = step_of(*MIXED, (127, 129), padding=2)
    x = numbers(step.rows, 64)
    pages = build.empty_pages(step, LAYOUTS[record], 64, ratio)
    whole = pages.as_strided((pages.stride(0) * pages.shape[0],), (1,), 0)
    want = whole.clone()
    view = want.as_strided(pages.shape, pages.stride(), pages.storage_offset())
    view[:] = expected(step, x, ratio, record, pages)
    stored(step, x, ratio, record, pages)
    assert torch.equal(whole, want)
    assert not torch.equal(whole, torch.full_like(whole, build.POISON))


def test_rows_that_complete_no_entry_may_hold_anything() -> None:
    step = step_of((10, 15), padding=2)
    x = numbers(7, 64)
    pages = [build.empty_pages(step, LAYOUTS["fp4_16"], 64, 2) for _ in range(2)]
    stored(step, x, 2, "fp4_16", pages[0])
    x[0::2], x[5:] = torch.nan, torch.nan
    stored(step, x, 2, "fp4_16", pages[1])
    assert torch.equal(*pages)


@pytest.mark.parametrize("record", ["fp4_16", "fp8_32", "fp4_32_index"])
def test_large_page_addresses(tmp_path: Path, record: str) -> None:
    """Strided page views whose byte offsets pass 2**31 and 2**32: the bytes of a small pool."""
    step = step_of((0, 200))
    x = numbers(200, 64)
    near = build.empty_pages(step, LAYOUTS[record], 64, 1)
    stored(step, x, 1, record, near)
    for stride, page in ((1_077_120, 1_994), (114_048, 18_830), (147_712, 29_077)):
        table = torch.where(step.block_table >= 0, step.block_table + page - 2, -1).int()
        whole = torch.from_file(str(tmp_path / "pool"), shared=True, size=(page + 4) * stride, dtype=torch.uint8)
        far = whole.view(-1, stride)[:, 64 : 64 + near.shape[1]]
        for old, new in zip(step.block_table[0].tolist(), table[0].tolist(), strict=True):
            if old >= 0:
                far[new] = build.POISON
        moved = build.Step(**{**step.__dict__, "block_table": table})
        stored(moved, x, 1, record, far)
        for old, new in zip(step.block_table[0].tolist(), table[0].tolist(), strict=True):
            assert old < 0 or torch.equal(far[new], near[old])
        (tmp_path / "pool").unlink()


def test_row_bytes_do_not_depend_on_the_batch() -> None:
    step = step_of((64, 128))
    x = numbers(64, 64)
    whole = kv.window_pack(x, step.positions, TABLE)
    for t in (0, 1, 17, 63):
        assert torch.equal(kv.window_pack(x[t : t + 1].clone(), step.positions[t : t + 1], TABLE)[0], whole[t])


@pytest.mark.parametrize("record", ["fp4_16", "fp4_32_index"])
def test_entry_without_a_page(record: str) -> None:
    step = step_of((0, 3))
    hole = build.Step(**{**step.__dict__, "block_table": torch.full_like(step.block_table, -1)})
    with pytest.raises(ContractError, match="block_table holds -1, must lie in"):
        stored(hole, numbers(3, 64), 1, record, build.empty_pages(step, LAYOUTS[record], 64, 1))
