"""Calls of generated sizes (`ops/shapes.py`), drawn and made smaller by Hypothesis; sizes that failed come first."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..hal.registry import REFERENCE, REGISTRY
from ..ops.shapes import Pick, Range, Shape, Size
from ..ops.spec import OpSpec
from . import saved
from .calls import CPU
from .case import UNAVAILABLE, Finding, Outcome, Target, Tier, skip
from .judge import judge

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

EXAMPLES: dict[Tier, int] = {"quick": 3, "full": 25, "deep": 400}
"""Calls per op."""
SEEDS = 1 << 16


class _Wrong(Exception):
    """A call of some sizes has findings."""


def judge_shapes(spec: OpSpec, shape: Shape, tier: Tier, target: Target) -> Outcome:
    """Judge calls of sizes that failed before, then of drawn ones; the first wrong one, made as small as it gets.

    `quick` and `full` draw the same sizes every time, `deep` others each time; what fails is kept and tried first.
    """
    if importlib.util.find_spec("hypothesis") is None:
        return skip(UNAVAILABLE, "shapes are drawn by hypothesis: pip install 'deepinfer-hal[conformance]'")
    trial = _Trial(spec, shape, target)
    for failing in saved.SAVED.of(spec.name):
        if set(failing.sizes) == set(shape.sizes):
            try:
                trial.run(failing.sizes, failing.seed)
            except _Wrong:
                return trial.outcome()
    _draw(trial, shape, tier)
    return trial.outcome()


class _Trial:
    """Calls of one op; keeps the last that was wrong, which is the smallest when the search ends."""

    def __init__(self, spec: OpSpec, shape: Shape, target: Target) -> None:
        self.spec, self.shape, self.target = spec, shape, target
        self.wrong: tuple[saved.Failing, Outcome] | None = None
        self.ran = 0
        self.declined: list[str] = []
        self.worst: float | None = None

    def run(self, sizes: Mapping[str, Any], seed: int) -> None:
        """Judge one call; raises _Wrong."""
        with REGISTRY.using(REFERENCE):
            args = self.shape.make(seed, CPU, sizes)
        found = judge(self.spec, args, self.target)
        if found.skipped:
            self.declined.append(found.skipped)
            return
        self.ran += 1
        if found.worst is not None:
            self.worst = max(found.worst, self.worst or 0.0)
        if found.findings:
            self.wrong = saved.Failing(self.spec.name, sizes, seed), found
            raise _Wrong

    def outcome(self) -> Outcome:
        """What came of all calls; the wrong one is kept for the next run."""
        if self.wrong is None:
            return self._right()
        failing, found = self.wrong
        saved.SAVED.add(failing)
        given = ", ".join(f"{name}={value!r}" for name, value in failing.sizes.items())
        findings = (Finding(f.check, f"{given}, seed {failing.seed}: {f.message}") for f in found.findings)
        return Outcome(tuple(findings), worst=found.worst)

    def _right(self) -> Outcome:
        """Nothing is wrong; a note says how many calls the target declined, and why the first."""
        if self.ran and not self.declined:
            return Outcome(worst=self.worst)
        if self.ran:
            calls = self.ran + len(self.declined)
            return Outcome(worst=self.worst, notes=(f"{self.ran} of {calls} calls judged; {self.declined[0]}",))
        if self.declined:
            return Outcome(skipped=self.declined[0])
        return Outcome((Finding("error", "no call was made"),))


def _draw(trial: _Trial, shape: Shape, tier: Tier) -> None:
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import strategies as st

    drawn = st.fixed_dictionaries({name: _strategy(size) for name, size in shape.sizes.items()})

    @settings(
        max_examples=EXAMPLES[tier],
        database=None,
        deadline=None,
        derandomize=tier != "deep",
        phases=(Phase.generate, Phase.shrink),
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(drawn, st.integers(0, SEEDS - 1))
    def search(sizes: dict[str, Any], seed: int) -> None:
        trial.run(sizes, seed)

    try:
        search()
    except Exception:  # a call that is wrong only sometimes makes Hypothesis raise an error of its own
        if trial.wrong is None:
            raise


def _strategy(size: Size) -> SearchStrategy[Any]:
    from hypothesis import strategies as st

    if isinstance(size, Range):
        step = size.step
        return st.integers(-(-size.low // step), size.high // step).map(lambda n: n * step)
    if isinstance(size, Pick):
        return st.sampled_from(size.values)
    pair = st.tuples(st.integers(0, size.start), st.integers(1, size.length))
    return st.lists(pair.map(lambda p: [p[0], p[0] + p[1]]), max_size=size.most)
