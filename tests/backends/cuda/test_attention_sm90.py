"""Sparse attention for SM90 in CUDA C++: what it supports, that it compiles, its recorded run, and a GPU run."""

import importlib.util
import json
from pathlib import Path

import pytest
import torch

import attention_cases as cases
from deepinfer.backends.cuda import attention_sm90, source
from deepinfer.hal.registry import ArgInfo, Signature

RUN = Path(__file__).parent / "runs" / "attention_sm90.json"

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
    assert "pages must begin" in attention_sm90.supports(signature(aligned=False))
    assert "pages must begin" in attention_sm90.supports(signature(strides=(114040, 1)))


@pytest.mark.skipif(importlib.util.find_spec("nvidia") is None, reason="nvidia-cuda-nvrtc is not installed")
@pytest.mark.parametrize("record", sorted(attention_sm90.KERNELS))
def test_it_compiles_within_the_registers_of_its_roles(record, tmp_path):
    built = attention_sm90.KERNELS[record].build("sm_90", tmp_path)
    found = built.resources["attention"]
    recorded = json.loads(RUN.read_text())["resources"][record]
    assert found.registers == 128, "512 threads share 64K registers; the roles move them among themselves"
    assert found.spills <= recorded["spills"], "a new spill"


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


def run(args, out=None):
    return attention_sm90.sparse_attention(*args, out)


@pytest.mark.gpu
@pytest.mark.parametrize("sharp", [1, 12])
@pytest.mark.parametrize("call", CALLS, ids=str)
def test_against_float64(call, sharp):
    args = cases.make(**call, seed=sharp)
    args[0] = args[0] * sharp
    out = torch.full_like(args[0], torch.nan)
    run(args, out)
    want = cases.oracle(args)
    # bf16 rounds P and the output: 2^-9 each at most, 2^-9 / sqrt(3) in the mean.
    assert relative(out, want) < 2**-8
    assert ((out.double() - want).abs() <= 2**-6 * want.abs().amax(-1, keepdim=True)).all()


@pytest.mark.gpu
def test_a_row_has_the_same_bits_alone_and_anywhere():
    args = cases.make(40, 3, short=True, context=900, seed=5, padding=3)
    args[0] = args[0] * 6
    full = run(args)
    assert all(torch.equal(run(args), full) for _ in range(20)), "not deterministic"
    for row in range(0, 120, 11):
        for rows in ([row], [row, 119 - row, 3], list(range(row, 120)) + [row] * 200):
            assert torch.equal(run(without(args, rows)), full[rows])


@pytest.mark.gpu
def test_trailing_empty_columns_change_no_bit():
    args = cases.make(8, 1, context=400, selected=128, seed=6)
    wide = list(args)
    wide[12] = torch.nn.functional.pad(args[12], (0, 700), value=-1)
    assert torch.equal(run(args), run(wide))


@pytest.mark.gpu
def test_non_finite_keys_reach_their_own_row_alone():
    args = cases.make(2, 1, seed=3)
    clean = run(args)
    assert not clean.isnan().any()
    entry = int(args[12][0, 100])
    pages = args[10].clone()
    pages[int(args[11][0, entry // 128])].view(128, 288)[entry % 128, 256 + 5] = 0x7F
    for index, changed in ((10, pages), (1, _with(args[1], (0, 77), 0x7F)), (1, _with(args[1], (0, 520), 0xFF))):
        spoilt = list(args)
        spoilt[index] = changed
        out = run(spoilt)
        assert out[0].isnan().all() and torch.equal(out[1], clean[1])


@pytest.mark.gpu
def test_large_scales():
    args = cases.make(1, 1, seed=4)
    args[1][0, 512:] = 150
    args[0] = args[0] * 1e-6
    assert relative(run(args), cases.oracle(args)) < 2**-8


def _with(x, place, value):
    x = x.clone()
    x[place] = value
    return x
