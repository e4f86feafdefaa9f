"""RMS norm: one rounding, every scale of input, a fixed tree."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from deepinfer import ops
from deepinfer.backends.reference import norm  # noqa: F401  (registers the kernels)
from deepinfer.conformance.oracle import formats
from deepinfer.conformance.oracle import formulas as oracle


def case(rows: int, width: int, magnitude: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(width)
    x = torch.from_numpy(rng.standard_normal((rows, width)) * magnitude).to(torch.bfloat16)
    return x, torch.from_numpy(rng.standard_normal(width)).to(torch.bfloat16)


@pytest.mark.parametrize("width", [1, 64, 65, 1280, 5120])
@pytest.mark.parametrize("eps", [1e-20, 1e-6])
@pytest.mark.parametrize("magnitude", [1e-15, 1e-3, 1.0, 1e15])
def test_within_one_rounding_of_float64(width: int, eps: float, magnitude: float) -> None:
    x, w = case(9, width, magnitude)
    got, want = ops.rms_norm(x, w, eps), oracle.rms_norm(formats.f64(x), formats.f64(w), eps)
    # Half a bf16 unit, and what fp32 may add right at a border between two bf16 numbers.
    np.testing.assert_allclose(formats.f64(got), want, rtol=2.0**-8 + 2.0**-20, atol=1e-38)


def test_rounds_once_not_twice() -> None:
    """Rounding to bf16 before the weight is applied is a different function; on many values the two must differ."""
    x, w = case(64, 512)
    value = x.float() * (x.double().pow(2).mean(-1, keepdim=True) + 1e-20).rsqrt().float()
    twice = (value.to(torch.bfloat16).float() * w.float()).to(torch.bfloat16)
    once = (value * w.float()).to(torch.bfloat16)
    got = ops.rms_norm(x, w, 1e-20)
    assert (got != once).sum() < 5 < (got != twice).sum()


def test_edges() -> None:
    x = torch.ones(5, 8, dtype=torch.bfloat16)
    x[0], x[1, 3], x[2, 3], x[3] = 0.0, torch.nan, torch.inf, 1e25
    y = ops.rms_norm(x, torch.full((8,), 2.0, dtype=torch.bfloat16), 1e-20)
    assert y[0].eq(0).all() and y[1].isnan().all()
    assert y[2, 3].isnan() and y[2, :3].eq(0).all()
    assert y[3].eq(0).all()  # the squares overflow
    assert y[4].eq(2).all()


def test_strided_rows_equal_contiguous_ones() -> None:
    x, w = case(7, 96)
    wide = torch.full((7, 160), torch.nan, dtype=torch.bfloat16)
    for begin in (0, 1, 13, 64):
        wide[:, begin : begin + 96] = x
        assert ops.rms_norm(wide[:, begin : begin + 96], w, 1e-6).equal(ops.rms_norm(x, w, 1e-6))
