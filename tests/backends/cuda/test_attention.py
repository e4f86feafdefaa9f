"""Sparse attention in Triton: the class, bits that no company changes, nothing else read; `fast` but for the bits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

import numpy as np

import attention_cases
from cuda_calls import DEVICE, PLAIN, SPOILT, STRIDED, assert_kept, every_call, given, on_cuda, run, sample
from deepinfer import ops
from deepinfer.backends.cuda import attention
from deepinfer.backends.cuda.attention_compiles import COMPILES
from deepinfer.hal.errors import ContractError
from deepinfer.hal.registry import REGISTRY, Signature
from deepinfer.ops import cache_steps as build
from deepinfer.ops.cache_samples import _attention
from deepinfer.ops.layouts import FP8_32
from deepinfer.ops.spec import SPECS

OP = "sparse_attention"
CPU = torch.device("cpu")
KERNELS = ("cuda:rows", "cuda:fast")
WIDE = {"heads": 33, "d": 288}
"""Channels padded to the released width's."""


def bits(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous().view(torch.int16)


def call(spans: Any, heads: int = 4, d: int = 64, padding: int = 0, seed: int = 0, **options: Any) -> list[Any]:
    rng = np.random.default_rng(seed)
    step = build.make_step(rng, CPU, spans, padding)
    return list(_attention(rng, step, "", heads, d, **options).args)


def by(kernel: str, args: Any) -> torch.Tensor:
    """One kernel's output, on the CPU; the rows of `fresh` may be other ones than those of the queries."""
    placed = tuple(a.to(DEVICE) if isinstance(a, torch.Tensor) else a for a in args)
    launch = {"cuda:rows": attention.sparse_attention, "cuda:fast": attention.fast_attention}[kernel]
    return launch(*placed, None).cpu()


def assert_kept_by(kernel: str, args: Any, variant: str = PLAIN) -> None:
    with REGISTRY.configured(allow_fast=True), REGISTRY.pin(OP, kernel):
        assert_kept(OP, tuple(args), variant)


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


@pytest.mark.parametrize("kernel", KERNELS)
def test_real_widths_are_within_the_bound(kernel: str) -> None:
    assert_kept_by(kernel, call(((200, 201),), heads=64, d=512, window=128, ratio=1, k=150))


def test_a_row_alone_gives_the_bits_of_a_row_in_company() -> None:
    args = call(((130, 132), (61, 62), (0, 1)), window=20, ratio=1, k=20, padding=1, **WIDE)
    named = given(OP, tuple(args))
    whole = bits(by("cuda:rows", args))
    per_row = ("q", "first_key", "last_key", "row_seq", "indices")
    for rows in ([0], [1], [2], [3], [2, 4, 0, 3, 1]):  # of a pool whose fresh rows stay where they are
        some = [value[rows] if name in per_row else value for name, value in named.items()]
        assert torch.equal(bits(by("cuda:rows", some)), whole[rows]), rows


@pytest.mark.parametrize("record", ["fp4_16", "fp8_32"])
def test_parts_of_rows_add_up(record: str) -> None:
    """Parts of several tiles, of one, and of none; a row with a single key, one without."""
    args = call(((300, 301), (61, 63), (0, 1)), window=130, ratio=1, k=150, record=record, padding=1)
    for variant in (PLAIN, SPOILT):
        assert_kept_by("cuda:fast", args, variant)


def test_the_number_of_parts_follows_from_rows_and_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    def parts(rows: int, selected: int = 512, heads: int = 64, most: int = attention.MOST_PARTS) -> int:
        q = torch.empty((rows, heads, 512), dtype=torch.bfloat16, device="meta")
        indices = torch.empty((rows, selected), device="meta")
        return attention._shape((q, *[None] * 11, indices, 128, 1, 1.0, "fp4_16"), most).parts

    monkeypatch.setattr(attention, "processors", lambda device: 132)
    assert [parts(rows) for rows in (0, 1, 2, 13, 14, 32, 66, 67, 4096)] == [10, 10, 10, 10, 9, 4, 2, 1, 1]
    assert parts(1, selected=2048) == attention.MOST_PARTS
    assert parts(16, heads=256) == 2
    assert parts(1, most=1) == 1


def test_fast_takes_the_best_other_kernel_where_it_does_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    small = call(((100, 101),), window=16, ratio=1, k=16)
    wide = call(((100, 101),), heads=64, d=512, window=16)
    on_sm90 = {"arch": "sm_90", "device_type": "cuda"}
    for args, name in ((small, "rows"), (wide, "sm90")):
        signature = SPECS[OP].signature(*args)
        assert attention.whole(replace(signature, **on_sm90)).name == name
    assert attention.whole(replace(SPECS[OP].signature(*wide), arch="sm_100", device_type="cuda")).name == "rows"
    with monkeypatch.context() as patched:
        patched.setattr(attention, "whole", lambda signature: replace(real, name="sm90"))
        real = next(k for k in REGISTRY.kernels(OP) if k.id == "cuda:rows")
        few, many = (call(((9, 9 + rows),), window=70) for rows in (attention.FEW_ITEMS, attention.FEW_ITEMS + 1))
        assert attention._fast_plan(tuple(few))[0].parts == 2
        assert attention._fast_plan(tuple(many))[0].parts == 1
        assert attention.fast_scratch(*many) == attention.row_scratch(*many)
    monkeypatch.setattr(attention, "processors", lambda device: 1)
    assert torch.equal(bits(by("cuda:fast", small)), bits(by("cuda:rows", small)))


def test_fast_is_taken_where_it_is_allowed_only() -> None:
    args = call(((100, 101),), window=16)
    ours = {k.name: k for k in REGISTRY.kernels(OP) if k.backend == "cuda"}
    assert ours["fast"].fast
    assert not ours["rows"].fast
    assert torch.equal(bits(run(OP, *args)[0]), bits(by("cuda:rows", args)))


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


@pytest.mark.parametrize("kernel", KERNELS)
def test_unasked_bytes_are_never_read(kernel: str) -> None:
    """Samples have poison there; here it is other poison, and page 0 and the page ids of unused columns too."""
    args = call(((150, 152), (3, 4)), window=20, ratio=1, k=20, padding=1, **WIDE)
    named = given(OP, tuple(args))
    want = bits(by(kernel, args))
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
    assert torch.equal(bits(by(kernel, named.values())), want)


@pytest.mark.parametrize("code", [0x7F, 0xFF])
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_nan_among_a_rows_own_keys_reaches_all_its_outputs(kernel: str, code: int) -> None:
    """Every place of a word, of a window key and of the scale; other rows keep their bits."""
    args = call(((20, 21), (30, 31)), window=8)
    clean = by(kernel, args)
    fresh = args[1]
    for place in (0, 1, 2, 3, fresh.shape[1] - 1):
        spoilt = list(args)
        spoilt[1] = fresh.clone()
        spoilt[1][0, place] = code if place < 64 else 0xFF
        out = by(kernel, spoilt)
        assert out[0].isnan().all(), place
        assert torch.equal(bits(out[1]), bits(clean[1]))


@pytest.mark.parametrize("kernel", KERNELS)
def test_scores_of_minus_infinity_alone_give_nan(kernel: str) -> None:
    args = call(((0, 2),), window=4)
    args[1][:, 0] = 0x38  # 1.0 in channel 0 of every key
    args[0][1, 2, 0], args[0][1, 3, 0] = -torch.inf, torch.inf
    out = by(kernel, args)
    assert out.isnan().all(2).tolist() == [[False] * 4, [False, False, True, True]]
    assert_kept_by(kernel, args)


def test_extreme_scales_of_window_keys() -> None:
    """Every exponent of E8M0 that leaves bf16 numbers, keys of zero beside them."""
    args = call(((8, 9),), window=2)
    for byte in (10, 118, 134, 135, 200, 240):
        args[1][:, :64] = 0
        args[1][:, 64:] = byte
        args[1][0, :5] = torch.tensor([0x08, 0x01, 0x00, 0x87, 0x38], dtype=torch.uint8)
        args[0] = args[0] * 0 + 2.0**-100 if byte > 150 else args[0]
        assert_kept(OP, tuple(args))


@pytest.mark.parametrize("kernel", KERNELS)
def test_pages_and_slots_past_two_gigabytes(kernel: str) -> None:
    """A page id times the released stride beyond 2^31 and 2^32 bytes, and state slots as far: untouched memory."""
    args = call(((130, 131),), window=16, ratio=1, k=16)
    want = bits(by(kernel, args))
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
    assert torch.equal(bits(by(kernel, placed)), want)


def test_what_the_kernels_support() -> None:
    def signature(d: int, heads: int) -> Signature:
        return Signature(OP, 1, "cuda", "sm_90", dims={"d": d, "h": heads})

    assert attention.widths(signature(512, 64)) is attention.widths(signature(32, 1)) is None
    assert attention.widths(signature(544, 64)) == "d must be a multiple of 32 up to 512, got 544"
    ours = [k for k in REGISTRY.kernels(OP) if k.backend == "cuda"]
    assert [k.name for k in sorted(ours, key=lambda k: -k.priority)] == ["fast", "sm90", "rows"]


def test_page_sizes_are_checked_before_a_launch() -> None:
    args = call(((130, 131),), window=16, ratio=1, k=16)
    args[14] = 4
    with pytest.raises(ContractError, match="ratio must be 1 or 2"):
        ops.sparse_attention(*args)


def test_compiled_ahead_are_all_kernels() -> None:
    names = {case.kernel.__name__ for case in COMPILES}
    assert names == {"sparse_attention_rows", "sparse_attention_parts", "join_parts"}
    for case in COMPILES:
        case.arguments()
    assert FP8_32.record_bytes(512) in {case.constexprs.get("RECORD") for case in COMPILES}


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("label, args, variant", every_call(OP) if DEVICE.type == "cuda" else [])
def test_every_call_of_the_contract_on_a_gpu(label: str, args: Any, variant: str, kernel: str) -> None:
    assert_kept_by(kernel, args, variant)


@pytest.mark.gpu
@pytest.mark.parametrize("options", [
    {"sequences": 64, "rows_each": 1, "short": True, "padding": 3},
    {"sequences": 11, "rows_each": 6, "ratio": 2, "context": 3000},
    {"sequences": 70, "rows_each": 1, "record": "fp8_32", "short": True},
    {"sequences": 300, "rows_each": 1, "selected": 0, "window": 133, "short": True},
])  # fmt: skip
def test_released_widths_on_a_gpu(options: dict[str, Any]) -> None:
    """Near a float64 oracle, and the first row alone with the bits that it has in company."""
    args = attention_cases.make(device="cuda", **options)
    want = attention_cases.oracle(args)
    first = [a[:1].contiguous() if i in (0, 4, 5, 6, 12) and a is not None else a for i, a in enumerate(args)]
    for kernel in KERNELS:
        got = by(kernel, args)
        assert float((got.double() - want.cpu()).abs().max()) < 0.02, kernel
        if kernel == "cuda:rows":
            assert torch.equal(bits(by(kernel, first)), bits(got)[:1])


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", [*KERNELS, "cuda:sm90"])
@pytest.mark.parametrize("record", ["fp4_16", "fp8_32"])
def test_pages_and_slots_past_four_gigabytes_on_a_gpu(record: str, kernel: str) -> None:
    """The released widths; pages 32 MiB apart, rings 512 MiB apart, read where they lie."""
    options: dict[str, Any] = {"sequences": 6, "rows_each": 2, "record": record, "device": "cuda"}
    near, far = (attention_cases.make(**options, page_stride=stride) for stride in (None, 1 << 25))
    slots, size, width = near[2].shape
    ring = torch.empty((slots, 1 << 29), dtype=torch.uint8, device="cuda")
    far[2] = ring.as_strided((slots, size, width), (1 << 29, width, 1))
    far[2].copy_(near[2])
    assert int(far[11].max()) << 25 > 1 << 32
    assert int(far[9].max()) << 29 > 1 << 31
    outs = []
    with on_cuda(), REGISTRY.configured(allow_fast=True), REGISTRY.pin(OP, kernel):
        for args in (near, far):
            outs.append(SPECS[OP].run(*args))
    assert torch.equal(bits(outs[0]), bits(outs[1]))
