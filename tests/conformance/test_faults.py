"""The suite `faults` sees what it is there for: checks that are taken out, and messages that say too little."""

from __future__ import annotations

from typing import Any

import pytest

import deepinfer.ops
from deepinfer.conformance.misuse import MISUSES
from deepinfer.conformance.refusals import kinds
from deepinfer.conformance.suites import faults
from deepinfer.hal.errors import ContractError, KernelError
from deepinfer.ops import check, overlap
from deepinfer.ops.spec import SPECS
from planted import planted, right

assert deepinfer.ops


def run(op: str, label: str = "") -> list[Any]:
    with planted(**{op: right}) as target:
        cases = [c for c in faults.cases("quick", [SPECS[op]]) if label in c.label]
        assert cases
        return [f for c in cases for f in c.run(target).findings]


@pytest.mark.parametrize("op", sorted(SPECS))
def test_bad_calls_of_every_op_are_refused_in_words(op: str) -> None:
    assert not (found := run(op)), [str(f) for f in found[:5]]


def test_cases_cover_every_kind_of_every_op() -> None:
    labels = [c.label for c in faults.cases("quick", [SPECS["sparse_attention"]])]
    assert labels == [*kinds(), *(m.about for m in MISUSES["sparse_attention"])]
    assert all(op in SPECS for op in MISUSES)


@pytest.mark.parametrize(
    ("module", "name", "kind", "op"),
    [
        (check, "_check_layout", "layout", "quant_fp8"),
        (check, "_check_kind", "scalar", "rms_norm"),
        (check, "_check_range", "scalar", "moe_gate"),
        (check, "check_mutable", "alias", "window_store"),
        (check, "check_outs", "alias", "rms_norm"),
    ],
)
def test_a_check_that_is_missing(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, kind: str, op: str) -> None:
    assert not run(op, kind)
    monkeypatch.setattr(module, name, lambda *args: None)
    found = run(op, kind)
    assert any(f.check == kind for f in found), [str(f) for f in found]


def test_an_output_that_is_not_checked_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "check_out", lambda *args: None)
    found = run("rms_norm", "out")
    assert {"out", "stray_write"} <= {f.check for f in found}
    assert overlap.check_outs


def refuse(error: Exception) -> list[str]:
    def raising() -> None:
        raise error

    spec = SPECS["rms_norm"]
    return [str(f) for f in faults.refused(spec, "dtype", "x as float64", ("x", "float64"), ContractError, raising, ())]


def test_the_class_and_the_words_of_an_error_count() -> None:
    assert not refuse(SPECS["rms_norm"].error("x must be bfloat16, got float64 [1]"))
    assert "RuntimeError instead of ContractError" in refuse(RuntimeError("op rms_norm: x float64"))[0]
    assert "KernelError instead" in refuse(KernelError("op rms_norm: x float64"))[0]
    assert "does not say ['x']" in refuse(SPECS["rms_norm"].error("must be bfloat16, got float64"))[0]
    assert "does not say ['float64']" in refuse(SPECS["rms_norm"].error("x must be bfloat16, got float641"))[0]
