"""Results of an op, and assertions that they lie in their numerics class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from deepinfer.conformance.compare import classes
from deepinfer.conformance.compare.accumulated import compare_accumulated
from deepinfer.conformance.oracle.formats import Floats
from deepinfer.ops.spec import OpSpec, WeightHandle


def to_cpu(value: Any) -> Any:
    """A copy of an argument or result on the CPU, weight handles included."""
    if isinstance(value, Tensor):
        return value.to("cpu", copy=True)
    if isinstance(value, WeightHandle):
        tensors = to_cpu(value.tensors)
        key = (*value.key[:-1], tensors[0].get_device())
        return WeightHandle(value.op, value.layout, tensors, value.dims, value.nbytes, key)
    return tuple(map(to_cpu, value)) if isinstance(value, tuple) else value


def results(spec: OpSpec, args: tuple[Any, ...]) -> tuple[Tensor, ...]:
    """Run an op: its outputs, then the arguments it wrote."""
    out = spec.run(*args)
    outs = out if isinstance(out, tuple) else () if out is None else (out,)
    return (*outs, *(v for a, v in zip(spec.args, args, strict=True) if getattr(a, "mutable", False)))


def faults(spec: OpSpec, args: tuple[Any, ...], outs: Sequence[Tensor], twin: Sequence[Tensor]) -> list[str]:
    """What is wrong with the results of one call, in words; empty if all of it lies in the op's class."""
    return [str(finding) for finding in classes.compare(spec, args, outs, twin).findings]


def check_accumulated(got: Tensor, want: Floats, magnitude: Floats, terms: int) -> None:
    """|got - want| within the limit of the accumulated class, element by element; NaN where want is."""
    report = compare_accumulated("result", terms, torch.as_tensor(magnitude), torch.as_tensor(want), got)
    assert not report.findings, report.findings[0]
