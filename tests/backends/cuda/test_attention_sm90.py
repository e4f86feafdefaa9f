"""Sparse attention for SM90 in CUDA C++: what it supports, that it compiles, its recorded run, and a GPU run."""

import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import attention_cases as cases
from deepinfer.backends.cuda import attention_sm90, nvrtc, source
from deepinfer.backends.cuda.attention_sm90 import Shape
from deepinfer.conformance.views import shift
from deepinfer.hal.registry import ArgInfo, Signature

RUN = Path(__file__).parent / "runs" / "attention_sm90.json"

WAYS = ("rows", "few", "unpacked")
CALLS = [
    {"sequences": 3, "rows_each": 1},
    {"sequences": 2, "rows_each": 6},
    {"sequences": 2, "rows_each": 1, "context": 66},
    {"sequences": 9, "rows_each": 2, "short": True, "context": 700, "padding": 2, "ratio": 2},
    {"sequences": 5, "rows_each": 1, "short": True, "context": 150, "selected": 0, "window": 133},
    {"sequences": 3, "rows_each": 1, "record": "fp8_32", "heads": 32, "context": 900},
    {"sequences": 2, "rows_each": 1, "record": "fp8_32", "heads": 128, "ratio": 2, "context": 2000},
    {"sequences": 3, "rows_each": 1, "heads": 16, "selected": 70, "context": 300, "window": 64},
    {"sequences": 2, "rows_each": 1, "selected": 1900, "context": 3000},
    {"sequences": 4, "rows_each": 3, "short": True, "context": 3, "window": 5, "selected": 3},
    {"sequences": 200, "rows_each": 1, "short": True, "context": 900},
    {"sequences": 60, "rows_each": 3, "short": True, "context": 900, "record": "fp8_32"},
]


def signature(*, d=512, heads=64, window=128, selected=512, strides=(114048, 1), aligned=True):
    pages = ArgInfo(torch.uint8, False, strides, aligned)
    dims = {"d": d, "h": heads, "K": selected}
    return Signature("sparse_attention", 1, "cuda", "sm_90", {"pages": pages}, dims, {"window": window})


def test_what_it_supports():
    assert attention_sm90.supports(signature()) is None
    assert attention_sm90.supports(signature(window=133, selected=1856)) is None
    assert "d must be 512" in attention_sm90.supports(signature(d=256))
    assert "multiple of 16" in attention_sm90.supports(signature(heads=40))
    assert "32 tiles of 64, got 33" in attention_sm90.supports(signature(selected=1921))
    assert attention_sm90.supports(signature(aligned=False)) is None
    assert attention_sm90.supports(signature(strides=(114041, 1))) is None


def test_the_way_of_a_call():
    prompt = Shape(rows=4096, groups=1, tiles=10, lines=12_422)
    assert prompt.way == "unpacked"
    assert replace(prompt, rows=511).way == "rows", "fewer rows than unpacking pays for"
    assert replace(prompt, lines=4096 * 640 // 8 + 1).way == "rows", "too many records for the slots that read them"
    assert replace(prompt, rows=128).way == "rows"
    assert replace(prompt, rows=33).way == "few"
    assert replace(prompt, rows=34).way == "rows"
    assert replace(prompt, rows=32, groups=2).way == "rows", "64 blocks of heads"
    assert replace(prompt, rows=32, tiles=1).way == "rows", "nothing to lay side by side"


def test_scratch_memory():
    shape = Shape(rows=3, groups=2, tiles=10, lines=700)
    assert shape.scratch("rows") == 0
    assert shape.scratch("unpacked") == 700 * 1024
    assert shape.scratch("few") == 60 * (64 * 1024 + 64 * 64 * 4) + 6 * 32 * 8


def test_shape_of_a_call():
    args = cases.make(3, 2, device="cpu", context=700, ratio=2, padding=1)
    columns = args[11].shape[1]
    assert attention_sm90.shape_of(tuple(args)) == Shape(7, 1, 10, 7 + 3 * 134 + 3 * columns * 64)
    alone = cases.make(3, 2, device="cpu", heads=80, selected=0, window=133)
    assert attention_sm90.shape_of(tuple(alone)) == Shape(6, 2, 3, 6 + 3 * 139)
    assert attention_sm90.workspace_of(*alone) == Shape(6, 2, 3, 0).scratch("few")


SLOW = ("rows", "anywhere", "unpacked")


@pytest.mark.skipif(importlib.util.find_spec("nvidia") is None, reason="nvidia-cuda-nvrtc is not installed")
@pytest.mark.parametrize("record", sorted(attention_sm90.KERNELS))
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in attention_sm90.KERNELS["fp4_16"]],
)
def test_it_compiles_within_the_registers_of_its_roles(record, name):
    kernel = attention_sm90.KERNELS[record][name]
    _, log = nvrtc.compile_text(source.text_of(kernel.file), kernel.file, "sm_90a", kernel.options)
    assert "serialized" not in log, "products that wait for one another"
    found = nvrtc.resources(log)[kernel.entry]
    recorded = json.loads(RUN.read_text())["resources"][record][name]
    assert found.registers * kernel.threads <= 65536, "the roles move registers among themselves"
    assert found.spills <= recorded["spills"], "a new spill"


