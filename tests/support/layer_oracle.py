"""Dense layers, routing and Engram by their definitions, in numpy float64 or plain Python integers.

Shares no code with the project but the limits of the numerics classes. Where rounding matters, functions return the
value and the sum of the magnitudes of its terms, from which `check_accumulated` derives how far an fp32 sum may be off.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from cache_oracle import E2M1, E4M3
from deepinfer.ops.numerics import Accumulated

Floats = npt.NDArray[np.float64]
POSITIVE = E4M3[:127]  # ascending
GATE_FLOOR = 1e-6


def f64(x: torch.Tensor) -> Floats:
    """Values of a tensor of any dtype; E4M3 decoded by table."""
    if x.dtype == torch.float8_e4m3fn:
        return E4M3[x.view(torch.uint8).numpy()]
    return x.double().numpy()


def power(scale: torch.Tensor) -> Floats:
    """2^(b-127) of E8M0 bytes, NaN for 255."""
    b = scale.numpy().astype(np.float64)
    return np.where(b == 255, np.nan, 2.0 ** (b - 127))


def nearest(x: Floats, values: Floats) -> npt.NDArray[np.int64]:
    """Index of the nearest of ascending non-negative values; halfway goes to the even index, beyond the last to it."""
    right = np.clip(np.searchsorted(values, x), 1, len(values) - 1)
    left = right - 1
    below, above = x - values[left], values[right] - x
    take_right = (above < below) | ((above == below) & (right % 2 == 0))
    return np.where(take_right, right, left)


def signed_codes(x: Floats, values: Floats, sign_bit: int) -> npt.NDArray[np.uint8]:
    """Codes of signed values, sign of zero kept."""
    return (nearest(np.abs(x), values) | np.where(np.signbit(x), sign_bit, 0)).astype(np.uint8)


def scale_exponent(amax: float, limit: int) -> int:
    """Smallest e with limit * 2^e >= amax, by exact search."""
    e = -160
    while limit * 2.0**e < amax:
        e += 1
    return e


def q8(x: Floats) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Codes and scale bytes of rows [n, K] of fp32 values, groups of 32."""
    groups = x.reshape(x.shape[0], -1, 32)
    codes = np.empty(groups.shape, np.uint8)
    scale = np.empty(groups.shape[:2], np.uint8)
    for index in np.ndindex(*groups.shape[:2]):
        group = groups[index]
        if not np.isfinite(group).all():
            codes[index], scale[index] = 0x7F, 255
            continue
        e = scale_exponent(max(np.abs(group).max(), float(np.float32(1e-4))), 448)
        codes[index], scale[index] = signed_codes(group * 2.0**-e, POSITIVE, 0x80), e + 127
    return codes.reshape(x.shape), scale


def fp8(codes: torch.Tensor, scale: torch.Tensor) -> Floats:
    """Values of codes [..., K] with one scale per 32 channels."""
    return f64(codes) * np.repeat(power(scale), 32, axis=-1)


def fp8_blocks(codes: torch.Tensor, scale: torch.Tensor) -> Floats:
    """Values of a weight [N, K] with one scale per 32 x 32 block."""
    rows = np.repeat(np.repeat(power(scale), 32, axis=-2), 32, axis=-1)
    return f64(codes) * rows[..., : codes.shape[-2], :]


def fp4(packed: torch.Tensor, scale: torch.Tensor) -> Floats:
    """Values of packed codes [..., K/2] with one scale per 32 channels."""
    byte = packed.numpy()
    values = np.stack((E2M1[byte & 15], E2M1[byte >> 4]), axis=-1).reshape(*byte.shape[:-1], -1)
    return values * np.repeat(power(scale), 32, axis=-1)


def product(x: Floats, w: Floats) -> tuple[Floats, Floats]:
    """x @ w.T and the sums of magnitudes."""
    with np.errstate(invalid="ignore"):
        return x @ w.T, np.abs(x) @ np.abs(w).T


def check_accumulated(got: torch.Tensor, want: Floats, magnitude: Floats, terms: int) -> None:
    """|got - want| within the limit of the accumulated class, element by element; NaN where want is."""
    value = f64(got)
    assert value.shape == want.shape
    np.testing.assert_array_equal(np.isnan(value), np.isnan(want))
    bound = Accumulated.limit(terms, *map(torch.as_tensor, (magnitude, want)), got.dtype).numpy()
    with np.errstate(invalid="ignore"):
        excess = np.abs(value - want) / bound
    worst = np.nanmax(excess, initial=0.0)
    assert worst <= 1, f"error is {worst:.3g} times the bound"


def rms_norm(x: Floats, w: Floats, eps: float) -> Floats:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w


def sigmoid(x: Floats) -> Floats:
    return 1 / (1 + np.exp(-x))


