"""A call over parts of its rows must give those rows the same bits: alone, permuted, beside poisoned rows, padded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from deepinfer.ops.rows import FILLS, PADDING, Part, Rows, rows_of, written
from deepinfer.ops.spec import SPECS


def results(op: str, args: tuple[Any, ...]) -> list[torch.Tensor]:
    """Outputs, then written arguments."""
    spec = SPECS[op]
    out = spec.run(*args)
    outs = list(out) if isinstance(out, tuple) else [] if out is None else [out]
    return outs + [v for a, v in zip(spec.args, args, strict=True) if a.name in written(spec)]


def parts(count: int) -> Iterator[Part]:
    """Some parts of a call of `count` rows."""
    rng = np.random.default_rng(7)
    every = tuple(range(count))
    yield from (Part((row,)) for row in {0, count // 2, count - 1})
    yield Part(tuple(rng.permutation(count).tolist()))
    yield Part((*every[: count // 2], PADDING, *every[count // 2 :], PADDING))
    for fill in FILLS:
        yield Part(every, frozenset(every[1::2]), fill)


def assert_rows_stand_alone(op: str, args: tuple[Any, ...]) -> None:
    """Raises AssertionError if a row's bits change with the rows around it."""
    spec, rows = SPECS[op], rows_of(op)
    assert isinstance(rows, Rows)
    count = rows.count(spec, args)
    fresh = [a.clone() if isinstance(a, torch.Tensor) and a.is_contiguous() else a for a in args]
    whole = results(op, tuple(fresh))
    for part in parts(count):
        built = rows.build(rows, spec, args, part)
        got = results(op, built.args)
        for place, row in zip(built.places, part.rows, strict=True):
            if row == PADDING or row in part.poisoned:
                continue
            for a, b in zip(got, whole, strict=True):
                assert _bytes(a[place]).equal(_bytes(b[row])), f"{op}: row {row} of {part.rows[:8]}…"


def _bytes(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous().reshape(-1).view(torch.uint8)
