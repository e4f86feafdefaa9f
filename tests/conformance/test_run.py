"""Runs: what is required, what a skip costs, what the file and the exit say, and crashes in child processes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deepinfer.conformance import run
from deepinfer.conformance.case import UNSUPPORTED, Case, Outcome
from deepinfer.conformance.registry import SUITES, Suite
from deepinfer.conformance.results import FILE, Result, Verdict
from deepinfer.conformance.run import Request
from deepinfer.hal.errors import BackendError, InvalidArgumentError
from deepinfer.hal.registry import REGISTRY

MUTANT = Request("mutant", ops=("rms_norm",), only=("ops",))


def case(verdict: Verdict, name: str) -> Result:
    return next(r for r in verdict.results if r.id == name)


def test_a_right_backend_passes_but_for_what_it_declares_unsupported(mutant: pytest.MonkeyPatch) -> None:
    verdict = run.run(MUTANT)
    reason = f"{UNSUPPORTED}: rms_norm("
    strided = [r for r in verdict.results if r.status == "skipped"]
    assert {r.id.rpartition("/")[2] for r in strided} == {"strided rows", "37 rows [strided]"}
    assert all(r.outcome.skipped.startswith(reason) and "lie apart" in r.outcome.skipped for r in strided)
    assert verdict.passed == verdict.required - len(strided) and not verdict.failed
    assert str(verdict) == f"passed {verdict.passed} of {verdict.required} required, {len(strided)} skipped"


def test_an_op_without_a_kernel_lowers_n_not_m(mutant: pytest.MonkeyPatch) -> None:
    request = Request("mutant", ops=("gather_rows", "rms_norm"), only=("ops",))
    whole = run.run(Request("reference", ops=request.ops, only=("ops",)))
    verdict = run.run(request)
    assert verdict.required == whole.required == whole.passed
    skipped = [r for r in verdict.results if r.id.startswith("ops/gather_rows/")]
    assert skipped and all("backend 'mutant' has no kernel for gather_rows" in r.outcome.skipped for r in skipped)


def test_a_wrong_kernel_fails_by_name(mutant: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mutant.setenv("MUTANT", "37=wrong")
    seen: list[str] = []
    verdict = run.run(replace(MUTANT, out=str(tmp_path)), lambda r: seen.append(r.id))
    assert {name.partition(" [")[0] for name in verdict.failed} == {"ops/rms_norm/37 rows"}
    wrong = len(verdict.failed)
    assert str(verdict) == f"passed {verdict.passed} of {verdict.required} required, {wrong} failed, 2 skipped"
    finding = case(verdict, "ops/rms_norm/37 rows").outcome.findings[0]
    assert finding.check == "limit" and finding.message.startswith("y[3, 5]: got ")
    lines = [json.loads(line) for line in (tmp_path / FILE).read_text().splitlines()]
    assert [line["record"] for line in lines] == ["header", *["case"] * len(seen), "verdict"]
    assert lines[0]["backend"] == "mutant" and lines[0]["device"] == "cpu" and lines[0]["tier"] == "quick"
    assert {"deepinfer", "contract_version", "torch", "python", "capability"} <= set(lines[0])
    assert [line["id"] for line in lines[1:-1]] == seen
    assert lines[-1]["failed"] == verdict.failed and lines[-1]["passed"] == verdict.passed


def test_what_a_kernel_raises_is_a_finding(mutant: pytest.MonkeyPatch) -> None:
    mutant.setenv("MUTANT", "37=raise")
    verdict = run.run(Request("mutant", cases=("ops/rms_norm/37 rows",)))
    (finding,) = verdict.results[0].outcome.findings
    assert str(finding).startswith("error: RuntimeError: no such luck (mutant_backend.py:")
    assert str(finding).endswith(", in rms_norm)")
    assert (verdict.required, verdict.passed) == (1, 0)


def test_a_pin_that_names_no_kernel_is_refused() -> None:
    """A run of skips would look like a kernel that declines."""
    request = Request("reference", cases=("ops/rms_norm/37 rows",))
    with (
        REGISTRY.pin("rms_norm", "reference:fastr"),
        pytest.raises(InvalidArgumentError, match="got 'rms_norm=reference:fastr'; allowed: kernels of rms_norm"),
    ):
        run.run(request)


def dies(mutant: pytest.MonkeyPatch, faults: str, *labels: str, timeout: float = 60) -> list[Result]:
    """Results of some cases of a kernel that ends its process, or does not end."""
    mutant.setenv("MUTANT", faults)
    names = tuple(f"ops/rms_norm/{label}" for label in labels)
    verdict = run.run(Request("mutant", cases=names, isolate=True, timeout=timeout))
    assert [r.id for r in verdict.results] == list(names)
    return list(verdict.results)


def test_a_child_that_dies_is_a_failed_case(mutant: pytest.MonkeyPatch) -> None:
    """And the cases behind it are judged by another child."""
    crash, alive, ended, last = dies(mutant, "0=crash,16=exit", "0 rows", "1 rows", "16 rows", "37 rows")
    assert alive.status == last.status == "passed"
    for result, says in ((crash, "killed by SIGSEGV"), (ended, "exit status 3")):
        (finding,) = result.outcome.findings
        assert finding.check == "crash" and says in finding.message
    assert "Segmentation fault" in crash.outcome.findings[0].message
    assert "in rms_norm" in crash.outcome.findings[0].message
    assert re.search(r"in \S+$", crash.outcome.findings[0].message), "the stack ends with a whole line"


@pytest.mark.slow
def test_a_case_that_never_ends_is_a_failed_case(mutant: pytest.MonkeyPatch) -> None:
    hung, last = dies(mutant, "16=hang", "16 rows", "37 rows", timeout=3)
    (finding,) = hung.outcome.findings
    assert str(finding) == "timeout: no end within 3 s" and last.status == "passed"


def test_children_find_what_this_process_finds() -> None:
    request = Request("reference", ops=("quant_fp8",), only=("ops",))
    alone = run.run(request)
    child = run.run(Request("reference", ops=("quant_fp8",), only=("ops",), isolate=True))
    assert [(r.id, r.outcome) for r in child.results] == [(r.id, r.outcome) for r in alone.results]


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (Request("reference", only=("op",)), "only: got 'op'; allowed: .*ops"),
        (Request("reference", ops=("rms_norms",)), "ops: got 'rms_norms'; .* such as rms_norm"),
        (Request("reference", cases=("ops/rms_norm/36 rows",)), "such as .*/37 rows"),
        (Request("reference", cases=("opa/rms_norm/37 rows",)), "case: got 'opa"),
        (
            Request("reference", only=("invariance",), ops=("moe_pack",)),
            "only: got 'inv.* cases for moe_pack",
        ),
        (Request("reference", tier="fast"), "suite: got 'fast'; allowed: quick, full, deep"),  # type: ignore[arg-type]
        (Request("reference", device="tpu"), "device: got 'tpu'"),
    ],
)
def test_names_that_are_not_there_are_refused(request_: Request, says: str) -> None:
    with pytest.raises(InvalidArgumentError, match=says):
        run.run(request_)


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(BackendError, match="nope"):
        run.run(Request("nope"))


def test_a_run_leaves_the_process_as_it_was() -> None:
    before = REGISTRY.active, REGISTRY.arch, REGISTRY._strict, REGISTRY._allow_fast
    run.run(Request("reference", cases=("ops/rms_norm/1 rows",)))
    assert (REGISTRY.active, REGISTRY.arch, REGISTRY._strict, REGISTRY._allow_fast) == before


def test_a_suite_that_lost_its_cases_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """The required set is the contract's: a suite cannot shrink it."""

    def fewer(tier: Any, ops: Sequence[Any]) -> Iterator[Case]:
        if tier == "full":
            raise ValueError("broken")
        yield Case("ops", "rms_norm", "1 rows", lambda target: Outcome())

    run.load_suites()
    monkeypatch.setitem(SUITES, "ops", Suite("ops", "", fewer))
    verdict = run.run(Request("reference", ops=("rms_norm",), only=("ops",)))
    assert verdict.passed == 1 and "ops/rms_norm/37 rows" in verdict.failed and len(verdict.missing) > 5
    verdict = run.run(Request("reference", ops=("rms_norm",), only=("ops",), tier="full"))
    assert "ops/*/cases" in verdict.failed
    assert case(verdict, "ops/*/cases").outcome.findings[0].message.startswith("making cases: ValueError: broken (")


@pytest.mark.parametrize("suite", ["determinism", "faults", "invariance"])
def test_a_suite_that_lost_one_case_fails(suite: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run.load_suites()[suite]
    monkeypatch.setitem(SUITES, suite, Suite(suite, "", lambda tier, ops: iter([*whole.cases(tier, ops)][1:])))
    found = run.survey(run.plan(Request("reference", ops=("rms_norm",), only=(suite,))))
    (lost,) = found.missing
    assert lost.startswith(f"{suite}/rms_norm/") and lost not in found.ids


def test_wrappers_over_torch_are_named(mutant: pytest.MonkeyPatch) -> None:
    run.run(Request("mutant", cases=("ops/rms_norm/1 rows",)))
    assert run.wrappers("mutant") == []
    (kernel,) = (k for k in REGISTRY.kernels("rms_norm") if k.backend == "mutant")
    REGISTRY.remove(kernel)
    REGISTRY.add(replace(kernel, source="torch"))
    assert run.wrappers("mutant") == ["rms_norm"] and run.wrappers("reference") == []