def rope(x: Floats, positions: Sequence[int], table: Floats, inverse: bool) -> Floats:
    """Element by element, [T, h, d]."""
    y = x.copy()
    first = x.shape[-1] - 2 * table.shape[1]
    for t, position in enumerate(positions):
        for i, (c, s) in enumerate(table[position]):
            s = -s if inverse else s
            a, b = x[t, :, first + 2 * i], x[t, :, first + 2 * i + 1]
            y[t, :, first + 2 * i], y[t, :, first + 2 * i + 1] = a * c - b * s, a * s + b * c
    return y


def sinkhorn(logits: Floats, eps: float, iterations: int) -> Floats:
    """One matrix [m, m]."""
    c = np.exp(logits - logits.max(1, keepdims=True))
    c = c / c.sum(1, keepdims=True) + eps
    c = c / (c.sum(0, keepdims=True) + eps)
    for _ in range(iterations - 1):
        c = c / (c.sum(1, keepdims=True) + eps)
        c = c / (c.sum(0, keepdims=True) + eps)
    return c


def hc_coefficients(
    x: Floats, fn: Floats, base: Floats, scale: Floats, norm_eps: float, hc_eps: float, iterations: int
) -> tuple[Floats, Floats, Floats]:
    rows, m, _ = x.shape
    flat = x.reshape(rows, m * x.shape[2])
    mix = flat @ fn.T / np.sqrt((flat * flat).mean(1, keepdims=True) + norm_eps)
    pre = sigmoid(mix[:, :m] * scale[0] + base[:m]) + hc_eps
    post = 2 * sigmoid(mix[:, m : 2 * m] * scale[1] + base[m : 2 * m])
    raw = (mix[:, 2 * m :] * scale[2] + base[2 * m :]).reshape(rows, m, m)
    return pre, post, np.array([sinkhorn(c, hc_eps, iterations) for c in raw]).reshape(rows, m, m)


def route(logits: Floats, bias: Floats, k: int, scaling: float) -> tuple[list[int], Floats]:
    """Experts and weights of one row, in descending key, ties to the lower id; NaN keys last."""
    s = np.sqrt(np.where(logits > 20, logits, np.log1p(np.exp(np.minimum(logits, 20)))))
    key = s + bias
    order = sorted(range(len(key)), key=lambda e: (np.isnan(key[e]), -np.inf if np.isnan(key[e]) else -key[e], e))[:k]
    chosen = s[order]
    return order, chosen / (chosen.sum() + 1e-20) * scaling


def swiglu(gate_up: Floats, weight: Floats | None, limit: float) -> Floats:
    g, u = np.split(gate_up, 2, axis=1)
    g, u = np.minimum(g, limit), np.clip(u, -limit, limit)
    return g * sigmoid(g) * u * (1 if weight is None else weight[:, None])


def engram_rows(
    ngram: Sequence[int],
    lookup: Sequence[int],
    multipliers: Sequence[int],
    primes: Sequence[int],
    offsets: Sequence[int],
    pad: int,
) -> list[int]:
    """Table rows of one token, in Python integers."""
    ids, broken = [], False
    for raw in ngram:
        broken = broken or not 0 <= raw < len(lookup)
        ids.append(pad if broken else lookup[raw])
    heads = len(primes) // (len(ids) - 1)
    state, rows = ids[0] * multipliers[0], []
    for i in range(1, len(ids)):
        state ^= ids[i] * multipliers[i]
        for j in range((i - 1) * heads, i * heads):
            rows.append(state % primes[j] + offsets[j])
    return rows


def engram_gate(x: Floats, kv: Floats, qw: Floats, kw: Floats, eps: float) -> Floats:
    rows, m, width = x.shape
    kv = kv.reshape(rows, m + 1, width)
    key, value = kv[:, :m], kv[:, m:]
    dot = (x * (qw * kw) * key).sum(-1, keepdims=True) * width**-0.5
    dot = dot / np.sqrt((x * x).mean(-1, keepdims=True) + eps) / np.sqrt((key * key).mean(-1, keepdims=True) + eps)
    return x + sigmoid(np.copysign(np.sqrt(np.maximum(np.abs(dot), GATE_FLOOR)), dot)) * value


def same_bits(a: Any, b: Any) -> bool:
    """Bit equality of tensors or tuples of tensors. All NaN count as equal: which operand's payload survives an
    addition is the compiler's choice, so no result may depend on it."""
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same_bits, a, b))
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype in (torch.bfloat16, torch.float32):
        a, b = (x.masked_fill(x.isnan(), torch.nan) for x in (a, b))
    bits = [x.contiguous().flatten().view(torch.uint8) for x in (a, b) if x.numel()]
    return not bits or bits[0].equal(bits[1])
