"""Engram: hash vectors, look-back rules, tables mapped from a file, the gate."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import numerics_checks
from deepinfer import ops
from deepinfer.backends.reference import engram  # noqa: F401  (registers the kernels)
from deepinfer.conformance.compare.exact import same_bits
from deepinfer.conformance.oracle import formats
from deepinfer.conformance.oracle import formulas as oracle
from deepinfer.conformance.oracle import moe as moe_oracle
from deepinfer.hal.errors import ContractError
from deepinfer.ops import layer_samples as make
from deepinfer.ops.spec import SPECS

CPU = torch.device("cpu")
RELEASED_MULTIPLIERS = {
    1: [76632096046245, 4839876093313, 35959672319349, 73987337458391],
    14: [67716810739261, 51510806800915, 30921347202721, 82619226485591],
}
TINY_PRIMES = {1: [257, 263, 269, 271, 277, 281], 4: [283, 293, 307, 311, 313, 317]}
TINY_MULTIPLIERS = [14831304026200453, 936705081716061, 6959601268494069, 14319439928568407]


def primes_from(start: int, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        if all(start % d for d in range(2, int(start**0.5) + 1)):
            found.append(start)
        start += 1
    return found


def hashed(
    ngrams: list[list[int]],
    multipliers: list[int],
    primes: list[int],
    vocab: int,
    pad: int = 2,
    lookup: torch.Tensor | None = None,
) -> list[list[int]]:
    table = torch.arange(vocab, dtype=torch.int32) if lookup is None else lookup
    offsets = np.cumsum((0, *primes[:-1]))
    as64 = [make.ints(v, CPU, torch.int64) for v in (multipliers, primes, offsets)]
    return ops.engram_hash(make.ints(ngrams, CPU), table, *as64, pad).tolist()  # type: ignore[no-any-return]


def test_released_hash_vectors() -> None:
    """48 primes from 16,000,000 upward: 24 for layer 1, the next 24 for layer 14."""
    primes = primes_from(16_000_000, 48)
    assert primes[:3] == [16000057, 16000079, 16000081] and primes[-1] == 16000889
    vectors = {
        1: (primes[:24], {0: 12013311, 1: 19589167, 2: 45006560, 8: 139496094, 9: 154390218, 23: 380048014}),
        14: (primes[24:], {0: 1915295, 1: 31448111, 2: 41304315, 8: 135466211, 9: 144663466, 23: 383274204}),
    }
    for layer, (chosen, want) in vectors.items():
        (row,) = hashed([[100, 200, 300, 400]], RELEASED_MULTIPLIERS[layer], chosen, 99092)
        assert {c: row[c] for c in want} == want


def test_tiny_hash_vectors() -> None:
    got = hashed([[10, -1, -1, -1], [50, 40, 30, 20]], TINY_MULTIPLIERS, TINY_PRIMES[1], 512)
    assert got == [[249, 294, 689, 798, 1227, 1503], [165, 386, 568, 949, 1245, 1611]]


def test_first_token_outside_the_table_pads_itself_and_everything_older() -> None:
    def same(gap: list[int], filled: list[int]) -> bool:
        first, second = hashed([gap, filled], TINY_MULTIPLIERS, TINY_PRIMES[1], 512)
        return first == second

    for outside in (-1, 512, 2**31 - 1, -(2**31)):
        assert same([5, outside, 7, 8], [5, 2, 2, 2])
        assert same([5, 6, outside, 8], [5, 6, 2, 2])
        assert same([5, 6, 7, outside], [5, 6, 7, 2])
        assert same([outside, 6, 7, 8], [2, 2, 2, 2])


def test_pad_is_a_compressed_id_and_tokens_go_through_the_table() -> None:
    lookup = torch.arange(512, dtype=torch.int32).flip(0)
    via_table = hashed([[5, 6, -1, 8]], TINY_MULTIPLIERS, TINY_PRIMES[1], 512, pad=9, lookup=lookup)
    assert via_table == hashed([[506, 505, 9, 9]], TINY_MULTIPLIERS, TINY_PRIMES[1], 512, pad=2)


@pytest.mark.parametrize("sizes", [2, 3, 4])
def test_hash_against_python_integers(sizes: int) -> None:
    rng = np.random.default_rng(sizes)
    heads, vocab = 3, 1000
    primes = primes_from(5000, (sizes - 1) * heads)
    multipliers = [int(v) * 2 + 1 for v in rng.integers(0, (2**63 - 1) // vocab // 2, sizes)]
    lookup = rng.permutation(vocab)
    ngrams = rng.integers(-50, vocab + 50, (60, sizes))
    got = hashed(ngrams.tolist(), multipliers, primes, vocab, lookup=make.ints(lookup, CPU))
    offsets = np.cumsum((0, *primes[:-1])).tolist()
    for row, ngram in zip(got, ngrams.tolist(), strict=True):
        assert row == oracle.engram_rows(ngram, lookup.tolist(), multipliers, primes, offsets, 2)


def test_gather_concatenates_stored_bytes() -> None:
    rng = np.random.default_rng(0)
    weight, scale = make.fp8_codes(rng, CPU, 9, 64), make.scales(rng, CPU, 9, 2)
    weight.view(torch.uint8)[3] = 0x7F
    rows = torch.tensor([[8, 0, 0], [3, 8, 1]])
    q, s = ops.engram_gather(weight, scale, rows)
    for t in range(2):
        for c in range(3):
            assert q.view(torch.uint8)[t, 64 * c : 64 * c + 64].equal(weight.view(torch.uint8)[rows[t, c]])
            assert s[t, 2 * c : 2 * c + 2].equal(scale[rows[t, c]])
    with pytest.raises(ContractError, match=r"rows holds 9, must lie in \[0, 9\)"):
        ops.engram_gather(weight, scale, torch.tensor([[9]]))


def test_gather_from_a_mapped_file_past_two_gigabytes(tmp_path: Path) -> None:
    """A sparse file of more than 2^31 bytes, mapped read-only: only the rows asked for are read."""
    rows, width = 2**31 // 256 + 100, 256
    codes, scale = tmp_path / "codes", tmp_path / "scale"
    for path, size in ((codes, width), (scale, width // 32)):
        with path.open("wb") as file:
            file.truncate(rows * size)
            for row in (0, rows - 1):
                file.seek(row * size)
                file.write(bytes([row % 97 + 1]) * size)
    weight = torch.from_numpy(np.memmap(codes, np.uint8, "c", shape=(rows, width)))
    scales = torch.from_numpy(np.memmap(scale, np.uint8, "c", shape=(rows, width // 32)))
    wanted = torch.tensor([[rows - 1, 0, rows - 2]])
    q, s = ops.engram_gather(weight.view(torch.float8_e4m3fn), scales, wanted)
    last = (rows - 1) % 97 + 1
    assert q.view(torch.uint8).view(3, width).tolist() == [[last] * width, [1] * width, [0] * width]
    assert s.view(3, -1).tolist() == [[last] * 8, [1] * 8, [0] * 8]


@pytest.mark.parametrize(("rows", "m", "width"), [(0, 4, 64), (1, 4, 64), (37, 4, 128), (5, 2, 33)])
def test_gate_against_float64(rows: int, m: int, width: int) -> None:
    rng = np.random.default_rng(width)
    x, kv = make.normal(rng, CPU, rows, m, width), make.normal(rng, CPU, rows, (m + 1) * width)
    qw, kw = make.normal(rng, CPU, m, width), make.normal(rng, CPU, m, width)
    image = torch.zeros(rows, dtype=torch.bool)
    args = (x, kv, qw, kw, image, 1e-20)
    got = ops.engram_gate(*args)
    assert not numerics_checks.faults(SPECS["engram_gate"], args, [got], [got])


def test_gate_leaves_image_rows_alone_whatever_their_memory_holds() -> None:
    x = torch.randn(3, 2, 32).to(torch.bfloat16)
    x[1, 0, 0] = torch.nan
    kv = torch.randn(3, 96).to(torch.bfloat16)
    kv[1] = torch.nan
    ones = torch.ones(2, 32, dtype=torch.bfloat16)
    got = ops.engram_gate(x, kv, ones, ones, torch.tensor([False, True, False]), 1e-20)
    assert same_bits(got[1], x[1])
    assert got[[0, 2]].isfinite().all() and not got[0].equal(x[0])


def test_gate_of_a_zero_product_has_the_floor_and_the_sign_of_zero() -> None:
    """A zero key: the product is +0 or -0 with the sign of the stream, and the gate sigmoid(+-0.001)."""
    x = torch.tensor([128.0, -128.0]).to(torch.bfloat16).view(2, 1, 1)
    kv = torch.tensor([[0.0, -256.0], [0.0, 256.0]]).to(torch.bfloat16)
    one = torch.ones(1, 1, dtype=torch.bfloat16)
    got = ops.engram_gate(x, kv, one, one, torch.zeros(2, dtype=torch.bool), 1e-20).flatten()
    want = np.array([128 - 256 / (1 + np.exp(-1e-3)), -128 + 256 / (1 + np.exp(1e-3))])
    # The gate, 1/2, is off by 10 roundings at most (root 4, sigmoid 6); product and sum by 2 of terms of 128; bf16.
    limit = (1 + 2.0**-8) * (5 * 256 + 4 * 128) * 2.0**-24 + 2.0**-8 * np.abs(want)
    assert (np.abs(formats.f64(got) - want) <= limit).all()


def test_gate_grows_with_the_match() -> None:
    key = torch.randn(1, 64).to(torch.bfloat16)
    x = torch.stack((key[0], -key[0], torch.zeros(64).to(torch.bfloat16)))[:, None]
    kv = torch.cat((key, torch.full((1, 64), 512.0).to(torch.bfloat16)), dim=1).repeat(3, 1)
    one = torch.ones(1, 64, dtype=torch.bfloat16)
    args = (x, kv, one, one, torch.zeros(3, dtype=torch.bool), 1e-20)
    added = formats.f64(ops.engram_gate(*args)) - formats.f64(x)
    full = 512 / (1 + np.exp(-np.sqrt(8)))  # dot of a unit vector with itself is sqrt(D), the root of that the gate's
    want = np.array([full, 512 - full, 512 / (1 + np.exp(-1e-3))])[:, None, None]
    (within,) = moe_oracle.engram_gate(*args)
    assert (np.abs(added - want) <= within.limit.numpy()).all()