def test_every_kernel_is_compiled_ahead():
    assert {kernel.entry for kernel in attention_sm90.SOURCES} == {
        "attention", "attention_scores", "attention_values", "attention_unpack"
    }  # fmt: skip
    assert len({str(kernel) for kernel in attention_sm90.SOURCES}) == 12


def test_the_recorded_run_is_of_this_source():
    """A kernel in CUDA source counts only with a run of the same source on its chip."""
    run = json.loads(RUN.read_text())
    assert run["source"] == source.digest("attention_sm90.cu")
    assert "H200" in run["chip"] and run["failed"] == [] and run["passed"] > 0


def relative(out, want):
    norm = want.norm()
    return float((out.double() - want).norm() / norm) if norm > 0 else float(out.double().abs().max())


def without(args, rows):
    """The same call for some of its rows."""
    args = list(args)
    for i in (0, 4, 5, 6, 12):
        args[i] = None if args[i] is None else args[i][rows].contiguous()
    return args


def run(args, way="", out=None):
    """One call, in scratch memory full of NaN."""
    args = tuple(args)
    shape = attention_sm90.shape_of(args)
    scratch = torch.full((shape.scratch(way or shape.way),), 0xFF, dtype=torch.uint8, device=args[0].device)
    return attention_sm90.run(args, out, scratch if scratch.numel() else None, way)


@pytest.mark.gpu
@pytest.mark.parametrize("sharp", [1, 12])
@pytest.mark.parametrize("call", CALLS, ids=str)
def test_against_float64(call, sharp):
    args = cases.make(**call, seed=sharp)
    args[0] = args[0] * sharp
    want = cases.oracle(args)
    first = None
    for way in WAYS:
        out = run(args, way, torch.full_like(args[0], torch.nan))
        # bf16 rounds P and the output: 2^-9 each at most, 2^-9 / sqrt(3) in the mean.
        assert relative(out, want) < 2**-8, way
        assert ((out.double() - want).abs() <= 2**-6 * want.abs().amax(-1, keepdim=True)).all(), way
        first = out if first is None else first
        assert torch.equal(out, first), f"{way} gives other bits than {WAYS[0]}"


@pytest.mark.gpu
@pytest.mark.parametrize("record", ["fp4_16", "fp8_32"])
def test_a_row_has_the_same_bits_alone_and_anywhere(record):
    args = cases.make(40, 3, short=True, context=900, seed=5, padding=3, record=record)
    args[0] = args[0] * 6
    full = run(args, "rows")
    for way in WAYS:
        assert all(torch.equal(run(args, way), full) for _ in range(20)), f"{way} is not deterministic"
    for row in range(0, 120, 11):
        for rows in ([row], [row, 119 - row, 3], list(range(row, 120)) + [row] * 200):
            for way in WAYS:
                assert torch.equal(run(without(args, rows), way), full[rows])


