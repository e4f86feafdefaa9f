"""Judging one call of an op on a target: by the class, in every calling form, with guards around everything.

The first run gives the results that the class is asked about; every other form must give the same bits:

* 'plain': outputs made by the op; then `out=` in guarded memory full of what no kernel may leave, every argument in
  guarded memory of its own, scratch memory guarded and poisoned, arguments that are only read compared afterwards;
* 'strided': arguments with layout 'rows' get odd row strides, every tensor an odd address;
* 'in place': `out` is the argument that the spec allows;
* 'non-finite': NaN and infinities in some rows, judged by the class;
* 'far POOL': pages, state slots, table rows or groups of a weight beyond 2^31 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..hal.registry import REFERENCE, REGISTRY
from ..ops.required import FAR, GROUPS, IN_PLACE, PLAIN, SPOILT, STRIDED
from ..ops.rows import named, restride
from ..ops.spec import OpSpec, TensorArg, WeightHandle
from . import far
from .calls import Unsupported, call, kernel_of, to_target
from .case import UNAVAILABLE, Finding, Outcome, Target, raised, skip
from .compare.classes import compare, names_of
from .compare.exact import compare_bits
from .compare.report import Report
from .guard import Guarded
from .spoilt import spoil


def judge(spec: OpSpec, args: Sequence[Any], target: Target, variant: str = PLAIN) -> Outcome:
    """Judge one call.

    Args:
        args: in spec order, on the CPU, weights in the contract's layout. They are not changed.
        target: its backend must be active.
        variant: PLAIN, STRIDED, IN_PLACE, SPOILT or 'far POOL'; see `ops.required.variants`.

    Returns:
        Findings; 'declared unsupported' where the target has no kernel of its own for such a call.
    """
    try:
        return _Call(spec, spoil(spec, args) if variant == SPOILT else tuple(args), target).judge(variant)
    except Unsupported as error:
        return error.outcome()
    except far.NoMemoryError as error:
        return skip(UNAVAILABLE, str(error))
    except Exception as error:
        return Outcome((raised(error),))


class _Call:
    """A call on a target, and what its first run gave."""

    def __init__(self, spec: OpSpec, args: tuple[Any, ...], target: Target) -> None:
        self.spec, self.args, self.target = spec, args, target
        self.names = names_of(spec)
        masks = (*spec.defined(*args), *[None] * len(self.names))
        self.masks: list[Tensor | None] = list(masks[: len(self.names)])

    def judge(self, variant: str) -> Outcome:
        """Run the variant, whose bits are held against a plain run, and that against the class."""
        placed = to_target(self.spec, self.args, self.target)
        if variant == PLAIN:
            return self._plain(placed)
        first = self._run(placed)
        own = self._of_class(first)
        if variant == SPOILT:
            return own
        if variant == STRIDED:
            more = self._guarded(placed, first, strided=True)
        elif variant == IN_PLACE:
            more = _outcome(self._in_place(placed, first))
        else:
            more = self._far(placed, first, variant.removeprefix(f"{FAR} "))
        return Outcome((*own.findings, *more.findings), more.skipped, own.worst if more.worst is None else more.worst)

    def _run(self, args: tuple[Any, ...], out: Any = None, workspace: Any = None) -> tuple[Tensor, ...]:
        """Outputs, then the arguments written, of a call on copies of the arguments that it writes."""
        fresh = tuple(
            restride(v) if getattr(a, "mutable", False) and v is not None else v
            for a, v in zip(self.spec.args, args, strict=True)
        )
        return self._results(call(self.spec, fresh, self.target, out, workspace), fresh)

    def _results(self, outs: Sequence[Tensor], args: Sequence[Any]) -> tuple[Tensor, ...]:
        written = (v for a, v in zip(self.spec.args, args, strict=True) if getattr(a, "mutable", False))
        return (*outs, *written)

    # ---- plain ------------------------------------------------------------------------------------------------

    def _plain(self, placed: tuple[Any, ...]) -> Outcome:
        before = [t.clone() for _, t in self._read(placed)]
        first = self._run(placed)
        wrong = [
            compare_bits(name, now, was, check="input", than="an argument that is only read, it was")
            for (name, now), was in zip(self._read(placed), before, strict=True)
        ]
        if any(wrong) or any(wrong := [*self._shapes(first)]):
            return _outcome(wrong)
        own = self._of_class(first)
        more = self._guarded(placed, first, strided=False)
        return Outcome((*own.findings, *more.findings), more.skipped, own.worst)

    def _of_class(self, first: Sequence[Tensor]) -> Outcome:
        """Results against the class."""
        got = [t.cpu() for t in first]
        report = compare(self.spec, self.args, got, self._twin(got))
        return Outcome(report.findings, worst=report.worst)

    def _shapes(self, got: Sequence[Tensor]) -> list[Finding]:
        """Number, dtypes and shapes of the outputs as the spec states them."""
        found = []
        if len(got) != len(self.names):
            wanted = f"{len(self.names)} ({', '.join(self.names)})"
            found.append(Finding("shape", f"got {len(got)} results, must be {wanted}"))
        dims = self.spec.dims(*self.args)
        for described, value in zip(self.spec.outs, got, strict=False):
            if value.dtype not in described.dtypes:
                found.append(Finding("dtype", f"{described.name} is {value.dtype}, must be {described.dtypes}"))
            if all(n in dims for d in described.dims for n in d.names):
                want = [d.value(dims) for d in described.dims]
                if list(value.shape) != want:
                    found.append(Finding("shape", f"{described.name} has shape {list(value.shape)}, must be {want}"))
            if not value.is_contiguous():
                found.append(Finding("shape", f"{described.name} is not contiguous: strides {value.stride()}"))
        return found

    def _twin(self, got: list[Tensor]) -> list[Tensor]:
        """The reference's results on the CPU."""
        if self.target.backend == REFERENCE and self.target.device.type == "cpu":
            return got
        with REGISTRY.using(REFERENCE), REGISTRY.pin(self.spec.name, REFERENCE):  # whatever kernel is judged by a pin
            copies = tuple(restride(v) if isinstance(v, Tensor) else v for v in self.args)
            outs = self.spec.run(*copies)
        return list(self._results(outs if isinstance(outs, tuple) else () if outs is None else (outs,), copies))

    def _read(self, placed: tuple[Any, ...]) -> list[tuple[str, Tensor]]:
        """Tensors that the op only reads, prepared weights included, with the names of their arguments."""
        found = []
        for arg, value in _pairs(self.spec, placed):
            parts = (value,) if isinstance(value, Tensor) else _parts(value)
            found += [(arg.name, part) for part in parts if not getattr(arg, "mutable", False)]
        return found

    # ---- guards -----------------------------------------------------------------------------------------------

    def _guarded(self, placed: tuple[Any, ...], first: Sequence[Tensor], strided: bool) -> Outcome:
        """One run with everything in guarded memory, held against the first run."""
        guards = self._guard_args(placed, strided)
        args = tuple(guards[a.name].tensor if a.name in guards else v for a, v in _pairs(self.spec, placed))
        kernel = kernel_of(self.spec, args, self.target)
        outs = [Guarded.output(t, shift=int(strided)) for t in first[: len(self.spec.outs)]]
        out = None if not outs else outs[0].tensor if len(outs) == 1 else tuple(o.tensor for o in outs)
        scratch = None if kernel.workspace is None else self._scratch(kernel.workspace(*args))
        returned = call(self.spec, args, self.target, out, None if scratch is None else scratch.tensor)
        got = self._results([o.tensor for o in outs], args)
        found = self._same(got, first, "strided" if strided else "out", "the plain call gave")
        if outs and any(a.data_ptr() != o.tensor.data_ptr() for a, o in zip(returned, outs, strict=False)):
            found.append(Finding("out", "the call returns other tensors than those given as out"))
        for arg, _ in _pairs(self.spec, placed):
            if arg.name in guards:
                found.append(guards[arg.name].strayed(arg.name, written=getattr(arg, "mutable", False)))
        found += [o.strayed(f"out {n}", written=True) for n, o in zip(self.names, outs, strict=False)]
        if scratch is not None:
            found.append(scratch.strayed("workspace", written=True))
        return _outcome(found)

    def _guard_args(self, placed: tuple[Any, ...], strided: bool) -> dict[str, Guarded]:
        made = {}
        for arg, value in _pairs(self.spec, placed):
            if isinstance(arg, TensorArg) and isinstance(value, Tensor):
                rows = strided and arg.layout == "rows" and value.ndim > 1
                made[arg.name] = Guarded(value, strides=_odd(value) if rows else None, shift=int(strided))
        return made

    def _scratch(self, size: int) -> Guarded:
        return Guarded(torch.full((size,), 0xFF, dtype=torch.uint8, device=self.target.device))

    def _same(self, got: Sequence[Tensor], want: Sequence[Tensor], check: str, than: str) -> list[Finding | None]:
        """Bits against those of another run, where the call defines them."""
        found = []
        for name, a, b, mask in zip(self.names, got, want, self.masks, strict=True):
            where = None if mask is None else mask.to(a.device).expand(b.shape)
            found.append(compare_bits(name, a, b, where, check=check, than=than))
        return found

    # ---- other variants ---------------------------------------------------------------------------------------

    def _in_place(self, placed: tuple[Any, ...], first: Sequence[Tensor]) -> list[Finding | None]:
        """`out` is the argument itself."""
        given = named(self.spec, placed)
        guards = {o.in_place: Guarded(given[o.in_place]) for o in self.spec.outs if o.in_place}
        args = tuple(guards[a.name].tensor if a.name in guards else v for a, v in _pairs(self.spec, placed))
        outs = [
            guards[o.in_place].tensor if o.in_place else torch.empty_like(first[i])
            for i, o in enumerate(self.spec.outs)
        ]
        call(self.spec, args, self.target, outs[0] if len(outs) == 1 else tuple(outs))
        found = self._same(self._results(outs, args), first, "alias", "apart from the argument it is")
        return [*found, *(guard.strayed(name, written=True) for name, guard in guards.items())]

    def _far(self, placed: tuple[Any, ...], first: Sequence[Tensor], pool: str) -> Outcome:
        """The pool beyond 2^31 bytes."""
        if self.spec.name in GROUPS:
            args = far.move_groups(self.spec, self.args, placed, self.target.device)
            got = [t.cpu() for t in self._results(call(self.spec, args, self.target), args)]
            report = compare(self.spec, self.args, got, [t.cpu() for t in first])
            return Outcome(report.findings, worst=report.worst)
        moved = far.move(self.spec, placed, pool)
        assert moved is not None, f"the call does not use {pool}"
        got = list(self._results(call(self.spec, moved.args, self.target), moved.args))
        for i, name in enumerate(self.names):
            if name == pool:
                got[i] = got[i][moved.start :]
        return _outcome(self._same(got, first, "far", f"with {pool} below 2^31 bytes"))


def _outcome(found: Sequence[Finding | None]) -> Outcome:
    return Outcome(Report.of(*found).findings)


def _pairs(spec: OpSpec, args: Sequence[Any]) -> list[tuple[Any, Any]]:
    return list(zip(spec.args, args, strict=True))


def _parts(value: Any) -> tuple[Tensor, ...]:
    return value.tensors if isinstance(value, WeightHandle) else ()


def _odd(value: Tensor) -> tuple[int, ...]:
    """Row strides that are odd and leave room between rows; unit stride in the last dim."""
    strides = [1]
    for size in reversed(value.shape[1:]):
        step = strides[0] * size + 2
        strides.insert(0, step + 1 - step % 2)
    return tuple(strides)
