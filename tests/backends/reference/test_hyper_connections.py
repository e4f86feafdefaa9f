"""Hyper-connections: the Sinkhorn vector, index order, and float64 oracles."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import layer_oracle as oracle
from deepinfer import ops
from deepinfer.backends.reference.hyper_connections import sinkhorn
from deepinfer.ops import layer_samples as make

CPU = torch.device("cpu")
LOGITS = [[0, 1, 2, 3], [1, 0, -1, 2], [0.5] * 4, [-1, 2, 0, 1]]
DOUBLY_STOCHASTIC = [
    [0.0693, 0.0910, 0.4509, 0.3888],
    [0.4863, 0.0864, 0.0580, 0.3693],
    [0.3784, 0.1827, 0.3332, 0.1057],
    [0.0660, 0.6399, 0.1579, 0.1362],
]


def test_sinkhorn_vector() -> None:
    got = sinkhorn(torch.tensor([LOGITS]), 1e-6, 20)
    np.testing.assert_allclose(got[0].numpy(), DOUBLY_STOCHASTIC, atol=5e-5)
    assert (got.sum(1) - 1).abs().max() < 1e-5  # a column step comes last


def test_sinkhorn_counts_column_steps() -> None:
    logits = np.array(LOGITS)
    for iterations in (1, 2, 3):
        got = sinkhorn(torch.tensor(logits[None], dtype=torch.float32), 1e-6, iterations)
        np.testing.assert_allclose(got[0].numpy(), oracle.sinkhorn(logits, 1e-6, iterations), rtol=1e-6)


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
    want = oracle.hc_coefficients(*map(oracle.f64, args), 1e-20, 1e-6, 20)
    for name, a, b in zip(("pre", "post", "comb"), got, want, strict=True):
        np.testing.assert_allclose(oracle.f64(a), b, rtol=2e-5, atol=2e-6, err_msg=name)


def test_each_scale_and_part_of_base_acts_on_its_own_output() -> None:
    x, fn, base, _ = coefficients(1, 3, 4, 32)
    zero = torch.zeros(3)
    pre, post, comb = ops.hc_coefficients(x, fn, base, zero, 1e-20, 1e-6, 20)
    np.testing.assert_allclose(pre[0].numpy(), 1 / (1 + np.exp(-base[:4].numpy())) + 1e-6, rtol=1e-6)
    np.testing.assert_allclose(post[0].numpy(), 2 / (1 + np.exp(-base[4:8].numpy())), rtol=1e-6)
    want = oracle.sinkhorn(oracle.f64(base[8:]).reshape(4, 4), 1e-6, 20)
    np.testing.assert_allclose(comb[0].numpy(), want, rtol=1e-5)
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
    wide, mix, c = oracle.f64(x), oracle.f64(p), oracle.f64(comb)
    terms = mix[:, :, None] * wide
    oracle.check_accumulated(ops.hc_collapse(x, p), terms.sum(1), np.abs(terms).sum(1), m)
    added = mix[:, :, None] * oracle.f64(y)[:, None]
    want = added + np.einsum("tjk,tjd->tkd", c, wide)
    magnitude = np.abs(added) + np.einsum("tjk,tjd->tkd", np.abs(c), np.abs(wide))
    oracle.check_accumulated(ops.hc_expand(x, y, p, comb), want, magnitude, m + 1)


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
