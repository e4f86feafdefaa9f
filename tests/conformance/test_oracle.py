"""The oracles: every op has one of its class, and those of exact ops see a fault without the reference's help."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import deepinfer.ops  # noqa: F401 - defines the specs
from deepinfer.conformance.calls import samples
from deepinfer.conformance.compare.classes import compare, names_of
from deepinfer.conformance.oracle import expected
from deepinfer.hal.catalog import CATALOG
from deepinfer.hal.registry import REFERENCE, REGISTRY
from deepinfer.ops.numerics import Exact
from deepinfer.ops.rows import named, restride
from deepinfer.ops.spec import SPECS, OpSpec

expected.load_oracles()
EXACT = sorted(name for name, spec in SPECS.items() if isinstance(spec.numerics, Exact))


def test_every_op_has_an_oracle_of_its_class() -> None:
    assert set(expected.BITS) == set(EXACT)
    assert {*expected.FLOATS, *expected.CODES, *expected.JUDGES} == set(SPECS) - set(EXACT)


def results(spec: OpSpec, args: tuple[Any, ...]) -> list[torch.Tensor]:
    """Outputs and written arguments of the reference; the arguments stay."""
    copies = tuple(restride(v) if isinstance(v, torch.Tensor) else v for v in args)
    outs = spec.run(*copies)
    made = outs if isinstance(outs, tuple) else () if outs is None else (outs,)
    return [*made, *(named(spec, copies)[a.name] for a in spec.tensors if a.mutable)]


def spoil(value: torch.Tensor, defined: torch.Tensor | None) -> torch.Tensor | None:
    """A copy with one bit turned over in the last element that is specified; None where there is none."""
    if not value.numel():
        return None
    wrong = value.clone(memory_format=torch.contiguous_format)
    flat = wrong.flatten().view(torch.uint8).view(*value.shape, value.element_size())  # shares memory
    usable = torch.ones(value.shape, dtype=torch.bool) if defined is None else defined.expand(value.shape).clone()
    if value.dtype.is_floating_point:
        usable &= ~value.isnan()
    if not usable.any():
        return None
    flat[tuple(usable.nonzero()[-1].tolist())][0] ^= 1
    return wrong


@pytest.mark.parametrize("op", EXACT)
def test_the_definition_of_an_exact_op_sees_one_wrong_bit_of_every_result(op: str) -> None:
    CATALOG.load(REFERENCE)
    spec = SPECS[op]
    left = set(names_of(spec))
    with REGISTRY.using(REFERENCE):
        for sample in samples(spec):
            right = results(spec, sample.args)
            masks = (*spec.defined(*sample.args), *[None] * len(right))
            assert not compare(spec, sample.args, right, right).findings, sample.label
            for i, name in enumerate(names_of(spec)):
                wrong = spoil(right[i], masks[i]) if name in left else None
                if wrong is not None:
                    spoilt = [*right[:i], wrong, *right[i + 1 :]]
                    (finding,) = compare(spec, sample.args, spoilt, spoilt).findings
                    assert finding.check == "bits" and f"{name}[" in finding.message, sample.label
                    left.discard(name)
            if not left:
                return
    assert not left, "no sample has an element of these"
