"""Every mutation operator on every kernel that it fits: the suite that has to see it does."""

from __future__ import annotations

import pytest
from mutation import arguments, families, outputs  # noqa: F401 - they fill the table
from mutation.catch import catch
from mutation.operator import OPERATORS

import deepinfer.ops  # noqa: F401 - defines the specs
from deepinfer.ops.spec import SPECS

IDLE = ("returns_input", "returns_zeros", "returns_last_output", "writes_nothing")
"""`test_no_work.py` asks more of these."""
PAIRS = [
    (name, op)
    for op, spec in SPECS.items()
    for name, operator in OPERATORS.items()
    if operator.fits(spec) and op not in operator.blind and name not in IDLE
]


@pytest.mark.parametrize("name, op", PAIRS, ids=[f"{name}-{op}" for name, op in PAIRS])
def test_the_suite_sees(name: str, op: str) -> None:
    operator = OPERATORS[name]
    caught, said = catch(operator, op)
    assert caught, f"{op}, whose kernel {operator.about}, passes {operator.suites}: {said[:3] or 'nothing found'}"


def test_there_are_enough_operators_and_each_fits_a_kernel() -> None:
    assert len(OPERATORS) >= 25
    assert {name for name, _ in PAIRS} == set(OPERATORS) - set(IDLE)
    assert all(len(why) > 10 and op in SPECS for o in OPERATORS.values() for op, why in o.blind.items())
