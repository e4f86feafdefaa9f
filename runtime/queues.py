"""The unfinished samples of an engine: who waits, who runs, and the pools that they and the prefix cache share."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from .arrivals import Arrivals
from .cost import Cost
from .forks import Anchor, Forks
from .image_workers import EncodedImage, ImageWorkers
from .moves import Moves
from .offload import HostSettings, HostStore
from .plan import RequestView, Snapshot, pages_for, pages_to_begin
from .pool import Pool, PoolError
from .prefix import PrefixCache, PrefixSettings
from .request import Request
from .waiting import Service, Waiting

PATIENCE = 10.0
"""Seconds from the arrival of a request for which it lets others begin while pages are short for it."""


class Queues:
    """Waiting and running samples, and the page and slot pools.

    Running ones are in order of priority, then of submission: where memory is short, the last one gives way. Leaving
    ones have ended, and a step that was launched before may still read or write what they hold.

    Args:
        num_pages, num_slots: ids that can be handed out.
        max_requests: samples that may run at a time.
        page_tokens: tokens per page.
        prefix: settings of the prefix cache; None is none.
        host: memory for preempted requests; None is none.
        slack: positions that the state of a sequence reaches back, see `forks`; 0 is no forks.
        workers: decode images; None where they come decoded.
    """

    def __init__(
        self,
        num_pages: int,
        num_slots: int,
        max_requests: int,
        page_tokens: int,
        prefix: PrefixSettings | None = None,
        host: HostSettings | None = None,
        slack: int = 0,
        workers: ImageWorkers | None = None,
    ) -> None:
        self.service = Service()
        self.waiting = Waiting(self.service)
        self.running: list[Request] = []
        self.leaving: list[Request] = []
        self.pages = Pool("page pool", num_pages)
        self.slots = Pool("state slots", num_slots)
        self.max_requests = max_requests
        self.forks = Forks(self.pages, self.slots, page_tokens, slack)
        self.cache = PrefixCache(prefix, self.pages, self.slots, page_tokens, self.forks)
        self.host = HostStore(host, page_tokens)
        self.arrivals = Arrivals(workers)
        self.page_tokens = page_tokens

    def __iter__(self) -> Iterator[Request]:
        yield from self.running
        yield from self.waiting
        yield from self.forks.resting()
        yield from self.arrivals

    def __bool__(self) -> bool:
        return bool(self.running or self.waiting or self.arrivals or next(self.forks.resting(), None))

    def add(self, requests: Sequence[Request]) -> None:
        """Samples of a request that has come."""
        for request in requests:
            self.service.join(request.params.tenant)
        self.begin(requests)

    def begin(self, requests: Sequence[Request]) -> None:
        """Samples of a request that lacks nothing wait for their turn."""
        self.waiting.extend(self.forks.begin(requests))

    def expect(self, requests: Sequence[Request], encoded: Sequence[EncodedImage]) -> None:
        """Samples of a request that has come and whose images are decoded first. Raises as `Arrivals.expect`."""
        self.arrivals.expect(requests, encoded)
        for request in requests:
            self.service.join(request.params.tenant)

    def fork(self, source: Request, request: Request, share: bool = True) -> None:
        """A sample that has come, whose prompt is the text of `source` but for the last token.

        `share`: whether it may go on from what `source` has computed.
        """
        self.service.join(request.params.tenant)
        self.waiting.insert(request)
        if share:
            self.forks.wish(source, request)

    def grant_forks(self) -> None:
        """Before a step is planned: keeps what is to be forked, and queues the samples that waited for it."""
        if self.forks.has_wishes():
            self.waiting.extend(self.forks.grant())

    def snapshot(self, trial: Sequence[Request], now: float, cost: Cost | None = None) -> Snapshot:
        """What a plan is made from: the samples of a trial, or all where there is none.

        Args:
            now: seconds of the clock of `Request.arrival_time`.
            cost: of steps, as far as it is known.
        """
        keys = {request.key for request in trial}
        running = self._running_views([request for request in self.running if not keys or request.key in keys])
        # More cannot be admitted, so a queue of many thousands costs a step nothing. The next is told what it lacks.
        most = min(self.max_requests - len(running), self.cache.free_slots)
        waiting = [request for request in self.waiting if request.key in keys] if keys else None
        if waiting is None:
            waiting = self.waiting.first(max(most, 0) + 1, now)
        return Snapshot(
            running=running,
            waiting=self._waiting_views(waiting, now),
            free_pages=self.cache.free_pages,
            free_slots=self.cache.free_slots,
            cost=cost,
            host=self.host.room,
        )

    def _running_views(self, running: Sequence[Request]) -> list[RequestView]:
        """The running requests; where pages may be short, with those that preempting them would not make free."""
        views = [request.view() for request in running]
        # A request that decodes takes the page of its next token, and those that its drafts reach.
        most = 1 + pages_for(running[0].max_drafts + 1, self.page_tokens) if running else 0
        if len(views) * most <= self.cache.free_pages:
            return views
        need = sum(view.lacks(self.page_tokens) for view in views)
        if need <= self.cache.free_pages:
            return views
        seen: Counter[int] = Counter()
        for place in reversed(range(len(views))):  # the order in which they give way
            lease = running[place].pages
            shared = [] if lease is None else [page for page in lease.ids if self.pages.holders(page) > 1]
            seen.update(shared)
            kept = sum(seen[page] < self.pages.holders(page) for page in shared)
            views[place] = replace(views[place], kept=kept, shared=len(shared))
        return views

    def _waiting_views(self, waiting: Sequence[Request], now: float) -> list[RequestView]:
        """The waiting requests, up to the first for whom pages are short and behind whom nobody may begin."""
        views: list[RequestView] = []
        left = self.cache.free_pages
        floor: int | None = None  # of those who lack pages: nobody of a lower one begins before them
        for request, level in zip(waiting, self.waiting.levels(waiting, now), strict=True):
            if floor is not None and level < floor:
                continue
            view = self._waiting_view(request)
            view.priority = level
            # One that has given way is not made to wait by others.
            view.patient = not request.preemptions and now - request.arrival_time < PATIENCE
            views.append(view)
            need = pages_to_begin(view, self.page_tokens) + view.reclaimed
            if need <= left:
                left -= need
            elif not view.patient:
                break
            else:
                floor = level
        return views

    def _waiting_view(self, request: Request) -> RequestView:
        """A request as it would begin: behind what host memory, another sample or the prefix cache has of it."""
        if request.host is not None:
            return request.view()
        anchor = self.forks.of(request)
        if anchor is not None:
            view = self._forked_view(request, anchor)
            if view is not None:
                return view
            self.forks.leave(request)
        match = self.cache.match(request)
        # Others have begun like this and gone on in another way: so will others still, and it pays to keep the state.
        request.checkpoint = match.seen if match.seen > match.tokens and not match.replays else 0
        view = request.view()
        pages = match.tokens // self.page_tokens
        return replace(view, computed=match.tokens, pages=pages, reclaimed=match.reclaimed) if pages else view

    def _forked_view(self, request: Request, anchor: Anchor) -> RequestView | None:
        """A sample that begins at its anchor; None where it could begin without, but not beside the anchor's pages."""
        pages, taken = anchor.tokens // self.page_tokens, self.forks.reclaimed(anchor)
        need = pages_for(request.length, self.page_tokens)
        if need - pages + taken > self.cache.free_pages >= need:
            return None
        return replace(request.view(), computed=anchor.tokens, pages=pages, reclaimed=taken, cut=0)

    def admit(self, key: int) -> Request:
        """A waiting sample starts to run."""
        request = self.waiting.find(key)
        self.waiting.remove(request)
        self.running.insert(bisect_left(self.running, _rank(request), key=_rank), request)
        return request

    def requeue(self, request: Request) -> None:
        """Back to its place in its lane, mostly the front, to be computed again."""
        request.release()
        for image in request.images:
            image.waiting.add(request.key)
        self.running.remove(request)
        self.waiting.insert(request)

    def postpone(self, request: Request) -> None:
        """Back to its place in its lane before it has begun."""
        if request.host is None:
            self.requeue(request)
        else:  # its caches stay where they are
            self.running.remove(request)
            self.waiting.insert(request)

    def offload(self, request: Request, executor: Moves) -> None:
        """Back to its place in its lane; its caches wait in host memory. Raises, and changes nothing, if that fails."""
        held = self.host.save(request, executor)
        if not request.tainted:
            self.cache.keep_pages(request)
        request.suspend(held)
        self.running.remove(request)
        self.waiting.insert(request)

    def remove(self, request: Request) -> None:
        """Gives its resources back, as far as nobody has taken them, and forgets it."""
        rests = self.forks.rests(request) or self.arrivals.drop(request)
        self.waiting.extend(self.forks.ended(request))
        request.release()
        for image in request.images:
            image.let_go(request.key)
        if request in self.running:
            self.running.remove(request)
        elif not rests:
            self.waiting.remove(request)
        self.service.leave(request.params.tenant)

    def leave(self, request: Request) -> None:
        """A running sample has ended, and is in flight: forgets it, but for what it holds."""
        for image in request.images:
            image.let_go(request.key)
        self.running.remove(request)
        self.service.leave(request.params.tenant)
        self.leaving.append(request)

    def retire(self, request: Request) -> None:
        """Gives back what a leaving sample holds, as far as the prefix cache has not taken it."""
        self.leaving.remove(request)
        self.waiting.extend(self.forks.ended(request))
        request.release()

    @property
    def pages_in_use(self) -> int:
        """Pages that samples hold; those of the prefix cache alone are not among them."""
        return self.pages.capacity - self.cache.free_pages

    def check_idle(self) -> None:
        """What `check_conservation` says where no sample is there, as far as counting tells: whatever the cache holds,
        this costs the same. Raises PoolError.
        """
        pins = [lease for lease in self.forks.pins if not lease.released] if self.forks.pins else []
        for pool, known, which in zip((self.pages, self.slots), self.cache.counts, (0, 1), strict=True):
            known += sum(len(request.leases()[which]) for request in self.leaving)
            known += sum(one.pool is pool for one in pins)
            if pool.leases != known:
                raise PoolError(f"{pool.name}: {pool.leases} leases are alive, {known} are known to an owner")
            if not known and pool.used:
                raise PoolError(f"{pool.name}: {pool.used} ids have no owner")

    def check_conservation(self) -> None:
        """Free + owned = total in both pools, by the leases of the samples. Raises PoolError."""
        leases = [*(request.leases() for request in (*self, *self.leaving)), self.cache.leases()]
        pins = [lease for lease in self.forks.pins if not lease.released]
        for pool, which in ((self.pages, 0), (self.slots, 1)):
            pool.check([lease for one in leases for lease in one[which]] + [one for one in pins if one.pool is pool])
        self.host.check(list(self))


def _rank(request: Request) -> tuple[int, int]:
    return -request.params.priority, request.key
