"""A run: suites and a backend, multiplied. The suites know no backend and the backend knows no suite."""

from __future__ import annotations

import difflib
import fnmatch
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import __version__
from ..hal.backend import Backend, canonical
from ..hal.catalog import CATALOG
from ..hal.device import Device
from ..hal.errors import InvalidArgumentError
from ..hal.registry import REFERENCE, REGISTRY
from ..ops import describe, required
from ..ops.spec import SPECS, OpSpec
from . import calls, saved
from .case import TIERS, Case, Outcome, Target, Tier, raised
from .registry import Suite, load_suites
from .results import Result, Verdict, Writer, header

TIMEOUT = 600.0
"""Seconds that a case may take in a child process."""


@dataclass(frozen=True)
class Request:
    """What is to be judged.

    Attributes:
        backend: name, as `deepinfer ops status` lists it. device: '' for its first one.
        tier: 'quick', 'full' or 'deep'.
        ops: globs of op names; empty for all. only: suites; empty for all. cases: ids; empty for all.
        out: folder for results and failing shapes.
        fallback: 'reference' to judge whole models with ops that the backend has no kernels for on the reference's, on
            the same device; '' to skip them.
        isolate: run cases in a child process, so that a crash is a failed case. timeout: seconds per case there.
    """

    backend: str
    device: str = ""
    tier: Tier = "quick"
    ops: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    out: str = ""
    fallback: str = ""
    isolate: bool = False
    timeout: float = TIMEOUT


@dataclass(frozen=True)
class Plan:
    """A request whose names were found: an active backend, suites, ops.

    Attributes:
        names: of `--case`; empty for all.
        fallback: whether models may have ops on the reference's kernels.
    """

    backend: Backend
    device: Device
    tier: Tier
    suites: tuple[Suite, ...]
    ops: tuple[OpSpec, ...]
    names: tuple[str, ...]
    fallback: bool = False

    @property
    def target(self) -> Target:
        """What the cases are run on."""
        return Target(self.backend.name, self.device.torch, self.fallback)

    def cases(self) -> Iterator[Case]:
        """Every case in order. A suite that cannot make its cases yields one that says so."""
        for found in self.suites:
            try:
                for case in found.cases(self.tier, self.ops):
                    if not self.names or case.id in self.names:
                        yield case
            except Exception as error:
                wrong = Outcome((raised(error, "making cases: "),))
                yield Case(found.name, "*", "cases", lambda _, wrong=wrong: wrong)  # type: ignore[misc]


@dataclass(frozen=True)
class Set:
    """The cases of a plan and those that are required."""

    ids: tuple[str, ...]
    required: frozenset[str]
    missing: tuple[str, ...] = field(default=())


def plan(request: Request) -> Plan:
    """Find everything a request names, and activate its backend.

    Raises:
        InvalidArgumentError: an unknown suite, tier or op, a pin that names no kernel; lists those there are.
        BackendError: an unknown or unavailable backend.
    """
    suites = load_suites()
    for name in request.only:
        if name not in suites:
            raise InvalidArgumentError("only", name, ", ".join(suites))
    if request.fallback not in ("", REFERENCE):
        raise InvalidArgumentError("fallback", request.fallback, REFERENCE)
    if request.tier not in TIERS:
        raise InvalidArgumentError("suite", request.tier, ", ".join(TIERS))
    specs = [s.name for s in describe.ordered()]
    for glob in request.ops:
        if not fnmatch.filter(specs, glob):
            close = difflib.get_close_matches(glob, specs, 3)
            raise InvalidArgumentError(
                "ops", glob, f"a glob over ops, such as {', '.join(close or ['rms_norm', '*_fp8'])}"
            )
    device = Device.parse(request.device) if request.device else None
    backend = CATALOG.activate(request.backend, device)
    REGISTRY.check_pins(SPECS)
    chosen = [s for n, s in suites.items() if not request.only or n in request.only]
    ops = _matching(request.ops)
    if request.cases:  # nothing else is made
        parts = [name.split("/", 2) for name in request.cases]
        chosen = [s for s in chosen if any(p[0] == s.name for p in parts)]
        asked = {p[1] for p in parts if len(p) == 3}
        ops = [s for s in ops if s.name in asked] if asked <= set(specs) else ops
    where = device or backend.devices()[0]
    fallback = bool(request.fallback)
    return Plan(backend, where, request.tier, tuple(chosen), tuple(ops), request.cases, fallback)


