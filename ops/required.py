"""What a backend has to pass: which suites, for which ops, on which samples. Part of the contract, not of the suite.

A backend's verdict is `passed n of m required`. m counts every requirement of a tier, whatever the backend says of
itself: a kernel that is missing, refuses a call or cannot run here lowers n, never m.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from .chosen import DRAWS, FAULTS, MISUSES, SAMPLED, in_rows, repeated
from .rows import POOLS, ROWS, Rows, named, row_args
from .shapes import SHAPES, load_shapes
from .spec import SPECS, OpSpec, Sample, TensorArg

Tier = Literal["quick", "full", "deep"]

PLAIN, STRIDED, IN_PLACE, FAR, SPOILT = "", "strided", "in place", "far", "non-finite"
"""Variants of a call: as the sample has it; rows and addresses at odd places; `out` an argument; beyond 2^31 bytes; NaN
and infinities in some rows."""
SHAPES_LABEL = "shapes"
"""The case of generated shapes."""
MODEST = 64
"""`quick` takes the samples of so many rows and one beyond."""

TABLES: dict[str, tuple[tuple[str, ...], str]] = {
    "copy_slots": (("pool",), "pairs"),
    "draft_distribution": (("pool",), "slots"),
    "embed_streams": (("weight",), "ids"),
    "engram_gather": (("weight", "scale"), "rows"),
    "gather_rows": (("x",), "rows"),
    "load_records": (("pages",), "plan"),
    "merge_patches": (("x",), "source"),
    "moe_combine": (("y",), "position"),
    "ring_move": (("target",), "target_slot"),
    "scatter_embeds": (("values",), "source"),
}
"""Ops that take rows of other tensors by id: the tensors, and the argument that holds the ids."""
COLUMNS = {"load_records": 0}
"""The column of that argument that holds ids, where it holds other numbers as well."""
FILTERED = ("sample_draw", "token_logprobs", "top_logprobs", "smaller_mass", "draft_distribution", "verify_drafts")
"""Ops that take logits with the filter made of them: other logits would be others than those it was made of."""
SOURCES: dict[str, tuple[str, ...]] = {"grouped_linear": ("xq",)}
"""Arguments whose rows are the op's under other numbers, beside those of TABLES."""
GROUPS: dict[str, tuple[str, str]] = {"grouped_linear": ("weight", "offsets")}
"""Ops with a prepared weight per group: the weight, and the argument that holds the groups' first rows."""


MODELS: dict[Tier, tuple[str, ...]] = {"quick": ("tiny",), "full": ("tiny", "kernel"), "deep": ("tiny", "kernel")}
"""Presets of the suite `model`: every feature at small sizes; the released head, index and record widths."""
LEVELS = ("ops on recorded inputs", "layers on recorded inputs", "decisions replayed", "greedy tokens")
"""Its cases of a preset; the first alone where not all ops are asked for."""


@dataclass(frozen=True)
class Requirement:
    """Cases of one suite for one op that have to pass.

    Attributes:
        suite, op: whose cases; of the suite `model` the preset.
        labels: those cases.
    """

    suite: str
    op: str
    labels: tuple[str, ...]


@dataclass(frozen=True)
class Call:
    """One call of the suite `ops`: a sample and a variant."""

    sample: Sample
    variant: str = PLAIN

    @property
    def label(self) -> str:
        """As in the case's name."""
        return f"{self.sample.label} [{self.variant}]" if self.variant else self.sample.label


def requirements(
    tier: Tier, ops: Sequence[OpSpec], samples: Callable[[OpSpec, int], Iterable[Sample]]
) -> Iterator[Requirement]:
    """The required set of a tier over some ops.

    Args:
        samples: samples of an op on the CPU, weights in the contract's layout, for a seed.
    """
    load_shapes()
    for spec in ops:
        made = list(samples(spec, 0))
        labels = [call.label for call in calls(spec, tier, made)]
        if spec.name in SHAPES:
            labels.append(SHAPES_LABEL)
        yield Requirement("ops", spec.name, tuple(labels))
        rows = ROWS.get(spec.name)
        if isinstance(rows, Rows):
            draws = ((n, samples(spec, n) if n else made) for n in range(DRAWS[tier]))
            found = (sample.label for n, drawn in draws for sample in in_rows(spec, rows, tier, drawn, n))
            yield Requirement("invariance", spec.name, tuple(found))
        yield Requirement("determinism", spec.name, tuple(s.label for s in repeated(tier, made)))
        yield Requirement("faults", spec.name, (*FAULTS, *MISUSES.get(spec.name, ())))
        if spec.name in SAMPLED:
            yield Requirement("sampling", spec.name, SAMPLED[spec.name])
    whole = {spec.name for spec in ops} >= set(SPECS)
    for preset in MODELS[tier]:
        yield Requirement("model", preset, LEVELS if whole else LEVELS[:1])


