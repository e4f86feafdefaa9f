"""Fixed pools of pages and state slots.

A `Pool` hands out ids 1..capacity; id 0 is reserved (it means "none" in a block table and belongs to padding rows). Ids
are reference counted. Each id carries a generation that rises when it becomes free, so a holder of an old lease that
reads it gets a `StaleLeaseError` instead of somebody else's page. A `Lease` is the only owner of ids and has one
release path, which may be called any number of times.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable


class PoolError(RuntimeError):
    """An invariant of a pool is broken: our own fault, never a user's."""


class StaleLeaseError(PoolError):
    """A lease was read after its ids went back to the pool."""


class Pool:
    """Ids 1..capacity with reference counts and generations. Freed ids are reused first in, first out."""

    def __init__(self, name: str, capacity: int) -> None:
        if capacity < 1:
            raise PoolError(f"{name}: capacity {capacity} must be at least 1")
        self.name = name
        self.capacity = capacity
        self._free: deque[int] = deque(range(1, capacity + 1))
        self._references = [0] * (capacity + 1)
        self._generations = [0] * (capacity + 1)
        self._leases = 0
        self._marks = [0] * (capacity + 1)
        self._reclaimable = 0
        self.version = 0
        """Rises whenever the owners of an id that a cache holds change."""

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def used(self) -> int:
        return self.capacity - len(self._free)

    @property
    def reclaimable(self) -> int:
        """Ids whose every owner would give them up for others."""
        return self._reclaimable

    def mark(self, index: int) -> None:
        """One of the owners of the id would give it up for others: a cache. Counted in `reclaimable`."""
        self._count(index, marks=1)

    def unmark(self, index: int) -> None:
        """Takes a mark back; its owner still holds the id."""
        if self._marks[index] < 1:
            raise PoolError(f"{self.name}: id {index} is not marked")
        self._count(index, marks=-1)

    def lease(self, count: int = 0) -> Lease:
        """A new owner of `count` ids.

        Raises:
            PoolError: fewer than `count` ids are free. The planner checks before; nothing is taken.
        """
        lease = Lease(self)
        lease.extend(count)
        self._leases += 1
        return lease

    def generation(self, index: int) -> int:
        return self._generations[index]

    def references(self, index: int) -> int:
        return self._references[index]

    def holders(self, index: int) -> int:
        """Owners that would not give the id up for others."""
        return self._references[index] - self._marks[index]

    def _count(self, index: int, references: int = 0, marks: int = 0) -> None:
        """Changes how many owners an id has, and how many of them would give it up."""
        self._reclaimable -= 0 < self._marks[index] == self._references[index]
        self._references[index] += references
        self._marks[index] += marks
        self.version += marks != 0 or self._marks[index] > 0
        self._reclaimable += 0 < self._marks[index] == self._references[index]

    def _take(self, count: int) -> list[int]:
        if count < 0 or count > len(self._free):
            raise PoolError(f"{self.name}: asked for {count} of {len(self._free)} free ids")
        ids = [self._free.popleft() for _ in range(count)]
        for index in ids:
            if self._references[index] != 0:
                raise PoolError(f"{self.name}: id {index} is free and referenced")
            self._references[index] = 1
        return ids

    def _share(self, index: int) -> None:
        if self._references[index] < 1:
            raise PoolError(f"{self.name}: id {index} is free and cannot be shared")
        self._count(index, references=1)

    def _drop(self, index: int) -> None:
        if self._references[index] < 1:
            raise PoolError(f"{self.name}: id {index} was released twice")
        self._count(index, references=-1)
        if self._references[index] == 0:
            self._generations[index] += 1
            self._free.append(index)

    @property
    def leases(self) -> int:
        """Owners."""
        return self._leases

    def check(self, leases: Iterable[Lease]) -> None:
        """Conservation: free + owned = total, and the reference counts are exactly those of the live leases.

        Args:
            leases: every lease that should be alive.

        Raises:
            PoolError: names the first id that is lost, duplicated or wrongly counted; or the count of reclaimable ids
                is wrong.
        """
        expected = [0] * (self.capacity + 1)
        live = 0
        for lease in leases:
            if not lease.released:
                live += 1
                for index in lease.ids:
                    expected[index] += 1
        if live != self._leases:
            raise PoolError(f"{self.name}: {self._leases} leases are alive, {live} are known to an owner")
        free = set(self._free)
        if len(free) != len(self._free) or 0 in free:
            raise PoolError(f"{self.name}: the free list holds an id twice or the reserved id 0")
        for index in range(1, self.capacity + 1):
            if self._references[index] != expected[index] or (index in free) != (expected[index] == 0):
                raise PoolError(
                    f"{self.name}: id {index} has {self._references[index]} references, its owners hold "
                    f"{expected[index]}, and it is {'' if index in free else 'not '}in the free list"
                )
        pairs = list(zip(self._marks, self._references, strict=True))
        alone = sum(0 < marks == references for marks, references in pairs)
        if alone != self._reclaimable or any(marks > references for marks, references in pairs):
            raise PoolError(f"{self.name}: {self._reclaimable} ids are counted as reclaimable, {alone} are")


