"""Row metadata and tokens of a step against loops over sequences and positions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from deepinfer import ops
from deepinfer.backends import reference
from deepinfer.conformance.compare.exact import same_bits
from deepinfer.conformance.oracle.expected import BITS, load_oracles
from deepinfer.hal.errors import ContractError
from deepinfer.model.batch import Batch, SequenceSlice
from deepinfer.ops.spec import SPECS
from deepinfer.ops.step_samples import POISON
from released import tiny_config

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def kernels() -> None:
    load_oracles()
    reference.backend.load()


def i32(*values: Any) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def samples(name: str, seed: int) -> Iterator[tuple[str, tuple[Any, ...]]]:
    for sample in SPECS[name].samples(np.random.default_rng(seed), CPU):
        yield sample.label, sample.args


@pytest.mark.parametrize("seed", range(3))
def test_metadata_by_definition(seed: int) -> None:
    for label, args in samples("step_metadata", seed):
        for got, want in zip(ops.step_metadata(*args), BITS["step_metadata"](*args), strict=True):
            assert want is not None and same_bits(got, want.want), label


def test_metadata_writes_the_whole_out() -> None:
    query, key = i32(2, 0, 1), i32(5, 7, 1)
    fresh = ops.step_metadata(query, key, i32(0, 3, 0), i32(1, 2), 6)
    out = tuple(torch.full_like(t, POISON) for t in fresh)
    for a, b in zip(ops.step_metadata(query, key, i32(0, 3, 0), i32(1, 2), 6, out=out), fresh, strict=True):
        assert a.equal(b)


@pytest.mark.parametrize(
    ("query", "key", "rows", "words"),
    [
        ([2, -1], [2, 3], 9, "query_len holds -1"),
        ([2, 3], [2, 2], 9, "key_len is smaller"),
        ([2, 3], [2, 3], 4, "query_len sums to 5, must be at most the 4 rows"),
        ([7], [9], 4, "query_len holds 7"),
    ],
)
def test_lengths_that_do_not_fit_are_refused(query: list[int], key: list[int], rows: int, words: str) -> None:
    with pytest.raises(ContractError, match=words):
        ops.step_metadata(i32(*query), i32(*key), torch.zeros(len(key), dtype=torch.int32), i32(1), rows)
    with pytest.raises(ContractError, match="ratios hold 0"):
        ops.step_metadata(i32(1), i32(1), i32(0), i32(0), 4)


@pytest.mark.parametrize("seed", range(3))
def test_tokens_by_definition_and_nothing_else_is_read(seed: int) -> None:
    for label, args in samples("step_tokens", seed):
        found = ops.step_tokens(*args)
        assert POISON not in found.ngrams.flatten().tolist(), label
        for got, want in zip(found, BITS["step_tokens"](*args), strict=True):
            assert want is not None and same_bits(got, want.want), label


def test_tokens_of_a_sequence_do_not_depend_on_how_it_came_here() -> None:
    """The same tokens as a chunk, one by one with history, and as last token and drafts."""
    text, n, size = [5, 9, 2, 7, 300, 1], 3, 4
    none = i32().view(1, 0)

    def run(start: int, end: int, slot: int, skip: int) -> list[list[int]]:
        past = [0] * skip + text[:start][::-1]
        row = torch.arange(start, end, dtype=torch.int32)
        fresh = i32(*(text[start:end] if slot < 0 else [POISON]))
        last, drafts = i32(POISON, text[start]), i32([POISON] * n, (text[start + 1 : end] + [POISON] * n)[:n])
        history = i32(past) if past else none
        made = ops.step_tokens(
            row,
            torch.zeros_like(row),
            i32(start),
            i32(slot),
            fresh,
            i32(0),
            last,
            drafts,
            history,
            i32(skip),
            256,
            size,
        )
        return made.ngrams.tolist()

    whole = run(0, 6, -1, 0)
    assert whole[5] == [1, 300, 7, 2] and whole[1] == [9, 5, -1, -1]
    assert [run(p, p + 1, -1, 0)[0] for p in range(6)] == whole
    assert run(2, 6, 1, 2) == whole[2:]
    assert run(5, 6, 1, 3) == whole[5:]


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("fresh_begin", 90, r"fresh_begin \+ row holds 92"),
        ("slot", 2, "slot holds 2"),
        ("skip", -1, "skip holds -1"),
        ("row_seq", 1, "row_seq holds 1"),
    ],
)
def test_what_points_outside_is_refused(name: str, value: int, words: str) -> None:
    args = {
        "positions": i32(4, 5, 6), "row_seq": i32(0, 0, 0), "seq_start": i32(4), "slot": i32(-1), "fresh": i32(1, 2, 3),
        "fresh_begin": i32(0), "last_token": i32(1, 1), "drafts": i32([1, 2], [1, 2]), "history": i32([9, 9]),
        "skip": i32(0), "vocab": 99, "size": 2,
    }  # fmt: skip
    ops.step_tokens(**args)
    args[name] = torch.full_like(args[name], value)
    with pytest.raises(ContractError, match=words):
        ops.step_tokens(**args)


def test_more_rows_than_drafts_are_refused() -> None:
    rows = torch.arange(4, 9, dtype=torch.int32)
    with pytest.raises(ContractError, match="row of a sequence, in drafts, holds 3"):
        ops.step_tokens(
            rows, torch.zeros_like(rows), i32(4), i32(0), i32(1), i32(0), i32(3), i32([1, 2]), i32([1, 2]), i32(0), 9, 1
        )


def test_metadata_is_the_batch_that_the_host_builds() -> None:
    text = np.arange(400, dtype=np.int32)
    spans, starts = [(0, 7), (200, 201), (61, 140)], [0, 190, 3]
    slices = [SequenceSlice(text, a, b, 1, [1, 2], valid_start=v) for (a, b), v in zip(spans, starts, strict=True)]
    batch = Batch.build(slices, tiny_config().text, CPU, rows=90)
    query, key = i32(*(b - a for a, b in spans)), i32(*(b for _, b in spans))
    got = ops.step_metadata(query, key, i32(*starts), i32(*batch.visible), 90)
    for name in ("positions", "row_seq", "first_key", "seq_start", "seq_end", "row_begin"):
        assert getattr(got, name).equal(getattr(batch, name)), name
    assert got.visible.equal(torch.stack(list(batch.visible.values())))
