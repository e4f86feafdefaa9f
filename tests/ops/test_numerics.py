"""Limits of the numerics classes, every op's samples held to them on the CPU, and planted faults that must be seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

import deepinfer.ops
import numerics_checks
from deepinfer.backends import reference
from deepinfer.backends.reference.formats import quantize_fp4_e4m3, quantize_fp4_pow2, quantize_fp8
from deepinfer.conformance.compare.decided_choices import compare_choices
from deepinfer.conformance.compare.decided_codes import compare_codes
from deepinfer.conformance.oracle import expected
from deepinfer.hal.catalog import CATALOG
from deepinfer.ops.layouts import LAYOUTS
from deepinfer.ops.numerics import FLOOR, Accumulated, Decided, Exact, Rounded, spacing
from deepinfer.ops.spec import SPECS

assert deepinfer.ops
BF16, F32 = torch.bfloat16, torch.float32
CPU = torch.device("cpu")
expected.load_oracles()
CLASSED = sorted(n for n, s in SPECS.items() if not isinstance(s.numerics, Exact))
Call = tuple[tuple[Any, ...], list[torch.Tensor]]


def call(name: str, label: str) -> Call:
    """Arguments before a call of a sample, and its results on the CPU."""
    reference.backend.load()
    (sample,) = (s for s in SPECS[name].samples(np.random.default_rng(5), CPU) if s.label == label)
    args = numerics_checks.to_cpu(sample.args)
    return args, list(numerics_checks.results(SPECS[name], sample.args))


def found(name: str, args: tuple[Any, ...], outs: Sequence[torch.Tensor], twin: Sequence[torch.Tensor]) -> list[str]:
    return numerics_checks.faults(SPECS[name], args, outs, twin)


@pytest.mark.parametrize("dtype", [BF16, F32])
def test_spacing_is_the_distance_of_neighbours(dtype: torch.dtype) -> None:
    bits = torch.int16 if dtype == BF16 else torch.int32
    x = torch.tensor([1.0, 1.9, -2.0, 3e38, 1e-30, 2.0**-126], dtype=dtype)
    above = (x.view(bits) + 1).view(dtype)
    assert spacing(x, dtype).equal((above.double() - x.double()).abs())
    assert spacing(torch.zeros(1), dtype) == spacing(torch.tensor([2.0**-126]), dtype)


def test_rounded_limit() -> None:
    assert Rounded(2).limit(torch.tensor([1.5]), BF16).item() == 2 * 2.0**-7 + FLOOR


def test_accumulated_limit_holds_for_sums_in_any_order_and_for_one_rounding_more() -> None:
    """The worst of many fp32 sums stays below the limit, and above a limit of a few roundings: n must count."""
    terms = torch.full((4096,), 1 / 3)
    total = torch.tensor(0.0)
    for term in terms:
        total = total + term
    want, error = terms.double().sum(), (total.double() - terms.double().sum()).abs()
    assert 10 * 2.0**-24 * want < error < Accumulated.limit(4096, want, want, F32)
    limit = Accumulated.limit(2, torch.tensor([3.0]), torch.tensor([1.0]), BF16)
    assert 2.0**-8 + 12 * 2.0**-24 < limit.item() < 2.0**-8 + 12.1 * 2.0**-24


def test_truncating_units_have_a_limit_of_their_own() -> None:
    assert Accumulated.truncation(320, torch.tensor([2.0])).item() == 320 * 2.0**-22


def test_decided_limit_counts_roundings_of_its_dtype() -> None:
    assert Decided(9, "fp32", "x").limit(torch.tensor([2.0])).item() == pytest.approx(18 * 2.0**-24)
    assert Decided(1, "bf16", "x").limit(torch.tensor([2.0])).item() == pytest.approx(2.0**-7)


@pytest.mark.parametrize("name", CLASSED)
def test_samples_lie_in_the_class(name: str) -> None:
    reference.backend.load()
    for sample in SPECS[name].samples(np.random.default_rng(5), CPU):
        args = numerics_checks.to_cpu(sample.args)
        outs = numerics_checks.results(SPECS[name], sample.args)
        assert not (wrong := found(name, args, outs, outs)), f"{sample.label}: {wrong}"


SAMPLES = {
    "linear_fp8": "NaN row, zero row, partial last block",
    "linear_fp8_grouped": "37 rows",
    "linear_bf16": "37 rows",
    "grouped_linear": "two tiles and a tail, gathered",
    "rms_norm": "37 rows",
    "rope": "37 rows",
    "hc_collapse": "37 rows",
    "hc_expand": "37 rows",
    "hc_coefficients": "37 rows",
    "compress_pool": "mixed batch",
    "moe_combine": "two tiles and a tail",
    "engram_gate": "37 rows",
    "draft_tap": "37 rows",
    "draft_logits": "37 rows",
    "draft_confidence": "37 sequences",
    "sparse_attention": "mixed batch, ratio 1",
    "index_score": "mixed batch, ratio 1",
    "index_score_blocks": "mixed batch, ratio 1",
    "vision_linear": "37 rows",
    "silu_mul": "37 rows",
    "image_rope": "37 rows",
    "image_attention": "images of several sizes, padding",
}


def test_every_op_has_an_oracle() -> None:
    assert {*expected.FLOATS, *expected.CODES, *expected.JUDGES} == set(CLASSED)
    assert set(SAMPLES) == set(expected.FLOATS)


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_float_faults_are_seen(name: str) -> None:
    """One element just past its limit; a NaN too many; a NaN too few; an infinity."""
    args, outs = call(name, SAMPLES[name])
    for i, oracle in enumerate(expected.FLOATS[name](*args)):
        usable = oracle.want.isfinite() & (oracle.limit > 0)
        usable &= torch.ones_like(usable) if oracle.defined is None else oracle.defined
        place = tuple(torch.nonzero(usable)[-1])
        step = oracle.limit[place] + spacing(oracle.want[place], outs[i].dtype)
        for value in (oracle.want[place] + step, oracle.want[place] - step, torch.nan, torch.inf):
            wrong = [o.clone() for o in outs]
            wrong[i][place] = value
            assert found(name, args, wrong, outs), (i, float(value))
        if (nan := torch.nonzero(outs[i].isnan())).numel():
            wrong = [o.clone() for o in outs]
            wrong[i][tuple(nan[0])] = 0.0
            assert found(name, args, wrong, outs)


@pytest.mark.parametrize(("name", "outputs"), [("linear_bf16", (0,)), ("hc_coefficients", (0, 1))])
def test_fp32_results_rounded_to_bf16_are_seen(name: str, outputs: tuple[int, ...]) -> None:
    CATALOG.load("reference")
    for sample in SPECS[name].samples(np.random.default_rng(5), CPU):
        if sample.label == "steep":  # gates at their ends, and limits that follow the steepness
            continue
        args = numerics_checks.to_cpu(sample.args)
        outs = numerics_checks.results(SPECS[name], sample.args)
        if outs[0].dtype == F32 and outs[0].shape[0] > 1 and outs[0].isfinite().all():
            for i in outputs:
                coarse = [o.bfloat16().float() if i == j else o for j, o in enumerate(outs)]
                assert found(name, args, coarse, outs), (sample.label, i)


def test_lanes_and_rows_that_are_unspecified_may_hold_anything() -> None:
    for name in ("index_score", "grouped_linear"):
        label = "empty groups, tail of unused rows, gathered" if name == "grouped_linear" else SAMPLES[name]
        args, outs = call(name, label)
        (oracle,) = expected.FLOATS[name](*args)
        assert oracle.defined is not None and not oracle.defined.all()
        other = outs[0].masked_fill(~oracle.defined, torch.nan)
        assert not found(name, args, [other], outs)


def test_sums_in_another_order_pass() -> None:
    args, outs = call("linear_bf16", "37 rows")
    x, w = args[0].float(), args[1].tensors[0].float()
    other = torch.zeros(x.shape[0], w.shape[0])
    for k in reversed(range(x.shape[1])):
        other += x[:, k : k + 1] * w[:, k]
    assert not found("linear_bf16", args, [other.to(outs[0].dtype)], outs)


QUANTISE: dict[str, Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]] = {
    "fp8_32": quantize_fp8,
    "fp4_32_index": quantize_fp4_pow2,
    "fp4_16": quantize_fp4_e4m3,
}


@pytest.mark.parametrize("kind", sorted(QUANTISE))
def test_codes_of_values_within_the_limit_pass_and_others_do_not(kind: str) -> None:
    draw = torch.Generator().manual_seed(1)
    value = torch.randn(40, 64, generator=draw).bfloat16().double() * torch.logspace(-3, 3, 40).unsqueeze(1)
    value[:, 7] = 1.5 * value.abs().amax(1)  # clear of the other channels, so a scale hangs on one of them
    oracle = expected.Codes(value, 2.0**-8 * value.abs(), kind)
    away = torch.rand(value.shape, generator=draw) * 2 - 1

    def record(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([part.view(torch.uint8) for part in QUANTISE[kind](x.float())], dim=1)

    assert not compare_codes("record", oracle, record(value)).findings
    assert not compare_codes("record", oracle, record(value + 0.99 * oracle.limit * away)).findings
    assert compare_codes("record", oracle, record(value + 40 * oracle.limit * away)).findings
    right = record(value)
    data = LAYOUTS[kind].data_bytes(64)
    for row, column, change in ((5, 3, 2), (5, 3, -2), (5, 3, 128), (7, data, 1), (7, data, -1), (7, data + 1, 2)):
        wrong = right.clone()
        wrong[row, column] = (int(wrong[row, column]) + change) % 256
        assert compare_codes("record", oracle, wrong).findings, (row, column, change)


@pytest.mark.parametrize("name", ["window_pack", "index_query_pack", "swiglu_quant"])
def test_code_faults_are_seen_in_every_op(name: str) -> None:
    args, outs = call(name, "37 rows" if name == "swiglu_quant" else "mixed batch")
    for i in range(len(outs)):
        wrong = [o.clone() for o in outs]
        wrong[i].view(torch.uint8).flatten()[-1] ^= 0x42
        assert found(name, args, wrong, outs)


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("compressed_store", "mixed batch, ratio 1, fp4_16"),
        ("compressed_store", "mixed batch, ratio 2, fp8_32"),
        ("index_key_store", "mixed batch, ratio 2"),
    ],
)
def test_store_faults_are_seen(name: str, label: str) -> None:
    """A byte outside the entries, an entry in the neighbouring slot, an entry that was not written."""
    args, (pages,) = call(name, label)
    changed = torch.nonzero(pages != args[1])
    kept = torch.nonzero(pages == args[1])
    untouched = next(p for p in kept.tolist() if not (changed[:, 0] == p[0]).any())
    wrong = pages.clone()
    wrong[tuple(untouched)] ^= 1
    assert found(name, args, [wrong], [pages])
    assert found(name, args, [args[1]], [pages])
    moved = pages.clone()
    moved[changed[:, 0].unique()] = moved[changed[:, 0].unique()].roll(1, dims=1)
    assert found(name, args, [moved], [pages])


def test_choice_faults_are_seen() -> None:
    args, (weights, experts) = call("moe_gate", "37 rows")
    k, chosen = experts.shape[1], torch.zeros(len(experts), args[0].shape[1], dtype=torch.bool)
    chosen.scatter_(1, experts.long(), True)

    def wrong(row: int, slot: int, expert: int) -> bool:
        other = experts.clone()
        other[row, slot] = expert
        return bool(found("moe_gate", args, [weights, other], [weights, experts]))

    assert k > 1 and wrong(3, 0, int(torch.nonzero(~chosen[3])[0]))  # one that was not among the best
    assert wrong(4, 0, int(experts[4, 1])) and wrong(5, 0, -1) and wrong(5, 0, args[0].shape[1])
    swapped = [t.flip(1) for t in (weights, experts)]
    assert found("moe_gate", args, swapped, [weights, experts])
    coarse = [weights.bfloat16().float(), experts]
    assert found("moe_gate", args, coarse, [weights, experts])


def test_ties_go_to_the_lower_id() -> None:
    oracle = expected.Choice(torch.tensor([[1.0, 2.0, 2.0]]), torch.full((1, 3), 1e-6, dtype=torch.float64))
    inputs = torch.tensor([[0.1, 0.7, 0.7]]), torch.zeros(1, 3)
    for ids, right in (([1, 2], True), ([2, 1], False), ([2, 0], False), ([1, 0], False)):
        assert (not compare_choices("ids", oracle, torch.tensor([ids]), inputs).findings) == right, ids
    near = torch.tensor([[0.1, 0.7, 0.7000001]]), torch.zeros(1, 3)
    assert not compare_choices(
        "ids", oracle, torch.tensor([[2, 1]]), near
    ).findings  # within the limit either order is right
