"""What a backend has to pass: which suites, for which ops, on which samples. Part of the contract, not of the suite.

A backend's verdict is `passed n of m required`. m counts every requirement of a tier, whatever the backend says of
itself: a kernel that is missing, refuses a call or cannot run here lowers n, never m.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from .rows import POOLS, ROWS, Rows, named
from .shapes import SHAPES, load_shapes
from .spec import SPECS, OpSpec, Sample, TensorArg

Tier = Literal["quick", "full", "deep"]

PLAIN, STRIDED, IN_PLACE, FAR = "", "strided", "in place", "far"
"""Variants of a call: as the sample has it; rows and addresses at odd places; `out` an argument; beyond 2^31 bytes."""
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
        labels: those cases; None for all that the suite has for the op, at least one.
    """

    suite: str
    op: str
    labels: tuple[str, ...] | None = None


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
    tier: Tier, ops: Sequence[OpSpec], samples: Callable[[OpSpec], Iterable[Sample]]
) -> Iterator[Requirement]:
    """The required set of a tier over some ops.

    Args:
        samples: samples of an op on the CPU, weights in the contract's layout.
    """
    load_shapes()
    for spec in ops:
        labels = [call.label for call in calls(spec, tier, samples(spec))]
        if spec.name in SHAPES:
            labels.append(SHAPES_LABEL)
        yield Requirement("ops", spec.name, tuple(labels))
    for spec in ops:
        if isinstance(ROWS.get(spec.name), Rows):
            yield Requirement("invariance", spec.name)
    for suite in ("determinism", "faults"):
        for spec in ops:
            yield Requirement(suite, spec.name)
    whole = {spec.name for spec in ops} >= set(SPECS)
    for preset in MODELS[tier]:
        yield Requirement("model", preset, LEVELS if whole else LEVELS[:1])


def calls(spec: OpSpec, tier: Tier, samples: Iterable[Sample]) -> Iterator[Call]:
    """The calls that are required of an op, an op's samples in order, then the variants of one of them.

    `quick`: every sample of few rows, one of more, and each variant but the far ones on the largest of few rows. `full`
    and `deep`: every sample, the variants on each of few rows, the far ones on the first that uses the pool.
    """
    quick = tier == "quick"
    modest: list[Sample] = []
    wide: list[Sample] = []
    largest: Sample | None = None
    for sample in samples:
        real, small = sample.label.startswith("real"), row_count(spec, sample) <= MODEST
        if not quick or (small and not real):
            yield Call(sample)
        if real:
            wide.append(sample)
        elif small:
            modest.append(sample)
        elif largest is None or row_count(spec, sample) > row_count(spec, largest):
            largest = sample
    if quick and largest is not None:
        yield Call(largest)
    chosen = modest if not quick else sorted(modest, key=lambda s: -row_count(spec, s))[:1]
    for sample in chosen:
        yield from (Call(sample, variant) for variant in variants(spec))
    if not quick:
        for pool in pools(spec):
            # Groups of weights are at real widths, or there would be millions of them below the border.
            ready = (s for s in (wide if spec.name in GROUPS else reversed(modest)) if _uses(spec, s, pool))
            yield from (Call(sample, f"{FAR} {pool}") for sample in list(ready)[:1])


def variants(spec: OpSpec) -> list[str]:
    """Variants of an op's calls beside the plain one and the far ones."""
    return [STRIDED] + [IN_PLACE] * any(out.in_place for out in spec.outs)


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
