"""fp32 matrix products whose rows do not depend on each other's number, place or content.

A matrix product from a CPU library picks its kernel, and with it the order of the sums, by the shape of the call: one
row alone and the same row among thirty differ in the last bits. So every product here is made of calls of one shape,
16 rows by a multiple of 16 columns, on freshly allocated (aligned) memory. Rows are padded with zeros, K stays as it
is. A long K is cut into blocks that are added up in order, since a library splits a long sum of few rows over its
threads, as many ways as there are threads. The order of the sum then depends on N and K alone. Tests hold this over
thread counts, alignments and positions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

TILE = 16
K_BLOCK = 256
"""Channels of one library call. Seen on an AVX-512 CPU: sums over 1280 channels and more depend on the number of
threads, sums over 512 do not."""

CHUNK_ELEMENTS = 1 << 24
"""Weights are expanded to fp32 at most this many elements at a time (64 MiB)."""

Expand = Callable[[int, int], Tensor]
"""(first row, end row) -> a fresh fp32 tensor of weight rows [end - first, K]; rows may follow up to a whole tile."""


def round_up(n: int) -> int:
    """Smallest multiple of the tile height that is at least n."""
    return -(-n // TILE) * TILE


def pad_rows(x: Tensor) -> Tensor:
    """Fresh fp32 copy of [..., M, K] with zero rows up to a multiple of 16."""
    *lead, rows, columns = x.shape
    padded = torch.empty((*lead, round_up(rows), columns), dtype=torch.float32, device=x.device)
    padded[..., :rows, :] = x
    if rows % TILE:
        padded[..., rows:, :] = 0.0
    return padded


def whole_tiles(x: Tensor) -> Tensor:
    """A fresh fp32 [..., M, K] itself if its rows fill whole tiles, else a padded copy."""
    return x if x.shape[-2] % TILE == 0 else pad_rows(x)


def multiply_tiles(x: Tensor, weight: Tensor, out: Tensor) -> None:
    """out = x @ weight.T tile by tile; all fp32, rows and N already multiples of 16, x and weight fresh copies."""
    transposed = weight.t()
    for begin in range(0, x.shape[0], TILE):
        rows, part = x[begin : begin + TILE], out[begin : begin + TILE]
        torch.mm(rows[:, :K_BLOCK], transposed[:K_BLOCK], out=part)
        for first in range(K_BLOCK, x.shape[1], K_BLOCK):
            part.addmm_(rows[:, first : first + K_BLOCK], transposed[first : first + K_BLOCK])


def matmul(x: Tensor, weight: Tensor) -> Tensor:
    """x [M, K] @ weight [N, K].T in fp32, fp32 [M, N]; inputs of any float dtype are widened first."""
    return matmul_expanded(x, weight.shape[0], lambda first, end: weight[first:end].to(torch.float32, copy=True))


def matmul_expanded(x: Tensor, n: int, expand: Expand) -> Tensor:
    """As `matmul` for a packed weight of n rows that `expand` turns into fp32, a bounded number of rows at a time.

    The cut depends on n and K only, so it does not disturb the invariance.
    """
    rows = x.shape[0]
    if rows == 0:
        return torch.empty((0, n), dtype=torch.float32, device=x.device)
    padded = pad_rows(x)
    out = torch.empty((padded.shape[0], round_up(n)), dtype=torch.float32, device=x.device)
    step = chunk_rows(x.shape[1])
    if n <= step:
        multiply_tiles(padded, whole_tiles(expand(0, n)), out)
        return out[:rows, :n]
    for first in range(0, n, step):
        end = min(n, first + step)
        part = torch.empty((padded.shape[0], round_up(end - first)), dtype=torch.float32, device=x.device)
        multiply_tiles(padded, whole_tiles(expand(first, end)), part)
        out[:, first : first + part.shape[1]] = part
    return out[:rows, :n]


def chunk_rows(columns: int) -> int:
    """Weight rows expanded at a time: a multiple of the tile height, so of the 32-row scale blocks too."""
    return max(1, CHUNK_ELEMENTS // max(columns, 1) // 32) * 32


def tile_groups(offsets: Sequence[int]) -> tuple[list[int], list[int], list[int]]:
    """Lay the row groups of a packed list out on whole tiles.

    Args:
        offsets: group g holds rows offsets[g] to offsets[g+1] - 1.

    Returns:
        the groups that have rows; for each of those its first row in the padded list; then, for each row of the list,
        its place in the padded list.
    """
    groups, begins, places = [], [], []
    position = 0
    for group in range(len(offsets) - 1):
        count = offsets[group + 1] - offsets[group]
        if count > 0:
            groups.append(group)
            begins.append(position)
            places.extend(range(position, position + count))
            position += round_up(count)
    begins.append(position)
    return groups, begins, places
