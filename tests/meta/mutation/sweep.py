"""Every source mutant of a module, through the suite: which ones nobody sees."""

from __future__ import annotations

from collections.abc import Iterator

from deepinfer.conformance.case import Finding
from deepinfer.hal.registry import REGISTRY
from deepinfer.ops.spec import SPECS

from .catch import CATALOG, NAME, TARGET, MutantBackend, cases
from .source import Site, loaded, sites, users_of

SUITES = ("ops", "invariance", "determinism")


def survivors(module: str, users: int = 3) -> Iterator[Site]:
    """Places of a module whose edit no suite sees on the first kernels that use the function."""
    for site in sites(module):
        reached = users_of(module, site.function)[:users]
        if reached and seen(site, reached) is None:
            yield site


def seen(site: Site, reached: list[tuple[str, str]]) -> Finding | None:
    """What first tells that an edit is wrong."""
    if NAME not in CATALOG.entries():
        CATALOG.add(MutantBackend())
    try:
        with loaded(site, sorted({name for name, _ in reached})), REGISTRY.using(NAME):
            for suite in SUITES:
                for _, op in reached:
                    found = _first(op, suite)
                    if found is not None:
                        return found
    except Exception as error:  # a module that cannot be imported any more
        return Finding("error", f"{type(error).__name__}: {error}")
    return None


def _first(op: str, suite: str) -> Finding | None:
    for case in cases(SPECS[op], suite):
        try:
            outcome = case.run(TARGET)
        except Exception as error:
            return Finding("error", f"{type(error).__name__}: {error}")
        if outcome.findings:
            return outcome.findings[0]
    return None
