"""The suites, found by listing `conformance/suites/`. Backends register elsewhere; a run multiplies the two."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ..ops.spec import OpSpec
from .case import Case, Tier

Cases = Callable[[Tier, Sequence[OpSpec]], Iterator[Case]]


@dataclass(frozen=True)
class Suite:
    """A family of cases.

    Attributes:
        name: as `--only` takes it.
        about: one line for `--list`.
        cases: yields the cases of a tier over some ops, always the same ones in the same order, an op's together. A
            case may rely on being run, if at all, before the next one is asked for.
    """

    name: str
    about: str
    cases: Cases


SUITES: dict[str, Suite] = {}


def suite(name: str, *, about: str) -> Callable[[Cases], Cases]:
    """Decorator: register a function as the suite of a name. Two suites of one name are a programming error."""

    def register(cases: Cases) -> Cases:
        assert name not in SUITES, f"suite {name!r} is registered twice"
        SUITES[name] = Suite(name, about, cases)
        return cases

    return register


def load_suites() -> dict[str, Suite]:
    """Import every module of `conformance/suites/` and return all suites by name.

    Suite `ops` comes first: where results are wrong, what the other suites say of their bits is noise.
    """
    from . import suites

    for module in sorted(m.name for m in pkgutil.iter_modules(suites.__path__)):
        importlib.import_module(f"{suites.__name__}.{module}")
    return dict(sorted(SUITES.items(), key=lambda item: (item[0] != "ops", item[0])))
