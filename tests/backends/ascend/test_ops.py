"""Every kernel of the Ascend backend, found by itself: its op's judge, all schedules, lanes at work, shared rows."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest
import torch

from ascend import needs_tilelang
from ascend_ops import differences, every_call, findings, launch, ops, scheduled, supported, up_to
from deepinfer.backends.ascend import architecture, program, table
from deepinfer.backends.ascend.build import orphans, programs
from deepinfer.backends.ascend.sim import Schedule, schedules
from deepinfer.ops.spec import Sample

OPS = ops()
IDLE: dict[str, str] = {}
"""Ops whose lanes stand idle for more than half of the time, with the reason."""


@needs_tilelang
@pytest.mark.parametrize("op", OPS)
def test_the_calls_that_are_required(op: str) -> None:
    """Every call of the quick suite is in the op's class, in every form; widths that are declined are left out."""
    wrong = {}
    for label, args, variant in every_call(op):
        if found := findings(op, args, variant):
            wrong[f"{label} {variant}"] = found
    assert not wrong


@needs_tilelang
@pytest.mark.parametrize("op", OPS)
def test_bits_are_equal_under_every_schedule(op: str) -> None:
    args = scheduled(op).args
    first, runs = launch(op, args)
    assert runs, "nothing was launched"
    for schedule in schedules(seeds=2):
        got, _ = launch(op, args, schedule)
        assert not differences(op, got, first, args), str(schedule)


@needs_tilelang
@pytest.mark.parametrize("op", OPS)
def test_bits_do_not_depend_on_how_many_cores_share_the_work(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    args = scheduled(op).args
    first, _ = launch(op, args)
    for cores in (1, 5):
        monkeypatch.setattr(program, "SIMULATED_CORES", dict.fromkeys(program.SIMULATED_CORES, cores))
        got, _ = launch(op, args, Schedule())
        assert not differences(op, got, first, args), f"{cores} cores"


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
