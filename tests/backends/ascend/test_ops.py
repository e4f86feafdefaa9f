"""Every kernel of the Ascend backend, found by itself: its op's judge, all schedules, lanes at work, shared rows."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest
import torch

from ascend import needs_tilelang
from ascend_ops import TARGET, differences, every_call, findings, launch, on_ascend, ops, size, supported, up_to
from ascend_texts import of_every_text
from deepinfer.backends.ascend import architecture, program, table
from deepinfer.backends.ascend.build import orphans, programs
from deepinfer.backends.ascend.sim import Schedule, schedules
from deepinfer.conformance.calls import samples
from deepinfer.conformance.suites import invariance
from deepinfer.ops.spec import SPECS, Sample

OPS = ops()
IDLE: dict[str, str] = {}
"""Ops whose lanes stand idle for more than half of the time, with the reason."""


@needs_tilelang
@pytest.mark.parametrize("op", OPS)
def test_the_calls_that_are_required(op: str) -> None:
    """Every call of the quick suite is in the op's class, in every form; none is declined."""
    wrong = {}
    for label, args, variant in every_call(op):
        if found := findings(op, args, variant):
            wrong[f"{label} {variant}"] = found
    assert not wrong


@pytest.mark.parametrize("op", OPS)
def test_no_sample_of_the_contract_is_declined(op: str) -> None:
    """Those too that the quick suite leaves out. Nothing is launched."""
    assert [s.label for s in supported(op)] == [s.label for s in sorted(samples(SPECS[op]), key=size)]


@needs_tilelang
@pytest.mark.parametrize("op", OPS)
def test_bits_are_equal_under_every_schedule(op: str) -> None:
    for sample, texts in of_every_text(op):
        first, runs = launch(op, sample.args)
        assert runs and {run.program.label for run in runs} == texts, sample.label
        for schedule in schedules(seeds=2):
            got, _ = launch(op, sample.args, schedule)
            assert not differences(op, got, first, sample.args), f"{sample.label}, {schedule}"


@needs_tilelang
@pytest.mark.parametrize("op", OPS)
def test_bits_do_not_depend_on_how_many_cores_share_the_work(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ways = dict(program.SIMULATED_CORES)
    for sample, _ in of_every_text(op):
        monkeypatch.setattr(program, "SIMULATED_CORES", ways)
        first, _ = launch(op, sample.args)
        for cores in (1, 5):
            monkeypatch.setattr(program, "SIMULATED_CORES", dict.fromkeys(ways, cores))
            got, _ = launch(op, sample.args, Schedule())
            assert not differences(op, got, first, sample.args), f"{sample.label}, {cores} cores"


def test_every_text_is_launched_under_every_schedule() -> None:
    """But the self-test's, which has its own tests. Nothing is launched here."""
    covered = {label for op in OPS for _, texts in of_every_text(op) for label in texts}
    assert covered == {p.label for p in programs()} - {"self_test"}


@needs_tilelang
@pytest.mark.parametrize("op", ["rms_norm", "quant_fp8", "moe_gate", "topk_select", "sample_draw"])
def test_rows_do_not_depend_on_their_batch(op: str) -> None:
    """The suite `invariance` on the simulator, for ops whose launches are cheap; docs/ascend.md tells of all ops."""
    with on_ascend():
        outcomes = {case.label: case.run(TARGET) for case in invariance.cases("quick", [SPECS[op]])}
    assert outcomes
    assert {label: (o.skipped, *map(str, o.findings)) for label, o in outcomes.items() if not o.passed} == {}


@needs_tilelang
@pytest.mark.parametrize("op", OPS)
def test_half_of_the_lanes_are_at_work(op: str) -> None:
    """Over all launches of a kind; where a modest sample has too few of them, at the widths of the largest."""
    shares = busy(up_to(op, 500_000), op)
    if any(share < 0.5 for share in shares.values()):
        shares = busy(supported(op)[-1], op)
    assert op in IDLE or all(share >= 0.5 for share in shares.values()), shares


def busy(sample: Sample, op: str) -> dict[str, float]:
    """Shares of vector lanes and of threads at work in a call."""
    _, runs = launch(op, sample.args)
    lanes: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for run in runs:
        for kind, (at_work, offered) in (("vector", run.report.simd), ("SIMT", run.report.simt)):
            lanes[kind][0] += at_work
            lanes[kind][1] += offered
    return {kind: at_work / offered for kind, (at_work, offered) in lanes.items() if offered}


def test_the_kept_texts_are_of_the_sources_as_they_are() -> None:
    """`python -m deepinfer.backends.ascend.build --write` brings them up to date."""
    every = programs()
    assert [p.label for p in every if not p.current()] == []
    assert [path.name for path in orphans(every)] == []


@needs_tilelang
@pytest.mark.slow
def test_the_wheel_lowers_a_kernel_as_it_did() -> None:
    """One here, past the cache; `deepinfer build --arch dav-3510 --check` lowers all."""
    known = program.Program("self_test_kernels.py", "self_test")
    assert known.lowered() == known.committed.read_text(encoding="utf-8")


def test_the_page_of_ops_is_current() -> None:
    """`python -m deepinfer.backends.ascend.table > docs/ascend_ops.md`"""
    assert (Path(__file__).parents[3] / "docs" / "ascend_ops.md").read_text(encoding="utf-8") == table.page()


@needs_tilelang
def test_a_launch_has_a_floor_and_half_the_lanes_of_a_tail_are_counted() -> None:
    """Two rows of 65 channels: a vector of 64 lanes, and one of a single lane."""
    x, weight = torch.randn(2, 65).bfloat16(), torch.randn(65).bfloat16()
    _, (run,) = launch("rms_norm", (x, weight, 1e-6))
    busy, offered = run.report.simd
    assert 0.5 < busy / offered < 1
    found = architecture.floor([run])
    moved = 2 * 65 * 2 * 2 + 2 * 65 * 2  # rows in and out, the weight once for each of two cores
    assert found.moved == moved and found.cube == 0
    assert found.seconds == found.memory == moved / architecture.SERVER.memory
