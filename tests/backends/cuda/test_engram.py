"""Engram: hashes behind gaps, rows of tables bit for bit, the gate at its border and in image rows."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from cuda_calls import DEVICE, assert_kept, on_cuda, run, sample
from cuda_family import family_tests
from deepinfer.backends.cuda import engram
from deepinfer.ops.required import IN_PLACE
from deepinfer.ops.spec import SPECS

OPS = {"engram_hash": "missing and image", "engram_gather": "repeats", "engram_gate": "two streams"}
"""Ops, and the sample of each that has its edges."""
EMPTY = {"engram_hash": "0 rows", "engram_gather": "no rows", "engram_gate": "0 rows"}


test_samples, test_no_rows, test_every_required_call = family_tests(OPS, EMPTY)


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


def test_bits_depend_on_the_row_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone, and among as many rows as have several to a program; beside image rows; at odd addresses."""
    torch.manual_seed(8)
    rows, streams, width = (2100, 4, 5120) if torch.cuda.is_available() else (19, 2, 40)
    monkeypatch.setattr(engram, "FEW_ROWS", rows // 5)
    x, kv = torch.randn(rows, streams, width).bfloat16(), torch.randn(rows, (streams + 1) * width).bfloat16()
    weights = torch.randn(streams, width).bfloat16(), torch.randn(streams, width).bfloat16()
    image = torch.arange(rows) % 5 == 2
    (whole,) = run("engram_gate", x, kv, *weights, image, 1e-20)
    for first, last in ((0, 1), (4, 9), (rows - 1, rows)):
        (part,) = run("engram_gate", x[first:last], kv[first:last], *weights, image[first:last], 1e-20)
        assert torch.equal(whole[first:last].view(torch.int16), part.view(torch.int16))
    with on_cuda():
        odd = torch.empty(x.numel() + 1, dtype=torch.bfloat16, device=DEVICE)[1:].view(x.shape).copy_(x)
        given = (t.to(DEVICE) for t in (kv, *weights, image))
        moved = SPECS["engram_gate"].run(odd, *given, 1e-20).cpu()
    assert torch.equal(whole.view(torch.int16), moved.view(torch.int16))
