"""Source mutants through the suites: what first tells that an edit is wrong, and which edits nobody sees.

    python -m mutation.sweep [MODULE …] [--out FILE] [--list FILE]       (in tests/meta)

tries every place of the modules of the reference, all by default, and prints a line for each.
"""

from __future__ import annotations

import argparse
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from deepinfer.conformance.calls import call, difference, to_target
from deepinfer.conformance.case import Case, Finding, Target
from deepinfer.conformance.judge import judge
from deepinfer.hal.catalog import CATALOG
from deepinfer.hal.registry import REGISTRY
from deepinfer.ops.numerics import Exact
from deepinfer.ops.required import PLAIN
from deepinfer.ops.spec import SPECS, TensorArg

from .catch import NAME, TARGET, MutantBackend, case_list, quick_calls
from .source import FOLDER, Site, loaded, sites, users_of

USERS, MOST_USERS = 3, 25
"""Kernels that a place of a helper is tried on with whole suites, and those whose calls are compared before."""
CASE_SECONDS = 30.0
"""Processor seconds after which a case counts as one that does not end."""
LISTED = Path(__file__).parents[1] / "equivalent.txt"
"""Places whose edit nobody can tell from the original, each with the reason."""
MARK = "  ## "
MEMORY = 12 << 30


class _EndlessError(BaseException):
    """A case does not end. No suite may take it for an exception of the kernel."""


@dataclass(frozen=True)
class Verdict:
    """What came of a place: the finding and the case that saw it; None if nobody did, with the reason to stop."""

    site: Site
    finding: Finding | None
    where: str


def listed() -> dict[str, str]:
    """Ids of places that cannot be told apart -> reasons."""
    lines = (line.strip() for line in LISTED.read_text(encoding="utf-8").splitlines())
    entries = [line.rpartition(MARK) for line in lines if line and not line.startswith("#")]
    assert all(mark for _, mark, _ in entries), "every line of equivalent.txt holds an id, ' ## ' and a reason"
    return {name.strip(): reason.strip() for name, _, reason in entries}


def judged(site: Site, seconds: float = 120.0) -> Verdict | None:
    """Run a place through the suites; None for a place that no kernel uses.

    Args:
        seconds: processor seconds after which no further case is begun.
    """
    # Of exact ops every bit tells.
    reached = sorted(users_of(site.module, site.function), key=lambda r: not isinstance(SPECS[r[1]].numerics, Exact))
    if not reached:
        return None
    if NAME not in CATALOG.entries():
        CATALOG.add(MutantBackend())
    until = time.process_time() + seconds
    try:
        with loaded(site, sorted({name for name, _ in reached})), REGISTRY.using(NAME):
            return _search(site, [op for _, op in reached], until)
    except _EndlessError:
        return Verdict(site, Finding("timeout", "the case does not end"), "")
    except Exception as error:  # a module that cannot be imported any more
        return Verdict(site, Finding("error", f"{type(error).__name__}: {error}"), "import")


def _search(site: Site, ops: list[str], until: float) -> Verdict:
    """The cheap first: calls whose results differ from the right kernel's, then the other cases of the suites."""
    steps: list[Callable[[str], Iterator[Case]]] = [
        _changed_calls,
        lambda op: (c for c in case_list(op, "ops") if "[" in c.label or c.label == "shapes"),
        lambda op: (c for c in case_list(op, "invariance") if not c.label.startswith("real")),
        lambda op: iter(case_list(op, "faults")),
    ]
    if site.operator == "statement":  # what is not written is what the memory held
        steps.append(lambda op: (c for c in case_list(op, "determinism") if not c.label.startswith("real")))
    for number, step in enumerate(steps):
        for op in ops[: USERS if number else MOST_USERS]:
            for case in step(op):
                if time.process_time() > until:
                    return Verdict(site, None, f"no time for {case.id}")
                with _limited(CASE_SECONDS):
                    try:
                        outcome = case.run(TARGET)
                        found = outcome.findings
                        if outcome.skipped and not found:  # the right kernel takes the call: n of m falls
                            found = (Finding("skipped", outcome.skipped),)
                    except Exception as error:
                        found = (Finding("error", f"{type(error).__name__}: {error}"),)
                if found:
                    return Verdict(site, found[0], case.id)
    return Verdict(site, None, "all cases")


