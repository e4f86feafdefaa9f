"""Sparse attention in Triton: the class, equal bits whatever way and company a row takes, nothing else read."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("triton")

import numpy as np

import attention_cases as cases
from cuda_calls import DEVICE, PLAIN, SPOILT, STRIDED, assert_kept, every_call, given, run, sample
from deepinfer import ops
from deepinfer.backends.cuda import attention
from deepinfer.backends.cuda.attention_compiles import COMPILES
from deepinfer.hal.errors import ContractError
from deepinfer.hal.registry import REGISTRY, Signature
from deepinfer.ops import cache_steps as build
from deepinfer.ops.cache_samples import _attention
from deepinfer.ops.layouts import FP8_32

OP = "sparse_attention"
CPU = torch.device("cpu")
WAYS = ("rows", "few", "many")
WIDE = {"heads": 33, "d": 288}
"""The smallest call that is padded to the released widths' tiles and may take every way."""


def bits(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous().view(torch.int16)


def call(spans: Any, heads: int = 4, d: int = 64, padding: int = 0, seed: int = 0, **options: Any) -> list[Any]:
    rng = np.random.default_rng(seed)
    step = build.make_step(rng, CPU, spans, padding)
    return list(_attention(rng, step, "", heads, d, **options).args)


def by_way(args: Any, way: str) -> torch.Tensor:
    """One way's output, on the CPU."""
    placed = tuple(a.to(DEVICE) if isinstance(a, torch.Tensor) else a for a in args)
    return attention._run(placed, None, None, way).cpu()


@pytest.mark.parametrize("variant", [PLAIN, STRIDED, SPOILT])
@pytest.mark.parametrize("label", ["odd chunk, window only", "odd chunk, ratio 1", "odd chunk, ratio 2"])
def test_small_calls_in_every_form(label: str, variant: str) -> None:
    assert_kept(OP, sample(OP, label).args, variant)


def test_no_rows_and_padding_rows_alone() -> None:
    for label in ("no rows, ratio 1", "padding rows only, ratio 2", "first token, window only"):
        assert_kept(OP, sample(OP, label).args)


@pytest.mark.parametrize("record", ["fp4_16", "fp8_32"])
def test_two_tiles_and_a_tail_in_both_sections(record: str) -> None:
    args = call(((300, 301), (61, 63)), window=130, ratio=1, k=150, record=record, padding=1)
    for variant in (PLAIN, SPOILT):
        assert_kept(OP, tuple(args), variant)


def test_lower_bounds_and_draft_blocks() -> None:
    assert_kept(OP, tuple(call(((40, 44), (3, 5)), window=16, ratio=1, k=16, bounded=True)))
    assert_kept(OP, tuple(call(((0, 5), (200, 205)), window=21, block=True)))


@pytest.mark.parametrize("way", WAYS)
def test_real_widths_are_within_the_bound(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention._Shape, "way", property(lambda self: way))
    assert_kept(OP, tuple(call(((200, 201),), heads=64, d=512, window=128, ratio=1, k=150)))


@pytest.mark.parametrize("record", ["fp4_16", "fp8_32"])
def test_every_way_gives_the_same_bits(record: str) -> None:
    args = call(((300, 301), (5, 6)), window=70, ratio=2, k=70, record=record, padding=1, **WIDE)
    want = bits(by_way(args, "rows"))
    for way in WAYS[1:]:
        assert torch.equal(bits(by_way(args, way)), want), way


def test_the_way_follows_from_shapes_alone() -> None:
    def way(rows: int, sequences: int, columns: int) -> str:
        q = torch.empty((rows, 64, 512), dtype=torch.bfloat16, device="meta")
        ring = torch.empty((9, 134, 528), dtype=torch.uint8, device="meta")
        table, indices = torch.empty((sequences, columns), device="meta"), torch.empty((rows, 512), device="meta")
        return attention._shape(q, ring, sequences, table, indices, 128, 1).way

    assert way(attention.FEW_ROWS, 1, 64) == "few"
    assert way(attention.FEW_ROWS + 1, 65, 64) == way(768, 128, 256) == "rows"
    assert way(4096, 1, 64) == way(4096, 1, 256) == "many"


@pytest.mark.parametrize("way", WAYS)
def test_a_row_alone_gives_the_bits_of_a_row_in_company(way: str) -> None:
    args = call(((130, 132), (61, 62), (0, 1)), window=20, ratio=1, k=20, padding=1, **WIDE)
    named = given(OP, tuple(args))
    whole = bits(by_way(args, way))
    per_row = ("q", "first_key", "last_key", "row_seq", "indices")
    for rows in ([0], [1], [2], [3], [2, 4, 0, 3, 1]):  # of a pool whose fresh rows stay where they are
        some = [value[rows] if name in per_row else value for name, value in named.items()]
        if way == "many":  # unpacks as many fresh rows as there are rows
            some[0] = torch.cat((some[0], torch.zeros_like(named["q"])))[: len(named["q"])]
            extra = len(named["q"]) - len(rows)
            some[6] = torch.cat((some[6], torch.full((extra,), -1, dtype=torch.int32)))
            some[4], some[5] = (torch.cat((some[i], torch.zeros(extra, dtype=torch.int32))) for i in (4, 5))
            some[12] = torch.cat((some[12], torch.zeros((extra, 20), dtype=torch.int32)))
        assert torch.equal(bits(by_way(some, way))[: len(rows)], whole[rows]), rows


def test_chunk_borders_change_no_bit() -> None:
    """The last row of a chunk of 3, and the same row decoded after the others were stored into the ring."""
    args = call(((100, 103),), window=70, ratio=1, k=70)
    named = given(OP, tuple(args))
    want = bits(run(OP, *args)[0])[2]
    ring = named["ring"].clone()
    for row in range(2):
        ring[int(named["state_slot"][0]), (100 + row) % ring.shape[1]] = named["fresh"][row]
    named |= {name: named[name][2:] for name in ("q", "fresh", "first_key", "last_key", "row_seq", "indices")}
    named |= {"ring": ring, "seq_start": torch.tensor([102], dtype=torch.int32)}
    assert torch.equal(bits(run(OP, *named.values())[0])[0], want)


def test_trailing_empty_columns_change_no_bit() -> None:
    args = call(((100, 101),), window=16, ratio=1, k=60)
    wider = list(args)
    wider[12] = torch.cat((args[12], torch.full((1, 140), -1, dtype=torch.int32)), dim=1)
    assert torch.equal(bits(run(OP, *args)[0]), bits(run(OP, *wider)[0]))


@pytest.mark.parametrize("way", WAYS)
def test_unasked_bytes_are_never_read(way: str) -> None:
    """Samples have poison there; here it is other poison, and page 0 and the page ids of unused columns too."""
    args = call(((150, 152), (3, 4)), window=20, ratio=1, k=20, padding=1, **WIDE)
    named = given(OP, tuple(args))
    want = bits(by_way(args, way))
    pages, ring, table = named["pages"].clone(), named["ring"].clone(), named["block_table"].clone()
    asked = torch.zeros(pages.shape[0], 128, dtype=torch.bool)
    for row, s in enumerate(named["row_seq"].tolist()):
        for j in named["indices"][row].tolist() if s >= 0 else ():
            if j >= 0:
                asked[int(table[s, j // 128]), j % 128] = True
    pages.unflatten(1, (128, -1))[~asked] = 0x7F
    seen = torch.zeros(ring.shape[:2], dtype=torch.bool)
    for s, start in enumerate(named["seq_start"].tolist()):
        past = torch.arange(max(0, start - 19), start)
        seen[int(named["state_slot"][s]), past % ring.shape[1]] = True
    ring[~seen] = 0x7F
    table[table < 0] = 2**31 - 1
    named |= {"pages": pages, "ring": ring, "block_table": table}
    assert torch.equal(bits(by_way(named.values(), way)), want)


@pytest.mark.parametrize("code", [0x7F, 0xFF])
def test_a_nan_among_a_rows_own_keys_reaches_all_its_outputs(code: int) -> None:
    """Every place of a word, of a window key and of the scale; other rows keep their bits."""
    args = call(((20, 21), (30, 31)), window=8)
    clean = run(OP, *args)[0]
    fresh = args[1]
    for place in (0, 1, 2, 3, fresh.shape[1] - 1):
        spoilt = list(args)
        spoilt[1] = fresh.clone()
        spoilt[1][0, place] = code if place < 64 else 0xFF
        out = run(OP, *spoilt)[0]
        assert out[0].isnan().all(), place
        assert torch.equal(bits(out[1]), bits(clean[1]))


def test_scores_of_minus_infinity_alone_give_nan() -> None:
    args = call(((0, 2),), window=4)
    args[1][:, 0] = 0x38  # 1.0 in channel 0 of every key
    args[0][1, 2, 0], args[0][1, 3, 0] = -torch.inf, torch.inf
    out = run(OP, *args)[0]
    assert out.isnan().all(2).tolist() == [[False] * 4, [False, False, True, True]]
    assert_kept(OP, tuple(args))


def test_extreme_scales_of_window_keys() -> None:
    """Every exponent of E8M0 that leaves bf16 numbers, keys of zero beside them."""
    args = call(((8, 9),), window=2)
    for byte in (10, 118, 134, 135, 200, 240):
        args[1][:, :64] = 0
        args[1][:, 64:] = byte
        args[1][0, :5] = torch.tensor([0x08, 0x01, 0x00, 0x87, 0x38], dtype=torch.uint8)
        args[0] = args[0] * 0 + 2.0**-100 if byte > 150 else args[0]
        assert_kept(OP, tuple(args))


def test_pages_and_slots_past_two_gigabytes() -> None:
    """A page id times the released stride beyond 2^31 and 2^32 bytes, and state slots as far: untouched memory."""
    args = call(((130, 131),), window=16, ratio=1, k=16)
    want = bits(run(OP, *args)[0])
    named = given(OP, tuple(args))
    stride, count = 1_077_120, 4_100
    pool = torch.empty((count, stride), dtype=torch.uint8, device=DEVICE)
    table = named["block_table"].clone()
    for column, page in ((0, 1_994), (1, 4_099)):
        pool[page, 512 : 512 + named["pages"].shape[1]] = named["pages"][int(table[0, column])].to(DEVICE)
        table[0, column] = page
    rings = torch.empty((4_100, 1 << 20), dtype=torch.uint8, device=DEVICE)
    slots, width = named["ring"].shape[1:]
    rings[4_099, : slots * width] = named["ring"][int(named["state_slot"][0])].flatten().to(DEVICE)
    ring = rings.as_strided((4_100, slots, width), (1 << 20, width, 1))
    named |= {"block_table": table, "state_slot": torch.tensor([4_099], dtype=torch.int32)}
    placed = [v.to(DEVICE) if isinstance(v, torch.Tensor) else v for v in named.values()]
    placed[2], placed[10] = ring, pool[:, 512 : 512 + named["pages"].shape[1]]
    assert torch.equal(bits(attention._run(tuple(placed), None, None, "rows").cpu()), want)


def test_what_the_kernels_support() -> None:
    def signature(d: int, heads: int) -> Signature:
        return Signature(OP, 1, "cuda", "sm_90", dims={"d": d, "h": heads})

    assert attention.widths(signature(512, 64)) is attention.widths(signature(32, 1)) is None
    assert attention.widths(signature(544, 64)) == "d must be a multiple of 32 up to 512, got 544"
    assert attention.split_widths(signature(512, 64)) is attention.split_widths(signature(288, 33)) is None
    for d, heads in ((256, 64), (512, 32), (500, 64)):
        assert f"got {d} and {heads}" in str(attention.split_widths(signature(d, heads)))
    ours = [k for k in REGISTRY.kernels(OP) if k.backend == "cuda"]
    assert [k.name for k in sorted(ours, key=lambda k: -k.priority)] == ["sm90", "split", "rows"]


def test_page_sizes_are_checked_before_a_launch() -> None:
    args = call(((130, 131),), window=16, ratio=1, k=16)
    args[14] = 4
    with pytest.raises(ContractError, match="ratio must be 1 or 2"):
        ops.sparse_attention(*args)


def test_compiled_ahead_are_all_kernels() -> None:
    names = {case.kernel.__name__ for case in COMPILES}
    assert names == {"find_keys", "sparse_attention_rows", "score_tiles", "sum_tiles", "unpack_window", "unpack_pages"}
    for case in COMPILES:
        case.arguments()
    assert FP8_32.record_bytes(512) in {case.constexprs.get("RECORD") for case in COMPILES}


@pytest.mark.gpu
@pytest.mark.parametrize("label, args, variant", every_call(OP) if DEVICE.type == "cuda" else [])
def test_every_call_of_the_contract_on_a_gpu(label: str, args: Any, variant: str) -> None:
    for name in ("cuda:rows", "cuda:split") if args[0].shape[1:] == (64, 512) else ("cuda:rows",):
        with REGISTRY.pin(OP, name):
            assert_kept(OP, args, variant)


@pytest.mark.gpu
@pytest.mark.parametrize("options", [
    {"sequences": 64, "rows_each": 1, "short": True, "padding": 3},
    {"sequences": 11, "rows_each": 6, "ratio": 2, "context": 3000},
    {"sequences": 70, "rows_each": 1, "record": "fp8_32", "short": True},
])  # fmt: skip
def test_every_way_gives_the_same_bits_on_a_gpu(options: dict[str, Any]) -> None:
    args = cases.make(device="cuda", **options)
    want = bits(by_way(args, "rows"))
    for way in WAYS[1:]:
        assert torch.equal(bits(by_way(args, way)), want), way
    first = [a[:1].contiguous() if i in (0, 4, 5, 6, 12) else a for i, a in enumerate(args)]
    assert torch.equal(bits(by_way(first, "few")), want[:1])