class Lease:
    """The ids one owner holds. Released once, through `release`, however often that is called."""

    __slots__ = ("_generations", "_ids", "_pool", "released")

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._ids: list[int] = []
        self._generations: list[int] = []
        self.released = False

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def pool(self) -> Pool:
        """Where its ids return to."""
        return self._pool

    @property
    def ids(self) -> list[int]:
        """The ids, in the order they were taken.

        Raises:
            StaleLeaseError: the lease was released, or an id went back to the pool behind its back.
        """
        return self._part(0, None)

    @property
    def first(self) -> int:
        """The first of the ids, which of a state slot is the only one. Raises as `ids`."""
        if self.released:
            raise StaleLeaseError(f"{self._pool.name}: the lease was released")
        index = self._ids[0]
        if self._pool._generations[index] != self._generations[0]:
            raise StaleLeaseError(f"{self._pool.name}: id {index} belongs to a later owner")
        return index

    def _part(self, begin: int, end: int | None) -> list[int]:
        """Ids begin..end-1, checked; the others are not looked at."""
        if self.released:
            raise StaleLeaseError(f"{self._pool.name}: the lease was released")
        ids = self._ids[begin:end]
        for index, generation in zip(ids, self._generations[begin:end], strict=True):
            if self._pool.generation(index) != generation:
                raise StaleLeaseError(f"{self._pool.name}: id {index} belongs to a later owner")
        return ids

    def extend(self, count: int) -> None:
        """Take `count` more ids. Raises PoolError when they are not free, StaleLeaseError after release."""
        if self.released:
            raise StaleLeaseError(f"{self._pool.name}: the lease was released")
        taken = self._pool._take(count)
        self._ids += taken
        self._generations += [self._pool.generation(index) for index in taken]

    def join(self, other: Lease, begin: int = 0, end: int | None = None) -> None:
        """Become a second owner of ids begin..end-1 of another lease; each id stays until both have released it."""
        if self.released:
            raise StaleLeaseError(f"{self._pool.name}: the lease was released")
        for index in other._part(begin, end):
            self._pool._share(index)
            self._ids.append(index)
            self._generations.append(self._pool.generation(index))

    def hold(self, index: int) -> None:
        """Become one more owner of an id that somebody holds."""
        if self.released:
            raise StaleLeaseError(f"{self._pool.name}: the lease was released")
        self._pool._share(index)
        self._ids.append(index)
        self._generations.append(self._pool.generation(index))

    def references(self, place: int) -> int:
        """Owners of one of the ids."""
        return self._pool.references(self._ids[place])

    def release(self) -> bool:
        """Give everything back, last id first. Returns False when that had been done already."""
        if self.released:
            return False
        ids = self.ids
        self.released = True
        self._pool._leases -= 1
        for index in reversed(ids):
            self._pool._drop(index)
        self._ids.clear()
        self._generations.clear()
        return True
