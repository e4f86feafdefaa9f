import numpy as np
import pytest
import torch

from deepinfer.model.presets import formats

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=np.float32)


def decode_fp4(packed: torch.Tensor, scale: torch.Tensor) -> np.ndarray:
    data = packed.view(torch.uint8).numpy()
    codes = np.stack([data & 15, data >> 4], axis=-1).reshape(len(data), -1)
    values = np.where(codes & 8, -1, 1) * E2M1[codes & 7]
    return np.ldexp(values, scale.view(torch.uint8).numpy().astype(int).repeat(32, axis=1) - 127)


def test_e2m1_rounds_ties_to_the_even_code() -> None:
    ties = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0], dtype=np.float32)
    assert E2M1[formats.e2m1(ties)].tolist() == [0, 1, 1, 2, 2, 4, 4]
    up, down = np.nextafter(ties, np.float32(9)), np.nextafter(ties, np.float32(0))
    assert formats.e2m1(up).tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert formats.e2m1(down).tolist() == [0, 1, 2, 3, 4, 5, 6]


def test_e2m1_sign_zero_and_saturation() -> None:
    values = np.array([0.0, -0.0, -1.5, 6.0, 7.0, -1e9], dtype=np.float32)
    assert formats.e2m1(values).tolist() == [0, 8, 11, 7, 7, 15]


@pytest.mark.parametrize(
    "peak, largest, exponent",
    [(448, 448, 0), (450, 448, 1), (1.75, 448, -8), (1.7578125, 448, -7), (6, 6, 0), (6.03125, 6, 1), (0, 6, -126)],
)
def test_scale_is_the_smallest_power_of_two_that_does_not_saturate(peak: float, largest: float, exponent: int) -> None:
    assert formats.scale_exponents(np.array([peak], dtype=np.float32), largest).tolist() == [exponent]


def test_fp8_blocks_with_partial_edges() -> None:
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((40, 70)).astype(np.float32)
    weight[32:, 64:] *= 1000
    data, scale = formats.fp8_blocks(weight)
    assert data.dtype == torch.float8_e4m3fn and scale.dtype == torch.float8_e8m0fnu
    assert data.shape == (40, 70) and scale.shape == (2, 3)
    exponents = scale.view(torch.uint8).numpy().astype(int) - 127
    decoded = np.ldexp(data.float().numpy(), exponents.repeat(32, 0)[:40].repeat(32, 1)[:, :70])
    step = np.ldexp(1.0, exponents.repeat(32, 0)[:40].repeat(32, 1)[:, :70])
    assert np.all(np.abs(decoded - weight) <= np.maximum(np.abs(weight) / 16, step * 2.0**-10))
    assert exponents[1, 2] > exponents[0, 0] + 6


def test_fp8_rows_scale_each_group_of_a_row() -> None:
    weight = np.ones((2, 64), dtype=np.float32)
    weight[1, 32:] = 448 * 4
    data, scale = formats.fp8_rows(weight)
    assert scale.view(torch.uint8).tolist() == [[119, 119], [119, 129]]
    assert data.float()[1, 40] == 448 and data.float()[0, 0] == 256


def test_fp4_rows_pack_the_even_channel_low() -> None:
    weight = np.zeros((2, 64), dtype=np.float32)
    weight[0, 0], weight[0, 1], weight[1, 63] = 6.0, -0.5, 24.0
    data, scale = formats.fp4_rows(weight)
    assert data.dtype == torch.int8 and data.shape == (2, 32) and scale.shape == (2, 2)
    assert data.view(torch.uint8)[0, 0] == 0x97
    assert np.array_equal(decode_fp4(data, scale), weight)


def test_fp4_rows_are_within_half_a_step() -> None:
    weight = np.random.default_rng(1).standard_normal((8, 96)).astype(np.float32)
    data, scale = formats.fp4_rows(weight)
    unit = np.ldexp(1.0, scale.view(torch.uint8).numpy().astype(int).repeat(32, axis=1) - 127)
    error = np.abs(decode_fp4(data, scale) - weight) / unit
    magnitude = np.abs(weight) / unit
    assert magnitude.max() <= 6
    assert np.all(error <= np.select([magnitude <= 2, magnitude <= 4], [0.25, 0.5], 1.0))


def test_bf16_rounds_to_even() -> None:
    values = np.array([1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20], dtype=np.float32)
    assert formats.bf16(values).float().tolist() == [1.0, 1 + 2**-6, 1 + 2**-7]
