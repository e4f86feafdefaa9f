"""What a mutation operator is, and the table of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from deepinfer.ops.spec import OpSpec, TensorArg

Run = Callable[..., Any]
"""A kernel: positional arguments in spec order, `out` last."""

VALUES = ("bits", "limit", "nonfinite", "decision")
"""Checks of the comparators."""


@dataclass(frozen=True)
class Operator:
    """One way of being wrong.

    Attributes:
        name, about: what is wrong.
        suites: those that have to see it, one of them.
        checks: names of checks, one of which has to see it; empty for any.
        fits: whether an op can be wrong in this way.
        make: the wrong kernel, from the spec and the right one.
        blind: ops on which no call can tell, each with the reason.
    """

    name: str
    about: str
    suites: tuple[str, ...]
    checks: tuple[str, ...]
    fits: Callable[[OpSpec], bool]
    make: Callable[[OpSpec, Run], Run]
    blind: dict[str, str] = field(default_factory=dict)


OPERATORS: dict[str, Operator] = {}


def operator(
    about: str,
    *,
    fits: Callable[[OpSpec], bool],
    suite: str | tuple[str, ...] = "ops",
    checks: tuple[str, ...] = VALUES,
    blind: dict[str, str] | None = None,
) -> Callable[[Callable[[OpSpec, Run], Run]], Callable[[OpSpec, Run], Run]]:
    """Decorator: add `make` to the table under the function's name."""

    def add(make: Callable[[OpSpec, Run], Run]) -> Callable[[OpSpec, Run], Run]:
        name = make.__name__
        assert name not in OPERATORS
        suites = (suite,) if isinstance(suite, str) else suite
        OPERATORS[name] = Operator(name, about, suites, checks, fits, make, blind or {})
        return make

    return add


# ---- what operators are made of ---------------------------------------------------------------------------------


def has(*names: str) -> Callable[[OpSpec], bool]:
    """Ops with all these arguments."""
    return lambda spec: set(names) <= {a.name for a in spec.args}


def of(*ops: str) -> Callable[[OpSpec], bool]:
    """These ops."""
    return lambda spec: spec.name in ops


def gives(*dtypes: torch.dtype) -> Callable[[OpSpec], bool]:
    """Ops with an output of one of these dtypes; of any, without dtypes."""
    return lambda spec: bool(spec.outs) and (not dtypes or any(set(dtypes) & set(o.dtypes) for o in spec.outs))


def stores(spec: OpSpec) -> bool:
    """Ops that write an argument."""
    return any(getattr(a, "mutable", False) for a in spec.args)


def as_tuple(value: Any) -> tuple[Tensor, ...]:
    """Outputs as a tuple."""
    return value if isinstance(value, tuple) else () if value is None else (value,)


def finish(value: tuple[Tensor, ...], out: Any) -> Any:
    """Outputs as a kernel returns them, written to `out` where there is one."""
    if not value:
        return None
    if out is not None:
        for source, target in zip(value, as_tuple(out), strict=True):
            raw(target).copy_(raw(source))
        return out
    return value if len(value) > 1 else value[0]


def raw(x: Tensor) -> Tensor:
    """8-bit floats as bytes, which can be indexed and copied."""
    return x.view(torch.uint8) if x.dtype == torch.float8_e4m3fn else x


def outputs_changed(change: Callable[[Tensor], Tensor | None]) -> Callable[[OpSpec, Run], Run]:
    """Operators that change each output by itself; `change` gets a copy, and may write it or return another."""

    def make(spec: OpSpec, kernel: Run) -> Run:
        def wrong(*args: Any) -> Any:
            found = [value.clone() for value in as_tuple(kernel(*args[:-1], None))]
            changed = (change(value) for value in found)
            return finish(tuple(v if c is None else c for v, c in zip(found, changed, strict=True)), args[-1])

        return wrong

    return make


def arguments_changed(**changes: Callable[[Any], Any]) -> Callable[[OpSpec, Run], Run]:
    """Operators that hand the right kernel other arguments; None stays None."""

    def make(spec: OpSpec, kernel: Run) -> Run:
        places = {a.name: i for i, a in enumerate(spec.args)}

        def wrong(*args: Any) -> Any:
            changed = list(args)
            for name, change in changes.items():
                if name in places and changed[places[name]] is not None:
                    changed[places[name]] = change(changed[places[name]])
            return kernel(*changed)

        return wrong

    return make


def written_args(spec: OpSpec) -> list[int]:
    """Places of the arguments that an op writes."""
    return [i for i, a in enumerate(spec.args) if isinstance(a, TensorArg) and a.mutable]


def next_up(x: Tensor) -> Tensor:
    """The neighbouring number, away from zero; zeros, NaN and infinities stay."""
    kind = {torch.bfloat16: torch.int16, torch.float32: torch.int32}[x.dtype]
    moved = (x.view(kind) + 1).view(x.dtype)
    return torch.where(x.isfinite() & (x != 0) & moved.isfinite(), moved, x)
