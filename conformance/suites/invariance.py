"""Suite `invariance`: a row's output bits are the same alone, batched, permuted, padded, chunked and beside anything.

What rows are is data of the contract (`ops/rows.py`); the forms are in `conformance/forms.py`. Beside them: the same
call with its pages and state slots elsewhere, and with tensors that begin at odd addresses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...ops.chosen import DRAWS, in_rows
from ...ops.rows import POOLS, ROWS, Rows, move_pool, named, ordered, owned, restride, row_args, written
from ...ops.spec import OpSpec
from ..calls import Unsupported, call, difference, samples, to_target
from ..case import Case, Finding, Outcome, Target, Tier
from ..forms import Trial, trials
from ..registry import suite
from ..views import misaligned


@suite("invariance", about="a row's bits do not depend on its batch, place, neighbours, padding, chunks or addresses")
def cases(tier: Tier, ops: Sequence[OpSpec]) -> Iterator[Case]:
    """A case per op and sample with rows; an op whose rows do not stand alone has none (`ops/rows.py` says why)."""
    for spec in ops:
        rows = ROWS.get(spec.name)
        if rows is None:
            yield Case("invariance", spec.name, "rows", _unknown)
        if isinstance(rows, Rows):
            for draw in range(DRAWS[tier]):
                for sample in in_rows(spec, rows, tier, samples(spec, draw), draw):
                    run = partial(judge_rows, spec, rows, sample.args, tier != "quick")
                    yield Case("invariance", spec.name, sample.label, run)


def _unknown(target: Target) -> Outcome:
    return Outcome(
        (Finding("rows", "ops/rows.py has no entry of the op: how its rows stand alone, or why they do not"),)
    )


def judge_rows(spec: OpSpec, rows: Rows, sample: tuple[Any, ...], thorough: bool, target: Target) -> Outcome:
    """Hold every form of a call against the call itself."""
    try:
        args = to_target(spec, sample, target)
        state = _state(spec, args)
        whole = call(spec, _with_state(spec, args, state), target)
    except Unsupported as error:
        return error.outcome()
    world = _World(spec, rows, args, whole, state, target)
    findings = [f for trial in trials(spec, rows, args, thorough) for f in world.hold(trial)]
    return Outcome((*findings, *world.moved(thorough), *world.misaligned()))


def _state(spec: OpSpec, args: tuple[Any, ...]) -> dict[str, Tensor]:
    """Fresh copies of what the op writes."""
    given = named(spec, args)
    return {name: restride(given[name]) for name in written(spec) if given[name] is not None}


def _with_state(spec: OpSpec, args: tuple[Any, ...], state: dict[str, Tensor]) -> tuple[Any, ...]:
    return tuple(state.get(a.name, value) for a, value in zip(spec.args, args, strict=True))


class _World:
    """A call, its results, and what it left in the arguments that it writes."""

    def __init__(
        self,
        spec: OpSpec,
        rows: Rows,
        args: tuple[Any, ...],
        whole: tuple[Tensor, ...],
        state: dict[str, Tensor],
        target: Target,
    ) -> None:
        self.spec, self.rows, self.args, self.whole, self.state, self.target = spec, rows, args, whole, state, target
        self.names = [out.name for out in spec.outs]
        self.by_row = [arg.name for arg in row_args(rows, spec) if arg.name in state]  # written, an entry per row
        self.defined = [
            None if mask is None else mask.expand(out.shape)
            for mask, out in zip(spec.defined(*args), whole, strict=True)
        ]

    def hold(self, trial: Trial) -> Iterator[Finding]:
        """Run a trial; findings carry the name of its form."""
        state = _state(self.spec, self.args)
        for part in trial.parts:
            built = self.rows.build(self.rows, self.spec, _with_state(self.spec, self.args, state), part)
            outs = call(self.spec, built.args, self.target)
            kept = trial.kept(part)
            here, there = [built.places[i] for i in kept], [part.rows[i] for i in kept]
            given = named(self.spec, built.args)
            outs += tuple(given[name] for name in self.by_row)
            whole = (*self.whole, *(self.state[name] for name in self.by_row))
            masks = (*self.defined, *[None] * len(self.by_row))
            for name, got, want, mask in zip((*self.names, *self.by_row), outs, whole, masks, strict=True):
                known = None if mask is None else mask[there]
                wrong = difference(self.spec, name, _rows(got, here), _rows(want, there), known)
                if wrong:
                    yield Finding(trial.check, f"{trial.about}: {wrong} (rows {there[:8]})")
        for name, got in state.items():
            if name not in self.by_row:
                yield from self._hold_state(trial, name, got)

    def _hold_state(self, trial: Trial, name: str, got: Tensor) -> Iterator[Finding]:
        want = self.state[name]
        if not trial.covers and ordered(self.spec):
            given = named(self.spec, self.args)
            kept = {int(given["row_seq"][part.rows[i]]) for part in trial.parts for i in trial.kept(part)}
            mine = owned(given, name, sorted(kept))
            got, want = got[mine], want[mine]
        elif not trial.covers and trial.check not in ("chunked", "permuted", "padded"):
            return
        wrong = difference(self.spec, name, got, want)
        if wrong:
            yield Finding(trial.check, f"{trial.about}: {wrong}")

    def moved(self, thorough: bool) -> Iterator[Finding]:
        """The same call with pages and state slots at other places of a larger pool."""
        given = named(self.spec, self.args)
        for pool, table in POOLS:
            if given.get(pool) is None or given.get(table) is None:
                continue
            size = given[pool].shape[0]
            for fill in (0xFF, 0x7F) if thorough else (0xFF,):
                order = np.random.default_rng(size + fill).permutation(size + 5).tolist()
                moved = move_pool(self.spec, self.args, pool, table, order, fill)
                state = _state(self.spec, moved.args)
                outs = call(self.spec, _with_state(self.spec, moved.args, state), self.target)
                about = f"{pool} elsewhere, unnamed ones full of {fill:#x}"
                yield from self._equal("pages", about, outs)
                if pool in state:
                    wrong = difference(self.spec, pool, state[pool][moved.new], self.state[pool][moved.old])
                    if wrong:
                        yield Finding("pages", f"{about}: {wrong}")
                    yield from self._untouched(pool, about, state[pool], named(self.spec, moved.args)[pool], moved.new)

    def _untouched(self, pool: str, about: str, now: Tensor, before: Tensor, named_ids: Tensor) -> Iterator[Finding]:
        now, before = now.clone(), before.clone()
        now[named_ids], before[named_ids] = 0, 0
        wrong = difference(self.spec, pool, now, before)
        if wrong:
            yield Finding("pages", f"{about}: wrote to an entry that no id names: {wrong}")

    def misaligned(self) -> Iterator[Finding]:
        """The same call with every tensor at an odd address, where the target has a kernel for that."""
        args = misaligned(self.spec, self.args)
        state = _state(self.spec, args)
        shifted = misaligned(self.spec, _with_state(self.spec, args, state))
        try:
            outs = call(self.spec, shifted, self.target)
        except Unsupported:
            return  # the kernel says that it wants aligned tensors
        yield from self._equal("misaligned", "tensors at odd addresses", outs)
        for name, want in self.state.items():
            wrong = difference(self.spec, name, named(self.spec, shifted)[name], want)
            if wrong:
                yield Finding("misaligned", f"tensors at odd addresses: {wrong}")

    def _equal(self, check: str, about: str, outs: tuple[Tensor, ...]) -> Iterator[Finding]:
        for name, got, want, mask in zip(self.names, outs, self.whole, self.defined, strict=True):
            wrong = difference(self.spec, name, got, want, mask)
            if wrong:
                yield Finding(check, f"{about}: {wrong}")


def _rows(value: Tensor, rows: list[int]) -> Tensor:
    """Rows of any dtype; bytes of 8-bit floats, which cannot be indexed."""
    return value.view(torch.uint8)[rows] if value.dtype == torch.float8_e4m3fn else value[rows]
