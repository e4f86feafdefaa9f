"""Activation quantisation: bytes against a search of the code table, from bf16 and fp32."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from deepinfer import ops
from deepinfer.backends.reference import quant  # noqa: F401  (registers the kernels)
from deepinfer.conformance.oracle import formats


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_bytes_match_the_definition(dtype: torch.dtype) -> None:
    rng = np.random.default_rng(4)
    x = torch.from_numpy(rng.standard_normal((40, 96)) * 2.0 ** rng.integers(-40, 60, (40, 1))).to(dtype)
    x[3], x[4, :32], x[5, 40], x[6, 2] = 0.0, 1e-5, torch.nan, -torch.inf
    q, s = ops.quant_fp8(x)
    want_q, want_s = formats.q8(formats.f64(x))
    np.testing.assert_array_equal(s.numpy(), want_s)
    np.testing.assert_array_equal(q.view(torch.uint8).numpy(), want_q)


def test_fp32_input_is_not_rounded_to_bf16_first() -> None:
    """1.03125 + 2^-13 is just above the tie between two E4M3 codes; through bf16 it would be the tie and go down."""
    x = torch.zeros(1, 32)
    x[0, 0], x[0, 1] = 1.75, 1.0625 + 2.0**-13
    q, s = ops.quant_fp8(x)
    assert s.item() == 119
    assert formats.f64(q)[0, 1] * 2.0**-8 == 1.125
    assert formats.f64(ops.quant_fp8(x.to(torch.bfloat16))[0])[0, 1] * 2.0**-8 == 1.0


def test_largest_magnitude_never_saturates_and_tiny_rows_stay_finite() -> None:
    x = torch.full((3, 64), 6.3e-38, dtype=torch.bfloat16)
    x[1], x[2] = 3.3e38, 449.0
    q, s = ops.quant_fp8(x)
    back = formats.fp8(q, s)
    assert np.isfinite(back).all()
    assert (back[0] == 0).all()
    np.testing.assert_allclose(back[1:], formats.f64(x)[1:], rtol=2.0**-4)
