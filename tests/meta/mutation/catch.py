"""Runs a wrong kernel through the conformance suite."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch

from deepinfer.conformance.calls import samples
from deepinfer.conformance.case import Case, Finding, Target
from deepinfer.conformance.judge import judge
from deepinfer.conformance.registry import load_suites
from deepinfer.hal.backend import Backend
from deepinfer.hal.catalog import CATALOG
from deepinfer.hal.contract import CONTRACT_VERSION
from deepinfer.hal.registry import REFERENCE, REGISTRY, Kernel
from deepinfer.ops.required import FAR, Call, calls
from deepinfer.ops.spec import SPECS, OpSpec, Sample

from .operator import Operator, Run

NAME = "mutant"
CPU = torch.device("cpu")
TARGET = Target(NAME, CPU)


class MutantBackend(Backend):
    """The backend that wrong kernels are registered for."""

    name = NAME
    contract_version = CONTRACT_VERSION


def kernel_of(op: str, backend: str = REFERENCE) -> Kernel:
    """A backend's kernel of an op, loaded if need be."""
    CATALOG.load(backend)
    version = SPECS[op].version
    return next(k for k in REGISTRY.kernels(op) if k.backend == backend and k.version == version)


@contextmanager
def registered(kernel: Kernel) -> Iterator[None]:
    """A kernel as that of the active backend 'mutant'."""
    CATALOG.load(REFERENCE)  # what the suites compare with
    if NAME not in CATALOG.entries():
        CATALOG.add(MutantBackend())
    added = REGISTRY.add(replace(kernel, backend=NAME, name="", source="triton"))
    try:
        with REGISTRY.using(NAME):
            yield
    finally:
        REGISTRY.remove(added)


def mutant(operator: Operator, kernel: Kernel) -> Kernel:
    """A kernel that is wrong as the operator says; layout, preparation and scratch memory are the right one's."""
    spec = SPECS[kernel.op]
    if kernel.workspace is None:
        return replace(kernel, fn=operator.make(spec, kernel.fn))
    # Operators know nothing of scratch memory: what a call brings is put aside for the right kernel.
    scratch: list[Any] = [None]
    wrong: Run = operator.make(spec, lambda *args: kernel.fn(*args, scratch[0]))

    def run(*args: Any) -> Any:
        scratch[0] = args[-1]
        return wrong(*args[:-1])

    return replace(kernel, fn=run)


@lru_cache(maxsize=3)
def _samples(spec: OpSpec) -> list[Sample]:
    CATALOG.load(REFERENCE)  # it prepares the weights
    return list(samples(spec))


@contextmanager
def _shared_samples() -> Iterator[None]:
    """Suites take the samples of an op that were made before: making them takes longer than most calls."""
    modules = [m for m in map(sys.modules.get, (suite.cases.__module__ for suite in load_suites().values())) if m]
    users = [m for m in modules if getattr(m, "samples", None) is samples]
    for module in users:
        module.samples = lambda spec, seed=0: samples(spec, seed) if seed else iter(_samples(spec))  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for module in users:
            module.samples = samples  # type: ignore[attr-defined]


@lru_cache(maxsize=4)
def quick_calls(op: str) -> list[Call]:
    """Calls that the tier `quick` requires of an op."""
    return list(calls(SPECS[op], "quick", _samples(SPECS[op])))


@lru_cache(maxsize=12)
def case_list(op: str, suite: str) -> list[Case]:
    """Cases of a suite for an op, in the tier `quick`, those at real widths last; of 'far' the calls of the suite `ops`
    beyond 2^31 bytes."""
    spec = SPECS[op]
    if suite != "far":
        with _shared_samples():
            return sorted(load_suites()[suite].cases("quick", [spec]), key=lambda case: case.label.startswith("real"))
    return [
        Case("ops", op, c.label, lambda target, c=c: judge(spec, c.sample.args, target, c.variant))  # type: ignore[misc]
        for c in calls(spec, "full", _samples(spec))
        if c.variant.startswith(FAR)
    ]


def findings(
    suites: tuple[str, ...], kernel: Kernel, device: torch.device = CPU
) -> Iterator[tuple[str, tuple[Finding, ...]]]:
    """What suites say of a wrong kernel: every case and its findings; an exception counts as in a run."""
    with registered(kernel):
        for case in (case for suite in suites for case in case_list(kernel.op, suite)):
            try:
                outcome = case.run(Target(NAME, device))
            except Exception as error:
                yield case.id, (Finding("error", f"{type(error).__name__}: {error}"),)
                continue
            assert not outcome.skipped or kernel.supports, f"{case.id}: {outcome.skipped}"
            if not outcome.skipped:
                yield case.id, outcome.findings


def catch(
    operator: Operator, op: str, kernel: Kernel | None = None, device: torch.device = CPU
) -> tuple[bool, list[str]]:
    """Whether the operator's suites see it with one of the operator's checks, and all that was said until then.

    Args:
        kernel: the right one, of any backend that is loaded; the reference's by default.
        device: where it runs.
    """
    said = []
    for case, found in findings(operator.suites, mutant(operator, kernel or kernel_of(op)), device):
        for finding in found:
            said.append(f"{case}: {finding}")
            if not operator.checks or finding.check in operator.checks:
                return True, said
    return False, said


def passed(operator: Operator, op: str, kernel: Kernel | None = None, device: torch.device = CPU) -> list[str]:
    """The cases of the operator's suites that the wrong kernel passes."""
    wrong = mutant(operator, kernel or kernel_of(op))
    return [case for case, found in findings(operator.suites, wrong, device) if not found]
