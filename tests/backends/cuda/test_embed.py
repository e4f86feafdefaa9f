"""Token embedding and rows by id: bit for bit, tails of tiles, ids outside the table, addresses beyond 2^31 bytes."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from cuda_calls import PLAIN, SPOILT, STRIDED, assert_kept, every_call, run, sample

OPS = {"embed_streams": "ids outside", "gather_rows": "fp32, NaN"}
"""Ops, and the sample of each that has its edges."""
EMPTY = {"embed_streams": "no rows", "gather_rows": "from no rows"}


@pytest.mark.parametrize("variant", [PLAIN, STRIDED, SPOILT])
@pytest.mark.parametrize("op", OPS)
def test_samples(op: str, variant: str) -> None:
    assert_kept(op, sample(op, OPS[op]).args, variant)


@pytest.mark.parametrize("op", EMPTY)
def test_no_rows(op: str) -> None:
    assert_kept(op, sample(op, EMPTY[op]).args)


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


@pytest.mark.gpu
@pytest.mark.parametrize("op", OPS)
def test_every_required_call(op: str) -> None:
    for label, args, variant in every_call(op):
        try:
            assert_kept(op, args, variant)
        except AssertionError as error:
            raise AssertionError(f"{label}: {error}") from None
