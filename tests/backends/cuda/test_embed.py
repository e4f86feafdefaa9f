"""Token embedding and rows by id: bit for bit, tails of tiles, ids outside the table, addresses beyond 2^31 bytes."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from cuda_calls import assert_kept, run
from cuda_family import family_tests

OPS = {"embed_streams": "ids outside", "gather_rows": "fp32, NaN"}
"""Ops, and the sample of each that has its edges."""
EMPTY = {"embed_streams": "no rows", "gather_rows": "from no rows"}


test_samples, test_no_rows, test_every_required_call = family_tests(OPS, EMPTY)


@pytest.mark.parametrize("width", [1, 33, 4100])
def test_widths(width: int) -> None:
    torch.manual_seed(width)
    table = torch.randn(7, width).bfloat16()
    ids = torch.tensor([6, 0, -1, 7, 3], dtype=torch.int32)
    assert_kept("gather_rows", (table, ids))
    assert_kept("embed_streams", (table, ids)[::-1] + (3,))


def test_copies_keep_every_bit() -> None:
    """NaN payloads, negative zero and subnormal numbers."""
    codes = torch.arange(-32768, 32768, 41).to(torch.int16)[:1596].view(4, 399)
    (y,) = run("gather_rows", codes.view(torch.bfloat16), torch.tensor([3, 2, 1, 0], dtype=torch.int32))
    assert torch.equal(y.view(torch.int16), codes.flip(0))
