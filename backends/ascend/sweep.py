"""All mutants of a kernel on its samples: what betrays each, which are redundant, and which nothing explains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .sample import Sample, differing
from .sim import Kernel, KernelFault, Schedule, mutate, redundant, schedules
from .sim.mutate import Mutant, Verdict

_QUICK = 2  # schedules that every mutant meets first; nearly all that is wrong shows under them
_SECONDS = 20.0


@dataclass(frozen=True)
class Swept:
    """What became of a kernel's mutants.

    Attributes:
        noticed: ended by the model ("error") or seen in the outputs ("output").
        redundant: noticed by nothing, with the rule that says why.
        unexplained: noticed by nothing, and no rule says why.
        contradicted: noticed although a rule says that it changes nothing.
    """

    noticed: tuple[Verdict, ...]
    redundant: tuple[tuple[Mutant, str], ...]
    unexplained: tuple[Mutant, ...]
    contradicted: tuple[Verdict, ...]

    @property
    def count(self) -> int:
        return len(self.noticed) + len(self.redundant) + len(self.unexplained)

    def by(self, how: str) -> int:
        """How many were noticed by "error" or "output"."""
        return sum(verdict.noticed == how for verdict in self.noticed)

    def rules(self) -> dict[str, int]:
        """How many are redundant by each rule."""
        return dict(sorted(Counter(rule for _, rule in self.redundant).items()))


def sweep(
    text: str, samples: Sequence[Sample], kinds: Sequence[str], *, relaxed: bool = False, seeds: int = 0
) -> Swept:
    """Try the mutants of a kernel's text one by one, each until something betrays it.

    A mutant of an index or size that a rule explains is run under few schedules only: to see that the rule holds.

    Args:
        text: of the kernel, without mutants.
        samples: tried in this order.
        kinds: "line", "pair", names of operators.
        relaxed: without the rules of flags and races, so that only data betrays one that leaves out synchronisation.
        seeds: random schedules besides the deterministic ones.

    Raises:
        KernelFault: a sample fails without any mutant.
        InvalidArgumentError, SourceError, BuildError: see `Kernel`.
    """
    made = mutate.schemata(text)
    kernels = {blocks: Kernel(made.text, blocks) for blocks in sorted({s.blocks for s in samples})}
    chosen = schedules(seeds)
    for sample in samples:
        if wrong := differing(kernels[sample.blocks], sample, chosen):
            raise KernelFault(f"wrong without any mutant: {wrong}")

    def on(sample: Sample, some: list[Schedule], loose: bool) -> Callable[[Mutant], str]:
        def check(mutant: Mutant) -> str:
            options = {"relaxed": loose, "sites": mutant.sites, "delta": mutant.delta, "seconds": _SECONDS}
            return differing(kernels[sample.blocks], sample, some, **options)

        return check

    mutants = [m for m in made.mutants if m.kind in kinds]
    rules = {m: redundant.rule(m, text) for m in mutants}
    ruled = [m for m in mutants if rules[m] and m.kind in mutate.OPERATORS]
    contradicted = _noticed(ruled, [on(s, chosen[:_QUICK], relaxed) for s in samples])
    noticed: list[Verdict] = []
    left = [m for m in mutants if m not in ruled]
    for some in (chosen[:_QUICK], chosen[_QUICK:]):
        found = _noticed(left, [on(s, some, relaxed) for s in samples])
        noticed += found
        left = _without(left, found)
    # Of a barrier between threads, only the rule of races proves that nothing needs it.
    if races := [m for m in left if rules[m] == redundant.RACE_FREE] if relaxed else []:
        contradicted += _noticed(races, [on(s, chosen[:_QUICK], False) for s in samples])
    wrong_rules = {v.mutant for v in contradicted}
    explained = [m for m in [*ruled, *left] if rules[m] and m not in wrong_rules]
    return Swept(
        tuple(noticed),
        tuple((m, rules[m]) for m in explained),
        tuple(m for m in left if not rules[m]),
        tuple(contradicted),
    )


def _noticed(mutants: Sequence[Mutant], checks: Sequence[Callable[[Mutant], str]]) -> list[Verdict]:
    found: list[Verdict] = []
    left = list(mutants)
    for check in checks:
        now = [v for v in mutate.judge(left, check) if v.noticed]
        found += now
        left = _without(left, now)
    return found


def _without(mutants: Sequence[Mutant], noticed: Sequence[Verdict]) -> list[Mutant]:
    gone = {v.mutant for v in noticed}
    return [m for m in mutants if m not in gone]
