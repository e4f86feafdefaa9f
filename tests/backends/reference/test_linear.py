"""Dense linear layers against float64 products of independently decoded weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from deepinfer import ops
from deepinfer.backends.reference import linear, tiles
from deepinfer.conformance.oracle import formats
from deepinfer.conformance.oracle import formulas as oracle
from deepinfer.ops import layer_samples as make
from numerics_checks import check_accumulated

CPU = torch.device("cpu")


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize(("rows", "n", "k"), [(0, 32, 32), (1, 64, 128), (5, 41, 64), (37, 96, 512), (17, 1, 32)])
def test_linear_fp8(rows: int, n: int, k: int) -> None:
    r = rng(n)
    xq, xs = make.activations(r, CPU, rows, k)
    w, ws = make.fp8_codes(r, CPU, n, k), make.scales(r, CPU, -(-n // 32), k // 32)
    y = ops.linear_fp8(xq, xs, ops.linear_fp8_prepare(w, ws))
    assert y.dtype == torch.bfloat16
    check_accumulated(y, *oracle.product(formats.fp8(xq, xs), formats.fp8_blocks(w, ws)), terms=k)


def test_each_block_has_its_own_scale_and_the_last_rows_use_the_last_one() -> None:
    n, k = 70, 96
    xq = torch.zeros(k, k, dtype=torch.uint8).fill_diagonal_(0x38).view(torch.float8_e4m3fn)  # identity
    xs = torch.full((k, 3), 127, dtype=torch.uint8)
    w = torch.full((n, k), 0x38, dtype=torch.uint8).view(torch.float8_e4m3fn)  # ones
    ws = torch.arange(120, 129, dtype=torch.uint8).view(3, 3)
    y = formats.f64(ops.linear_fp8(xq, xs, ops.linear_fp8_prepare(w, ws)))
    for i in (0, 31, 32, 63, 64, 69):
        for j in (0, 31, 32, 64, 95):
            assert y[j, i] == 2.0 ** (int(ws[i // 32, j // 32]) - 127)


def test_nan_in_activations_or_weights_shows_where_it_belongs_and_nowhere_else() -> None:
    r = rng(1)
    xq, xs = make.activations(r, CPU, 6, 64)
    w, ws = make.fp8_codes(r, CPU, 80, 64), make.scales(r, CPU, 3, 2)
    w.view(torch.uint8)[7, 3] = 0xFF
    ws[2, 1] = 255
    xs[4, 0] = 255
    y = ops.linear_fp8(xq, xs, ops.linear_fp8_prepare(w, ws))
    expected = torch.zeros(6, 80, dtype=torch.bool)
    expected[:, 7], expected[:, 64:], expected[4] = True, True, True
    assert y.isnan().equal(expected)


def test_extreme_scales_decode() -> None:
    """Scale byte 0 is a subnormal power of two; it must not flush to zero."""
    xq = torch.full((1, 32), 0x7E, dtype=torch.uint8).view(torch.float8_e4m3fn)  # 448
    w = torch.full((1, 32), 0x7E, dtype=torch.uint8).view(torch.float8_e4m3fn)
    ws = torch.zeros(1, 1, dtype=torch.uint8)
    y = ops.linear_fp8(xq, torch.full((1, 1), 127, dtype=torch.uint8), ops.linear_fp8_prepare(w, ws))
    assert y.double().item() == pytest.approx(32 * 448 * 448 * 2.0**-127, rel=2**-8)


def test_linear_fp8_grouped_is_one_linear_per_group() -> None:
    r = rng(2)
    xq, xs = make.activations(r, CPU, 19, 3, 96)
    w, ws = make.fp8_codes(r, CPU, 3, 64, 96), make.scales(r, CPU, 3, 2, 3)
    y = ops.linear_fp8_grouped(xq, xs, ops.linear_fp8_grouped_prepare(w, ws))
    for g in range(3):
        args = xq[:, g].contiguous(), xs[:, g].contiguous(), ops.linear_fp8_prepare(w[g], ws[g])
        assert y[:, g].equal(ops.linear_fp8(*args))
        want = oracle.product(formats.fp8(xq[:, g], xs[:, g]), formats.fp8_blocks(w[g], ws[g]))
        check_accumulated(y[:, g], *want, terms=96)


@pytest.mark.parametrize("fp32_out", [False, True])
@pytest.mark.parametrize(("rows", "n", "k"), [(0, 5, 7), (1, 8, 128), (37, 33, 50), (16, 512, 128)])
def test_linear_bf16(rows: int, n: int, k: int, fp32_out: bool) -> None:
    r = rng(k)
    x, w = make.normal(r, CPU, rows, k), make.normal(r, CPU, n, k)
    y = ops.linear_bf16(x, ops.linear_bf16_prepare(w), fp32_out)
    assert y.dtype == (torch.float32 if fp32_out else torch.bfloat16)
    check_accumulated(y, *oracle.product(formats.f64(x), formats.f64(w)), terms=k)


def test_fp32_output_is_not_rounded_to_bf16() -> None:
    x = torch.ones(1, 2, dtype=torch.bfloat16)
    w = torch.tensor([[1.0, 2.0**-12]], dtype=torch.bfloat16)
    assert ops.linear_bf16(x, ops.linear_bf16_prepare(w), True).item() == 1 + 2.0**-12


def test_weights_stay_packed() -> None:
    r = rng(3)
    w, ws = make.fp8_codes(r, CPU, 64, 64), make.scales(r, CPU, 2, 2)
    handle = ops.linear_fp8_prepare(w, ws)
    assert [t.data_ptr() for t in handle.tensors] == [w.data_ptr(), ws.data_ptr()]
    assert handle.nbytes == 64 * 64 + 4


def test_expansion_in_pieces_equals_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    r = rng(4)
    w, ws = make.fp8_codes(r, CPU, 133, 64), make.scales(r, CPU, 5, 2)
    xq, xs = make.activations(r, CPU, 18, 64)
    handle = ops.linear_fp8_prepare(w, ws)
    want = oracle.product(formats.fp8(xq, xs), formats.fp8_blocks(w, ws))
    monkeypatch.setattr(tiles, "CHUNK_ELEMENTS", 64 * 64)
    check_accumulated(ops.linear_fp8(xq, xs, handle), *want, terms=64)
    np.testing.assert_array_equal(linear.expand_blocks(w[64:128], ws[2:4]), formats.fp8_blocks(w, ws)[64:128])
