"""Runs a wrong kernel through the conformance suite."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from deepinfer.conformance.calls import samples
from deepinfer.conformance.case import Case, Finding, Target
from deepinfer.conformance.judge import judge
from deepinfer.conformance.registry import load_suites
from deepinfer.hal.backend import Backend
from deepinfer.hal.catalog import CATALOG
from deepinfer.hal.contract import CONTRACT_VERSION
from deepinfer.hal.registry import REGISTRY, Kernel
from deepinfer.ops.required import FAR, calls
from deepinfer.ops.spec import SPECS, OpSpec

from .operator import Operator, Run

NAME = "mutant"
TARGET = Target(NAME, torch.device("cpu"))


class MutantBackend(Backend):
    """The backend that wrong kernels are registered for."""

    name = NAME
    contract_version = CONTRACT_VERSION


def right_kernel(op: str) -> Run:
    """The reference's kernel."""
    CATALOG.load("reference")
    return next(k.fn for k in REGISTRY.kernels(op) if k.backend == "reference" and k.version == SPECS[op].version)


@contextmanager
def registered(spec: OpSpec, wrong: Run) -> Iterator[None]:
    """The kernel as that of the active backend 'mutant'."""
    if NAME not in CATALOG.entries():
        CATALOG.add(MutantBackend())
    kernel = REGISTRY.add(Kernel(spec.name, spec.version, NAME, wrong, source="triton"))
    try:
        with REGISTRY.using(NAME):
            yield
    finally:
        REGISTRY.remove(kernel)


def cases(spec: OpSpec, suite: str, tier: str = "quick") -> Iterator[Case]:
    """Cases of a suite for an op; of 'far' the calls of the suite `ops` beyond 2^31 bytes."""
    if suite != "far":
        yield from load_suites()[suite].cases(tier, [spec])  # type: ignore[arg-type]
        return
    for call in calls(spec, "full", samples(spec)):
        if call.variant.startswith(FAR):
            args, variant = call.sample.args, call.variant
            yield Case("ops", spec.name, call.label, lambda target, a=args, v=variant: judge(spec, a, target, v))  # type: ignore[misc]


def findings(spec: OpSpec, suite: str, wrong: Run) -> Iterator[tuple[str, Finding]]:
    """What a suite says of a wrong kernel: the case, and what it found; an exception counts as in a run."""
    with registered(spec, wrong):
        for case in cases(spec, suite):
            try:
                outcome = case.run(TARGET)
            except Exception as error:
                yield case.id, Finding("error", f"{type(error).__name__}: {error}")
                continue
            assert not outcome.skipped, f"{case.id}: {outcome.skipped}"
            for finding in outcome.findings:
                yield case.id, finding


def catch(operator: Operator, op: str) -> tuple[bool, list[str]]:
    """Whether the operator's suite sees it with one of the operator's checks, and all that was said until then."""
    spec = SPECS[op]
    said = []
    for case, finding in findings(spec, operator.suite, operator.make(spec, right_kernel(op))):
        said.append(f"{case}: {finding}")
        if not operator.checks or finding.check in operator.checks:
            return True, said
    return False, said
