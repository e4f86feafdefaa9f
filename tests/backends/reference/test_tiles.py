"""Matrix products in tiles: right, and bit-equal wherever a row stands, at any alignment and number of threads."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

import numerics_checks
from deepinfer.backends.reference import tiles
from deepinfer.conformance.oracle import formats
from deepinfer.conformance.oracle import formulas as oracle
from numerics_checks import check_accumulated

SHAPES = ((24, 512), (4, 128), (64, 128), (512, 64), (17, 96), (128, 32), (1280, 640), (33, 2304), (512, 5120))


def problem(n: int, k: int, rows: int = 40) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(n * 100003 + k)
    return tuple(torch.from_numpy(rng.standard_normal((m, k)).astype(np.float32)) for m in (rows, n))  # type: ignore


@pytest.mark.parametrize(("n", "k"), SHAPES)
def test_against_float64(n: int, k: int) -> None:
    x, w = problem(n, k)
    check_accumulated(tiles.matmul(x, w), *oracle.product(formats.f64(x), formats.f64(w)), terms=k)


@pytest.mark.parametrize(("n", "k"), SHAPES)
def test_row_is_the_same_alone_permuted_padded_and_among_nan(n: int, k: int) -> None:
    x, w = problem(n, k)
    whole = tiles.matmul(x, w)
    for row in (0, 15, 16, 39):
        assert tiles.matmul(x[row : row + 1], w).equal(whole[row : row + 1])
    order = torch.randperm(40, generator=torch.Generator().manual_seed(n))
    assert tiles.matmul(x[order], w).equal(whole[order])
    assert tiles.matmul(x[:23], w).equal(whole[:23])
    poisoned = x.clone()
    poisoned[1::2] = torch.nan
    assert tiles.matmul(poisoned, w)[::2].equal(whole[::2])


@pytest.mark.parametrize(("n", "k"), SHAPES)
def test_alignment_does_not_matter(n: int, k: int) -> None:
    x, w = problem(n, k)
    whole = tiles.matmul(x, w)
    for shift in (1, 3, 5):
        x_view = torch.empty(40 * (k + 3) + shift)[shift:].view(40, k + 3)[:, :k].copy_(x)
        w_view = torch.empty(n * k + shift)[shift:].view(n, k).copy_(w)
        assert tiles.matmul(x_view, w_view).equal(whole)


@pytest.mark.parametrize("threads", [1, 2, 3, 4, 8, 16])
def test_number_of_threads_does_not_matter_within_a_process(threads: int) -> None:
    expected = digest()
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert digest() == expected
    finally:
        torch.set_num_threads(before)


def test_number_of_threads_does_not_matter_across_processes() -> None:
    code = "import test_tiles; print(test_tiles.digest())"
    # The path of this process as well: the package may be reached through it.
    path = os.pathsep.join(
        (os.path.dirname(__file__), os.path.dirname(numerics_checks.__file__), *filter(None, sys.path))
    )
    found = set()
    for threads in ("3", "16"):
        env = os.environ | {
            "OMP_NUM_THREADS": threads,
            "MKL_NUM_THREADS": threads,
            "MKL_DYNAMIC": "FALSE",
            "PYTHONPATH": path,
            "OMP_WAIT_POLICY": "PASSIVE",
            "KMP_BLOCKTIME": "0",
        }
        done = subprocess.run([sys.executable, "-c", code], env=env, check=True, capture_output=True, text=True)
        found.add(done.stdout)
    assert found == {digest() + "\n"}


def digest() -> str:
    """Hash of the bits of all problems."""
    parts = [tiles.matmul(*problem(n, k)).numpy().tobytes() for n, k in SHAPES]
    return hashlib.sha256(b"".join(parts)).hexdigest()


def test_weights_in_chunks_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = problem(133, 96)
    whole = tiles.matmul(x, w)
    monkeypatch.setattr(tiles, "CHUNK_ELEMENTS", 32 * 96)
    asked: list[tuple[int, int]] = []

    def expand(first: int, end: int) -> torch.Tensor:
        asked.append((first, end))
        return w[first:end]

    chunked = tiles.matmul_expanded(x, 133, expand)
    assert asked == [(0, 32), (32, 64), (64, 96), (96, 128), (128, 133)]
    check_accumulated(chunked, *oracle.product(formats.f64(x), formats.f64(w)), terms=96)
    assert chunked.shape == whole.shape
    assert tiles.matmul_expanded(x[7:8], 133, expand).equal(chunked[7:8])


@pytest.mark.parametrize("k", [0, 64])
def test_no_rows_and_no_channels(k: int) -> None:
    assert tiles.matmul(torch.ones(0, k), torch.ones(5, k)).shape == (0, 5)
    assert tiles.matmul(torch.ones(3, k), torch.ones(5, k)).equal(torch.full((3, 5), float(k)))


def test_infinities_and_nan_stay_in_their_row() -> None:
    x, w = problem(20, 64)
    x[3, 5], x[9, 1] = torch.inf, torch.nan
    y = tiles.matmul(x, w)
    assert not y[3].isfinite().any() and y[9].isnan().all()
    rest = torch.ones(40, dtype=torch.bool)
    rest[[3, 9]] = False
    assert y[rest].isfinite().all()


def test_groups_start_on_tiles() -> None:
    groups, begins, places = tiles.tile_groups([0, 0, 17, 17, 18, 50])
    assert groups == [1, 3, 4]
    assert begins == [0, 32, 48, 80]
    assert places == [*range(17), 32, *range(48, 80)]
    assert tiles.tile_groups([0, 0, 0]) == ([], [0], [])
