"""Exponential, sigmoid and softplus against float64, within the roundings that the classes count for them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

import triton.language as tl

from bounds import U32
from deepinfer.backends.cuda import portable_elementary as elementary
from deepinfer.backends.cuda.jit import INTERPRETED, jit

DEVICE = "cpu" if INTERPRETED else "cuda"
pytestmark = [] if INTERPRETED or torch.cuda.is_available() else [pytest.mark.gpu]
BLOCK = 4096
SMALLEST = 2.0**-149


@jit
def apply(x_ptr, out_ptr, n, F: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    if F == "exp":
        y = elementary.exp(x)
    elif F == "sigmoid":
        y = elementary.sigmoid(x)
    elif F == "sigmoid_of_bf16":
        y = elementary.sigmoid_of_bf16(x)
    else:
        y = elementary.softplus(x)
    tl.store(out_ptr + at, y, mask=at < n)


def values(name: str, x: np.ndarray) -> np.ndarray:
    given = torch.from_numpy(x.astype(np.float32)).to(DEVICE)
    out = torch.full_like(given, torch.nan)
    apply[(-(-len(x) // BLOCK),)](given, out, len(x), F=name, BLOCK=BLOCK)
    return out.cpu().double().numpy()


def arguments() -> np.ndarray:
    count = 1 << (15 if INTERPRETED else 22)
    rng = np.random.default_rng(3)
    spread = rng.uniform(-110, 95, count), rng.standard_normal(count) * 4, np.exp(rng.uniform(-40, 4, count))
    whole = np.concatenate((*spread, -spread[2], np.arange(-110, 96) * np.log(2.0))).astype(np.float32)
    return np.concatenate((whole, np.nextafter(whole, np.float32(9e9), dtype=np.float32)[-206:]))


@pytest.mark.parametrize(("name", "roundings"), [("exp", 4), ("sigmoid", 6), ("softplus", 8)])
def test_errors(name: str, roundings: int) -> None:
    x = arguments()
    wide = x.astype(np.float64)
    with np.errstate(over="ignore"):
        want = {
            "exp": np.exp(wide),
            "sigmoid": np.where(wide < -88.72283, 0.0, 1 / (1 + np.exp(-wide))),
            "softplus": np.where(wide > 20, wide, np.log1p(np.exp(wide))),
        }[name]
    got = values(name, x)
    finite = want < 3.4028e38
    assert np.isfinite(got[finite]).all()
    assert np.isinf(got[want > 3.41e38]).all()
    # Results below the normal numbers have a step of their own; there a sigmoid may be 0.
    step = 2 * SMALLEST if name != "sigmoid" else 2.0**-126
    used = np.abs(got - want)[finite] / (roundings * U32 * want[finite] + step)
    worst = used.argmax()
    print(f"{name}: {used[worst]:.2f} of {roundings} roundings, at {x[finite][worst]}")
    assert used[worst] <= 1


def test_sigmoid_of_every_bf16() -> None:
    """And of fp32 numbers above -4, such as a limit."""
    codes = np.arange(1 << 16, dtype=np.uint32) << 16
    some = np.random.default_rng(4).uniform(-4, 30, 4096).astype(np.float32)
    x = np.concatenate((codes.view(np.float32), some, np.float32([3.4e38])))
    with np.errstate(over="ignore", invalid="ignore"):
        want = np.where(x < -88.72283, 0.0, 1 / (1 + np.exp(-x.astype(np.float64))))
    got = values("sigmoid_of_bf16", x)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(x))
    there = ~np.isnan(x)
    used = np.abs(got - want)[there] / (6 * U32 * want[there] + 2.0**-126)
    worst = used.argmax()
    print(f"sigmoid_of_bf16: {6 * used[worst]:.2f} of 6 roundings, at {x[there][worst]}")
    assert used[worst] <= 1
    assert (got[x < -100] == 0).all() and not np.signbit(got[there]).any()


def test_ends() -> None:
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30, -1e30])
    np.testing.assert_array_equal(values("exp", x), [np.nan, np.inf, 0, 1, 1, np.inf, 0])
    np.testing.assert_array_equal(values("sigmoid", x), [np.nan, 1, 0, 0.5, 0.5, 1, 0])
    found = values("softplus", x)
    assert np.isnan(found[0]) and found[1] == np.inf and found[2] == found[6] == 0 and found[5] == np.float32(1e30)
    np.testing.assert_allclose(found[3:5], np.log(2.0), rtol=8 * U32)
