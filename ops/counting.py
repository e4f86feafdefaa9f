"""Counts of op calls: how many rows went through which op, and how much work that was.

What an optimisation saves is counted here, where work is asked for, instead of computed from a formula. While counting,
every kernel that dispatch may choose is registered a second time, under a backend of its own that is active then: the
same function with a counter in front. Selection, weight layouts and fallbacks stay what they are; a pinned op goes past
the counter.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ..hal.registry import REFERENCE, REGISTRY, Kernel
from .spec import SPECS, OpSpec

COUNTING = "op counter"
OWN_FIRST = 1 << 20
"""Added to the priority of the active backend's kernels, so that they still come before the reference's."""


@dataclass
class OpCounts:
    """What was called.

    Attributes:
        rows: op -> rows of each of its calls, in order: the length of its first tensor argument with a dynamic first
            dim, 0 for a call without one.
        flops: op -> floating-point operations of its calls, by its cost model.
        bytes: op -> bytes that its calls have to move, by its cost model.
    """

    rows: dict[str, list[int]] = field(default_factory=dict)
    flops: dict[str, float] = field(default_factory=dict)
    bytes: dict[str, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def calls(self) -> int:
        """Calls of all ops."""
        return sum(len(rows) for rows in self.rows.values())

    def total_rows(self, *ops: str) -> int:
        """Rows of all calls of some ops; of every op where none is named."""
        return sum(sum(self.rows.get(op, ())) for op in ops or self.rows)

    @property
    def total_flops(self) -> float:
        """Floating-point operations of all ops."""
        return sum(self.flops.values())

    def note(self, spec: OpSpec, args: tuple[Any, ...]) -> None:
        """Count a call."""
        rows, cost = rows_of(spec, args), spec.work(*args)
        with self._lock:
            self.rows.setdefault(spec.name, []).append(rows)
            self.flops[spec.name] = self.flops.get(spec.name, 0.0) + cost.flops
            self.bytes[spec.name] = self.bytes.get(spec.name, 0.0) + cost.bytes


def rows_of(spec: OpSpec, args: tuple[Any, ...]) -> int:
    """Rows of a call, see `OpCounts.rows`."""
    given = {arg.name: value for arg, value in zip(spec.args, args, strict=True)}
    for arg in spec.tensors:
        if arg.dims and not spec.is_static(arg.dims[0]) and given[arg.name] is not None:
            return int(given[arg.name].shape[0])
    return 0


@contextmanager
def counting() -> Iterator[OpCounts]:
    """Count the op calls of a with block, of every thread."""
    counts = OpCounts()
    active, arch = REGISTRY.active, REGISTRY.arch
    added: list[Kernel] = []
    try:
        for kernel in REGISTRY.kernels():
            spec = SPECS.get(kernel.op)
            if spec is None or kernel.backend not in (active, REFERENCE):
                continue
            first = OWN_FIRST if kernel.backend == active else 0
            twin = replace(
                kernel,
                backend=COUNTING,
                name=kernel.id,
                priority=kernel.priority + first,
                fn=partial(_counted, counts, spec, kernel),
            )
            added.append(REGISTRY.add(twin))
        with REGISTRY.using(COUNTING, arch):
            yield counts
    finally:
        for kernel in added:
            REGISTRY.remove(kernel)


def _counted(counts: OpCounts, spec: OpSpec, kernel: Kernel, *args: Any) -> Any:
    counts.note(spec, args[: len(spec.args)])
    return kernel.fn(*args)
