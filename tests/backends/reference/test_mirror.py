"""The mirror layout against its definition piece by piece, and rows carried round through every rank."""

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
from deepinfer.ops.mirror_samples import LENGTHS, room
from deepinfer.ops.spec import SPECS
from numerics_document import blocks

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def kernels() -> None:
    load_oracles()
    reference.backend.load()


def i32(values: Any) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def samples(name: str) -> Iterator[tuple[str, tuple[Any, ...]]]:
    for sample in SPECS[name].samples(np.random.default_rng(0), CPU):
        yield sample.label, sample.args


@pytest.mark.parametrize("name", ["mirror_rows", "replay_rows"])
def test_rows_against_cut_lists(name: str) -> None:
    for label, args in samples(name):
        for got, want in zip(SPECS[name].run(*args), BITS[name](*args), strict=True):
            assert want is not None and same_bits(got, want.want), label


@pytest.mark.parametrize(("label", "lengths", "ranks"), LENGTHS, ids=lambda x: x if isinstance(x, str) else "")
def test_a_gather_and_the_inverse_give_the_packed_rows(label: str, lengths: tuple[int, ...], ranks: int) -> None:
    total, rows = sum(lengths), room(lengths, ranks) + 1
    data = torch.arange(total) + 1000
    zero = torch.zeros(len(lengths), dtype=torch.int32)
    shares = [ops.mirror_rows(i32(lengths), i32(lengths), zero, i32([1]), ranks, r, rows, total) for r in range(ranks)]
    gathered = torch.cat([torch.cat((data, data[:1] * 0 - 1 if total else data.new_full((1,), -1)))[s.local.long()]
                          for s in shares])  # fmt: skip
    for share in shares:
        assert gathered[share.inverse.long()].equal(data)
    owners = torch.cat([s.local[s.local >= 0] for s in shares])
    assert sorted(owners.tolist()) == list(range(total))
    work = [int((s.positions[s.local >= 0] + 1).sum()) for s in shares]
    if label.startswith("real"):
        assert max(work) - min(work) < 0.01 * max(work)  # causal work is even


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ops.mirror_rows(i32([4]), i32([4]), i32([0]), i32([1]), 2, 2, 4, 4), "own is 2"),
        (
            lambda: ops.mirror_rows(i32([5]), i32([5]), i32([0]), i32([1]), 2, 0, 3, 5),
            "rows is 3, must be at least the 4",
        ),
        (lambda: ops.mirror_rows(i32([5]), i32([5]), i32([0]), i32([1]), 2, 0, 4, 4), "query_len holds 5"),
        (lambda: ops.replay_rows(i32([5]), i32([6]), 2, 0, 9, 9), "keep_len is larger"),
        (lambda: ops.replay_rows(i32([5]), i32([5]), 2, 0, 2, 9), "kept is 2, must be at least the 3"),
        (lambda: ops.replay_rows(i32([5]), i32([5]), 2, 0, 3, 3), "rows is 3, must be at least the 4"),
        (lambda: ops.replay_rows(i32([5]), i32([-1]), 2, 0, 3, 3), "keep_len holds -1"),
    ],
)
def test_what_does_not_fit_is_refused(call: Any, words: str) -> None:
    with pytest.raises(ContractError, match=words):
        call()


def test_vectors_of_the_document() -> None:
    for ranks, own, *row in blocks()["vectors-mirror"]:
        split = row.index("->")
        lengths, want = [int(x) for x in row[:split]], [int(x) for x in row[split + 1 :]]
        zero = torch.zeros(len(lengths), dtype=torch.int32)
        args = (i32(lengths), i32(lengths), zero, i32([1]), int(ranks), int(own), len(want), sum(lengths))
        assert ops.mirror_rows(*args).local.tolist() == want
    for ranks, own, *row in blocks()["vectors-replay"]:
        split, bar = row.index("->"), row.index("|")
        lengths, keeps = zip(*(map(int, x.split(":")) for x in row[:split]), strict=True)
        contribution, inverse = ([int(x) for x in part] for part in (row[split + 1 : bar], row[bar + 1 :]))
        got = ops.replay_rows(i32(lengths), i32(keeps), int(ranks), int(own), len(contribution), len(inverse))
        assert (got.contribution.tolist(), got.inverse.tolist()) == (contribution, inverse)
