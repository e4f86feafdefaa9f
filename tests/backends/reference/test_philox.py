"""Philox4x32-10 and the layout of its key and counter."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import numerics_document as document
from deepinfer.backends.reference.philox import draw_words, philox
from deepinfer.conformance.oracle import sampling as oracle


def column(value: int) -> torch.Tensor:
    return torch.tensor([[value]])


@pytest.mark.parametrize("row", document.blocks()["vectors-philox"], ids=["zeros", "ones", "pi"])
def test_known_answers_of_the_generators_authors(row: list[str]) -> None:
    words = [int(w, 16) for w in row]
    got = philox(tuple(map(column, words[:4])), tuple(map(column, words[4:6])))  # type: ignore[arg-type]
    assert got.flatten().tolist() == words[6:]
    assert oracle.philox(tuple(words[:4]), tuple(words[4:6])) == tuple(words[6:])


@pytest.mark.parametrize("row", document.blocks()["vectors-words"])
def test_word_vectors_of_the_document(row: list[str]) -> None:
    seed, position, purpose, i = map(int, row[:4])
    seeds = torch.from_numpy(np.array([seed], np.uint64).view(np.int64))
    assert draw_words(seeds, torch.tensor([position]), purpose, i + 1)[0, i].item() == int(row[4], 16)


def test_rows_are_independent_streams_over_all_64_bits_of_seed_and_position() -> None:
    seeds = torch.tensor([0, 1, 1 << 32, -1, -(1 << 63), 0, 0, 0])
    positions = torch.tensor([0, 0, 0, 0, 0, 1, 1 << 32, (1 << 40) + 3])
    got = draw_words(seeds, positions, 1, 13)
    want = [oracle.words(s, p, 1, 13) for s, p in zip(seeds.tolist(), positions.tolist(), strict=True)]
    assert np.array_equal(got.numpy(), np.stack(want).astype(np.int64))
    assert len({tuple(row) for row in got.tolist()}) == len(seeds)


def test_purposes_of_one_seed_and_position_never_meet() -> None:
    seed, position = torch.tensor([7]), torch.tensor([3])
    streams = torch.cat([draw_words(seed, position, purpose, 4096) for purpose in range(4)])
    # 4 * 4096 random 32-bit words: 0.03 collisions expected.
    assert streams.unique().numel() >= streams.numel() - 2


def test_a_longer_stream_starts_with_the_shorter_one() -> None:
    seeds, positions = torch.tensor([3, 4]), torch.tensor([8, 9])
    long = draw_words(seeds, positions, 0, 1001)
    for count in (1, 4, 5, 1000):
        assert torch.equal(draw_words(seeds, positions, 0, count), long[:, :count])


def test_no_rows() -> None:
    empty = torch.zeros(0, dtype=torch.int64)
    assert draw_words(empty, empty, 0, 9).shape == (0, 9)
