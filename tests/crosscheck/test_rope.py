"""Rotary frequencies, tables and rotation against transformers' DeepSeek-V4."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from bounds import U32, UBF16, assert_within, share
from deepinfer import ops
from deepinfer.model import rope_table

pytestmark = pytest.mark.crosscheck

RELEASED = {"head_dim": 512, "qk_rope_head_dim": 64}
YARN: dict[str, Any] = {"factor": 16.0, "beta_fast": 32.0, "beta_slow": 1.0, "original_max_position": 65536}
SPOTS = torch.tensor([0, 1, 2, 3, 127, 128, 4095, 65535, 65536, 777777, 2**20 - 1])


def frequencies() -> dict[str, torch.Tensor]:
    """Ours, by transformers' names of the two kinds of layers."""
    return {
        "main": torch.from_numpy(rope_table.plain_frequencies(64, 10000.0)),
        "compress": torch.from_numpy(rope_table.yarn_frequencies(64, 160000.0, **YARN)),
    }


def table_at(frequency: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Rows of the table [n, 32, 2] as rope_table makes them, without making a million of them."""
    rows = []
    for position in positions.tolist():
        # A table of one row whose angle is the fp32 product of this position and the frequencies.
        angle = np.float32(position) * frequency.numpy()
        rows.append(rope_table.rope_table(angle, 2)[1])
    return torch.from_numpy(np.stack(rows))


def test_the_spot_rows_are_rows_of_the_table() -> None:
    frequency = frequencies()["compress"]
    whole = torch.from_numpy(rope_table.rope_table(frequency.numpy(), 4096))
    assert table_at(frequency, SPOTS[:7]).equal(whole[SPOTS[:7]])


@pytest.mark.parametrize("kind", ["main", "compress"])
def test_frequencies(v4: ModuleType, make_config: Callable[..., Any], kind: str) -> None:
    rotary = v4.DeepseekV4RotaryEmbedding(make_config(**RELEASED))
    want = getattr(rotary, f"{kind}_inv_freq")
    # A power: half a unit in the last place here, one there (3 roundings); the quotient on each side (2). The ramp is
    # the same sequence of fp32 operations. YaRN: two products and a sum of terms >= 0, on each side (6 at most, since a
    # term's own error enters in proportion to its share).
    roundings = 5 if kind == "main" else 11
    assert_within(f"{kind} frequencies", frequencies()[kind], want, want.double() * roundings * U32)
    assert getattr(rotary, f"{kind}_attention_scaling") == 1.0


def test_which_pairs_yarn_slows(v4: ModuleType, make_config: Callable[..., Any]) -> None:
    """Pairs 0..15 are kept, 25..31 are slowed sixteen times, on both sides."""
    rotary = v4.DeepseekV4RotaryEmbedding(make_config(**RELEASED))
    plain = torch.from_numpy(rope_table.plain_frequencies(64, 160000.0)).double()
    for inverse in (frequencies()["compress"], rotary.compress_inv_freq):
        slowing = plain / inverse.double()
        assert torch.allclose(slowing[:16], torch.ones(16, dtype=torch.float64), rtol=1e-6)
        assert torch.allclose(slowing[25:], torch.full((7,), 16.0, dtype=torch.float64), rtol=1e-6)
        assert (slowing[16:25] > 1.01).all() and (slowing[16:25] < 15.9).all()


@pytest.mark.parametrize("kind", ["main", "compress"])
def test_table_of_equal_frequencies(v4: ModuleType, make_config: Callable[..., Any], kind: str) -> None:
    """With our frequencies in transformers' module the angles are the same fp32 products up to position 2^20."""
    rotary = v4.DeepseekV4RotaryEmbedding(make_config(**RELEASED))
    getattr(rotary, f"{kind}_inv_freq").copy_(frequencies()[kind])
    want = torch.stack(rotary(torch.zeros(1), SPOTS[None], layer_type=kind), dim=-1)[0]
    # Ours is rounded once from float64. A vector library's sine and cosine are within one unit in the last place, that
    # is two roundings of values of at most 1.
    assert_within(f"{kind} table", table_at(frequencies()[kind], SPOTS), want, 3 * U32)


@pytest.mark.parametrize("kind", ["main", "compress"])
def test_table_of_own_frequencies(v4: ModuleType, make_config: Callable[..., Any], kind: str) -> None:
    rotary = v4.DeepseekV4RotaryEmbedding(make_config(**RELEASED))
    want = torch.stack(rotary(torch.zeros(1), SPOTS[None], layer_type=kind), dim=-1)[0]
    ours = frequencies()[kind]
    theirs = getattr(rotary, f"{kind}_inv_freq")
    # A last-bit difference of a frequency is multiplied by the position; each side rounds its angle once more.
    gap = (ours.double() - theirs.double()).abs()
    angle = SPOTS[:, None].double() * ours.double()
    limit = SPOTS[:, None].double() * gap + torch.where(gap > 0, 2 * U32 * angle, 0.0) + 3 * U32
    assert_within(f"{kind} table, own frequencies", table_at(ours, SPOTS), want, limit[..., None].expand_as(want))


@pytest.mark.parametrize("inverse", [False, True])
def test_rotation_gives_the_same_bits(v4: ModuleType, inverse: bool) -> None:
    """Adjacent pairs of the last channels, two rounded products and one rounded sum: nothing is left to differ."""
    draw = torch.Generator().manual_seed(1)
    x = torch.randn(len(SPOTS), 3, 96, generator=draw).bfloat16()
    table = table_at(frequencies()["compress"], SPOTS)
    cosine, sine = table[None].unbind(-1)
    want = v4.apply_rotary_pos_emb(x[None].transpose(1, 2), cosine, -sine if inverse else sine)
    rows = torch.arange(len(SPOTS), dtype=torch.int32)
    got = ops.rope(x, rows, table, inverse)
    assert got.equal(want.transpose(1, 2)[0])
    assert got[..., :32].equal(x[..., :32]) and not got[..., 32:].equal(x[..., 32:])


def test_tables_in_bf16_are_another_model(v4: ModuleType, make_config: Callable[..., Any]) -> None:
    """Difference: transformers rounds cosine and sine to the streams' dtype; ours stay fp32 next to bf16 streams.

    A rotation by fp32 tables, rounded once, is within one bf16 rounding of the exact one. bf16 tables add up to one
    bf16 rounding of each product.
    """
    rotary = v4.DeepseekV4RotaryEmbedding(make_config(**RELEASED))
    rotary.compress_inv_freq.copy_(frequencies()["compress"])
    x = torch.randn(len(SPOTS), 3, 64, generator=torch.Generator().manual_seed(2)).bfloat16()
    exact_table = [part[0] for part in rotary(torch.zeros(1), SPOTS[None], layer_type="compress")]
    exact = rotated(x.double(), *(part.double() for part in exact_table))
    got = ops.rope(x, torch.arange(len(SPOTS), dtype=torch.int32), table_at(frequencies()["compress"], SPOTS), False)
    magnitude = rotated_magnitude(x.double(), *(part.double() for part in exact_table))
    limit = UBF16 * exact.abs() + 5 * U32 * magnitude  # 3 for the table, one product, one sum
    assert_within("rotation, fp32 table", got, exact, limit)
    coarse = rotary(x, SPOTS[None], layer_type="compress")
    assert coarse[0].dtype == torch.bfloat16
    theirs = v4.apply_rotary_pos_emb(x[None].transpose(1, 2), *coarse).transpose(1, 2)[0]
    assert share(theirs, exact, limit) > 1
    assert_within("rotation, bf16 table", theirs, exact, limit + UBF16 * (1 + UBF16) * magnitude)


def rotated(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    """The definition, in the dtype of x: [T, h, 2F] by [T, F]."""
    even, odd = x[..., 0::2], x[..., 1::2]
    cosine, sine = cosine[:, None], sine[:, None]
    return torch.stack((even * cosine - odd * sine, even * sine + odd * cosine), dim=-1).flatten(-2)


def rotated_magnitude(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    """Sum of the magnitudes of the two products of each channel."""
    even, odd = x[..., 0::2].abs(), x[..., 1::2].abs()
    cosine, sine = cosine.abs()[:, None], sine.abs()[:, None]
    return torch.stack((even * cosine + odd * sine, even * sine + odd * cosine), dim=-1).flatten(-2)
