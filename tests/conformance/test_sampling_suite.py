"""Suite `sampling` passes the reference and says what is wrong with draws that are not its."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from deepinfer.conformance.recording import ON_THIS_CPU
from deepinfer.conformance.suites import sampling
from deepinfer.conformance.suites.sampling import CUT, MIXED, PLAIN, distributed, judge_drafts, judge_draws
from deepinfer.hal.catalog import CATALOG
from deepinfer.hal.registry import REFERENCE, REGISTRY
from deepinfer.ops.chosen import SAMPLED
from deepinfer.ops.spec import SPECS

COUNT = 1000


@pytest.fixture(autouse=True)
def _reference() -> Any:
    CATALOG.load(REFERENCE)
    with REGISTRY.using(REFERENCE):
        yield


def cases() -> dict[str, Any]:
    made = sampling.cases("quick", [SPECS[op] for op in SAMPLED])
    return {f"{case.op}, {case.label}": case.run for case in made}


def test_the_reference_passes_every_case() -> None:
    assert len(cases()) == sum(map(len, SAMPLED.values()))
    found = {name: run(ON_THIS_CPU).findings for name, run in cases().items()}
    assert not any(found.values()), found


@pytest.mark.whole
def test_the_reference_passes_in_full() -> None:
    for case in sampling.cases("full", [SPECS[op] for op in SAMPLED]):
        assert not case.run(ON_THIS_CPU).findings


def broken(
    monkeypatch: pytest.MonkeyPatch, op: str, change: Callable[[tuple[Any, ...], tuple[Tensor, ...]], Any]
) -> None:
    """The first run of an op from now on gives other outputs: the target's, since it runs before the reference."""
    right, left = sampling.call, [1]

    def call(spec: Any, args: Any, target: Any) -> tuple[Tensor, ...]:
        outs = right(spec, args, target)
        if spec.name == op and left and left.pop():
            return change(args, outs)
        return outs

    monkeypatch.setattr(sampling, "call", call)


def checks(outcome: Any) -> set[str]:
    return {finding.check for finding in outcome.findings}


def test_one_other_draw_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch, "sample_draw", lambda args, outs: (torch.cat((1 - outs[0][:1].clamp(max=1), outs[0][1:])),))
    outcome = judge_draws(PLAIN, "positions", COUNT, ON_THIS_CPU)
    assert checks(outcome) == {"bits"} and "token[0]: got " in str(outcome.findings[0])
    assert str(outcome.findings[0]).endswith("1 of 1000 differ")


@pytest.mark.parametrize("filters", [CUT, MIXED])
def test_draws_without_the_filter_have_another_distribution(monkeypatch: pytest.MonkeyPatch, filters: Any) -> None:
    def all_kept(args: tuple[Any, ...], outs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        z, inverse, *_ = args
        return sampling.call(SPECS["sample_filter"], (z, inverse, None, None, None, 0), ON_THIS_CPU)

    broken(monkeypatch, "sample_filter", all_kept)
    outcome = judge_draws(filters, "positions", COUNT, ON_THIS_CPU)
    assert checks(outcome) == {"bits", "distribution"} and any("is filtered out" in str(f) for f in outcome.findings)


def test_one_token_for_all_rows_is_no_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch, "sample_draw", lambda args, outs: (outs[0][:1].expand(COUNT).clone(),))
    assert checks(judge_draws(PLAIN, "seeds", COUNT, ON_THIS_CPU)) == {"bits", "distribution"}


def test_drafts_that_are_always_accepted_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def trusting(args: tuple[Any, ...], outs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        drafts = args[6]
        return drafts.clone(), torch.ones_like(outs[1])

    right, calls = sampling.call, []

    def second(spec: Any, args: Any, target: Any) -> tuple[Tensor, ...]:
        outs = right(spec, args, target)
        calls.extend([spec.name] * (spec.name == "verify_drafts"))
        return trusting(args, outs) if spec.name == "verify_drafts" and len(calls) == 2 else outs

    monkeypatch.setattr(sampling, "call", second)
    outcome = judge_drafts(MIXED, False, COUNT, ON_THIS_CPU)
    assert checks(outcome) == {"bits", "distribution"}
    assert any("of the drafts are accepted, want" in str(finding) for finding in outcome.findings)


def test_counts_are_held_against_the_distribution() -> None:
    p = torch.tensor([0.5, 0.25, 0.25, 0.0], dtype=torch.float64)
    fair = torch.tensor([0, 0, 1, 2] * 250)
    assert not list(distributed(fair, p))
    assert "filtered out" in str(next(distributed(torch.cat((fair, torch.tensor([3]))), p)))
    assert "outside 0..3" in str(next(distributed(torch.tensor([4]), p)))
    skewed = [str(f) for f in distributed(torch.tensor([0, 1, 1, 2] * 250), p)]
    assert any("token 1 was drawn 500 times of 1000, want 250.0" in text for text in skewed)
    many = torch.full((100,), 0.01, dtype=torch.float64)  # each by 4 sigma, together far too much
    tokens = torch.repeat_interleave(torch.arange(100), torch.tensor([140, 60] * 50))
    assert [f.message.split(" up")[0] for f in distributed(tokens, many)] == ["squared distances add"]
