"""Kernels that return their input, zeros, or the last call's output fail every case whose right answer is another."""

from __future__ import annotations

from typing import Any

import pytest
from mutation import arguments, outputs  # noqa: F401 - they fill the table
from mutation.catch import TARGET, kernel_of, mutant, quick_calls, registered
from mutation.operator import OPERATORS
from torch import Tensor

from deepinfer.conformance.calls import call, difference, to_target
from deepinfer.conformance.judge import judge
from deepinfer.conformance.spoilt import spoil
from deepinfer.ops.required import SPOILT
from deepinfer.ops.spec import SPECS, OpSpec, TensorArg

IDLE = ("returns_input", "returns_zeros", "returns_last_output", "writes_nothing")
PAIRS = [(op, name) for op, spec in SPECS.items() for name in IDLE if OPERATORS[name].fits(spec)]


def results(spec: OpSpec, args: tuple[Any, ...]) -> tuple[Tensor, ...]:
    """Outputs and written arguments of a call of the registered kernel."""
    placed = to_target(spec, args, TARGET)
    outs = call(spec, placed, TARGET)
    pairs = zip(spec.args, placed, strict=True)
    return (*outs, *(v for a, v in pairs if isinstance(a, TensorArg) and a.mutable and v is not None))


def same(spec: OpSpec, args: tuple[Any, ...], got: tuple[Tensor, ...], want: tuple[Tensor, ...]) -> bool:
    """Whether results agree in every bit that the call defines."""
    masks = (*spec.defined(*args), *[None] * len(want))
    return not any(
        difference(spec, "", a, b, None if m is None else m.expand(b.shape))
        for a, b, m in zip(got, want, masks, strict=False)
    )


@pytest.mark.parametrize("op, name", PAIRS, ids=[f"{name}-{op}" for op, name in PAIRS])
def test_every_call_with_another_answer_fails(op: str, name: str) -> None:
    spec, right = SPECS[op], kernel_of(op)
    wrong, probe = (mutant(OPERATORS[name], right) for _ in range(2))
    failed, passed = [], []
    for one in quick_calls(op):
        args = spoil(spec, one.sample.args) if one.variant == SPOILT else one.sample.args
        with registered(right):
            want = results(spec, args)
        with registered(probe):
            got = results(spec, args)
        with registered(wrong):
            found = judge(spec, one.sample.args, TARGET, one.variant).findings
        if not same(spec, args, got, want):
            (failed if found else passed).append(one.label)
    assert failed and not passed, f"{op} {name} {passed}"
