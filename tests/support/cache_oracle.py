"""Cache records and attention by the definitions, in float64 or by brute force; shares no code with the project."""

from __future__ import annotations

from collections.abc import Sequence

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
    return rank.argmin(axis=-1)


def rotate(x: torch.Tensor, positions: Sequence[int], table: torch.Tensor) -> Floats:
    """Rotary embedding of bf16 [n, ..., d] at positions [n], fp32 steps, one bf16 rounding."""
    wide = x.float().numpy().copy()
    dim = 2 * table.shape[1]
    for row, position in zip(wide, positions, strict=True):
        cosine, sine = table.numpy()[position].T
        even, odd = row[..., -dim::2].copy(), row[..., -dim + 1 :: 2].copy()
        row[..., -dim::2] = even * cosine - odd * sine
        row[..., -dim + 1 :: 2] = even * sine + odd * cosine
    return torch.from_numpy(wide).bfloat16().double().numpy()


def attention(q: Floats, keys: Floats, sink: Floats, scale: float) -> tuple[Floats, Floats]:
    """One row: output [h, d] and a bound on the error of a right implementation.

    q [h, d], keys [n, d], sink [h]. The bound: bf16 rounding of the result and of every P (2**-8 each), and what fp32
    accumulation of a score of size a = scale * sum |q k| moves an exponential, (d + 2) * 2**-23 * a relative.
    """
    score = scale * q @ keys.T
    weight = np.exp(score - score.max(axis=1, keepdims=True))
    total = weight.sum(axis=1, keepdims=True) + np.exp(sink[:, None] - score.max(axis=1, keepdims=True))
    value = weight @ keys / total
    size = scale * np.abs(q) @ np.abs(keys).T
    moved = 2 * (q.shape[1] + 2) * 2.0**-23 * size.max(axis=1, keepdims=True) + len(keys) * 2.0**-23
    spread = weight @ np.abs(keys) / total
    return value, 2.0**-8 * np.abs(value) + (2.0**-8 + moved) * spread * 1.01 + 1e-37


def index_scores(query: Floats, weight: Floats, keys: Floats) -> tuple[Floats, Floats]:
    """One row: scores [n] and a bound; query [H, di], weight [H], keys [n, di]."""
    terms = weight[:, None] * np.maximum(query @ keys.T, 0)
    size = (np.abs(weight)[:, None] * (np.abs(query) @ np.abs(keys).T)).sum(axis=0)
    score = terms.sum(axis=0)
    return score, 2.0**-8 * np.abs(score) + (query.size + 1) * 2.0**-23 * size


def best(scores: Floats, k: int) -> list[int]:
    """Brute-force top-k: numbers before NaN, larger before smaller, ties to the lower index; ascending ids."""
    order = sorted(
        range(len(scores)), key=lambda i: (bool(np.isnan(scores[i])), -scores[i] if scores[i] == scores[i] else 0, i)
    )
    return sorted(order[:k])
