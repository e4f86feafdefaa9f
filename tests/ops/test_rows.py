"""Every op says how its rows stand alone, or why they do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import deepinfer.ops
from deepinfer.backends import reference
from deepinfer.ops.rows import PADDING, ROWS, NoRows, Part, Rows, move_pool, named, restride, row_args, rows_of
from deepinfer.ops.spec import SPECS

assert deepinfer.ops
CPU = torch.device("cpu")


def same_bits(a: Any, b: Any) -> bool:
    if isinstance(a, tuple):
        return all(map(same_bits, a, b))
    return a.dtype == b.dtype and a.contiguous().view(torch.uint8).equal(b.contiguous().view(torch.uint8))


def first(op: str, label: str) -> tuple:
    reference.backend.load()
    return next(s.args for s in SPECS[op].samples(np.random.default_rng(1), CPU) if label in s.label)


def test_every_op_has_an_entry_and_every_entry_an_op() -> None:
    assert sorted(ROWS) == sorted(SPECS), "add the op to ops/rows.py: how its rows stand alone, or why they do not"


@pytest.mark.parametrize("op", sorted(ROWS))
def test_entries_fit_the_spec(op: str) -> None:
    spec, rows = SPECS[op], rows_of(op)
    if isinstance(rows, NoRows):
        assert len(rows.reason) > 20
        return
    assert rows.dim in spec.dynamic
    assert row_args(rows, spec)
    for out in spec.outs:
        assert out.dims[0].text == rows.dim, f"{op}: out {out.name} has no row per {rows.dim}"


def test_a_whole_part_is_the_call_itself() -> None:
    for op, rows in ROWS.items():
        spec = SPECS[op]
        if not isinstance(rows, Rows) or spec.outs == () or op == "grouped_linear":
            continue
        args = next(s.args for s in samples(op) if rows.count(spec, s.args) > 2)
        built = rows.build(rows, spec, args, Part(tuple(range(rows.count(spec, args)))))
        assert same_bits(spec.run(*built.args), spec.run(*args)), op


def samples(op: str) -> list:
    reference.backend.load()
    return [s for s in SPECS[op].samples(np.random.default_rng(1), CPU) if not s.label.startswith("real")]


def test_a_part_carries_the_state_before_it() -> None:
    spec, rows = SPECS["sparse_attention"], rows_of("sparse_attention")
    args = first("sparse_attention", "mixed batch, ratio 1")
    assert isinstance(rows, Rows)
    given = named(spec, args)
    last = 6  # of the first sequence, positions 0 .. 6
    built = named(spec, rows.build(rows, spec, args, Part((last, PADDING))).args)
    assert built["row_seq"].tolist() == [0, -1] and built["seq_start"].tolist() == [6]
    assert built["state_slot"].tolist() == given["state_slot"][:1].tolist()
    ring = built["ring"][int(built["state_slot"][0])]
    assert ring[:6].equal(given["fresh"][:6])
    assert given["ring"][int(built["state_slot"][0])].eq(0xFF).all(), "the given call was changed"
    assert built["fresh"][1].eq(0xFF).all() and built["q"][1].isnan().all()


def test_packed_rows_stay_with_their_expert() -> None:
    spec, rows = SPECS["grouped_linear"], rows_of("grouped_linear")
    assert isinstance(rows, Rows)
    for form in ("gathered", "packed"):
        args = first("grouped_linear", f"empty groups, tail of unused rows, {form}")
        assert rows.count(spec, args) == 23
        built = rows.build(rows, spec, args, Part((22, PADDING, 5, 4), frozenset({5})))
        given = named(spec, built.args)
        assert given["offsets"].tolist() == [0, 1, 1, 2, 2, 3] and built.places == (2, 3, 1, 0)
        whole, part = spec.run(*args), spec.run(*built.args)
        assert same_bits(part[[2, 0]], whole[[22, 4]])


def test_a_moved_pool_has_the_same_entries_elsewhere() -> None:
    spec = SPECS["index_score"]
    args = first("index_score", "mixed batch, ratio 2")
    pages = named(spec, args)["pages"]
    order = np.random.default_rng(3).permutation(pages.shape[0] + 5).tolist()
    moved = move_pool(spec, args, "pages", "block_table", order, 0xFF)
    given = named(spec, moved.args)
    assert given["pages"][moved.new].equal(pages[moved.old])
    assert not given["block_table"].equal(named(spec, args)["block_table"])
    rest = torch.ones(len(order), dtype=torch.bool)
    rest[moved.new] = False
    assert given["pages"][rest].eq(0xFF).all()


def test_a_copy_keeps_strides_and_what_lies_between() -> None:
    wide = torch.arange(40).view(4, 10)
    copy = restride(wide[:, 2:5])
    assert copy.stride() == (10, 1) and copy.equal(wide[:, 2:5])
    assert copy.as_strided((2,), (10,), 5).tolist() == [7, 17]
