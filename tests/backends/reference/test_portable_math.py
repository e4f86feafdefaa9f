"""The written-down functions: bit-equal to the document, and as close to the real ones as it says."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import numerics_document as document
from deepinfer.backends.reference import portable_math as pm
from deepinfer.conformance.oracle import sampling as oracle

UNIT = 2.0**-24


def floats(first: int, last: int, step: int = 1) -> torch.Tensor:
    """Every step-th fp32 number between two bit patterns."""
    return torch.arange(first, last + 1, step, dtype=torch.int64).to(torch.int32).view(torch.float32)


def random_bits(low: float, high: float, count: int = 200_001) -> torch.Tensor:
    """fp32 numbers uniform in their bit patterns between two positive numbers."""
    lo, hi = (int(np.float32(v).view(np.int32)) for v in (low, high))
    bits = np.random.default_rng(5).integers(lo, hi + 1, count).astype(np.int32)
    return torch.from_numpy(bits).view(torch.float32)


def same(got: torch.Tensor, want: np.ndarray) -> None:
    assert np.array_equal(got.numpy().view(np.int32), np.asarray(want, np.float32).view(np.int32))


def test_constants_and_coefficients_are_the_documents() -> None:
    assert pm.LOG2E.item() == oracle.constant("log2e") and pm.LN2.item() == oracle.constant("ln2")
    assert tuple(c.item() for c in pm.EXP2_COEFFICIENTS) == oracle.coefficients("exp2")
    assert tuple(c.item() for c in pm.LOG2_COEFFICIENTS) == oracle.coefficients("log2")


@pytest.mark.parametrize(
    ("table", "function", "numpy_function"),
    [
        ("vectors-exp2", pm.exp2, oracle.exp2),
        ("vectors-log2", pm.log2, oracle.log2),
        ("vectors-exponential", pm.minus_log2_one_minus, oracle.minus_log2_one_minus),
    ],
)
def test_vectors_of_the_document(table: str, function: object, numpy_function: object) -> None:
    x, y = np.array([[document.number(v) for v in row] for row in document.blocks()[table]], np.float32).T.copy()
    same(function(torch.from_numpy(x)), y)  # type: ignore[operator]
    same(torch.from_numpy(numpy_function(x)), y)  # type: ignore[operator]


@pytest.mark.parametrize("length", [1, 7, 8, 33, 200_001])
def test_bits_do_not_depend_on_the_place_in_a_tensor(length: int) -> None:
    x = random_bits(2.0**-33, 1 - 2.0**-24)[:length]
    same(pm.log2(x), oracle.log2(x.numpy()))
    same(pm.minus_log2_one_minus(x), oracle.minus_log2_one_minus(x.numpy()))
    u = -random_bits(2.0**-30, 127.0)[:length]
    same(pm.exp2(u), oracle.exp2(u.numpy()))


def test_exp2_is_within_its_documented_error() -> None:
    x = -floats(0x3F800000 - (13 << 23), 0x3F800000, 97)
    error = (pm.exp2(x).double() / torch.exp2(x.double()) - 1).abs().max().item()
    assert error <= 1.53 * UNIT
    x = -random_bits(1.0, 125.49)
    assert (pm.exp2(x).double() / torch.exp2(x.double()) - 1).abs().max().item() <= 1.53 * UNIT


def test_exp2_at_its_ends() -> None:
    x = torch.tensor([0.0, -0.0, -(2.0**-149), -125.49, -125.51, -126.0, -1e30, -float("inf")])
    y = pm.exp2(x)
    assert y[:3].tolist() == [1.0, 1.0, 1.0]
    assert y[3] >= 2.0**-126, "results are normal"
    assert y[4:].tolist() == [0.0] * 4
    assert pm.exp2(-floats(0x2F000000, 0x34000000, 1001)).max() <= 1.0


def test_log2_is_within_its_documented_error() -> None:
    x = floats(0x3F000000, 0x3FFFFFFF, 53)
    got, want = pm.log2(x).double(), torch.log1p(x.double() - 1) / np.log(2)
    assert (got - want).abs().max().item() <= 9.1e-8
    assert ((got - want) / want)[x != 1].abs().max().item() <= 3.03 * UNIT
    x = torch.cat((random_bits(2.0**-100, 0.5), random_bits(2.0, 2.0**100)))
    want = torch.log2(x.double())
    assert ((pm.log2(x).double() - want) / want).abs().max().item() <= 1.25 * UNIT


def test_log2_is_exact_at_powers_of_two() -> None:
    k = torch.arange(-126, 128)
    assert torch.equal(pm.log2(torch.ldexp(torch.ones(len(k)), k)), k.float())


def test_race_exponential_is_within_its_documented_error_down_to_the_smallest_v() -> None:
    v = torch.cat((random_bits(2.0**-33, 1 - 2.0**-24, 500_001), floats(0x3E800000, 0x3F7FFFFF, 31)))
    want = -torch.log1p(-v.double()) / np.log(2)
    assert ((pm.minus_log2_one_minus(v).double() - want) / want).abs().max().item() <= 4.9 * UNIT


def test_race_exponential_is_positive_and_normal_so_that_its_logarithm_exists() -> None:
    e = pm.minus_log2_one_minus(torch.tensor([2.0**-33, 1 - 2.0**-24]))
    assert e[0] > 2.0**-126 and e[1] == 24.0


def test_the_oracle_has_the_documents_coefficients() -> None:
    for name in ("exp2", "log2"):
        assert oracle.coefficients(name) == tuple(document.number(row[1]) for row in document.blocks()[name])
    for name, value in document.blocks()["constants"]:
        assert oracle.constant(name) == document.number(value)