def calls(spec: OpSpec, tier: Tier, samples: Iterable[Sample]) -> Iterator[Call]:
    """The calls that are required of an op, an op's samples in order, then the variants of one of them.

    `quick`: every sample of few rows, one of more, the first of each form that none of these has, and each variant but
    the far ones on a sample of few rows, the fullest and of those the largest. `full` and `deep`: every sample, the
    variants on each of few rows, the far ones on the first that uses the pool.
    """
    quick = tier == "quick"
    modest: list[Sample] = []
    wide: list[Sample] = []
    large: list[Sample] = []
    for sample in samples:
        real, small = sample.label.startswith("real"), row_count(spec, sample) <= MODEST
        if not quick or (small and not real):
            yield Call(sample)
        if real:
            wide.append(sample)
        elif small:
            modest.append(sample)
        else:
            large.append(sample)
    if quick:
        yield from map(Call, _of_large(spec, large, {form_of(s) for s in modest}))
    fullest = sorted(modest, key=lambda s: (sum(v is None for v in s.args), -row_count(spec, s)))
    chosen = fullest[:1] if quick else modest
    for sample in chosen:
        yield from (Call(sample, variant) for variant in variants(spec))
    if not quick:
        for pool in pools(spec):
            # Groups of weights are at real widths, or there would be millions of them below the border.
            ready = (s for s in (wide if spec.name in GROUPS else reversed(modest)) if _uses(spec, s, pool))
            yield from (Call(sample, f"{FAR} {pool}") for sample in list(ready)[:1])


def _of_large(spec: OpSpec, large: Sequence[Sample], forms: set[tuple[Any, ...]]) -> Iterator[Sample]:
    """The one of most rows, and the first of each further form."""
    for sample in sorted(large, key=lambda s: -row_count(spec, s))[:1]:
        forms.add(form_of(sample))
        yield sample
    for sample in large:
        if form_of(sample) not in forms:
            forms.add(form_of(sample))
            yield sample


def form_of(sample: Sample) -> tuple[Any, ...]:
    """Which arguments a call gives, and its flags and names: what selects another path through a kernel."""
    return tuple(v if isinstance(v, bool | str) else v is None for v in sample.args)


def variants(spec: OpSpec) -> list[str]:
    """Variants of an op's calls beside the plain one and the far ones."""
    return [STRIDED] + [IN_PLACE] * any(out.in_place for out in spec.outs) + [SPOILT] * bool(spoilt_args(spec))


def spoilt_args(spec: OpSpec) -> list[str]:
    """Arguments of an op that may hold NaN and infinities: those with an entry per row, and tables of rows."""
    if spec.name in FILTERED:
        return []
    found, rows = list(spec.tensors), ROWS.get(spec.name)
    if isinstance(rows, Rows):
        others = (*TABLES.get(spec.name, ((), ""))[0], *SOURCES.get(spec.name, ()))
        found = [a for a in row_args(rows, spec) if a.name not in rows.keep]
        found += [a for a in spec.tensors if a.name in others and a not in found]
    return [a.name for a in found if any(t.is_floating_point for t in a.dtypes)]


def pools(spec: OpSpec) -> list[str]:
    """Arguments of an op that may lie beyond 2^31 bytes."""
    names = {a.name for a in spec.args}
    found = [pool for pool, ids in POOLS if pool in names and ids in names]
    found += [TABLES[spec.name][0][0]] if spec.name in TABLES else []
    return found + ([GROUPS[spec.name][0]] if spec.name in GROUPS else [])


def ids_of(spec: OpSpec, pool: str) -> str:
    """The argument that names entries of a pool."""
    return TABLES[spec.name][1] if spec.name in TABLES else dict(POOLS)[pool]


def ids_in(spec: OpSpec, value: Tensor) -> Tensor:
    """The ids of an argument that `ids_of` names: a view."""
    return value[:, COLUMNS[spec.name]] if spec.name in COLUMNS else value


def row_count(spec: OpSpec, sample: Sample) -> int:
    """Rows of a call: where they stand alone as `ops/rows.py` says, elsewhere entries of the first tensor."""
    rows = ROWS.get(spec.name)
    if isinstance(rows, Rows):
        return rows.count(spec, sample.args)
    first = next((v for a, v in zip(spec.args, sample.args, strict=True) if isinstance(a, TensorArg)), None)
    return 0 if first is None or not first.ndim else int(first.shape[0])


def _uses(spec: OpSpec, sample: Sample, pool: str) -> bool:
    if spec.name in GROUPS:
        return True
    given = named(spec, sample.args)
    index = given[ids_of(spec, pool)]
    return given[pool] is not None and index is not None and bool((ids_in(spec, index) >= 0).any())
