"""Exact building blocks of the sampling ops: fixed-point weights, the order of tokens, sums over the vocabulary."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from .portable_math import LOG2E, constant, exp2, integer

ONE = 1 << 31
"""Weight of a row's most likely token."""

SEGMENT, LANES = 8192, 1024

_ONE = constant(float(ONE))
_ZERO = constant(0.0)
_SIGN, _MAGNITUDE = integer(31), integer(0x7FFFFFFF)
_LOW = 0xFFFFFFFF
_LOW_MASK, _HALF = integer(_LOW, torch.int64), integer(32, torch.int64)


def rate(inv_temperature: Tensor) -> Tensor:
    """log2(e) / T per row; +inf marks a greedy row."""
    return inv_temperature * LOG2E


def exponents(logits: Tensor, largest: Tensor, scale: Tensor | None) -> Tensor:
    """Base-2 exponent of each token relative to the row's most likely one: (z - max) * scale, <= 0.

    A token equal to the maximum has 0 even where the maximum or the scale is infinite.

    Args:
        logits: [L, V] f32.
        largest: [L] f32, row maximum.
        scale: [L] f32 from `rate`; None for temperature 1.
    """
    largest = largest.unsqueeze(1)
    value = (logits - largest).mul_(LOG2E if scale is None else scale.unsqueeze(1))
    return value.masked_fill_(logits == largest, 0.0)


def weights(logits: Tensor, largest: Tensor, scale: Tensor) -> Tensor:
    """[L, V] int64: 31-bit fixed-point exp((z - max)/T), truncated. Sums are exact in any order."""
    return exp2(exponents(logits, largest, scale)).mul_(_ONE).to(torch.int64)


def order_keys(logits: Tensor) -> Tensor:
    """[L, V] int64 keys, all different: larger for a larger logit, and for a lower id among equals. No NaN."""
    bits = (logits + _ZERO).view(torch.int32)  # + 0 makes the zeros one value
    bits = (bits >> _SIGN).bitwise_and_(_MAGNITUDE).bitwise_xor_(bits)
    ids = torch.arange(_LOW, _LOW - logits.shape[1], -1, device=logits.device)
    return (bits.to(torch.int64) << _HALF).bitwise_or_(ids)


def key_ids(keys: Tensor) -> Tensor:
    """Token ids (int64) of `order_keys`."""
    return _LOW_MASK - (keys & _LOW_MASK)


def share(total: Tensor, fraction: Tensor) -> Tensor:
    """floor(total * fraction / 2**31) without overflow, for total < 2**62 and fraction in [0, 2**31]."""
    return (total >> 31) * fraction + ((total & (ONE - 1)) * fraction >> 31)


def kept_mask(logits: Tensor, threshold: Tensor, last_id: Tensor) -> Tensor:
    """[L, V] bool: the tokens that a filter result keeps."""
    threshold = threshold.unsqueeze(1)
    ids = torch.arange(logits.shape[1], device=logits.device, dtype=torch.int32)
    return (logits == threshold).logical_and_(ids <= last_id.unsqueeze(1)).logical_or_(logits > threshold)


def vocabulary_sum(x: Tensor) -> Tensor:
    """[L] f32 sum of non-negative [L, V] f32 in the written tree.

    Segments of 8192 columns; in a segment, 1024 lanes add their 8 columns in order and are then folded in halves
    (512, 256, … 1); segments are added in order. Columns past V count as zeros, which add nothing.
    """
    rows, width = x.shape
    if width <= LANES:
        lanes = 1 << (width - 1).bit_length()
        return _fold(pad(x, (0, lanes - width)) if lanes > width else x).squeeze(1)
    segments = -(-width // SEGMENT)
    x = pad(x, (0, segments * SEGMENT - width)).view(rows, segments, SEGMENT // LANES, LANES)
    lane_sums = x[:, :, 0]
    for step in range(1, SEGMENT // LANES):
        lane_sums = lane_sums + x[:, :, step]
    parts = _fold(lane_sums).squeeze(2)
    total = parts[:, 0]
    for segment in range(1, segments):
        total = total + parts[:, segment]
    return total


def _fold(x: Tensor) -> Tensor:
    """Halve the last dim, a power of two, by adding its upper half to its lower one until one column is left."""
    while x.shape[-1] > 1:
        lower, upper = x.chunk(2, dim=-1)
        x = lower + upper
    return x
