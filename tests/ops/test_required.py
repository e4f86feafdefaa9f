"""The required set: what each tier asks of an op, and that nobody but the contract can shrink it."""

from __future__ import annotations

import pytest

import deepinfer.ops  # noqa: F401 - defines the specs
from deepinfer.conformance import misuse, run
from deepinfer.conformance.calls import samples
from deepinfer.conformance.refusals import kinds
from deepinfer.conformance.registry import load_suites
from deepinfer.hal.catalog import CATALOG
from deepinfer.ops.chosen import FAULTS, MISUSES
from deepinfer.ops.required import (
    LEVELS,
    MODELS,
    MODEST,
    SHAPES_LABEL,
    calls,
    form_of,
    pools,
    requirements,
    row_count,
    spoilt_args,
    variants,
)
from deepinfer.ops.rows import ROWS, Rows
from deepinfer.ops.spec import SPECS


@pytest.fixture(autouse=True)
def _loaded() -> None:
    CATALOG.load("reference")


def labels(op: str, tier: str) -> list[str]:
    return [call.label for call in calls(SPECS[op], tier, samples(SPECS[op]))]  # type: ignore[arg-type]


@pytest.mark.parametrize("op", sorted(SPECS))
def test_quick_has_the_edges_and_one_larger_sample_and_full_has_all(op: str) -> None:
    made = list(samples(SPECS[op]))
    quick, full = labels(op, "quick"), labels(op, "full")
    assert set(quick) <= set(full) and len(set(full)) == len(full)
    assert {s.label for s in made} <= set(full)
    assert not [label for label in quick if label.startswith("real")]
    larger = [s for s in made if s.label in quick and row_count(SPECS[op], s) > MODEST]
    assert len(larger) <= 1 + len({form_of(s) for s in larger[1:]}) and quick
    assert {form_of(s) for s in made} <= {form_of(s) for s in made if s.label in quick or s.label.startswith("real")}


def test_variants_follow_the_spec() -> None:
    assert variants(SPECS["rms_norm"]) == ["strided", "non-finite"] and variants(SPECS["engram_hash"]) == ["strided"]
    assert variants(SPECS["hc_expand"]) == ["strided", "in place", "non-finite"]
    assert spoilt_args(SPECS["moe_combine"]) == ["shared", "y"] and not spoilt_args(SPECS["token_logprobs"])
    assert pools(SPECS["compressed_store"]) == ["pages"] and pools(SPECS["sparse_attention"]) == ["pages", "ring"]
    assert pools(SPECS["grouped_linear"]) == ["weight"] and pools(SPECS["rms_norm"]) == []
    assert "37 rows [in place]" in labels("hc_expand", "quick")
    assert [x for x in labels("sparse_attention", "full") if "far" in x] and not [
        x for x in labels("sparse_attention", "quick") if "far" in x
    ]


def test_the_set_names_every_suite_and_every_op() -> None:
    specs = [SPECS["rms_norm"], SPECS["moe_pack"], SPECS["sample_draw"]]
    found = {(r.suite, r.op): r.labels for r in requirements("quick", specs, samples)}
    assert {suite for suite, _ in found} == set(load_suites())
    assert SHAPES_LABEL in (found["ops", "rms_norm"] or ())
    assert ("invariance", "rms_norm") in found and ("invariance", "moe_pack") not in found
    assert found["faults", "rms_norm"] == FAULTS and {"37 rows", "real width"} <= set(found["determinism", "rms_norm"])
    assert found["model", "tiny"] == LEVELS[:1]
    whole = {(r.suite, r.op): r.labels for r in requirements("quick", list(SPECS.values()), samples)}
    assert whole["model", "tiny"] == LEVELS and MODELS["quick"] == ("tiny",)
    assert {op for suite, op in whole if suite == "invariance"} == {n for n in SPECS if isinstance(ROWS.get(n), Rows)}


def test_the_faults_that_are_required_are_those_there_are() -> None:
    assert FAULTS == tuple(kinds())
    assert {op: tuple(m.about for m in made) for op, made in misuse.MISUSES.items()} == MISUSES


@pytest.mark.parametrize("tier", ["quick", "full", "deep"])
def test_every_case_is_required_and_every_requirement_is_a_case(tier: run.Tier) -> None:
    names = ("rms_norm", "sparse_attention", "moe_pack")
    found = run.survey(run.plan(run.Request("reference", tier=tier, ops=names)))
    assert not found.missing and found.required == set(found.ids) and len(set(found.ids)) == len(found.ids)


def test_every_op_has_cases_in_every_suite_that_asks_for_it() -> None:
    needs = list(requirements("quick", list(SPECS.values()), samples))
    assert all(need.labels for need in needs), [n for n in needs if not n.labels]
