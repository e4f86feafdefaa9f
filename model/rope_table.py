"""Rotary frequencies and cos/sin tables, by numpy on the host.
 Two kinds of layers: ratio 0 and draft layers rotate with plain frequencies of `rope_theta`; ratio 1 and 2
layers with YaRN-scaled frequencies of `compress_rope_theta` (plain ones when the configuration has no
`rope_scaling`). The YaRN amplitude factor is 1.
 The frequencies are fp32 numbers computed by fp32 steps in a fixed order, because models were trained with
them so: the last bits matter at positions near 10**6. Powers are taken in float64 and rounded, which every
platform agrees on.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from ..hal import errors

Float32Array = npt.NDArray[np.float32]


def plain_frequencies(rope_dim: int, theta: float) -> Float32Array:
    """`theta ** (-2 i / rope_dim)` for i = 0 .. rope_dim/2 - 1; fp32 [rope_dim / 2], radians per position."""
    _check_dim(rope_dim)
    return np.float32(1.0) / _powers(rope_dim, theta)


def yarn_frequencies(
    rope_dim: int,
    theta: float,
    *,
    factor: float,
    beta_fast: float,
    beta_slow: float,
    original_max_position: int,
) -> Float32Array:
    """YaRN frequencies; fp32 [rope_dim / 2], radians per position.

    Pairs that turn at least `beta_fast` times over the original context keep their frequency, pairs that
    turn at most `beta_slow` times are slowed by `factor`, with a linear ramp between.
    """
    _check_dim(rope_dim)

    def pair_of(turns: float) -> float:
        return rope_dim * math.log(original_max_position / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low = float(max(math.floor(pair_of(beta_fast)), 0))
    high = float(min(math.ceil(pair_of(beta_slow)), rope_dim - 1))
    if low == high:
        high += 0.001
    one = np.float32(1.0)
    pairs = np.arange(rope_dim // 2, dtype=np.float32)
    keep = one - np.clip((pairs - np.float32(low)) / np.float32(high - low), np.float32(0.0), one)
    powers = _powers(rope_dim, theta)
    blend: Float32Array = (one / (np.float32(factor) * powers)) * (one - keep) + (one / powers) * keep
    return blend


def rope_table(frequencies: Float32Array, positions: int) -> Float32Array:
    """cos and sin of every position: fp32 [positions, rope_dim / 2, 2], cos first.

    The angle is the fp32 product of the fp32 position and the fp32 frequency (it is part of the model: at
    position 2**20 it differs from the exact product by up to 0.03); its cosine and sine are evaluated in
    float64 and rounded once, so the table does not depend on a vector math library.
    """
    if not 0 <= positions <= 2**24:
        raise errors.InvalidArgumentError("positions", positions, "0 to 2**24, the integers that fp32 holds exactly")
    place = np.arange(positions, dtype=np.float32)
    angle = (place[:, None] * frequencies.astype(np.float32)[None, :]).astype(np.float64)
    table = np.empty((*angle.shape, 2), dtype=np.float32)
    table[..., 0] = np.cos(angle)
    table[..., 1] = np.sin(angle)
    return table


def _powers(rope_dim: int, theta: float) -> Float32Array:
    exponents = np.arange(0, rope_dim, 2, dtype=np.float32) / np.float32(rope_dim)
    return (np.float64(theta) ** exponents.astype(np.float64)).astype(np.float32)


def _check_dim(rope_dim: int) -> None:
    if rope_dim <= 0 or rope_dim % 2:
        raise errors.ConfigError("qk_rope_head_dim", rope_dim, "must be even and positive")
