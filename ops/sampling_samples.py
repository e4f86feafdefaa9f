"""Sample arguments of the sampling ops: edge rows first, then the widths of a released model.

Filter results are built here with numpy, so that no sample depends on the kernel under test.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from .spec import Sample

# One column; less than a lane row; two 128-row tiles and a tail; lanes and a tail; two segments of the summation tree
# and a tail; a released model.
WIDTHS = ((1, 3), (37, 8), (24, 261), (1000, 5), (17001, 3))
REAL = (129280, 4)
FIXED_ONE = 1 << 31

Array = NDArray[Any]


def _logits(rng: np.random.Generator, rows: int, width: int) -> Array:
    """Healthy rows and, from the end of the batch, edge rows: ties, signed zeros, bans, +inf, a NaN, nothing at all."""
    z = (rng.standard_normal((rows, width)) * 3).astype(np.float32)
    edges = ("ties", "zeros", "banned", "inf", "nan", "empty")
    for row, kind in zip(range(rows - 1, 0, -1), rng.permutation(edges), strict=False):
        place = int(rng.integers(width))
        if kind == "ties":
            z[row] = np.round(z[row])
        elif kind == "zeros":
            z[row] = np.where(rng.random(width) < 0.5, np.float32(-0.0), np.float32(0.0))
        elif kind == "banned":
            z[row, rng.random(width) < 0.7] = -np.inf
        elif kind == "inf":
            z[row, place] = np.inf
        elif kind == "nan":
            z[row, place] = np.nan
        else:
            z[row] = -np.inf
    return z


def _temperatures(rng: np.random.Generator, rows: int) -> Array:
    """Inverse temperatures; the second row is greedy."""
    t = (1.0 / rng.choice([0.2, 0.7, 1.0, 1.0, 2.0], rows)).astype(np.float32)
    t[1:2] = np.inf
    return t


def _batches(rng: np.random.Generator) -> Iterator[tuple[str, Array, Array]]:
    yield "no rows", np.zeros((0, 37), np.float32), np.zeros(0, np.float32)
    for width, rows in (*WIDTHS, REAL):
        label = f"real {rows}x{width}" if (width, rows) == REAL else f"{rows}x{width}"
        yield label, _logits(rng, rows, width), _temperatures(rng, rows)


def _kept(rng: np.random.Generator, z: Array, inverse: Array) -> tuple[Array, ...]:
    """A possible filter result with random prefix lengths: max_logit, max_id, threshold, last_id, count."""
    rows = len(z)
    max_logit, threshold = np.full((2, rows), -np.inf, np.float32)
    max_id, last_id, count = np.zeros((3, rows), np.int32)
    threshold[:], last_id[:] = np.inf, -1
    for row in range(rows):
        finite = int((z[row] > -np.inf).sum())
        if finite == 0 or np.isnan(z[row]).any():
            continue
        order = np.lexsort((np.arange(z.shape[1]), -z[row]))
        n = 1 if np.isinf(inverse[row]) else int(rng.choice([1, finite, int(rng.integers(1, finite + 1))]))
        max_logit[row], max_id[row], count[row] = z[row, order[0]] + np.float32(0), order[0], n
        threshold[row], last_id[row] = -np.inf, -1
        if n < finite:
            threshold[row], last_id[row] = z[row, order[n - 1]] + np.float32(0), order[n - 1]
    return max_logit, max_id, threshold, last_id, count


def _send(device: torch.device, *values: Any) -> tuple[Any, ...]:
    """Arrays become tensors on the device; anything else stays."""
    return tuple(torch.from_numpy(v).to(device) if isinstance(v, np.ndarray) else v for v in values)


def _ragged(rng: np.random.Generator, rows: int, width: int) -> tuple[Array, Array]:
    """Offsets and distinct ids per row; the first row is empty, and surplus entries follow the last offset."""
    ids = [rng.permutation(width)[: int(rng.integers(0, min(width, 40) + 1)) if row else 0] for row in range(rows)]
    offsets = np.cumsum([0, *map(len, ids)]).astype(np.int32)
    return offsets, np.concatenate([*ids, [width + 7, -5]]).astype(np.int32)


def adjust_logits(rng: np.random.Generator, device: torch.device) -> Iterator[Sample]:
    """Each group alone, and all together."""
    for label, z, _ in _batches(rng):
        rows, width = z.shape
        repetition = rng.choice([1.0, 1.2, 0.8], rows).astype(np.float32)
        inverse = (1.0 / repetition.astype(np.float64)).astype(np.float32)
        additive = rng.uniform(-2, 2, (2, rows)).astype(np.float32)
        offsets, ids = _ragged(rng, rows, width)
        counts = rng.integers(0, 4, len(ids), np.int32)
        penalties = (np.stack((repetition, inverse, *additive), 1), offsets, ids, counts)
        offsets, ids = _ragged(rng, rows, width)
        values = rng.uniform(-5, 5, len(ids)).astype(np.float32)
        values[rng.random(len(ids)) < 0.3] = -np.inf
        bias = (offsets, ids, values)
        mask = rng.integers(-(2**31), 2**31, (rows, -(-width // 32))).astype(np.int32)
        none4, none3 = (None,) * 4, (None,) * 3
        yield Sample(f"{label}, penalties", _send(device, z, *penalties, *none3, None))
        yield Sample(f"{label}, bias", _send(device, z, *none4, *bias, None))
        yield Sample(f"{label}, mask", _send(device, z, *none4, *none3, mask))
        yield Sample(label, _send(device, z, *penalties, *bias, mask))


def sample_filter(rng: np.random.Generator, device: torch.device) -> Iterator[Sample]:
    """No filter, each filter alone, all together, and a forced top-k."""
    for label, z, inverse in _batches(rng):
        rows, width = z.shape
        k = rng.choice([-1, 0, 1, 2, 20, width, 2**31 - 1], rows).astype(np.int32)
        p = rng.choice([0, 1, FIXED_ONE // 2, int(FIXED_ONE * 0.95), FIXED_ONE], rows).astype(np.int64)
        m = rng.choice([0, 1, FIXED_ONE // 50, FIXED_ONE], rows).astype(np.int64)
        z[2:3], p[2:3], k[2:3], m[2:3] = 0.0, FIXED_ONE // 2, 0, 0  # the share is met exactly where the width is even
        for name, filters in (
            ("unfiltered", (None, None, None, 0)), ("top-k", (k, None, None, 0)), ("top-p", (None, p, None, 0)),
            ("min-p", (None, None, m, 0)), ("all", (k, p, m, 0)), ("forced top-k", (k, p, m, max(1, width // 8))),
        ):  # fmt: skip
            yield Sample(f"{label}, {name}", _send(device, z, inverse, *filters))


def sample_draw(rng: np.random.Generator, device: torch.device) -> Iterator[Sample]:
    """Draws from random kept sets, with seeds and positions past 32 bits."""
    # Every kept score is -infinity: products past the range, and a greedy row of negative logits.
    z = np.full((3, 9), -3e38, np.float32)
    z[:2, 0], z[2] = -np.inf, [-9, -8, -7, -1, -2, -3, -4, -5, -6]
    inverse = np.array([5, 5, np.inf], np.float32)
    threshold, last_id = np.array([-np.inf, -np.inf, -1], np.float32), np.array([-1, -1, 3], np.int32)
    edges = (threshold, last_id, np.array([8, 8, 1], np.int32), np.array([1, 1, 3], np.int32))
    zeros = np.zeros(3, np.int64)
    yield Sample("scores of -infinity", _send(device, z, inverse, *edges, zeros, zeros, 0))
    for purpose, (label, z, inverse) in enumerate(_batches(rng)):
        rows = len(z)
        _, max_id, threshold, last_id, count = _kept(rng, z, inverse)
        seeds = rng.integers(-(2**63), 2**63, rows, dtype=np.int64)
        positions = rng.integers(0, 2**40, rows, dtype=np.int64)
        edges = (threshold, last_id, count, max_id)
        yield Sample(label, _send(device, z, inverse, *edges, seeds, positions, purpose % 4))


def _foreign() -> tuple[Array, ...]:
    """Invalid rows beside rows that are well, each with a filter made of another row: logits, inverse temperatures,
    threshold, last_id.

    Nothing is drawn, so that the samples that follow are the same with and without this one.
    """
    z = np.array([[0.5, -1, 2, 0.5, 3, -np.inf, 1, -2, 0.25]] * 6, np.float32)
    z[1, 3] = np.nan
    z[2] = -np.inf
    z[4, [0, 8]] = np.nan, np.inf
    z[5] = np.nan
    inverse = np.array([1, 2, 1, 0.5, np.inf, 1], np.float32)
    threshold = np.array([0.5, -np.inf, -np.inf, -np.inf, 0.5, -np.inf], np.float32)
    return z, inverse, threshold, np.array([0, -1, -1, -1, 3, -1], np.int32)


def token_logprobs(rng: np.random.Generator, device: torch.device) -> Iterator[Sample]:
    """Raw, tempered, and filtered; the first row has no token."""
    z, inverse, threshold, last_id = _foreign()
    tokens = np.array([4, 4, 4, 2, 8, 0], np.int32)
    yield Sample("invalid rows, raw", _send(device, z, tokens, None, None, None))
    yield Sample("invalid rows, tempered", _send(device, z, tokens, inverse, None, None))
    yield Sample("invalid rows, other filters", _send(device, z, tokens, inverse, threshold, last_id))
    for label, z, inverse in _batches(rng):
        _, _, threshold, last_id, _ = _kept(rng, z, inverse)
        tokens = rng.integers(0, z.shape[1], len(z)).astype(np.int32)
        tokens[:1] = -1
        yield Sample(f"{label}, raw", _send(device, z, tokens, None, None, None))
        yield Sample(f"{label}, tempered", _send(device, z, tokens, inverse, None, None))
        yield Sample(label, _send(device, z, tokens, inverse, threshold, last_id))


def smaller_mass(rng: np.random.Generator, device: torch.device) -> Iterator[Sample]:
    """Random tokens against random kept sets; the first row has no token, the last one its most likely one."""
    for label, z, inverse in _batches(rng):
        z[-1:] = rng.standard_normal(z[-1:].shape)
        max_logit, _, threshold, last_id, _ = _kept(rng, z, inverse)
        tokens = rng.integers(0, z.shape[1], len(z)).astype(np.int32)
        tokens[-1:] = z[-1:].argmax(1)
        tokens[:1] = -1
        yield Sample(label, _send(device, z, inverse, max_logit, threshold, last_id, tokens))


def top_logprobs(rng: np.random.Generator, device: torch.device) -> Iterator[Sample]:
    """Lists of none, one, some, and more places than tokens."""
    z, inverse, threshold, last_id = _foreign()
    yield Sample("invalid rows, raw, k 20", _send(device, z, None, None, None, 20))
    yield Sample("invalid rows, other filters, k 50", _send(device, z, inverse, threshold, last_id, 50))
    for label, z, inverse in _batches(rng):
        _, _, threshold, last_id, _ = _kept(rng, z, inverse)
        for k in (0, 1, 20):
            yield Sample(f"{label}, raw, k {k}", _send(device, z, None, None, None, k))
        yield Sample(f"{label}, k 50", _send(device, z, inverse, threshold, last_id, 50))
