"""Number formats: every code, every tie, the vectors of the format's definition, and what may not overflow."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from deepinfer.backends.reference import formats
from deepinfer.conformance.compare.exact import same_bits
from deepinfer.conformance.oracle.formats import E2M1, E4M3, encode, q8
from numerics_document import blocks, number

NAN, INF = float("nan"), float("inf")


def group(value: float, size: int, fill: float = 0.0) -> torch.Tensor:
    x = torch.full((1, size), fill)
    x[0, size // 2] = value
    return x


def test_e4m3_round_trip_of_every_byte() -> None:
    byte = torch.arange(256, dtype=torch.uint8)
    values = formats.decode_e4m3(byte)
    np.testing.assert_array_equal(values.numpy(), E4M3.astype(np.float32))
    back = formats.encode_e4m3(values).view(torch.uint8)
    assert back.equal(torch.where(values.isnan(), 0x7F, byte))
    assert formats.decode_e4m3(byte.view(torch.float8_e4m3fn)).nan_to_num(7).equal(values.nan_to_num(7))


def test_e4m3_rounds_halfway_to_even_and_the_neighbours_away() -> None:
    grid = E4M3[:127].astype(np.float32)
    middle = (grid[1:] + grid[:-1]) / 2
    even = np.arange(126) + np.arange(126) % 2
    below, above = np.nextafter(middle, np.float32(0)), np.nextafter(middle, np.float32(1e9))
    for x, want in ((middle, even), (below, np.arange(126)), (above, np.arange(1, 127))):
        for sign in (1, -1):
            got = formats.encode_e4m3(torch.from_numpy(sign * x.astype(np.float32))).view(torch.uint8)
            np.testing.assert_array_equal(got.numpy(), want | (128 if sign < 0 else 0))


@pytest.mark.parametrize("value", [448.0, 463.9, 464.0, 479.0, 480.0, 500.0, 1e30, INF])
def test_cast_of_values_beyond_the_largest_saturates(value: float) -> None:
    codes = formats.encode_e4m3(torch.tensor([value, -value])).view(torch.uint8)
    assert codes.tolist() == [0x7E, 0xFE]


def test_nan_of_either_sign_has_one_code() -> None:
    assert formats.encode_e4m3(torch.tensor([NAN, -NAN])).view(torch.uint8).tolist() == [0x7F, 0x7F]


def test_e2m1_ties_go_to_the_even_code() -> None:
    ties = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0])
    above, below = (torch.nextafter(ties, torch.tensor(end)) for end in (9.0, 0.0))
    assert E2M1[formats.encode_e2m1(ties).numpy()].tolist() == [0, 1, 1, 2, 2, 4, 4]
    assert E2M1[formats.encode_e2m1(above).numpy()].tolist() == [0.5, 1, 1.5, 2, 3, 4, 6]
    assert E2M1[formats.encode_e2m1(below).numpy()].tolist() == [0, 0.5, 1, 1.5, 2, 3, 4]
    assert formats.encode_e2m1(-ties).equal(formats.encode_e2m1(ties) | 8)


def test_e2m1_saturates_keeps_the_sign_of_zero_and_drops_nan() -> None:
    got = formats.encode_e2m1(torch.tensor([6.1, 1e30, INF, -INF, 0.0, -0.0, -0.2, NAN, -NAN]))
    assert got.tolist() == [7, 7, 7, 15, 0, 8, 8, 0, 0]


def test_packing_puts_the_even_channel_in_the_low_nibble() -> None:
    codes = torch.tensor([[1, 15, 0, 7]], dtype=torch.uint8)
    packed = formats.pack_e2m1(codes)
    assert packed.tolist() == [[0xF1, 0x70]]
    assert formats.unpack_e2m1(packed).tolist() == [[0.5, -6.0, 0.0, 6.0]]


def test_unpacking_every_byte() -> None:
    byte = torch.arange(256, dtype=torch.uint8).view(8, 32)
    want = E2M1[np.stack((byte.numpy() & 15, byte.numpy() >> 4), -1).reshape(8, 64)].astype(np.float32)
    got = formats.unpack_e2m1(byte).numpy()
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(want))


def test_e8m0_of_every_byte() -> None:
    got = formats.decode_e8m0(torch.arange(256, dtype=torch.uint8)).numpy()
    assert np.isnan(got[255])
    np.testing.assert_array_equal(got[:255], np.ldexp(1.0, np.arange(255) - 127).astype(np.float32))


@pytest.mark.parametrize("limit", [448, 6])
def test_scale_exponent_is_exact_for_every_mantissa(limit: int) -> None:
    mantissa = torch.arange(1 << 23, dtype=torch.int32)
    border = int(np.float32(limit).view(np.int32)) & 0x7FFFFF
    power = int(np.log2(limit))
    value = (mantissa | 130 << 23).view(torch.float32)
    byte, inverse = formats.encode_e8m0_ceil(value, float(limit))
    assert byte.equal((130 - power + (mantissa > border)).to(torch.uint8))
    assert inverse.equal(torch.where(mantissa > border, 2.0 ** (power - 4), 2.0 ** (power - 3)))


@pytest.mark.parametrize(
    ("value", "exponent"),
    [
        (0, -22),
        (1e-4, -22),
        (1.0, -8),
        (1.75, -8),
        (1.7578125, -7),
        (448, 0),
        (450, 1),
        (896, 1),
        (-896, 1),
        (6.3e-38, -22),
    ],
)
def test_fp8_scale_vectors(value: float, exponent: int) -> None:
    codes, scale = formats.quantize_fp8(group(value, 32))
    assert scale.tolist() == [[exponent + 127]]
    assert formats.dequantize_fp8(codes, scale).isfinite().all()


@pytest.mark.parametrize(
    ("value", "exponent"), [(0.75, -3), (1.0, -2), (1.5, -2), (3, -1), (6, 0), (6.03125, 1), (0, -126), (1e-38, -126)]
)
def test_fp4_power_of_two_scale_vectors(value: float, exponent: int) -> None:
    packed, scale = formats.quantize_fp4_pow2(group(value, 32))
    assert scale.tolist() == [[exponent + 127]]
    assert formats.dequantize_fp4_pow2(packed, scale).isfinite().all()


@pytest.mark.parametrize(
    ("value", "scale"),
    [(0, 2.0**-9), (1, 0.171875), (2.8125, 0.46875), (6, 1), (7, 1.125), (2688, 448), (4000, 448), (INF, 448)],
)
def test_fp4_e4m3_scale_vectors(value: float, scale: float) -> None:
    packed, byte = formats.quantize_fp4_e4m3(group(value, 16))
    assert formats.decode_e4m3(byte).tolist() == [[scale]]
    largest = formats.dequantize_fp4_e4m3(packed, byte).max().item()
    assert largest == (6 * scale if value >= 2688 else pytest.approx(value, rel=0.1))


@pytest.mark.parametrize("amax", [1e-45, 1.17e-38, 6.3e-38, 1.3e-36, 1e-30, 1e-10])
def test_groups_of_tiny_numbers_decode_near_zero(amax: float) -> None:
    """The limit of a code over such a maximum is infinite in fp32 (448 / 6.3e-38); a scale must not be made of it."""
    x = torch.full((2, 64), amax)
    x[:, 1::2] *= -1
    x[1, 32:] = 1.0  # a neighbouring group of ordinary size
    for quantize, dequantize, smallest in (
        (formats.quantize_fp8, formats.dequantize_fp8, 105),
        (formats.quantize_fp4_pow2, formats.dequantize_fp4_pow2, 1),
        (formats.quantize_fp4_e4m3, formats.dequantize_fp4_e4m3, 1),
    ):
        codes, scale = quantize(x)
        if amax < 1e-37 or quantize is not formats.quantize_fp4_pow2:
            assert (scale[0] == smallest).all() and (scale[1] >= smallest).all()
        back = dequantize(codes, scale)
        assert back.isfinite().all()
        assert (back[0].abs() <= 1.25 * amax).all() and (back[1, :32].abs() <= 1.25 * amax).all()
        assert back[1, 32:].sub(1).abs().max() <= 0.05


def test_fp4_e4m3_multiplies_by_the_rounded_reciprocal() -> None:
    """A division flips ties; look for a value where both differ and see that the product is used."""
    x = torch.randn(20000, 16).to(torch.bfloat16).float()
    packed, byte = formats.quantize_fp4_e4m3(x)
    scale = formats.decode_e4m3(byte)
    product = formats.encode_e2m1(x * (1.0 / scale))
    quotient = formats.encode_e2m1(x / scale)
    assert formats.pack_e2m1(product).equal(packed)
    assert not product.equal(quotient)


def test_fp8_of_random_rows_matches_a_search_of_the_table() -> None:
    rng = np.random.default_rng(1)
    x = (rng.standard_normal((50, 96)) * 2.0 ** rng.integers(-30, 30, (50, 1))).astype(np.float32)
    codes, scale = formats.quantize_fp8(torch.from_numpy(x))
    want_codes, want_scale = q8(x.astype(np.float64))
    np.testing.assert_array_equal(scale.numpy(), want_scale)
    np.testing.assert_array_equal(codes.view(torch.uint8).numpy(), want_codes)


def test_fp8_error_is_at_most_half_a_step_and_dequantised_values_are_bf16() -> None:
    x = torch.randn(64, 128) * 3
    for quantize, dequantize, relative in (
        (formats.quantize_fp8, formats.dequantize_fp8, 2.0**-4),
        (formats.quantize_fp4_pow2, formats.dequantize_fp4_pow2, 0.25),
        (formats.quantize_fp4_e4m3, formats.dequantize_fp4_e4m3, 0.25),
    ):
        codes, scale = quantize(x)
        back = dequantize(codes, scale)
        assert back.to(torch.bfloat16).float().equal(back)
        amax = x.unflatten(-1, (scale.shape[-1], -1)).abs().amax(-1).repeat_interleave(128 // scale.shape[-1], -1)
        smallest = 2.0**-3 if codes.dtype == torch.uint8 else 2.0**-10
        assert ((back - x).abs() <= relative * x.abs() + amax * smallest).all()


@pytest.mark.parametrize("bad", [NAN, -NAN, INF, -INF])
def test_non_finite_group_is_visible_and_alone(bad: float) -> None:
    x = torch.ones(2, 64)
    x[0, 40] = bad
    for quantize, dequantize, code in (
        (formats.quantize_fp8, formats.dequantize_fp8, 0x7F),
        (formats.quantize_fp4_pow2, formats.dequantize_fp4_pow2, 0),
    ):
        codes, scale = quantize(x)
        assert scale[0, 1] == 255
        data = codes.view(torch.uint8)
        assert (data[0, data.shape[1] // 2 :] == code).all()
        back = dequantize(codes, scale)
        assert back[0, 32:].isnan().all()
        assert back[0, :32].equal(torch.ones(32)) and back[1].equal(torch.ones(64))


def test_nan_group_of_fp4_e4m3() -> None:
    x = torch.ones(1, 32)
    x[0, 3] = NAN
    packed, scale = formats.quantize_fp4_e4m3(x)
    assert scale.tolist()[0][0] == 0x7F and (packed[0, :8] == 0).all()
    back = formats.dequantize_fp4_e4m3(packed, scale)
    assert back[0, :16].isnan().all() and back[0, 16:].isfinite().all()


def test_quantisers_take_any_leading_dims_strides_and_no_rows() -> None:
    x = torch.randn(3, 5, 96)
    wide = torch.full((3, 5, 160), NAN)
    wide[..., 7:103] = x
    for quantize, dequantize in (
        (formats.quantize_fp8, formats.dequantize_fp8),
        (formats.quantize_fp4_pow2, formats.dequantize_fp4_pow2),
        (formats.quantize_fp4_e4m3, formats.dequantize_fp4_e4m3),
    ):
        flat = quantize(x.view(15, 96))
        for view in (x, wide[..., 7:103]):
            codes, scale = quantize(view)
            assert codes.shape[:2] == scale.shape[:2] == (3, 5)
            assert same_bits((codes.flatten(0, 1), scale.flatten(0, 1)), flat)
        assert dequantize(codes, scale).shape == x.shape
        empty = quantize(x[:0])
        assert dequantize(*empty).shape == (0, 5, 96)


QUANTISERS = {
    "fp8_32": (32, formats.quantize_fp8),
    "fp4_16": (16, formats.quantize_fp4_e4m3),
    "fp4_32_index": (32, formats.quantize_fp4_pow2),
}


@pytest.mark.parametrize("row", blocks()["vectors-quantise"], ids=" ".join)
def test_groups_have_the_documented_bytes(row: list[str]) -> None:
    """And the definition of the conformance suite gives the same, where all numbers are finite."""
    kind, *listed = row[: row.index("->")]
    scale, data = row[row.index("->") + 1 :]
    size, quantize = QUANTISERS[kind]
    x = torch.full((1, size), float(number(listed[-1])))
    for place, value in (word.split(":") for word in listed[:-1]):
        x[0, int(place)] = float(number(value))
    codes, byte = quantize(x)
    assert bytes(byte.flatten().tolist()).hex() == scale
    assert bytes(codes.view(torch.uint8).flatten().tolist()).hex() == data
    if x.isfinite().all():
        assert bytes(encode(x.double().numpy(), kind)[0]).hex() == data + scale
