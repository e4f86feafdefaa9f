"""The ways in which a call can be made over again with the same rows: alone, permuted, padded, chunked, beside others.

Each is a `Trial`: parts to run one after the other, and which of their rows must come out as they did in the whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..ops.rows import FILLS, PADDING, Fill, Part, Rows, named, ordered, written
from ..ops.spec import OpSpec

ALONE_AT_MOST = 40
"""Rows that a store writes one by one; longer ones are written one sequence at a time."""


@dataclass(frozen=True)
class Trial:
    """One form of a call.

    Attributes:
        check: the form's name, as findings carry it.
        about: the form in words.
        parts: calls, in order.
        covers: the parts hold every row of the whole, so that what they write is the whole's.
    """

    check: str
    about: str
    parts: tuple[Part, ...]
    covers: bool = False

    def kept(self, part: Part) -> list[int]:
        """Places in a part whose rows must come out as in the whole."""
        return [i for i, r in enumerate(part.rows) if r != PADDING and r not in part.poisoned]


def trials(spec: OpSpec, rows: Rows, args: tuple[Any, ...], thorough: bool) -> Iterator[Trial]:
    """All forms of a call; none for a call without rows.

    Args:
        thorough: more rows alone, and every filling of the neighbours.
    """
    count = rows.count(spec, args)
    if count == 0:
        return
    rng = np.random.default_rng(count)
    if ordered(spec):
        yield from _of_sequences(spec, rows, named(spec, args), rng, thorough)
    else:
        yield from _of_rows(count, rng, thorough)


def _of_rows(count: int, rng: np.random.Generator, thorough: bool) -> Iterator[Trial]:
    everything = tuple(range(count))
    order = tuple(rng.permutation(count).tolist())
    few = {0, count // 2, count - 1} | (set(order[:4]) if thorough else set())
    for row in sorted(few):
        yield Trial("alone", f"row {row} alone", (Part((row,)),))
    yield Trial("permuted", "all rows in another order", (Part(order),))
    yield Trial("permuted", "half of the rows in another order", (Part(order[: count // 2 + 1]),))
    fills = FILLS if thorough else FILLS[:1]
    for extra in (1, 23 - count % 16):
        yield Trial("padded", f"{extra} padding rows behind", (Part(everything + (PADDING,) * extra),))
    cut = int(rng.integers(1, count)) if count > 1 else 0
    if cut:
        parts = Part(everything[:cut]), Part(everything[cut:])
        yield Trial("chunked", f"rows before {cut}, then the others", parts)
        for fill in fills:
            poisoned = frozenset(r for r in everything if r % 3 != count % 3)
            if len(poisoned) < count:
                yield Trial("neighbours", f"{fill.name} in other rows", (Part(everything, poisoned, fill),))


def _of_sequences(
    spec: OpSpec, rows: Rows, given: Mapping[str, Any], rng: np.random.Generator, thorough: bool
) -> Iterator[Trial]:
    members: dict[int, list[int]] = {}
    for row, sequence in enumerate(given["row_seq"].tolist()):
        if sequence >= 0:
            members.setdefault(sequence, []).append(row)
    if not members:
        return
    stores, divisible = bool(written(spec)), rows.divisible is None or rows.divisible(dict(given))
    groups = list(members.values())
    everything = _joined(groups)
    fills = FILLS if thorough else FILLS[:1]
    yield from _alone(groups, stores, divisible, rng, thorough)
    shuffled = [groups[i] for i in rng.permutation(len(groups))]
    yield Trial("permuted", "sequences in another order", (Part(_joined(shuffled)),), covers=True)
    behind = (PADDING,) * (23 - len(everything) % 16)
    yield Trial("padded", f"{len(behind)} padding rows behind", (Part(everything + behind),), covers=True)
    between = tuple(r for group in groups for r in (PADDING, *group))
    yield Trial("padded", "a padding row before every sequence", (Part(between),), covers=True)
    if len(groups) > 1:
        parts = Part(_joined(groups[1:])), Part(tuple(groups[0]))
        yield Trial("chunked", "the first sequence after the others", parts, covers=True)
    if divisible and any(len(group) > 1 for group in groups):
        cuts = [int(rng.integers(1, len(group))) if len(group) > 1 else 1 for group in groups]
        early = _joined([g[:c] for g, c in zip(groups, cuts, strict=True)])
        late = _joined([g[c:] for g, c in zip(groups, cuts, strict=True)])
        yield Trial("chunked", f"sequences cut after {cuts} rows", (Part(early), Part(late)), covers=True)
    yield from _beside(groups, stores, divisible, fills)


def _alone(
    groups: Sequence[list[int]], stores: bool, divisible: bool, rng: np.random.Generator, thorough: bool
) -> Iterator[Trial]:
    everything = _joined(groups)
    if stores:  # what a row leaves behind shows when all rows have left theirs
        single = divisible and len(everything) <= ALONE_AT_MOST
        parts = tuple(Part((r,)) for r in everything) if single else tuple(Part(tuple(g)) for g in groups)
        yield Trial("alone", f"one {'row' if single else 'sequence'} at a time", parts, covers=True)
        return
    if not divisible:
        for group in groups[:3]:
            yield Trial("alone", f"rows {group[0]} to {group[-1]} alone", (Part(tuple(group)),))
        return
    few = {groups[0][0], groups[-1][-1], max(groups, key=len)[-1]}
    if thorough:
        few |= set(rng.permutation(everything)[:4].tolist())
    for row in sorted(few):
        yield Trial("alone", f"row {row} alone", (Part((row,)),))


def _beside(groups: Sequence[list[int]], stores: bool, divisible: bool, fills: Sequence[Fill]) -> Iterator[Trial]:
    everything = _joined(groups)
    longest = max(range(len(groups)), key=lambda i: len(groups[i]))
    for fill in fills:
        if len(groups) > 1:
            for kept in {longest, len(groups) - 1}:
                others = frozenset(everything) - frozenset(groups[kept])
                yield Trial("neighbours", f"{fill.name} in other sequences", (Part(everything, others, fill),))
        if divisible and not stores and len(groups[longest]) > 1:
            middle = len(groups[longest]) // 2
            later = frozenset(groups[longest][middle:])
            yield Trial("neighbours", f"{fill.name} in later rows", (Part(everything, later, fill),))


def _joined(groups: Sequence[Sequence[int]]) -> tuple[int, ...]:
    return tuple(r for group in groups for r in group)
