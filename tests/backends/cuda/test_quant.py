"""Activation quantisation: exact codes and scales, groups that are no numbers, tails of tiles, strided rows."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from cuda_calls import assert_kept, run
from cuda_family import family_tests
from deepinfer.backends.reference.formats import dequantize_fp8

OPS = {"quant_fp8": ("zero, tiny", "fp32, strided")}
EMPTY = {"quant_fp8": "no rows"}


test_samples, test_no_rows, test_every_required_call = family_tests(OPS, EMPTY)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize(("rows", "width"), [(9, 1312), (5, 512), (17, 32), (3, 96)])
def test_tiles_and_tails(rows: int, width: int, dtype: torch.dtype) -> None:
    """Two tiles of channels and a tail, several tiles of rows and a tail."""
    torch.manual_seed(width)
    x = torch.randn(rows, width) * torch.exp(torch.randn(rows, width // 32).repeat_interleave(32, 1) * 8)
    x = x.to(dtype)
    assert_kept("quant_fp8", (x,))
    assert_kept("quant_fp8", (torch.nn.functional.pad(x, (0, 8))[:, :width],))


def test_tiny_groups_decode_near_zero_and_huge_ones_saturate() -> None:
    """The largest magnitude of a group has a floor, so no scale is infinite; what passes 448 does not become NaN."""
    x = torch.zeros(5, 64)
    x[0, 3], x[1, 5], x[2, :32], x[3, 0] = 6.3e-38, -1e-45, 3e38, 1e-4
    x[4, ::2] = 448.0001
    codes, scale = run("quant_fp8", x)
    value = dequantize_fp8(codes, scale)
    assert value.isfinite().all()
    assert value[:2].abs().max() < 1e-9
    assert (value[2, :32] / 3e38 - 1).abs().max() < 2**-4
    assert scale[0].tolist() == [105, 105]


def test_a_group_that_is_no_number_stays_so_and_alone() -> None:
    x = torch.ones(3, 96)
    x[0, 40], x[1, 0], x[2, 95] = torch.nan, torch.inf, -torch.inf
    codes, scale = run("quant_fp8", x)
    assert (scale == 255).nonzero().tolist() == [[0, 1], [1, 0], [2, 2]]
    bad = (scale == 255).repeat_interleave(32, 1)
    assert (codes.view(torch.uint8)[bad] == 0x7F).all()
    assert dequantize_fp8(codes, scale)[~bad].eq(1).all()
