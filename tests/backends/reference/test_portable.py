"""Elementary functions: a value's result is the same at any place, length, stride and alignment."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from deepinfer.backends.reference import common, portable
from deepinfer.conformance.compare.exact import same_bits

FUNCTIONS = {f.__name__: f for f in (portable.exp, portable.sigmoid, portable.softplus)}
BUILDING_BLOCKS = {f.__name__: f for f in (torch.log, torch.log1p, torch.rsqrt, torch.tanh, torch.erf, torch.sqrt)}
COUNT = 1003


def values() -> torch.Tensor:
    spread = torch.from_numpy(np.random.default_rng(7).standard_normal(COUNT).astype(np.float32)) * 12
    spread[:8] = torch.tensor([0.0, -0.0, 20.0, 20.000002, -90.0, 100.0, torch.inf, torch.nan])
    return spread


@pytest.mark.parametrize("name", [*FUNCTIONS, *BUILDING_BLOCKS])
def test_result_does_not_depend_on_the_place(name: str) -> None:
    f: Callable[[torch.Tensor], torch.Tensor] = {**FUNCTIONS, **BUILDING_BLOCKS}[name]
    x = values()
    whole = f(x)
    assert same_bits(torch.cat([f(x[i : i + 1]) for i in range(COUNT)]), whole)
    for shift in range(1, 17):
        view = torch.empty(COUNT + shift)[shift:].copy_(x)
        assert same_bits(f(view), whole)
        assert same_bits(f(x[shift:]), whole[shift:])
    column = torch.zeros(COUNT, 3)
    column[:, 1] = x
    assert same_bits(f(column[:, 1]), whole)
    assert same_bits(f(x[:1000].view(40, 25).t()), whole[:1000].view(40, 25).t())
    assert same_bits(f(x[:1000].view(40, 25)[:, 3:20]), whole[:1000].view(40, 25)[:, 3:20])
    many = x.repeat(100)  # long enough for torch to use several threads
    assert same_bits(f(many), whole.repeat(100))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_accuracy(name: str) -> None:
    x = values()
    x = x[x.isfinite()]
    wide = x.double().numpy()
    want = {
        "exp": np.exp(wide),
        "sigmoid": 1 / (1 + np.exp(-wide)),
        "softplus": np.logaddexp(0, wide),
    }[name]
    got = FUNCTIONS[name](x).double().numpy()
    normal = (np.abs(want) > 1e-37) & (np.abs(want) < 3e38)
    np.testing.assert_allclose(got[normal], want[normal], rtol=4 * 2.0**-23)


def test_edges() -> None:
    inf, nan = torch.inf, torch.nan
    x = torch.tensor([inf, -inf, nan, 0.0, -0.0, -200.0])
    assert portable.sigmoid(x).nan_to_num(7).tolist() == [1, 0, 7, 0.5, 0.5, 0]
    assert portable.softplus(x).nan_to_num(7, posinf=inf).tolist()[:3] == [inf, 0, 7]
    linear = torch.tensor([20.000002, 60.0, 100.0, 3e38])  # exp(100) overflows
    assert portable.softplus(linear).equal(linear)
    below = portable.softplus(torch.tensor([19.0, 20.0])).double()
    assert below.tolist() == pytest.approx([19 + np.log1p(np.exp(-19.0)), 20.0], rel=1e-7)
    x = torch.tensor([1.0])
    portable.sigmoid(x)
    assert x.item() == 1.0  # the argument is left alone


@pytest.mark.parametrize("width", [1, 2, 3, 7, 64, 65, 1280])
def test_tree_sum_adds_halves(width: int) -> None:
    x = torch.randn(9, width)

    def fold(row: list[np.float32]) -> np.float32:
        while len(row) > 1:
            half = len(row) // 2
            row = [a + b for a, b in zip(row[:half], row[half : 2 * half], strict=True)] + row[2 * half :]
        return row[0]

    want = torch.tensor([[fold(list(row.numpy()))] for row in x])
    assert common.tree_sum(x).equal(want)
    strided = torch.zeros(9, width + 5)[:, 2 : 2 + width].copy_(x)
    assert common.tree_sum(strided).equal(want)
    assert torch.cat([common.tree_sum(row[None]) for row in x]).equal(want)
    assert common.tree_sum(x[:0]).shape == (0, 1)


def test_finish_copies_into_out() -> None:
    value = (torch.randn(2, 3), torch.full((2, 3), 0x7F, dtype=torch.uint8).view(torch.float8_e4m3fn))
    assert common.finish(value, None) is value
    out = (torch.empty(2, 3), torch.empty(2, 3, dtype=torch.float8_e4m3fn))
    got = common.finish(value, out)
    assert got is out and same_bits(got, value)
    assert same_bits(common.finish(value[0], out[0]), value[0])
