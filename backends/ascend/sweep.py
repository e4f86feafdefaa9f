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


Try = Callable[[Mutant, Sequence[Schedule], bool], str]
"""Runs a kernel under each schedule with a mutant on, relaxed or not: what is wrong with the outputs, "" for nothing;
KernelFault where a run ends."""


def sweep(
    text: str, samples: Sequence[Sample], kinds: Sequence[str], *, relaxed: bool = False, seeds: int = 0
) -> Swept:
    """Try the mutants of a kernel's text on its samples; see `sweep_mutants`.

    Args:
        text: of the kernel, without mutants.
        samples: tried in this order.

    Raises:
        KernelFault: a sample fails without any mutant.
        InvalidArgumentError, SourceError, BuildError: see `Kernel`.
    """
    made = mutate.schemata(text)
    kernels = {blocks: Kernel(made.text, blocks) for blocks in sorted({s.blocks for s in samples})}
    for sample in samples:
        if wrong := differing(kernels[sample.blocks], sample, schedules(seeds)):
            raise KernelFault(f"wrong without any mutant: {wrong}")

    def on(sample: Sample) -> Try:
        def tried(mutant: Mutant, some: Sequence[Schedule], loose: bool) -> str:
            options = {"relaxed": loose, "sites": mutant.sites, "delta": mutant.delta, "seconds": _SECONDS}
            return differing(kernels[sample.blocks], sample, some, **options)

        return tried

    return sweep_mutants(text, made.mutants, [on(s) for s in samples], kinds, relaxed=relaxed, seeds=seeds)


def sweep_mutants(
    text: str,
    mutants: Sequence[Mutant],
    tries: Sequence[Try],
    kinds: Sequence[str],
    *,
    relaxed: bool = False,
    seeds: int = 0,
) -> Swept:
    """Try mutants one by one, each until something betrays it.

    A mutant of an index or size that a rule explains is run under few schedules only: to see that the rule holds.

    Args:
        text: of the kernel, without mutants.
        mutants: of its `schemata`.
        tries: in this order.
        kinds: "line", "pair", names of operators.
        relaxed: without the rules of flags and races, so that only data betrays one that leaves out synchronisation.
        seeds: random schedules besides the deterministic ones.
    """
    chosen = schedules(seeds)

    def on(one: Try, some: Sequence[Schedule], loose: bool) -> Callable[[Mutant], str]:
        return lambda mutant: one(mutant, some, loose)

    mutants = [m for m in mutants if m.kind in kinds]
    rules = {m: redundant.rule(m, text) for m in mutants}
    ruled = [m for m in mutants if rules[m] and m.kind in mutate.OPERATORS]
    contradicted = _noticed(ruled, [on(t, chosen[:_QUICK], relaxed) for t in tries])
    noticed: list[Verdict] = []
    left = [m for m in mutants if m not in ruled]
    for some in (chosen[:_QUICK], chosen[_QUICK:]):
        found = _noticed(left, [on(t, some, relaxed) for t in tries])
        noticed += found
        left = _without(left, found)
    # Of a barrier between threads, only the rule of races proves that nothing needs it.
    if races := [m for m in left if rules[m] == redundant.RACE_FREE] if relaxed else []:
        contradicted += _noticed(races, [on(t, chosen[:_QUICK], False) for t in tries])
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
