"""The unfinished samples of an engine: who waits, who runs, and the pools that they and the prefix cache share."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from .planner import RequestView, Snapshot
from .pool import Pool
from .prefix import PrefixCache, PrefixSettings
from .request import Request


class Queues:
    """Waiting and running samples, both in submission order, and the page and slot pools.

    Args:
        num_pages, num_slots: ids that can be handed out.
        max_requests: samples that may run at a time.
        page_tokens: tokens per page.
        prefix: settings of the prefix cache; None is none.
    """

    def __init__(
        self, num_pages: int, num_slots: int, max_requests: int, page_tokens: int, prefix: PrefixSettings | None = None
    ) -> None:
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.pages = Pool("page pool", num_pages)
        self.slots = Pool("state slots", num_slots)
        self.max_requests = max_requests
        self.cache = PrefixCache(prefix, self.pages, self.slots, page_tokens)
        self._page_tokens = page_tokens

    def __iter__(self) -> Iterator[Request]:
        yield from self.running
        yield from self.waiting

    def __bool__(self) -> bool:
        return bool(self.running or self.waiting)

    def snapshot(self, trial: Sequence[Request]) -> Snapshot:
        """What a plan is made from: the samples of a trial, or all where there is none."""
        keys = {request.key for request in trial}
        waiting = (request for request in self.waiting if not keys or request.key in keys)
        running = [request.view() for request in self.running if not keys or request.key in keys]
        # More than that cannot be admitted; a queue of many thousands costs a step nothing.
        most = min(len(keys) or self.max_requests, self.max_requests - len(running), self.cache.free_slots)
        return Snapshot(
            running=running,
            waiting=[self._waiting_view(request) for request in islice(waiting, most)],
            free_pages=self.cache.free_pages,
            free_slots=self.cache.free_slots,
        )

    def _waiting_view(self, request: Request) -> RequestView:
        """A request as it would begin: behind what the prefix cache has of it."""
        match = self.cache.match(request)
        # Others have begun like this and gone on in another way: so will others still, and it pays to keep the state.
        request.checkpoint = match.seen if match.seen > match.tokens else 0
        view = request.view()
        pages = match.tokens // self._page_tokens
        return replace(view, computed=match.tokens, pages=pages, reclaimed=match.reclaimed) if pages else view

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
        """Gives its resources back, as far as the prefix cache has not taken them, and forgets it."""
        request.release()
        for image in request.images:
            image.let_go(request.key)
        (self.running if request in self.running else self.waiting).remove(request)

    def check_conservation(self) -> None:
        """Free + owned = total in both pools, by the leases of the samples. Raises PoolError."""
        leases = [*(request.leases() for request in self), self.cache.leases()]
        self.pages.check(lease for pages, _ in leases for lease in pages)
        self.slots.check(lease for _, slots in leases for lease in slots)

    def _place(self, key: int) -> int:
        return bisect_left(self.waiting, key, key=_key)


def _key(request: Request) -> int:
    return request.key
