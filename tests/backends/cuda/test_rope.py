"""Rotary embedding: the class, copied channels bit for bit, widths that are odd or no power of two."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from cuda_calls import PLAIN, SPOILT, STRIDED, assert_kept, every_call, on_cuda, run, sample
from deepinfer.ops import cache_steps as build
from deepinfer.ops.spec import SPECS

CPU = torch.device("cpu")


@pytest.mark.parametrize("variant", [PLAIN, STRIDED, SPOILT])
@pytest.mark.parametrize("label", ["0 rows", "37 rows", "all channels"])
def test_samples(label: str, variant: str) -> None:
    if variant == PLAIN or not label.startswith("0"):
        assert_kept("rope", sample("rope", label).args, variant)


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize(("heads", "copied", "pairs"), [(3, 7, 5), (1, 0, 1), (2, 448, 32), (5, 64, 32), (1, 33, 20)])
def test_widths(heads: int, copied: int, pairs: int, inverse: bool) -> None:
    torch.manual_seed(pairs)
    x = torch.randn(9, heads, copied + 2 * pairs).bfloat16()
    positions = torch.tensor([0, 1, 2, 499, 77, 5, 5, 300, 21], dtype=torch.int32)
    assert_kept("rope", (x, positions, build.rope_table(500, 2 * pairs, CPU), inverse))


def test_copied_channels_keep_every_bit() -> None:
    """NaN payloads, negative zero and subnormal numbers."""
    codes = torch.arange(-32768, 32768, 37).to(torch.int16)[:1760].view(4, 1, 440)
    x = torch.cat((codes.view(torch.bfloat16), torch.randn(4, 1, 64).bfloat16()), dim=2)
    (y,) = run("rope", x, torch.arange(4, dtype=torch.int32), build.rope_table(8, 64, CPU), False)
    assert torch.equal(y[..., :440].view(torch.int16), codes)


def test_bits_depend_on_the_row_alone() -> None:
    torch.manual_seed(3)
    x, table = torch.randn(7, 2, 96).bfloat16(), build.rope_table(64, 32, CPU)
    positions = torch.tensor([3, 9, 60, 0, 11, 9, 1], dtype=torch.int32)
    (y,) = run("rope", x, positions, table, True)
    for row in range(7):
        (alone,) = run("rope", x[row : row + 1], positions[row : row + 1], table, True)
        assert torch.equal(alone[0].view(torch.int16), y[row].view(torch.int16))


@pytest.mark.gpu
def test_every_required_call() -> None:
    for label, args, variant in every_call("rope"):
        try:
            assert_kept("rope", args, variant)
        except AssertionError as error:
            raise AssertionError(f"{label}: {error}") from None


@pytest.mark.gpu
def test_more_than_two_gigabytes() -> None:
    """Rows behind the 2^31st byte and element have the bits of the same rows in a small call."""
    table = build.rope_table(64, 64, CPU).cuda()

    with on_cuda():
        rows = (1 << 31) // (64 * 512) + 5
        x = torch.randn(8, 64, 512, device="cuda").bfloat16().repeat(-(-rows // 8), 1, 1)[:rows]
        positions = torch.arange(rows, device="cuda", dtype=torch.int32) % 64
        y = SPECS["rope"].run(x, positions, table, False)
        small = SPECS["rope"].run(x[-8:].contiguous(), positions[-8:].contiguous(), table, False)
    assert torch.equal(y[-8:].view(torch.int16), small.view(torch.int16))