def _changed_calls(op: str) -> Iterator[Case]:
    """Calls of the suite `ops` whose results are other bits than the reference's, or that raise."""
    for label, args, want in right_results(op):
        with _limited(CASE_SECONDS):
            try:
                got = _results(op, args, TARGET)
            except Exception as error:
                finding = Finding("error", f"{type(error).__name__}: {error}")
                yield Case("ops", op, label, lambda _, f=finding: _raised(f))  # type: ignore[misc]
                return
        if _differ(op, args, got, want):
            yield Case("ops", op, label, lambda target, a=args: judge(SPECS[op], a, target, PLAIN))  # type: ignore[misc]


def _raised(finding: Finding) -> Any:
    raise RuntimeError(finding.message)


@lru_cache(maxsize=80)
def right_results(op: str) -> list[tuple[str, tuple[Any, ...], tuple[Tensor, ...]]]:
    """Labels, arguments and the reference's results of an op's plain calls, small ones first."""
    made = []
    with REGISTRY.using("reference"):
        for one in quick_calls(op):
            if one.variant == PLAIN:
                args = one.sample.args
                made.append((one.label, args, _results(op, args, Target("reference", torch.device("cpu")))))
    return sorted(made, key=lambda entry: sum(v.numel() for v in entry[1] if isinstance(v, Tensor)))


def _results(op: str, args: tuple[Any, ...], target: Target) -> tuple[Tensor, ...]:
    spec = SPECS[op]
    placed = to_target(spec, args, target)
    outs = call(spec, placed, target)
    pairs = zip(spec.args, placed, strict=True)
    return (*outs, *(v for a, v in pairs if isinstance(a, TensorArg) and a.mutable and v is not None))


def _differ(op: str, args: tuple[Any, ...], got: tuple[Tensor, ...], want: tuple[Tensor, ...]) -> bool:
    masks = (*SPECS[op].defined(*args), *[None] * len(want))
    with suppress(RuntimeError):
        return len(got) != len(want) or any(
            difference(SPECS[op], "", a, b, None if m is None else m.expand(b.shape))
            for a, b, m in zip(got, want, masks, strict=False)
        )
    return True


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Ends what runs inside after so many processor seconds. For the main thread, where signals arrive."""

    def stop(number: int, frame: object) -> None:
        raise _EndlessError

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def main(words: list[str]) -> int:
    """Try every place; 1 if one that is not listed survives, or one that is listed is seen."""
    parser = argparse.ArgumentParser(prog="python -m mutation.sweep", description=main.__doc__)
    parser.add_argument("modules", nargs="*", help="modules of the reference; all by default")
    parser.add_argument("--only", type=Path, help="file of ids, a line each: no other place is tried")
    parser.add_argument("--seconds", type=float, default=120.0, help="processor seconds for a place, at most")
    given = parser.parse_args(words)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    known, wrong, tried = listed(), 0, 0
    only = None if given.only is None else set(given.only.read_text(encoding="utf-8").splitlines())
    for module in given.modules or sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__"):
        for site in sites(module):
            if only is not None and site.id not in only:
                continue
            before = time.process_time()
            verdict = judged(site, given.seconds)
            if verdict is None:
                continue
            tried += 1
            seen = verdict.finding is not None
            wrong += seen == (site.id in known)
            what = (
                f"{verdict.where}: {verdict.finding}"
                if seen
                else f"{verdict.where}; {known.get(site.id, 'NOT LISTED')}"
            )
            spent = time.process_time() - before
            print(
                f"{'seen' if seen else 'SURVIVES'} {spent:.1f} s\t{site.id}\tline {site.line}\t{what[:200]}", flush=True
            )
    print(f"{tried} places, {wrong} not as listed")
    return int(wrong > 0)


if __name__ == "__main__":
    import deepinfer.ops  # noqa: F401 - defines the specs

    CATALOG.load("reference")
    sys.exit(main(sys.argv[1:]))
