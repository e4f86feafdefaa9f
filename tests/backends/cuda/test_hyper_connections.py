"""Hyper-connections: the class, widths and numbers of streams with idle lanes, parts of long sums, equal bits."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from cuda_calls import assert_kept, run, sample
from cuda_family import family_tests
from deepinfer.backends.cuda import hyper_connections
from deepinfer.ops.required import IN_PLACE

OPS = {
    "hc_collapse": "two streams",
    "hc_expand": "two streams",
    "hc_collapse_norm": "zero, NaN",
    "hc_coefficients": "zero, NaN",
}
"""Ops, and the sample of each that has its edges."""
EMPTY = dict.fromkeys(OPS, "0 rows")


test_samples, test_no_rows, test_every_required_call = family_tests(OPS, EMPTY)


def test_steep_exponentials() -> None:
    assert_kept("hc_coefficients", sample("hc_coefficients", "steep").args)


@pytest.mark.parametrize("eps", [0.0, 1e-38, 2.0])
def test_columns_of_tiny_exponentials(eps: float) -> None:
    """A column whose sum is below the numbers that have a reciprocal, and eps from none to more than sums are."""
    torch.manual_seed(9)
    base = torch.randn(24)
    base[8:].view(4, 4)[:, 2] -= 90
    assert_kept(
        "hc_coefficients", (torch.randn(3, 4, 64).bfloat16(), torch.zeros(24, 256), base, torch.ones(3), 1e-20, eps, 20)
    )


def test_expand_into_its_own_streams() -> None:
    assert_kept("hc_expand", sample("hc_expand", "16 rows").args, IN_PLACE)


@pytest.mark.parametrize(("streams", "width"), [(3, 1056), (1, 32), (4, 2080)])
def test_streams_and_tiles(streams: int, width: int) -> None:
    """A number of streams that is no power of two; two tiles of channels and a tail."""
    torch.manual_seed(width)
    x, y = torch.randn(2, streams, width).bfloat16(), torch.randn(2, width).bfloat16()
    post, comb = torch.randn(2, streams), torch.randn(2, streams, streams)
    assert_kept("hc_expand", (x, y, post, comb))
    assert_kept("hc_collapse", (x, post))
    assert_kept("hc_collapse_norm", (x, post, y[0].contiguous(), 1e-20))


def test_parts_of_the_channels_and_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tiles of rows, parts of several tiles of channels, the last one short; three streams."""
    monkeypatch.setattr(hyper_connections, "SPLITS", 3)  # several tiles a part, as at the released width
    monkeypatch.setattr(hyper_connections, "PRODUCT_TILES", ((None, {"ROWS": 16, "num_warps": 4, "num_stages": 3}),))
    torch.manual_seed(4)
    m, width, n = 3, 130, 15
    sizes = hyper_connections.product_sizes(m, width)
    assert (sizes["PARTS"], sizes["STEPS"]) == (3, 3) and 6 * sizes["BLOCK"] < m * width < 7 * sizes["BLOCK"]
    x = torch.randn(18, m, width).bfloat16()
    fn = torch.randn(n, m * width) * width**-0.5
    args = (x, fn, torch.randn(n), torch.randn(3), 1e-20, 1e-6, 3)
    assert_kept("hc_coefficients", args)
    whole = run("hc_coefficients", *args)
    alone = run("hc_coefficients", x[16:], *args[1:])
    assert all(torch.equal(a[16:], b) for a, b in zip(whole, alone, strict=True))


def test_the_fused_op_has_the_bits_of_its_parts() -> None:
    torch.manual_seed(5)
    x, pending, weight = torch.randn(3, 4, 96).bfloat16(), torch.randn(3, 4), torch.randn(96).bfloat16()
    fused = run("hc_collapse_norm", x, pending, weight, 1e-6)
    parts = run("rms_norm_quant", run("hc_collapse", x, pending)[0], weight, 1e-6)
    for a, b in zip(fused, parts, strict=True):
        assert torch.equal(a.view(torch.uint8), b.view(torch.uint8))


@pytest.mark.gpu
def test_bits_at_the_released_width_over_the_tiles() -> None:
    """Rows have the bits that they have alone, whatever tile the number of rows asks for."""
    torch.manual_seed(6)
    x, fn = torch.randn(1100, 4, 5120).bfloat16(), torch.randn(24, 20480) / 72
    rest = fn, torch.randn(24), torch.randn(3), 1e-20, 1e-6, 20
    whole = run("hc_coefficients", x, *rest)
    for first, last in ((0, 1), (3, 67), (70, 1093), (1, 1025)):
        part = run("hc_coefficients", x[first:last], *rest)
        assert all(torch.equal(a[first:last], b) for a, b in zip(whole, part, strict=True)), (first, last)
