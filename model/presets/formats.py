"""Encoders of the checkpoint's number formats.
 Written with numpy and torch casts; backends have their own codecs, so that a fault in one side shows
against the other. Every encoder rounds to nearest, ties to even, and picks the smallest power-of-two scale
that does not saturate.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Float32Array = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]

BLOCK = 32
E4M3_MAX = 448.0
E2M1_MAX = 6.0
# Upper end of the interval that rounds to magnitude code 0 .. 6; on the border itself the even code wins.
_E2M1_BORDERS = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0], dtype=np.float32)


def scale_exponents(peak: Float32Array, largest: float) -> npt.NDArray[np.int32]:
    """Exponent of the smallest power of two that is at least peak / largest; a zero peak gives the
    smallest, -126."""
    mantissa, exponent = np.frexp(np.maximum(peak.astype(np.float64) / largest, 2.0**-126))
    return np.where(mantissa == 0.5, exponent - 1, exponent).astype(np.int32)


def e8m0(exponents: npt.NDArray[np.int32]) -> Tensor:
    """Exponents -> float8_e8m0fnu tensor of the same shape."""
    return torch.from_numpy((exponents + 127).astype(np.uint8)).view(torch.float8_e8m0fnu)


def fp8_blocks(weight: Float32Array) -> tuple[Tensor, Tensor]:
    """[n, k] -> e4m3 [n, k] and E8M0 scales [ceil(n/32), ceil(k/32)], one per 32 x 32 block."""
    rows, columns = weight.shape
    tall, wide = -(-rows // BLOCK), -(-columns // BLOCK)
    padded = np.zeros((tall * BLOCK, wide * BLOCK), dtype=np.float32)
    padded[:rows, :columns] = np.abs(weight)
    exponents = scale_exponents(padded.reshape(tall, BLOCK, wide, BLOCK).max(axis=(1, 3)), E4M3_MAX)
    expanded = exponents.repeat(BLOCK, axis=0).repeat(BLOCK, axis=1)[:rows, :columns]
    return _e4m3(np.ldexp(weight, -expanded)), e8m0(exponents)


def fp8_rows(weight: Float32Array) -> tuple[Tensor, Tensor]:
    """[n, k] -> e4m3 [n, k] and E8M0 scales [n, k/32], one per 32 channels of a row."""
    exponents = scale_exponents(_row_peaks(weight), E4M3_MAX)
    return _e4m3(np.ldexp(weight, -exponents.repeat(BLOCK, axis=1))), e8m0(exponents)


def fp4_rows(weight: Float32Array) -> tuple[Tensor, Tensor]:
    """[n, k] -> int8 [n, k/2], even channel in the low nibble, and E8M0 scales [n, k/32]."""
    exponents = scale_exponents(_row_peaks(weight), E2M1_MAX)
    codes = e2m1(np.ldexp(weight, -exponents.repeat(BLOCK, axis=1)))
    packed = codes[:, 0::2] | (codes[:, 1::2] << 4)
    return torch.from_numpy(packed.view(np.int8)), e8m0(exponents)


def e2m1(values: Float32Array) -> Bytes:
    """FP4 codes, uint8 of the same shape: sign in bit 3, magnitude code in bits 0..2; saturates at 6."""
    magnitude = np.abs(values)
    code = np.searchsorted(_E2M1_BORDERS, magnitude, side="left")
    tie = np.isin(magnitude, _E2M1_BORDERS) & (code % 2 == 1)
    return (code + tie).astype(np.uint8) | (np.signbit(values).astype(np.uint8) << 3)


def bf16(values: Float32Array) -> Tensor:
    """fp32 -> bfloat16 tensor of the same shape."""
    return torch.from_numpy(np.ascontiguousarray(values)).to(torch.bfloat16)


def fp32(values: Float32Array) -> Tensor:
    """fp32 tensor of the same shape."""
    return torch.from_numpy(np.ascontiguousarray(values))


def _e4m3(values: Float32Array) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values)).to(torch.float8_e4m3fn)


def _row_peaks(weight: Float32Array) -> Float32Array:
    rows, columns = weight.shape
    peaks: Float32Array = np.abs(weight).reshape(rows, columns // BLOCK, BLOCK).max(axis=2)
    return peaks
