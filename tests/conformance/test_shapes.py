"""Generated shapes: what fails is made small, kept, and tried first the next time."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch

from deepinfer.conformance import saved, shapes
from deepinfer.conformance.case import UNAVAILABLE, UNSUPPORTED, Finding, Outcome, Target
from deepinfer.conformance.saved import FILE, Failing, Saved
from deepinfer.conformance.shapes import judge_shapes
from deepinfer.hal.catalog import CATALOG
from deepinfer.ops.shapes import SHAPES, Pick, Range, Shape, Spans, load_shapes
from deepinfer.ops.spec import SPECS

TARGET = Target("reference", torch.device("cpu"))
NORM = SPECS["rms_norm"]


@pytest.fixture(autouse=True)
def _loaded() -> None:
    CATALOG.load("reference")
    load_shapes()


def fails_from(rows: int, tried: list[int]) -> Any:
    """A judge that finds calls of so many rows, or more, wrong."""

    def judge(spec: Any, args: tuple[Any, ...], target: Target) -> Outcome:
        tried.append(args[0].shape[0])
        wrong = args[0].shape[0] >= rows
        return Outcome((Finding("limit", "y[0]: got 1, want 2"),), worst=3.0) if wrong else Outcome(worst=0.5)

    return judge


@pytest.mark.parametrize("op", ["rms_norm", "sparse_attention", "grouped_linear", "sample_filter"])
def test_the_reference_passes(op: str) -> None:
    found = judge_shapes(SPECS[op], SHAPES[op], "quick", TARGET)
    assert found.passed, found


def test_every_op_can_be_called_at_generated_sizes() -> None:
    assert not set(SHAPES) - set(SPECS)
    assert not set(SPECS) - set(SHAPES), "a builder in ops/*_shapes.py"


def test_every_builder_makes_calls_that_the_spec_accepts_at_both_ends_of_its_ranges() -> None:
    def ends(size: Any) -> tuple[Any, Any]:
        if isinstance(size, Range):
            return size.low, size.high
        if isinstance(size, Pick):
            return size.values[0], size.values[-1]
        assert isinstance(size, Spans)
        return [], [[size.start, size.start + size.length]] * size.most

    for op, made in SHAPES.items():
        for end in (0, 1):
            args = made.make(1, torch.device("cpu"), {name: ends(size)[end] for name, size in made.sizes.items()})
            SPECS[op].signature(*args)


def test_a_failure_is_made_small_and_replayed_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved.use(tmp_path / "out", tmp_path / "cache")
    tried: list[int] = []
    monkeypatch.setattr(shapes, "judge", fails_from(17, tried))
    found = judge_shapes(NORM, SHAPES["rms_norm"], "full", TARGET)
    (finding,) = found.findings
    assert finding.check == "limit" and finding.message.startswith("rows=17, width=1, apart=False, exponent=0, seed 0:")
    assert found.worst == 3.0
    for folder in ("out", "cache"):
        assert len((tmp_path / folder / FILE).read_text().splitlines()) == 1
    tried.clear()
    again = judge_shapes(NORM, SHAPES["rms_norm"], "quick", TARGET)
    assert tried == [17] and again.findings == found.findings
    tried.clear()
    monkeypatch.setattr(shapes, "judge", fails_from(10**6, tried))
    assert judge_shapes(NORM, SHAPES["rms_norm"], "quick", TARGET).passed
    assert tried[0] == 17 and len(tried) > 1


def test_nothing_but_refusals_is_a_skip(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = Outcome(skipped=f"{UNSUPPORTED}: no")
    monkeypatch.setattr(shapes, "judge", lambda *args: refused)
    assert judge_shapes(NORM, SHAPES["rms_norm"], "quick", TARGET) == refused


def test_some_refusals_are_in_the_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    judged = iter([Outcome(worst=0.5), *[Outcome(skipped=f"{UNSUPPORTED}: no")] * 2])
    monkeypatch.setattr(shapes, "judge", lambda *args: next(judged))
    found = judge_shapes(NORM, SHAPES["rms_norm"], "quick", TARGET)
    assert found == Outcome(worst=0.5, notes=(f"1 of 3 calls judged; {UNSUPPORTED}: no",))


def test_no_call_at_all_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "_draw", lambda *args: None)
    assert not judge_shapes(NORM, SHAPES["rms_norm"], "quick", TARGET).passed


def test_a_call_that_is_wrong_only_sometimes_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved.use(tmp_path)
    wrong = iter([Outcome((Finding("limit", "y[0]: got 1, want 2"),))])
    monkeypatch.setattr(shapes, "judge", lambda *args: next(wrong, Outcome()))
    (finding,) = judge_shapes(NORM, SHAPES["rms_norm"], "quick", TARGET).findings
    assert finding.check == "limit" and "got 1, want 2" in finding.message and (tmp_path / FILE).exists()


def test_without_hypothesis_the_case_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    found = judge_shapes(NORM, SHAPES["rms_norm"], "quick", TARGET)
    assert found.skipped.startswith(UNAVAILABLE) and "hypothesis" in found.skipped


def test_quick_draws_the_same_sizes_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    draws: list[list[int]] = []
    for _ in range(2):
        draws.append([])
        monkeypatch.setattr(shapes, "judge", fails_from(10**6, draws[-1]))
        judge_shapes(NORM, SHAPES["rms_norm"], "quick", TARGET)
    assert draws[0] == draws[1] and len(draws[0]) == shapes.EXAMPLES["quick"]


def test_saved_sizes_survive_what_is_wrong_with_the_file(tmp_path: Path) -> None:
    kept = Saved([tmp_path, tmp_path / "not" / "there"])
    first, second = Failing("rms_norm", {"rows": 3}, 1), Failing("rope", {"rows": 4}, 2)
    for failing in (first, second, first):
        kept.add(failing)
    file = tmp_path / FILE
    file.write_text(file.read_text() + '{"op": "rms_norm"}\nno json\n')
    assert kept.of("rms_norm") == [first] and kept.of("rope") == [second] and kept.of("quant_fp8") == []
    assert Saved([tmp_path / "not" / "there"]).of("rope") == [second]


def test_sizes_of_an_older_builder_are_not_replayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved.use(tmp_path)
    saved.SAVED.add(Failing("rms_norm", {"rows": 5, "depth": 2}, 0))
    tried: list[int] = []
    monkeypatch.setattr(shapes, "judge", fails_from(10**6, tried))
    small = Shape(
        "rms_norm",
        {"rows": Range(1, 1)},
        lambda rng, device, rows: SHAPES["rms_norm"].build(rng, device, rows=rows, width=4, apart=False, exponent=0),
    )
    assert judge_shapes(NORM, small, "quick", TARGET).passed and set(tried) == {1}
