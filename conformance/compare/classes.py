"""The results of one call against everything that is known of them: form, the op's class, and the twin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...ops.numerics import Exact
from ...ops.spec import OpSpec, TensorArg
from ..oracle import expected
from .decided_codes import compare_codes
from .exact import compare_bits, compare_form
from .report import Report
from .within import compare_within


def names_of(spec: OpSpec) -> tuple[str, ...]:
    """Names of a call's results: outputs, then the arguments it writes."""
    return (*(o.name for o in spec.outs), *(a.name for a in spec.args if isinstance(a, TensorArg) and a.mutable))


def compare(spec: OpSpec, args: Sequence[Any], got: Sequence[Tensor], twin: Sequence[Tensor]) -> Report:
    """Whether the results of one call lie in the op's numerics class.

    Args:
        args: the arguments before the call, on the CPU, weights in the contract's layout.
        got: outputs, then written arguments, on the CPU.
        twin: the same of the reference on the CPU: exact ops must equal it, and non-finite values stand where it has
            them.
    """
    expected.load_oracles()
    names = names_of(spec)[: len(got)]
    forms = [compare_form(n, g, w) for n, g, w in zip(names, got, twin, strict=True)]
    if any(forms):
        return Report.of(*forms)
    if isinstance(spec.numerics, Exact):
        return _exact(spec, args, names, got, twin)
    if spec.name in expected.FLOATS:
        oracles = expected.FLOATS[spec.name](*args)
        report = Report()
        for name, oracle, value, other in zip(names, oracles, got, twin, strict=True):
            report += compare_within(name, oracle, value, other)
        return report
    if spec.name in expected.CODES:
        record = got[0] if len(got) == 1 else torch.cat([t.view(torch.uint8) for t in got], dim=1)
        return compare_codes(" and ".join(names), expected.CODES[spec.name](*args), record.flatten(0, -2))
    assert spec.name in expected.JUDGES, f"{spec.name} is not exact and has no oracle"
    return expected.JUDGES[spec.name](args, got, twin)


def _exact(
    spec: OpSpec, args: Sequence[Any], names: Sequence[str], got: Sequence[Tensor], twin: Sequence[Tensor]
) -> Report:
    wanted = expected.BITS[spec.name](*args) if spec.name in expected.BITS else [None] * len(got)
    stated = (*spec.defined(*args), *[None] * len(got))  # written arguments are defined throughout
    found = []
    for name, value, other, bits, defined in zip(names, got, twin, wanted, stated, strict=False):
        defined = bits.defined if bits is not None and bits.defined is not None else defined
        found.append(compare_bits(name, value, other, defined, than="the reference has"))
        if bits is not None and found[-1] is None:
            found.append(compare_bits(name, value, bits.want, defined, than="the definition gives"))
    return Report.of(*found)