def survey(planned: Plan) -> Set:
    """The ids of all cases, and which of them are required.

    Raises:
        InvalidArgumentError: `--case` names a case that is not there, or there is none at all.
    """
    ids = tuple(case.id for case in planned.cases())
    for name in planned.names:
        if name not in ids:
            close = difflib.get_close_matches(name, [c.id for c in Plan.cases(_all(planned))], 3)
            raise InvalidArgumentError(
                "case", name, f"an id that --list prints{', such as ' * bool(close)}{', '.join(close)}"
            )
    wanted: set[str] = set()
    suites = {s.name for s in planned.suites}
    for need in required.requirements(planned.tier, planned.ops, calls.samples):
        if need.suite not in suites:
            continue
        wanted.update(f"{need.suite}/{need.op}/{label}" for label in need.labels)
    if planned.names:
        return Set(ids, frozenset(wanted & set(ids)))
    missing = sorted(wanted - set(ids))
    if not ids and not missing:
        names = ", ".join(s.name for s in planned.ops)
        raise InvalidArgumentError("only", ", ".join(sorted(suites)), f"a suite that has cases for {names}")
    return Set(ids, frozenset(wanted & set(ids)), tuple(missing))


def _all(planned: Plan) -> Plan:
    return Plan(planned.backend, planned.device, planned.tier, planned.suites, planned.ops, ())


def run_case(case: Case, target: Target) -> tuple[Outcome, float]:
    """Run one case; what it raises is a finding. Seconds as well."""
    start = time.perf_counter()
    try:
        outcome = case.run(target)
    except Exception as error:
        outcome = Outcome((raised(error),))
    return outcome, time.perf_counter() - start


def run(request: Request, report: Callable[[Result], None] = lambda _: None, start: Any = None) -> Verdict:
    """Carry out a request.

    Args:
        report: called with every result as it comes.
        start: called with the `Set` before the first case.

    Raises:
        InvalidArgumentError, BackendError: see `plan` and `survey`.
    """
    folder = Path(request.out) if request.out else None
    saved.use(*([folder] if folder else []), saved.default_folder())
    with invariant_kernels():
        planned = plan(request)
        found = survey(planned)
        if start is not None:
            start(found)
        writer = Writer(folder)
        try:
            writer.write(
                header(
                    __version__,
                    planned.backend,
                    planned.device,
                    planned.tier,
                    (s.name for s in planned.suites),
                    (s.name for s in planned.ops),
                )
            )
            results = []
            for name, outcome, seconds in _outcomes(request, planned, found):
                results.append(Result(name, outcome, name in found.required, seconds))
                writer.write(results[-1].as_dict())
                report(results[-1])
            verdict = Verdict(results, found.missing)
            writer.write(verdict.as_dict())
        finally:
            writer.close()
    return verdict


def _outcomes(request: Request, planned: Plan, found: Set) -> Iterable[tuple[str, Outcome, float]]:
    if request.isolate:
        from .isolate import outcomes

        return outcomes(request, found.ids)
    return ((case.id, *run_case(case, planned.target)) for case in planned.cases())


@contextmanager
def invariant_kernels() -> Iterator[None]:
    """Judge the kernels of the contract, not fast ones that a user may have allowed; afterwards all is as before."""
    with REGISTRY.configured(strict=False, allow_fast=False), REGISTRY.using(REGISTRY.active, REGISTRY.arch):
        yield


def wrappers(backend: str, ops: Sequence[str] = ()) -> list[str]:
    """Ops (of such globs) of which a loaded backend has wrappers over torch only: judged, but not ports."""
    found = []
    for spec in _matching(ops):
        kernels = [k for k in REGISTRY.kernels(spec.name) if k.backend == canonical(backend)]
        if kernels and not any(k.own for k in kernels):
            found.append(spec.name)
    return found


def _matching(globs: Sequence[str]) -> list[OpSpec]:
    """Specs of such names, families together; all for no glob."""
    return [s for s in describe.ordered() if not globs or any(fnmatch.fnmatchcase(s.name, g) for g in globs)]
