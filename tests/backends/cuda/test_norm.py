"""Root-mean-square normalisation: the class, widths of one and two parts with and without idle lanes, equal bits; with
codes the same rows, and exactly their codes."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from cuda_calls import assert_kept, on_cuda, run
from cuda_family import family_tests
from deepinfer.backends.reference.formats import quantize_fp8
from deepinfer.ops.spec import SPECS

OPS = dict.fromkeys(("rms_norm", "rms_norm_quant"), ("zero, tiny", "strided rows"))
EMPTY = dict.fromkeys(OPS, "0 rows")


test_samples, test_no_rows, test_every_required_call = family_tests(OPS, EMPTY)


@pytest.mark.parametrize("width", [1, 31, 40, 1300, 5120])
def test_widths(width: int) -> None:
    torch.manual_seed(width)
    x = torch.randn(3, width).bfloat16()
    assert_kept("rms_norm", (x, torch.randn(width).bfloat16(), 1e-20))


@pytest.mark.parametrize("width", [32, 544, 1280])
def test_codes_are_those_of_the_normed_rows(width: int) -> None:
    torch.manual_seed(width)
    x, weight = torch.randn(5, width).bfloat16(), torch.randn(width).bfloat16()
    y, q, scale = run("rms_norm_quant", x, weight, 1e-6)
    (alone,) = run("rms_norm", x, weight, 1e-6)
    assert torch.equal(y.view(torch.int16), alone.view(torch.int16))
    codes, scales = quantize_fp8(y.float())
    assert torch.equal(q.view(torch.uint8), codes.view(torch.uint8))
    assert torch.equal(scale, scales)


def test_bits_depend_on_the_row_alone() -> None:
    """Alone, in another place, between NaN rows, and in rows that begin at odd addresses."""
    torch.manual_seed(1)
    x, weight = torch.randn(11, 1280).bfloat16(), torch.randn(1280).bfloat16()
    (y,) = run("rms_norm", x, weight, 1e-20)
    wide = torch.full((11, 1285), torch.nan).bfloat16()
    wide[::2, 1:1281] = x[::2]
    (odd,) = run("rms_norm", wide[:, 1:1281], weight, 1e-20)
    assert torch.equal(odd[::2].view(torch.int16), y[::2].view(torch.int16))
    assert odd[1::2].isnan().all()
    for row in (0, 10):
        (alone,) = run("rms_norm", x[row : row + 1], weight, 1e-20)
        assert torch.equal(alone[0].view(torch.int16), y[row].view(torch.int16))


def test_wider_rows_are_left_to_others() -> None:
    with on_cuda():
        kernel = SPECS["rms_norm"].kernel(torch.zeros(1, 16392).bfloat16(), torch.zeros(16392).bfloat16(), 1e-6)
    assert kernel.backend == "reference"


@pytest.mark.gpu
def test_more_than_two_gigabytes() -> None:
    """Rows behind the 2^31st byte and element have the bits of the same rows in a small call."""
    with on_cuda():
        rows = (1 << 31) // 5120 + 5
        x = torch.randn(8, 5120, device="cuda").bfloat16().repeat(-(-rows // 8), 1)[:rows]
        weight = torch.randn(5120, device="cuda").bfloat16()
        y = SPECS["rms_norm"].run(x, weight, 1e-20)
        small = SPECS["rms_norm"].run(x[-8:].contiguous(), weight, 1e-20)
    assert torch.equal(y[-8:].view(torch.int16), small.view(torch.int16))
