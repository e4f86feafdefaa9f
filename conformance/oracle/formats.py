"""Number formats and cache records by their definitions: tables and whole-table searches, in numpy.

Shares no code with the ops or the backends.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

Floats = npt.NDArray[np.float64]
Bytes = npt.NDArray[np.uint8]


def _e4m3(byte: int) -> float:
    exponent, mantissa = (byte >> 3) & 15, byte & 7
    if byte & 0x7F == 0x7F:
        return np.nan
    value = mantissa / 8 * 2.0**-6 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)
    return -value if byte & 0x80 else value


E4M3 = np.array([_e4m3(b) for b in range(256)])
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
POSITIVE = E4M3[:127]
"""Finite magnitudes of E4M3, ascending."""


def f64(x: torch.Tensor) -> Floats:
    """Values of a tensor of any dtype; E4M3 decoded by table."""
    if x.dtype == torch.float8_e4m3fn:
        return np.asarray(E4M3[x.view(torch.uint8).numpy()])
    return np.asarray(x.double().numpy())


def power(scale: torch.Tensor) -> Floats:
    """2^(b-127) of E8M0 bytes, NaN for 255."""
    b = scale.numpy().astype(np.float64)
    return np.where(b == 255, np.nan, 2.0 ** (b - 127))


def decode(record: Bytes, kind: str) -> Floats:
    """Channels of records [..., bytes]: data, then scales."""
    if kind == "fp8_32":
        channels = record.shape[-1] * 32 // 33
        data, scale = E4M3[record[..., :channels]], 2.0 ** (record[..., channels:].astype(float) - 127)
        return data * np.repeat(scale, 32, axis=-1)
    group = {"fp4_16": 16, "fp4_32_index": 32}[kind]
    half = record.shape[-1] * group // (group + 2)
    codes = record[..., :half]
    data = np.stack((E2M1[codes & 15], E2M1[codes >> 4]), axis=-1).reshape(*codes.shape[:-1], 2 * half)
    scale = E4M3[record[..., half:]] if kind == "fp4_16" else 2.0 ** (record[..., half:].astype(float) - 127)
    return data * np.repeat(scale, group, axis=-1)


def encode(x: Floats, kind: str) -> Bytes:
    """Records of finite rows [n, channels]: every code by searching the whole table for the nearest value."""
    group = {"fp8_32": 32, "fp4_16": 16, "fp4_32_index": 32}[kind]
    groups = x.reshape(x.shape[0], -1, group)
    amax = np.abs(groups).max(axis=-1)
    if kind == "fp4_16":
        scaled = np.minimum((np.maximum(amax, 6 * 2.0**-9).astype(np.float32) * np.float32(1 / 6)), np.float32(448))
        scale_bytes = _nearest(scaled.astype(float), E4M3[:127])
        factor = (np.float32(1) / E4M3[scale_bytes].astype(np.float32)).astype(np.float32)
        ratio = (groups.astype(np.float32) * factor[..., None]).astype(float)
    else:
        floor, top = (1e-4, 448) if kind == "fp8_32" else (6 * 2.0**-126, 6)
        exponent = np.ceil(np.log2(np.maximum(amax, floor) / top)).astype(int)
        scale_bytes = exponent + 127
        ratio = groups * 2.0 ** -exponent[..., None].astype(float)
    table = E4M3[:127] if kind == "fp8_32" else E2M1[:8]
    codes = _nearest(np.minimum(np.abs(ratio), table[-1]), table)
    codes = codes | np.where(np.signbit(ratio), 0x80 if kind == "fp8_32" else 8, 0)
    codes = codes.reshape(x.shape)
    if kind != "fp8_32":
        codes = codes[:, 0::2] | codes[:, 1::2] << 4
    return np.concatenate((codes, scale_bytes), axis=1).astype(np.uint8)


def _nearest(x: Floats, table: Floats) -> npt.NDArray[np.int64]:
    """Index of the nearest value of an ascending table, ties to the even index."""
    distance = np.abs(x[..., None] - table)
    nearest = distance == distance.min(axis=-1, keepdims=True)
    rank = np.where(nearest, np.arange(len(table)) % 2, 2)  # even before odd before the rest
    return np.asarray(rank.argmin(axis=-1))


def nearest(x: Floats, values: Floats) -> npt.NDArray[np.int64]:
    """Index of the nearest of ascending non-negative values; halfway goes to the even index, beyond the last to it."""
    right = np.clip(np.searchsorted(values, x), 1, len(values) - 1)
    left = right - 1
    below, above = x - values[left], values[right] - x
    take_right = (above < below) | ((above == below) & (right % 2 == 0))
    return np.asarray(np.where(take_right, right, left))


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
    groups = x.reshape(x.shape[0], x.shape[1] // 32, 32)
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
