"""Calls on vector registers, each as its documentation says; loads and stores outside UB and with a wrong alignment."""

from __future__ import annotations

import zlib
from functools import cache

import numpy as np
import pytest
import torch

import ascend_simd_calls as calls
from ascend import needs_compiler
from deepinfer.backends.ascend.sim import Kernel

pytestmark = needs_compiler


@cache
def kernel() -> Kernel:
    return Kernel(calls.text(), 1)


def operands(case: calls.Case) -> np.ndarray:
    """512 bytes with small values, both signs, equal pairs and, of unsigned words, large ones."""
    kind = np.dtype(calls.NUMPY[case.kind])
    made = np.random.default_rng(zlib.crc32(case.name.encode()))
    count = 512 // kind.itemsize
    if kind.kind == "f":
        values = made.integers(1 if case.positive else -12, 13, count) / 4
        values[values == 0] = 0.5
    else:
        low, high = (0, np.iinfo(kind).max) if kind.kind == "u" else (-100, 100)
        values = made.integers(low, high, count, endpoint=True)
    values[count // 2 :: 5] = values[: count // 2 : 5]
    return values.astype(kind)


@pytest.mark.parametrize("n", [1, 37, 64])
@pytest.mark.parametrize("case", calls.CASES, ids=lambda case: case.name)
def test_a_call(case: calls.Case, n: int) -> None:
    x, kind = operands(case), np.dtype(calls.NUMPY[case.result])
    y = torch.from_numpy(calls.FILL.copy())
    kernel()(x=torch.from_numpy(x.view(np.uint8)), y=y, what=calls.CASES.index(case), n=n)
    half = len(x) // 2
    want = case.want(x[:half], x[half:], n)
    got = y.numpy().view(kind)[: len(want)]
    if case.close:
        np.testing.assert_allclose(got, want, rtol=case.close, atol=case.close)
    else:
        np.testing.assert_array_equal(got, want.astype(kind))
    if "mask" not in case.name and "scatter" not in case.name:
        written = max(256, len(want) * kind.itemsize)
        assert (y[written:] == 0x5A).all(), "nothing else is written"
