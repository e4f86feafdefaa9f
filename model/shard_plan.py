"""What one rank of an expert-parallel group reads.

Routed experts are split into equal contiguous ranges and Engram table rows into contiguous ranges of
ceil(rows / world_size), the last ones shorter or empty; every other tensor is replicated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ..hal.errors import InvalidArgumentError
from .names import TensorSpec


@dataclass(frozen=True)
class Part:
    """What is read of one tensor.

    Fields:
        spec: the tensor as this rank holds it: `shape` is that of the part.
        rows: [start, stop) of the stored tensor's first dimension; None = whole.
    """

    spec: TensorSpec
    rows: tuple[int, int] | None


@dataclass(frozen=True)
class ShardPlan:
    """Split for one rank. `ShardPlan()` is the whole model on one rank.

    Raises:
        InvalidArgumentError: rank or world size out of range.
    """

    rank: int = 0
    world_size: int = 1

    def __post_init__(self) -> None:
        if self.world_size < 1:
            raise InvalidArgumentError("world_size", self.world_size, ">= 1")
        if not 0 <= self.rank < self.world_size:
            raise InvalidArgumentError("rank", self.rank, f"0..{self.world_size - 1}")

    def experts(self, count: int) -> range:
        """Global ids of the routed experts held here, of a layer with `count` of them.

        Raises:
            InvalidArgumentError: they do not divide evenly.
        """
        if count % self.world_size:
            raise InvalidArgumentError("world_size", self.world_size, f"a divisor of a layer's {count} routed experts")
        each = count // self.world_size
        return range(self.rank * each, (self.rank + 1) * each)

    def rows_per_rank(self, count: int) -> int:
        """Row r of an Engram table with `count` rows lies on rank r // rows_per_rank(count)."""
        return -(-count // self.world_size)

    def rows(self, count: int) -> range:
        """Rows held here of an Engram table with `count` rows; may be empty on the last ranks."""
        each = self.rows_per_rank(count)
        return range(min(self.rank * each, count), min((self.rank + 1) * each, count))

    def parts(self, inventory: Mapping[str, TensorSpec]) -> Iterator[Part]:
        """Everything this rank reads, in inventory order.

        Raises:
            InvalidArgumentError: see `experts`.
        """
        counts = _expert_counts(inventory)
        for spec in inventory.values():
            if spec.expert is not None:
                if spec.expert in self.experts(counts[_layer(spec.name)]):
                    yield Part(spec, None)
            elif spec.engram is not None and self.world_size > 1:
                rows = self.rows(spec.shape[0])
                yield Part(replace(spec, shape=(len(rows), *spec.shape[1:])), (rows.start, rows.stop))
            else:
                yield Part(spec, None)

    def specs(self, inventory: Mapping[str, TensorSpec]) -> dict[str, TensorSpec]:
        """What this rank holds, by name; Engram tables with the shape of their part."""
        return {part.spec.name: part.spec for part in self.parts(inventory)}

    def nbytes(self, inventory: Mapping[str, TensorSpec]) -> int:
        """Bytes this rank reads."""
        return sum(part.spec.nbytes for part in self.parts(inventory))


def _layer(name: str) -> str:
    """The layer's part of an expert tensor's name."""
    return name.partition(".ffn.")[0]


def _expert_counts(inventory: Mapping[str, TensorSpec]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for spec in inventory.values():
        if spec.expert is not None:
            layer = _layer(spec.name)
            counts[layer] = max(counts.get(layer, 0), spec.expert + 1)
    return counts
