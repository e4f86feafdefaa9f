"""Rotary embedding: interleaved pairs of the last channels, there and back."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from deepinfer import ops
from deepinfer.backends.reference.rope import rotate
from deepinfer.conformance.oracle import formats
from deepinfer.conformance.oracle import formulas as oracle
from deepinfer.hal.errors import ContractError
from deepinfer.ops import layer_samples as make
from numerics_checks import check_accumulated

CPU = torch.device("cpu")


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize(("heads", "d", "pairs"), [(1, 16, 8), (3, 64, 8), (2, 34, 1)])
def test_against_float64(heads: int, d: int, pairs: int, inverse: bool) -> None:
    rng = np.random.default_rng(d)
    x, table = make.normal(rng, CPU, 37, heads, d), make.rope_table(CPU, 100, pairs)
    positions = make.ints(rng.integers(0, 100, 37), CPU)
    got = ops.rope(x, positions, table, inverse)
    wide = formats.f64(x)
    want = oracle.rope(wide, positions.tolist(), formats.f64(table), inverse)
    norm = np.abs(wide).max()
    check_accumulated(got, want, np.full_like(want, 2 * norm), terms=2)
    assert got[..., : d - 2 * pairs].equal(x[..., : d - 2 * pairs])


def test_pairs_are_adjacent_and_at_the_end() -> None:
    x = torch.zeros(1, 1, 6, dtype=torch.bfloat16)
    x[0, 0, 2], x[0, 0, 0] = 1.0, 5.0
    quarter = torch.tensor([[[0.0, 1.0], [1.0, 0.0]]])  # pair 0 turns by 90 degrees, pair 1 not at all
    zero = torch.zeros(1, dtype=torch.int32)
    assert ops.rope(x, zero, quarter, False).flatten().tolist() == [5, 0, 0, 1, 0, 0]
    assert ops.rope(x, zero, quarter, True).flatten().tolist() == [5, 0, 0, -1, 0, 0]


def test_each_row_uses_its_own_position_and_only_that_row_of_the_table() -> None:
    table = torch.full((50, 4, 2), torch.nan)
    known = make.rope_table(CPU, 50, 4)
    positions = torch.tensor([49, 0, 7], dtype=torch.int32)
    table[positions] = known[positions]
    x = torch.randn(3, 2, 16).to(torch.bfloat16)
    assert ops.rope(x, positions, table, False).equal(ops.rope(x, positions, known, False))


def test_rotating_single_vectors_equals_one_head() -> None:
    x, table = torch.randn(5, 32).to(torch.bfloat16), make.rope_table(CPU, 9, 8)
    positions = torch.arange(5, dtype=torch.int32)
    assert rotate(x, positions, table).equal(ops.rope(x.unsqueeze(1), positions, table, False).squeeze(1))


def test_there_and_back_is_the_identity_up_to_rounding() -> None:
    x, table = torch.randn(8, 2, 16).to(torch.bfloat16), make.rope_table(CPU, 9, 8)
    positions = torch.arange(8, dtype=torch.int32)
    back = ops.rope(ops.rope(x, positions, table, False), positions, table, True)
    assert (back.float() - x.float()).abs().max() <= 2.0**-7 * x.float().abs().max()


def test_position_outside_the_table_is_an_error() -> None:
    x = torch.zeros(1, 1, 4, dtype=torch.bfloat16)
    for position in (9, -1):
        with pytest.raises(ContractError, match=rf"positions holds {position}, must lie in \[0, 9\)"):
            ops.rope(x, torch.tensor([position], dtype=torch.int32), torch.zeros(9, 2, 2), False)
