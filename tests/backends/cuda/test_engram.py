"""Engram: hashes behind gaps, rows of tables bit for bit, the gate at its border and in image rows."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from cuda_calls import PLAIN, SPOILT, STRIDED, assert_kept, every_call, run, sample
from deepinfer.ops.required import IN_PLACE

OPS = {"engram_hash": "missing and image", "engram_gather": "repeats", "engram_gate": "two streams"}
"""Ops, and the sample of each that has its edges."""
EMPTY = {"engram_hash": "0 rows", "engram_gather": "no rows", "engram_gate": "0 rows"}


@pytest.mark.parametrize("variant", [PLAIN, STRIDED, SPOILT])
@pytest.mark.parametrize("op", OPS)
def test_samples(op: str, variant: str) -> None:
    assert_kept(op, sample(op, OPS[op]).args, variant)


@pytest.mark.parametrize("op", EMPTY)
def test_no_rows(op: str) -> None:
    assert_kept(op, sample(op, EMPTY[op]).args)


def test_hashes_of_large_products() -> None:
    assert_kept("engram_hash", sample("engram_hash", "real tables").args)


@pytest.mark.parametrize("width", [96, 1300])
def test_gate_in_two_parts(width: int) -> None:
    torch.manual_seed(width)
    x, kv = torch.randn(3, 2, width).bfloat16(), torch.randn(3, 3 * width).bfloat16()
    weights = torch.randn(2, width).bfloat16(), torch.randn(2, width).bfloat16()
    assert_kept("engram_gate", (x, kv, *weights, torch.tensor([False, True, False]), 1e-6), IN_PLACE)


def test_zero_keys_have_the_gate_of_the_floor() -> None:
    """+0 gives sigmoid(0.001) and -0 sigmoid(-0.001)."""
    x, kv = torch.zeros(1, 2, 32).bfloat16(), torch.cat((torch.zeros(64), torch.full((32,), 64.0)))[None].bfloat16()
    x[0, 1] = -0.0
    ones = torch.ones(2, 32).bfloat16()
    (y,) = run("engram_gate", x, kv, ones, ones, torch.tensor([False]), 1e-6)
    want = torch.sigmoid(torch.tensor([0.001, -0.001]))[None, :, None] * 64
    assert torch.equal(y, want.expand(1, 2, 32).bfloat16())


@pytest.mark.gpu
@pytest.mark.parametrize("op", OPS)
def test_every_required_call(op: str) -> None:
    for label, args, variant in every_call(op):
        try:
            assert_kept(op, args, variant)
        except AssertionError as error:
            raise AssertionError(f"{label}: {error}") from None
