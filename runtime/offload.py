"""Preemption by offload: the caches of a request wait in host memory, byte for byte, instead of being computed again.

Host memory is a fixed number of pages and state slots, taken at the start and pinned where the device can make use of
it. Which requests give way, and whether they are offloaded or computed again, is the planner's choice
(`planner.plan_step`): by the time that copying back and forth takes at the measured rate, against the time that their
rows take by the cost model. Where host memory is full, a preempted request is computed again.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .moves import MoveList, Moves, Pairs
from .pool import Lease, Pool

if TYPE_CHECKING:
    from .request import Request

SLOT_SHARE = 4
"""Host memory is divided so that a request may have at least so many pages per state slot."""


@dataclass(frozen=True)
class HostSettings:
    """Host memory of an engine.

    Attributes:
        pages, slots: that it holds.
        page_seconds, slot_seconds: time that copying one of them takes, in one direction.
    """

    pages: int
    slots: int
    page_seconds: float = 0.0
    slot_seconds: float = 0.0


def divide(budget: int, page_bytes: int, slot_bytes: int, most_slots: int) -> tuple[int, int]:
    """Pages and state slots that so many bytes of host memory hold; (0, 0) where not one request fits.

    Args:
        budget: bytes. page_bytes, slot_bytes: of one.
        most_slots: requests that may be preempted at a time.
    """
    slots = min(most_slots, budget // (slot_bytes + SLOT_SHARE * page_bytes))
    if slots < 1:
        slots = int(budget >= slot_bytes + page_bytes)
    pages = (budget - slots * slot_bytes) // page_bytes if slots else 0
    return pages, slots


@dataclass(frozen=True, slots=True)
class HostRoom:
    """What the planner knows of host memory: free pages and slots, and the time that copying one takes."""

    pages: int
    slots: int
    page_seconds: float = 0.0
    slot_seconds: float = 0.0

    def seconds(self, pages: int) -> float:
        """Copying the caches of a request out and back again."""
        return 2 * (pages * self.page_seconds + self.slot_seconds)


@dataclass(slots=True, eq=False)
class HostLease:
    """Host memory of one preempted request. Released through one path, however often that is called."""

    pages: Lease
    slot: Lease

    def release(self) -> bool:
        """False when that had been done already."""
        self.pages.release()
        return self.slot.release()


class HostStore:
    """Who has which page and slot of host memory.

    Args:
        settings: None is no host memory.
        page_tokens: tokens per page.

    Attributes:
        saved, restored: requests that were offloaded, and those that came back; saved_pages, restored_pages: of them.
    """

    def __init__(self, settings: HostSettings | None, page_tokens: int) -> None:
        self.settings = settings
        self._block = page_tokens
        self.pages = Pool("host pages", 1 if settings is None else settings.pages)
        self.slots = Pool("host slots", 1 if settings is None else settings.slots)
        self._returning: list[HostLease] = []  # copied back by a step that may still run
        self.saved = self.restored = self.saved_pages = self.restored_pages = 0

    @property
    def room(self) -> HostRoom | None:
        """As the planner sees it."""
        if self.settings is None:
            return None
        return HostRoom(self.pages.free, self.slots.free, self.settings.page_seconds, self.settings.slot_seconds)

    def save(self, request: Request, executor: Moves) -> HostLease:
        """Copies the caches of a running request to the host.

        Raises:
            PoolError: there is no room; the planner has seen that there is.
            Exception: of the executor; nothing is taken then.
        """
        assert request.pages is not None and request.slot is not None
        count = -(-request.computed // self._block)
        held = HostLease(self.pages.lease(count), self.slots.lease(1))
        pairs = list(zip(request.pages.ids[:count], held.pages.ids, strict=True))
        try:
            executor.save(pairs, [(request.slot.ids[0], held.slot.ids[0])])
        except BaseException:
            held.release()
            raise
        self.saved += 1
        self.saved_pages += count
        return held

    def restore(self, request: Request, moves: MoveList) -> None:
        """Brings the caches of a request back, into the pages and the slot that it has taken."""
        assert request.pages is not None and request.slot is not None and request.host is not None
        held, request.host = request.host, None
        count = len(held.pages)
        moves.restored_pages += zip(held.pages.ids, request.pages.ids[:count], strict=True)
        moves.restored_slots.append((held.slot.ids[0], request.slot.ids[0]))
        moves.pins += (held.pages, held.slot)
        self._returning = [one for one in self._returning if not one.slot.released] + [held]
        self.restored += 1
        self.restored_pages += count

    def check(self, requests: Iterable[Request]) -> None:
        """Free + owned = total. Raises PoolError."""
        held = [request.host for request in requests if request.host is not None] + self._returning
        self.pages.check(one.pages for one in held)
        self.slots.check(one.slot for one in held)


class HostMemory:
    """The bytes: pinned tensors that pages and state slots are copied to and from, on the current stream.

    Args:
        streams: `hal.stream.Streams` of the device.
        tensors: of the device, those by page first: [pages, ...], then those by slot: [slots, ...].
        pages, slots: that the host holds. Number 0 of each is never used.
    """

    def __init__(self, streams: Any, by_page: Sequence[Any], by_slot: Sequence[Any], pages: int, slots: int) -> None:
        def like(tensor: Any, count: int) -> tuple[Any, Any]:
            return tensor, streams.pinned((count + 1, *tensor.shape[1:]), tensor.dtype)

        self._streams = streams
        self._by_page = [like(tensor, pages) for tensor in by_page]
        self._by_slot = [like(tensor, slots) for tensor in by_slot]

    @property
    def nbytes(self) -> int:
        """Bytes of host memory."""
        return sum(int(host.nbytes) for _, host in (*self._by_page, *self._by_slot))

    def save(self, pages: Pairs, slots: Pairs) -> None:
        """See `moves.Moves.save`."""
        for tensors, pairs in ((self._by_page, pages), (self._by_slot, slots)):
            for device, host in tensors:
                for source, target in pairs:
                    host[target].copy_(device[source], non_blocking=True)

    def restore(self, pages: Pairs, slots: Pairs) -> None:
        """See `moves.Moves.restore`."""
        for tensors, pairs in ((self._by_page, pages), (self._by_slot, slots)):
            for device, host in tensors:
                for source, target in pairs:
                    device[target].copy_(host[source], non_blocking=True)

    def measure(self) -> tuple[float, float]:
        """Seconds that one page, and one state slot, takes in one direction: the slower one of both, of a few copies.

        Reads device page 0 and slot 0, which are nobody's, and writes their bytes back.
        """
        return self._measure([(0, 0)], []), self._measure([], [(0, 0)])

    def _measure(self, pages: Pairs, slots: Pairs) -> float:
        best = [float("inf")] * 2
        for _ in range(4):
            for way, copy in enumerate((self.save, self.restore)):
                self._streams.synchronize()
                began = time.perf_counter()
                copy(pages, slots)
                self._streams.synchronize()
                best[way] = min(best[way], time.perf_counter() - began)
        return max(best)
