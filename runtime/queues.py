"""The unfinished samples of an engine: who waits, who runs, and the pools that those who run hold a part of."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice

from .planner import Snapshot
from .pool import Pool
from .request import Request


class Queues:
    """Waiting and running samples, both in submission order, and the page and slot pools.

    Args:
        num_pages, num_slots: ids that can be handed out.
        max_requests: samples that may run at a time.
    """

    def __init__(self, num_pages: int, num_slots: int, max_requests: int) -> None:
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.pages = Pool("page pool", num_pages)
        self.slots = Pool("state slots", num_slots)
        self.max_requests = max_requests

    def __iter__(self) -> Iterator[Request]:
        yield from self.running
        yield from self.waiting

    def __bool__(self) -> bool:
        return bool(self.running or self.waiting)

    def snapshot(self, trial: Sequence[Request]) -> Snapshot:
        """What a plan is made from: the samples of a trial, or all where there is none."""
        keys = {request.key for request in trial}
        waiting = (request for request in self.waiting if not keys or request.key in keys)
        return Snapshot(
            running=[request.view() for request in self.running if not keys or request.key in keys],
            # More than that cannot be admitted; a queue of many thousands costs a step nothing.
            waiting=[request.view() for request in islice(waiting, len(keys) or self.max_requests)],
            free_pages=self.pages.free,
            free_slots=self.slots.free,
        )

    def admit(self, key: int) -> Request:
        """The first of the queue, or one on trial from behind it, starts to run."""
        place = self._place(key)
        request = self.waiting[place]
        del self.waiting[place]
        self.running.insert(bisect_left(self.running, key, key=_key), request)
        return request

    def requeue(self, request: Request) -> None:
        """Back to its place in the queue, mostly the front, to be computed again from its first token."""
        request.release()
        for image in request.images:
            image.waiting.add(request.key)
        self.running.remove(request)
        self.waiting.insert(self._place(request.key), request)

    def remove(self, request: Request) -> None:
        """Gives its resources back and forgets it."""
        request.release()
        for image in request.images:
            image.let_go(request.key)
        (self.running if request in self.running else self.waiting).remove(request)

    def check_conservation(self) -> None:
        """Free + owned = total in both pools, by the leases of the samples. Raises PoolError."""
        leases = [request.leases() for request in self]
        self.pages.check(lease for pages, _ in leases for lease in pages)
        self.slots.check(lease for _, slots in leases for lease in slots)

    def _place(self, key: int) -> int:
        return bisect_left(self.waiting, key, key=_key)


def _key(request: Request) -> int:
    return request.key
