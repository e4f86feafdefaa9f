"""Calls of the Ascend backend's kernels on the simulator: by the judge, under schedules, with their launches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from deepinfer.backends.ascend import backend
from deepinfer.backends.ascend.program import Run, watched
from deepinfer.backends.ascend.register import SIMULATED
from deepinfer.backends.ascend.sim import Schedule
from deepinfer.conformance.calls import call, samples, to_target
from deepinfer.conformance.case import Target
from deepinfer.conformance.judge import judge
from deepinfer.hal.catalog import CATALOG
from deepinfer.hal.registry import REGISTRY
from deepinfer.ops.required import calls
from deepinfer.ops.spec import SPECS, Sample

TARGET = Target("ascend", torch.device("cpu"))
LARGEST = 60_000
"""Elements of a sample that is run under every schedule."""


def ops() -> list[str]:
    """The ops that have a kernel of the backend."""
    CATALOG.load("reference")
    backend.load()  # without the self-test, which has its own
    return sorted({kernel.op for kernel in REGISTRY.kernels() if kernel.backend == "ascend"})


@contextmanager
def on_ascend() -> Iterator[None]:
    """The Ascend kernels are the active ones."""
    with REGISTRY.using("ascend", SIMULATED):
        yield


def every_call(op: str) -> list[tuple[str, tuple[Any, ...], str]]:
    """Label, arguments and variant of every call that the quick suite requires."""
    return [(c.label, c.sample.args, c.variant) for c in calls(SPECS[op], "quick", samples(SPECS[op]))]


def findings(op: str, args: tuple[Any, ...], variant: str = "") -> list[str]:
    """What the judge finds of one call, or why it is not judged, as where the backend declines it; [] for nothing."""
    with on_ascend():
        outcome = judge(SPECS[op], args, TARGET, variant)
    return [*map(str, outcome.findings), *[outcome.skipped] * bool(outcome.skipped)]


def launch(op: str, args: tuple[Any, ...], schedule: Schedule | None = None) -> tuple[list[torch.Tensor], list[Run]]:
    """Outputs and written arguments of one call under a schedule, and its launches; the arguments given are kept."""
    spec = SPECS[op]
    with on_ascend():
        placed = to_target(spec, args, TARGET)
        with watched(schedule) as runs:
            outs = call(spec, placed, TARGET)
    written = [v for a, v in zip(spec.args, placed, strict=True) if getattr(a, "mutable", False) and v is not None]
    return [*outs, *written], runs


def size(sample: Sample) -> int:
    """Elements of a sample's tensors."""
    flat = [p for v in sample.args for p in (getattr(v, "tensors", None) or (v,))]
    return sum(p.numel() for p in flat if isinstance(p, torch.Tensor))


def supported(op: str) -> list[Sample]:
    """The samples that the backend's kernels take and launch something for, smallest first."""
    found = []
    with on_ascend():
        for sample in samples(SPECS[op]):
            verdicts = REGISTRY.explain(SPECS[op].signature(*to_target(SPECS[op], sample.args, TARGET)))
            if any(v.chosen and v.kernel.backend == "ascend" for v in verdicts):
                found.append(sample)
    return sorted(found, key=size)


def scheduled(op: str) -> Sample:
    """The largest sample that is small enough to be run under every schedule."""
    return up_to(op, LARGEST)


def up_to(op: str, elements: int) -> Sample:
    """The largest sample of at most so many elements that the kernels take; the smallest where all are larger."""
    every = supported(op)
    return ([s for s in every if size(s) <= elements] or every[:1])[-1]


def differences(op: str, got: list[torch.Tensor], want: list[torch.Tensor], args: tuple[Any, ...]) -> list[str]:
    """Outputs whose bits differ, unspecified elements aside."""
    spec = SPECS[op]
    given = {a.name: v for a, v in zip(spec.args, args, strict=True)}
    wrong = []
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        kind = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[a.element_size()]
        differ = a.contiguous().view(kind) != b.contiguous().view(kind)
        result = spec.outs[i] if i < len(spec.outs) else None
        if result is not None and result.defined is not None:
            differ &= result.defined(given)
        if differ.any():
            wrong.append(f"output {i}: {int(differ.sum())} of {differ.numel()} elements differ")
    return wrong
