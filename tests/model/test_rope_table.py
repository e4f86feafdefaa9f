import math

import numpy as np
import pytest

from deepinfer.hal import errors
from deepinfer.model import rope_table

RELEASED = {"factor": 16, "beta_fast": 32, "beta_slow": 1, "original_max_position": 65536}


def test_yarn_spot_values() -> None:
    frequencies = rope_table.yarn_frequencies(64, 160000, **RELEASED)
    assert frequencies.dtype == np.float32 and frequencies.shape == (32,)
    spots = {
        0: 1.0, 15: 3.6355385e-3, 16: 2.265625e-3, 20: 2.9697779e-4, 24: 1.9531253e-5, 25: 5.3723124e-6,
        31: 5.6805294e-7,
    }  # fmt: skip
    for pair, value in spots.items():
        # Half a unit of the eighth digit: fp32 steps agree with it, float64 ones do not (24, 25, 31).
        assert frequencies[pair] == pytest.approx(value, rel=6e-8), pair


def test_yarn_leaves_fast_pairs_and_slows_the_last_by_factor() -> None:
    frequencies = rope_table.yarn_frequencies(64, 160000, **RELEASED)
    plain = rope_table.plain_frequencies(64, 160000)
    assert np.array_equal(frequencies[:16], plain[:16])
    assert np.all(frequencies[16:] < plain[16:])
    assert np.allclose(frequencies[25:] * 16, plain[25:], rtol=3e-7)


def test_yarn_with_equal_ends_of_the_ramp_is_finite() -> None:
    frequencies = rope_table.yarn_frequencies(
        8, 160000, factor=16, beta_fast=4, beta_slow=4 - 1e-9, original_max_position=4
    )
    assert np.isfinite(frequencies).all() and (frequencies > 0).all()


def test_plain_frequencies() -> None:
    frequencies = rope_table.plain_frequencies(16, 10000)
    expected = [10000 ** (-2 * i / 16) for i in range(8)]
    assert frequencies.dtype == np.float32
    assert np.allclose(frequencies, expected, rtol=2e-7)
    assert frequencies[0] == 1.0


@pytest.mark.parametrize("dim", [0, -2, 7])
def test_odd_dimension_is_refused(dim: int) -> None:
    with pytest.raises(errors.ConfigError, match="qk_rope_head_dim"):
        rope_table.plain_frequencies(dim, 10000)


def test_table_is_the_rounded_cosine_of_the_fp32_angle() -> None:
    frequencies = rope_table.yarn_frequencies(64, 160000, **RELEASED)
    table = rope_table.rope_table(frequencies, 70001)
    assert table.dtype == np.float32 and table.shape == (70001, 32, 2)
    for position, pair in [(0, 0), (1, 0), (1, 31), (4097, 3), (70000, 1), (70000, 24)]:
        angle = float(np.float32(position) * frequencies[pair])
        assert table[position, pair, 0] == np.float32(math.cos(angle))
        assert table[position, pair, 1] == np.float32(math.sin(angle))
    assert np.array_equal(table[0], np.stack([np.ones(32), np.zeros(32)], axis=1))


def test_table_rounds_the_angle_to_fp32_first() -> None:
    frequencies = rope_table.plain_frequencies(64, 10000)
    table = rope_table.rope_table(frequencies, 65536)
    exact = np.cos(np.float64(65535) * frequencies.astype(np.float64)).astype(np.float32)
    assert not np.array_equal(table[65535, :, 0], exact)


def test_table_of_no_positions_and_of_too_many() -> None:
    frequencies = rope_table.plain_frequencies(16, 10000)
    assert rope_table.rope_table(frequencies, 0).shape == (0, 8, 2)
    with pytest.raises(errors.InvalidArgumentError, match="positions"):
        rope_table.rope_table(frequencies, 2**24 + 1)
