"""Resampling of 8-bit images in the arithmetic that the model's images are made with.

Cubic: a = -0.75, four taps however much the image shrinks, fixed point with 11 bits (OpenCV's INTER_CUBIC).
Area: each pixel is the mean of the area that it covers (INTER_AREA).
Arrays are uint8 of shape [height, width, channels].
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]

_A = np.float32(-0.75)
_BITS = 11
_BAND = 256  # rows at a time, so that the products stay small


def _cubic_taps(source: int, target: int) -> tuple[NDArray[np.intp], NDArray[np.int32]]:
    """Source index and weight, in units of 2**-11, of the four taps of each target pixel: two arrays [target, 4]."""
    places = ((np.arange(target) + 0.5) * (source / target) - 0.5).astype(np.float32)
    first = np.floor(places)
    x = places - first
    far, near, one = x + 1, 1 - x, np.float32(1)
    w0 = ((_A * far - 5 * _A) * far + 8 * _A) * far - 4 * _A
    w1 = ((_A + 2) * x - (_A + 3)) * x * x + 1
    w2 = ((_A + 2) * near - (_A + 3)) * near * near + 1
    weights = np.stack([w0, w1, w2, one - w0 - w1 - w2], axis=1)
    index = first.astype(np.intp)[:, None] + np.arange(-1, 3)
    return np.clip(index, 0, source - 1), np.rint(weights * (1 << _BITS)).astype(np.int32)


def resize_cubic(pixels: Pixels, width: int, height: int) -> Pixels:
    """`pixels` scaled to `width` × `height`."""
    rows, columns, channels = pixels.shape
    if (columns, rows) == (width, height):
        return pixels
    index, weights = _cubic_taps(columns, width)
    across = np.empty((rows, width, channels), np.int32)
    for top in range(0, rows, _BAND):
        band = pixels[top : top + _BAND]
        across[top : top + _BAND] = sum(band[:, index[:, k]] * weights[:, k, None] for k in range(4))
    index, weights = _cubic_taps(rows, height)
    result = np.empty((height, width, channels), np.uint8)
    for top in range(0, height, _BAND):
        taps, factors = index[top : top + _BAND], weights[top : top + _BAND]
        shares = factors.astype(np.float32) * np.float32(2.0 ** (-2 * _BITS))
        # In single precision, the last tap first: a result close to a half rounds as it does in the original.
        total = np.zeros((), np.float32)
        for k in (3, 2, 1, 0):
            total = across[taps[:, k]].astype(np.float32) * shares[:, k, None, None] + total
        result[top : top + _BAND] = np.clip(np.rint(total), 0, 255)
    return result


def _area_taps(source: int, target: int) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    """Source index and share of each source pixel that a target pixel covers: two arrays [target, taps]."""
    scale = source / target
    taps = math.ceil(scale) + 1
    start = np.arange(target) * scale
    cell = np.minimum(scale, source - start)
    index = np.floor(start).astype(np.intp)[:, None] + np.arange(taps)
    end = (start + scale)[:, None]
    covered = np.minimum(end, index + 1) - np.maximum(start[:, None], index)
    covered[covered < 1e-3] = 0  # no more than rounding of the borders
    covered[index >= source] = 0
    return np.minimum(index, source - 1), (covered / cell[:, None]).astype(np.float32)


def shrink_area(pixels: Pixels, width: int, height: int) -> Pixels:
    """`pixels` scaled down to `width` × `height`, neither of them more than before."""
    rows, columns, channels = pixels.shape
    if columns == 2 * width and rows == 2 * height:
        # Halves round up here; everywhere else they round to even.
        quads = pixels.reshape(height, 2, width, 2, channels).sum(axis=(1, 3), dtype=np.uint16)
        halved: Pixels = ((quads + 2) >> 2).astype(np.uint8)
        return halved
    index, shares = _area_taps(columns, width)
    across = np.zeros((rows, width, channels), np.float32)
    for top in range(0, rows, _BAND):
        band = pixels[top : top + _BAND]
        for k in range(index.shape[1]):
            across[top : top + _BAND] += band[:, index[:, k]] * shares[:, k, None]
    index, shares = _area_taps(rows, height)
    total = np.zeros((height, width, channels), np.float32)
    for k in range(index.shape[1]):
        total += across[index[:, k]] * shares[:, k, None, None]
    result: Pixels = np.clip(np.rint(total), 0, 255).astype(np.uint8)
    return result
