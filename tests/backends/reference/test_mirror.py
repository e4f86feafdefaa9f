"""The mirror layout against its definition piece by piece, and rows carried round through every rank."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from deepinfer import ops
from deepinfer.backends import reference
from deepinfer.hal.errors import ContractError
from deepinfer.ops.mirror_samples import LENGTHS, room
from deepinfer.ops.spec import SPECS
from numerics_document import blocks

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def kernels() -> None:
    reference.backend.load()


def i32(values: Any) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def samples(name: str) -> Iterator[tuple[str, tuple[Any, ...]]]:
    for sample in SPECS[name].samples(np.random.default_rng(0), CPU):
        yield sample.label, sample.args


def layout(lengths: list[int], ranks: int, own: int) -> list[tuple[int, int] | None]:
    """(sequence, token) of every local row, None for padding, by cutting lists."""
    rows: list[tuple[int, int] | None] = []
    for s, q in enumerate(lengths):
        tokens: list[tuple[int, int] | None] = [(s, n) for n in range(q)]
        if ranks == 1:
            rows += tokens
            continue
        size = -(-q // (2 * ranks))
        tokens += [None] * (2 * ranks * size - q)
        pieces = [tokens[i * size : (i + 1) * size] for i in range(2 * ranks)]
        rows += pieces[own] + pieces[2 * ranks - 1 - own]
    return rows


def test_rows_against_cut_lists() -> None:
    for label, (query, key, valid, ratios, ranks, own, rows, total) in samples("mirror_rows"):
        lengths, starts = query.tolist(), (key - query).tolist()
        begin = np.cumsum([0, *lengths]).tolist()
        got = ops.mirror_rows(query, key, valid, ratios, ranks, own, rows, total)
        mine = layout(lengths, ranks, own)
        mine += [None] * (rows - len(mine))
        assert got.local.tolist() == [-1 if x is None else begin[x[0]] + x[1] for x in mine], label
        assert got.row_seq.tolist() == [-1 if x is None else x[0] for x in mine]
        assert got.positions.tolist() == [0 if x is None else starts[x[0]] + x[1] for x in mine]
        assert got.first_key.tolist() == [0 if x is None else int(valid[x[0]]) for x in mine]
        want = [[0 if x is None else (starts[x[0]] + x[1] + 1) // r for x in mine] for r in ratios.tolist()]
        assert got.visible.tolist() == want
        place = {x: r * rows + i for r in range(ranks) for i, x in enumerate(layout(lengths, ranks, r)) if x}
        packed = [(s, n) for s, q in enumerate(lengths) for n in range(q)]
        assert got.inverse.tolist() == [place[x] for x in packed] + [-1] * (total - len(packed)), label


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


def test_replay_against_cut_lists() -> None:
    for label, (query, keep, ranks, own, kept, rows) in samples("replay_rows"):
        lengths, keeps = query.tolist(), keep.tolist()
        got = ops.replay_rows(query, keep, ranks, own, kept, rows)

        def goes_on(rank: int, lengths: list[int] = lengths, keeps: list[int] = keeps, ranks: int = ranks) -> list[int]:
            found = enumerate(layout(lengths, ranks, rank))
            return [i for i, x in found if x is not None and x[1] >= lengths[x[0]] - keeps[x[0]]]

        mine = goes_on(own)
        assert got.contribution.tolist() == mine + [-1] * (kept - len(mine)), label
        place = {}
        for rank in range(ranks):
            full = layout(lengths, ranks, rank)
            place |= {full[i]: rank * kept + number for number, i in enumerate(goes_on(rank))}
        compact = layout(keeps, ranks, own)
        want = [-1 if x is None else place[x[0], lengths[x[0]] - keeps[x[0]] + x[1]] for x in compact]
        assert got.inverse.tolist() == want + [-1] * (rows - len(want)), label


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