@pytest.mark.gpu
@pytest.mark.parametrize("record", ["fp4_16", "fp8_32"])
@pytest.mark.parametrize("which", [0, 1, 2, 10, "out", "strides", "all"])
def test_no_bit_depends_on_an_address_or_a_stride(which, record):
    """Any tensor behind an odd address, and rows, slots and pages a byte further apart."""
    args = cases.make(3, 2, context=700, seed=11, padding=1, record=record, heads=80)
    want = run(args, "rows")
    out = torch.full_like(args[0], torch.nan)
    for index in (0, 1, 2, 10) if which == "all" else (which,) if isinstance(which, int) else ():
        args[index] = shift(args[index], 1)
    if which == "out":
        out = shift(out, 1)
    if which == "strides":
        for index in (1, 2, 10):
            room = torch.full((*args[index].shape[:-1], args[index].shape[-1] + 1), 0xFF, device="cuda").byte()
            room[..., :-1] = args[index]
            args[index] = room[..., :-1]
    assert torch.equal(run(args, out=out), want)


@pytest.mark.gpu
@pytest.mark.parametrize("way", WAYS)
def test_trailing_empty_columns_change_no_bit(way):
    args = cases.make(8, 1, context=400, selected=128, seed=6)
    wide = list(args)
    wide[12] = torch.nn.functional.pad(args[12], (0, 700), value=-1)
    assert torch.equal(run(args, way), run(wide, way))


@pytest.mark.gpu
@pytest.mark.parametrize("way", WAYS)
def test_rows_without_keys_give_zeros(way):
    args = cases.make(5, 2, short=True, context=300, seed=7, padding=4)
    args[6][3] = -1  # padding amid others
    args[4][5] = args[5][5] + 1  # an empty window; its entries stay
    args[12][5] = -1
    out = run(args, way, torch.full_like(args[0], torch.nan))
    assert not out[[3, 5, 10, 11, 12, 13]].any()
    assert torch.equal(out, run(args, "rows")) and relative(out, cases.oracle(args)) < 2**-8
    args[6][:] = -1
    assert not run(args, way, torch.full_like(args[0], torch.nan)).any()


@pytest.mark.gpu
@pytest.mark.parametrize("way", WAYS)
def test_what_no_row_asks_for_may_be_anything(way):
    """Block table columns behind a sequence, state slots of sequences without rows, rings and pages not asked for."""
    args = cases.make(4, 2, context=700, seed=8)
    clean = run(args, "rows")
    spoilt = list(args)
    bad = torch.tensor([[-5, 1 << 30, args[10].shape[0]]], device="cuda", dtype=torch.int32).expand(4, 3)
    spoilt[11] = torch.cat([args[11], bad], 1).contiguous()
    for index, value in ((7, 0), (8, 0), (9, 1 << 30)):  # a fifth sequence, which has no row
        spoilt[index] = torch.cat([args[index], torch.tensor([value], device="cuda", dtype=torch.int32)])
    spoilt[11] = torch.cat([spoilt[11], torch.full_like(spoilt[11][:1], -7)])
    assert torch.equal(run(spoilt, way), clean)


@pytest.mark.gpu
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("record", ["fp4_16", "fp8_32"])
def test_non_finite_keys_reach_their_own_row_alone(way, record):
    args = cases.make(2, 1, seed=3, record=record)
    clean = run(args, way)
    assert not clean.isnan().any()
    entry = int(args[12][0, 100])
    width, code = (288, 256 + 5) if record == "fp4_16" else (528, 200)
    pages = args[10].clone()
    pages[int(args[11][0, entry // 128])].view(128, width)[entry % 128, code] = 0x7F
    for index, changed in ((10, pages), (1, _with(args[1], (0, 77), 0x7F)), (1, _with(args[1], (0, 520), 0xFF))):
        spoilt = list(args)
        spoilt[index] = changed
        out = run(spoilt, way)
        assert out[0].isnan().all() and torch.equal(out[1], clean[1])


@pytest.mark.gpu
@pytest.mark.parametrize("way", WAYS)
def test_large_scales(way):
    args = cases.make(1, 1, seed=4)
    args[1][0, 512:] = 150
    args[0] = args[0] * 1e-6
    assert relative(run(args, way), cases.oracle(args)) < 2**-8


@pytest.mark.gpu
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("scale", [0.0, -0.05])
def test_a_scale_that_is_not_positive(way, scale):
    args = cases.make(3, 2, seed=9, context=500)
    args[15] = scale
    assert relative(run(args, way), cases.oracle(args)) < 2**-8


def _with(x, place, value):
    x = x.clone()
    x[place] = value
    return x
