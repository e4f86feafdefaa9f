"""The written-down functions as device code: the reference's bits, and those of the document."""

from __future__ import annotations

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

import triton.language as tl

import numerics_document as document
from deepinfer.backends.cuda import portable_math as pm
from deepinfer.backends.cuda.jit import INTERPRETED, jit
from deepinfer.backends.reference import fixed_point, portable_math
from deepinfer.backends.reference.philox import draw_words
from deepinfer.backends.reference.sampling import exponentials, uniforms

DEVICE = "cpu" if INTERPRETED else "cuda"
pytestmark = [] if INTERPRETED or torch.cuda.is_available() else [pytest.mark.gpu]
BLOCK = 1 << 15


@jit
def apply(x_ptr, out_ptr, n, F: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0)
    if F == "exp2":
        y = pm.exp2(x)
    elif F == "log2":
        y = pm.log2(x)
    elif F == "race":
        y = pm.minus_log2_one_minus(x)
    elif F == "uniform":
        y = pm.uniform(x.to(tl.uint32))
    elif F == "exponential":
        y = pm.exponential(x.to(tl.uint32))
    elif F == "order":
        y = pm.order_key(x)
    else:
        y = pm.key_value(pm.order_key(x))
    tl.store(out_ptr + at, y, mask=at < n)


@jit
def weigh(x_ptr, out_ptr, exponent_ptr, n, largest, rate, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0)
    tl.store(out_ptr + at, pm.weights(x, largest, rate), mask=at < n)
    tl.store(exponent_ptr + at, pm.exponents(x, largest, rate), mask=at < n)


@jit
def words(seed_ptr, position_ptr, out_ptr, purpose, lanes, LANES: tl.constexpr):
    row = tl.program_id(0)
    lane = tl.arange(0, LANES)
    w0, w1, w2, w3 = pm.draw_words(tl.load(seed_ptr + row), tl.load(position_ptr + row), purpose, lane)
    flat = tl.interleave(tl.interleave(w0, w2), tl.interleave(w1, w3))
    at = tl.arange(0, 4 * LANES)
    tl.store(out_ptr + row * 4 * lanes + at, flat.to(tl.int64), mask=at < 4 * lanes)


