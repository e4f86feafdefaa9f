"""Hyper-connections: the Sinkhorn vector, index order, and float64 oracles."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import numerics_checks
from deepinfer import ops
from deepinfer.backends.reference.hyper_connections import sinkhorn
from deepinfer.conformance.oracle import formats
from deepinfer.conformance.oracle import formulas as oracle
from deepinfer.conformance.oracle import layers as layers_oracle
from deepinfer.ops import layer_samples as make
from deepinfer.ops.spec import SPECS
from numerics_checks import check_accumulated

CPU = torch.device("cpu")
U32 = 2.0**-24
LOGITS = [[0, 1, 2, 3], [1, 0, -1, 2], [0.5] * 4, [-1, 2, 0, 1]]
DOUBLY_STOCHASTIC = [
    [0.0693, 0.0910, 0.4509, 0.3888],
    [0.4863, 0.0864, 0.0580, 0.3693],
    [0.3784, 0.1827, 0.3332, 0.1057],
    [0.0660, 0.6399, 0.1579, 0.1362],
]


def check_sinkhorn(got: torch.Tensor, logits: formats.Floats, iterations: int) -> None:
    """Against float64 on the same logits: only the fp32 steps differ."""
    limit = layers_oracle.sinkhorn_limit(0.0, np.ptp(logits), iterations)
    np.testing.assert_allclose(formats.f64(got), oracle.sinkhorn(logits, 1e-6, iterations), rtol=limit)


def test_sinkhorn_vector() -> None:
    logits = np.array(LOGITS)
    # Printed with four decimals: half a unit of the last.
    np.testing.assert_allclose(oracle.sinkhorn(logits, 1e-6, 20), DOUBLY_STOCHASTIC, atol=5e-5)
    got = sinkhorn(torch.tensor([LOGITS]), 1e-6, 20)
    check_sinkhorn(got[0], logits, 20)
    # A column step comes last: S / (S + eps) with S > 1/2, m quotients, and sums of m on both sides.
    assert (got.double().sum(1) - 1).abs().max() < 2e-6 + 8 * U32


def test_sinkhorn_counts_column_steps() -> None:
    logits = np.array(LOGITS)
    for iterations in (1, 2, 3):
        got = sinkhorn(torch.tensor(logits[None], dtype=torch.float32), 1e-6, iterations)
        check_sinkhorn(got[0], logits, iterations)


def test_sinkhorn_of_large_logits_stays_finite() -> None:
    got = sinkhorn(torch.tensor([LOGITS]) * 1e4, 1e-6, 20)
    assert got.isfinite().all()


def coefficients(seed: int, rows: int, m: int, width: int) -> tuple[torch.Tensor, ...]:
    rng = np.random.default_rng(seed)
    outputs = (2 + m) * m
    x = make.normal(rng, CPU, rows, m, width)
    fn = make.normal(rng, CPU, outputs, m * width, dtype=torch.float32) * width**-0.5
    base, scale = (make.normal(rng, CPU, n, dtype=torch.float32) for n in (outputs, 3))
    return x, fn, base, scale


@pytest.mark.parametrize(("rows", "m", "width"), [(0, 4, 64), (1, 4, 128), (37, 4, 128), (5, 2, 33)])
def test_coefficients_against_float64(rows: int, m: int, width: int) -> None:
    args = coefficients(rows, rows, m, width)
    got = ops.hc_coefficients(*args, 1e-20, 1e-6, 20)
    assert not numerics_checks.faults(SPECS["hc_coefficients"], (*args, 1e-20, 1e-6, 20), got, got)


@pytest.mark.parametrize("iterations", [1, 2, 20])
def test_coefficients_where_the_projection_is_exact(iterations: int) -> None:
    """Values of +-4 have the inverse root 1/4, and small integers add up exactly in any order: the limits of a general
    projection are orders wider than its usual error, here they are a few roundings."""
    m, width = 4, 64
    x, fn, base, scale = coefficients(3, 11, m, width)
    x = x.sign() * 4
    fn = (fn * width**0.5 * 3).round() / 256
    got = ops.hc_coefficients(x, fn, base, scale, 1e-20, 1e-6, iterations)
    want = oracle.hc_coefficients(*map(formats.f64, (x, fn, base, scale)), 1e-20, 1e-6, iterations)
    mix = formats.f64(x).reshape(11, -1) @ formats.f64(fn).T / 4
    size = np.abs(mix * np.repeat(formats.f64(scale), [m, m, m * m])) + np.abs(formats.f64(base))
    error = 3 * U32 * size  # product with scale, sum with base
    worst, span = (part[:, 2 * m :].max(1)[:, None, None] for part in (error, 2 * size))
    limits = (
        error[:, :m] / 4 + 7 * U32 * want[0],  # slope of the sigmoid; its 6 roundings, and eps
        error[:, m : 2 * m] / 2 + 7 * U32 * want[1],
        want[2] * layers_oracle.sinkhorn_limit(worst, span, iterations),
    )
    for name, a, b, limit in zip(("pre", "post", "comb"), got, want, limits, strict=True):
        assert (np.abs(formats.f64(a) - b) <= limit).all(), name


def test_each_scale_and_part_of_base_acts_on_its_own_output() -> None:
    x, fn, base, _ = coefficients(1, 3, 4, 32)
    zero = torch.zeros(3)
    pre, post, comb = ops.hc_coefficients(x, fn, base, zero, 1e-20, 1e-6, 20)
    exact = formats.f64(base)  # with scale 0 the logits are `base`, bit for bit; a sigmoid takes 6 roundings, eps one
    np.testing.assert_allclose(formats.f64(pre[0]), oracle.sigmoid(exact[:4]) + 1e-6, rtol=7 * U32)
    np.testing.assert_allclose(formats.f64(post[0]), 2 * oracle.sigmoid(exact[4:8]), rtol=7 * U32)
    check_sinkhorn(comb[0], exact[8:].reshape(4, 4), 20)
    for part, scale in enumerate(torch.eye(3)):
        got = ops.hc_coefficients(x, fn, base, scale, 1e-20, 1e-6, 20)
        changed = [not a.equal(b) for a, b in zip(got, (pre, post, comb), strict=True)]
        assert changed == [i == part for i in range(3)]


def test_statistic_is_over_all_streams() -> None:
    """Scaling the whole state changes nothing; scaling one stream does."""
    x, fn, base, scale = coefficients(2, 4, 4, 64)
    whole = ops.hc_coefficients(x, fn, base, scale, 1e-20, 1e-6, 20)
    same = ops.hc_coefficients(x * 4, fn, base, scale, 1e-20, 1e-6, 20)
    assert all(a.equal(b) for a, b in zip(whole, same, strict=True))
    x[:, 0] *= 4
    assert not ops.hc_coefficients(x, fn, base, scale, 1e-20, 1e-6, 20)[0].equal(whole[0])


@pytest.mark.parametrize(("rows", "m", "width"), [(0, 4, 64), (37, 4, 128), (5, 2, 33)])
def test_collapse_and_expand_against_float64(rows: int, m: int, width: int) -> None:
    rng = np.random.default_rng(width)
    x, y = make.normal(rng, CPU, rows, m, width), make.normal(rng, CPU, rows, width)
    p, comb = (make.normal(rng, CPU, *s, dtype=torch.float32) for s in ((rows, m), (rows, m, m)))
    wide, mix, c = formats.f64(x), formats.f64(p), formats.f64(comb)
    terms = mix[:, :, None] * wide
    check_accumulated(ops.hc_collapse(x, p), terms.sum(1), np.abs(terms).sum(1), m)
    added = mix[:, :, None] * formats.f64(y)[:, None]
    want = added + np.einsum("tjk,tjd->tkd", c, wide)
    magnitude = np.abs(added) + np.einsum("tjk,tjd->tkd", np.abs(c), np.abs(wide))
    check_accumulated(ops.hc_expand(x, y, p, comb), want, magnitude, m + 1)


def test_row_index_of_the_mix_is_the_source_stream() -> None:
    x = torch.zeros(1, 3, 2, dtype=torch.bfloat16)
    x[0, 0] = 1.0
    comb = torch.zeros(1, 3, 3)
    comb[0, 0, 2] = 5.0
    out = ops.hc_expand(x, torch.zeros(1, 2, dtype=torch.bfloat16), torch.zeros(1, 3), comb)
    assert out[0, :, 0].tolist() == [0, 0, 5]


def test_collapse_of_the_initial_mix_is_the_first_stream() -> None:
    x = torch.randn(4, 3, 8).to(torch.bfloat16)
    pending = torch.tensor([[1.0, 0, 0]]).repeat(4, 1)
    assert ops.hc_collapse(x, pending).equal(x[:, 0])