def run(name: str, x: torch.Tensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    out = torch.full((len(x),), 77, dtype=dtype, device=DEVICE)
    grid = (-(-len(x) // BLOCK),)
    apply[grid](x.to(DEVICE), out, len(x), F=name, BLOCK=BLOCK, num_warps=8, enable_fp_fusion=False)
    return out.cpu()


def bits(x: torch.Tensor) -> torch.Tensor:
    return x.view(torch.int32) if x.dtype == torch.float32 else x


def random_bits(low: float, high: float, count: int = 100_003) -> torch.Tensor:
    """fp32 numbers uniform in their bit patterns between two positive numbers."""
    lo, hi = (int(np.float32(v).view(np.int32)) for v in (low, high))
    return torch.from_numpy(np.random.default_rng(5).integers(lo, hi + 1, count).astype(np.int32)).view(torch.float32)


ENDS = torch.tensor(
    [0.0, -0.0, -(2.0**-149), -(2.0**-126), -0.5, -1.5, -125.49, -125.5, -125.51, -126.0, -1e30, -torch.inf]
)


@pytest.mark.parametrize(
    ("table", "name"), [("vectors-exp2", "exp2"), ("vectors-log2", "log2"), ("vectors-exponential", "race")]
)
def test_vectors_of_the_document(table: str, name: str) -> None:
    x, y = np.array([[document.number(v) for v in row] for row in document.blocks()[table]], np.float32).T.copy()
    assert torch.equal(bits(run(name, torch.from_numpy(x))), bits(torch.from_numpy(y)))


@pytest.mark.parametrize(
    ("name", "x", "want"),
    [
        ("exp2", torch.cat((ENDS, -random_bits(2.0**-149, 127.0), -random_bits(1.0, 33.0))), portable_math.exp2),
        ("log2", torch.cat((random_bits(2.0**-126, 3e38), random_bits(0.5, 2.0))), portable_math.log2),
        ("race", random_bits(2.0**-33, 1 - 2.0**-24), portable_math.minus_log2_one_minus),
        ("race", random_bits(0.25, 1 - 2.0**-24), portable_math.minus_log2_one_minus),
    ],
    ids=["exp2", "log2", "race", "race, large"],
)
def test_functions_have_the_bits_of_the_reference(name: str, x: torch.Tensor, want: object) -> None:
    assert torch.equal(bits(run(name, x)), bits(want(x)))  # type: ignore[operator]


def test_uniform_numbers_and_exponentials_of_words() -> None:
    edges = [0, 1, 2, 2**22, 2**23 - 1, 2**23, 2**24 - 1, 2**24, 2**24 + 1, 2**25 + 1, 2**31, 2**32 - 257, 2**32 - 1]
    x = torch.tensor(edges + np.random.default_rng(3).integers(0, 2**32, 50_000).tolist())
    assert torch.equal(bits(run("uniform", x)), bits(uniforms(x)))
    want = portable_math.minus_log2_one_minus(uniforms(x))
    assert torch.equal(bits(run("exponential", x)), bits(want))


def test_order_keys_ascend_and_zeros_are_one() -> None:
    x = torch.tensor([-torch.inf, -3e38, -1.0, -(2.0**-149), -0.0, 0.0, 2.0**-149, 2.0**-126, 1.0, 3e38, torch.inf])
    keys = run("order", x, torch.int32)
    assert (keys[1:] - keys[:-1].long() >= 0).all() and keys[4] == keys[5] and len(keys.unique()) == len(x) - 1
    x = torch.cat((random_bits(1e-40, 3e38), -random_bits(1e-40, 3e38)))
    want = fixed_point.order_keys(x.unsqueeze(1)).squeeze(1) >> 32
    assert torch.equal(run("order", x, torch.int32), want.to(torch.int32))
    assert torch.equal(bits(run("value", x)), bits(x))


@pytest.mark.parametrize(
    ("largest", "rate"), [(5.0, 1.4426951), (5.0, 7.3), (-2.0, 1e-30), (3e38, 2.0), (torch.inf, 1.0)]
)
def test_weights_and_exponents(largest: float, rate: float) -> None:
    x = torch.cat((largest - random_bits(1e-30, 200.0, 5001), torch.tensor([largest, -torch.inf, -3e38])))
    out = torch.zeros(len(x), dtype=torch.int64, device=DEVICE)
    exponent = torch.zeros(len(x), device=DEVICE)
    weigh[(1,)](x.to(DEVICE), out, exponent, len(x), largest, rate, BLOCK=8192, num_warps=8, enable_fp_fusion=False)
    row, top, scale = x.unsqueeze(0), torch.tensor([largest]), torch.tensor([rate])
    assert torch.equal(out.cpu(), fixed_point.weights(row, top, scale)[0])
    assert torch.equal(bits(exponent.cpu() + 0.0), bits(fixed_point.exponents(row, top, scale)[0] + 0.0))


def test_random_words_of_the_whole_range_of_seeds_and_positions() -> None:
    seeds = torch.tensor([0, 1, 1 << 32, -1, -(1 << 63), 0, 0, 42])
    positions = torch.tensor([0, 0, 0, 1 << 40, 0, 1, 1 << 32, -1])
    for purpose in range(4):
        out = torch.zeros(len(seeds), 4 * 33, dtype=torch.int64, device=DEVICE)
        words[(len(seeds),)](seeds.to(DEVICE), positions.to(DEVICE), out, purpose, 33, LANES=64, num_warps=1)
        assert torch.equal(out.cpu(), draw_words(seeds, positions, purpose, 132))


def test_exponentials_are_those_of_the_stream() -> None:
    seeds, positions = torch.tensor([7]), torch.tensor([100])
    words_of_row = draw_words(seeds, positions, 0, 5000)[0]
    assert torch.equal(bits(run("exponential", words_of_row)), bits(exponentials(seeds, positions, 0, 5000)[0]))
