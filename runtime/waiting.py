"""The requests that wait, and whose turn it is.

Higher priority first; a request that has waited for long counts as of a higher one, so it is overtaken for a while
only. Among equals, the tenant that has been given the fewest rows; so a tenant with thousands of requests delays
another one's first by no more than its own share. Within a tenant, in the order of submission.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import count

from .request import Request

AGEING = 10.0
"""Seconds of waiting that count as one step of priority."""

Lane = tuple[int, str | None]
"""Priority and tenant."""
Head = tuple[int, int, int, int, list[Request]]
"""The next of a lane: minus its level, rows of its tenant, its number; its place in the lane, and the lane."""


class Service:
    """Rows that tenants have been given. Only differences matter.

    A tenant for whom nothing waits is in no competition. When something does again, it begins with what the least
    served of those who wait has, or had when the last one began: neither pauses nor small needs save anything up. When
    nobody has a request any more, all are even.
    """

    def __init__(self) -> None:
        self._rows: dict[str | None, int] = {}
        self._unfinished: dict[str | None, int] = {}
        self._waiting: dict[str | None, int] = {}
        self._last = 0
        # Those who wait, the least served first, with the rows that they had when they were put here.
        self._order: list[tuple[int, int, str | None]] = []
        self._ordered: set[str | None] = set()
        self._serial = count()
        self._sweep = 64

    def __getitem__(self, tenant: str | None) -> int:
        return self._rows.get(tenant, 0)

    def join(self, tenant: str | None) -> None:
        """A request of the tenant has come."""
        self._unfinished[tenant] = self._unfinished.get(tenant, 0) + 1

    def wait(self, tenant: str | None) -> None:
        """A request of the tenant begins to wait."""
        if tenant not in self._waiting:
            self._rows[tenant] = max(self[tenant], self._least())
            self._waiting[tenant] = 0
            if tenant not in self._ordered:
                self._ordered.add(tenant)
                heapq.heappush(self._order, (self._rows[tenant], next(self._serial), tenant))
        self._waiting[tenant] += 1

    def begin(self, tenant: str | None) -> None:
        """A request of the tenant waits no longer."""
        self._waiting[tenant] -= 1
        if not self._waiting[tenant]:
            del self._waiting[tenant]
            if not self._waiting:
                self._last = max(self._last, self[tenant])

    def charge(self, tenant: str | None, rows: int) -> None:
        """Rows of a step."""
        self._rows[tenant] += rows

    def leave(self, tenant: str | None) -> None:
        """A request of the tenant has ended."""
        self._unfinished[tenant] -= 1
        if self._unfinished[tenant]:
            return
        del self._unfinished[tenant]
        if not self._unfinished:
            self._rows, self._order, self._ordered, self._last = {}, [], set(), 0
        elif len(self._rows) >= self._sweep:  # whoever is away and would begin with that anyway needs no entry
            least = self._least()
            kept = {one: rows for one, rows in self._rows.items() if rows > least or one in self._unfinished}
            self._rows, self._sweep = kept, 2 * len(kept) + 64

    def _least(self) -> int:
        """What the least served of those who wait has."""
        while self._order:
            rows, serial, tenant = self._order[0]
            if tenant not in self._waiting:
                heapq.heappop(self._order)
                self._ordered.remove(tenant)
            elif rows != self._rows[tenant]:
                heapq.heapreplace(self._order, (self._rows[tenant], serial, tenant))
            else:
                return rows
        return self._last


class Waiting:
    """Requests in lanes, one per priority and tenant, each in the order of submission."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._lanes: dict[Lane, list[Request]] = {}
        self._by_key: dict[int, Request] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def __bool__(self) -> bool:
        return bool(self._lanes)

    def __iter__(self) -> Iterator[Request]:
        """All of them, in the order of submission."""
        return iter(list(heapq.merge(*self._lanes.values(), key=_key)))

    def extend(self, requests: Iterable[Request]) -> None:
        """Requests that have just come."""
        for request in requests:
            self.insert(request)

    def insert(self, request: Request) -> None:
        """A request takes the place that its submission gives it."""
        lane = self._lanes.setdefault(_lane(request), [])
        if lane and lane[-1].key > request.key:
            lane.insert(bisect_left(lane, request.key, key=_key), request)
        else:
            lane.append(request)
        self._by_key[request.key] = request
        self._service.wait(request.params.tenant)

    def remove(self, request: Request) -> None:
        """Raises ValueError if it does not wait."""
        name = _lane(request)
        lane = self._lanes.get(name, [])
        place = bisect_left(lane, request.key, key=_key)
        if place == len(lane) or lane[place] is not request:
            raise ValueError(f"request {request.key} does not wait")
        del lane[place]
        if not lane:
            del self._lanes[name]
        del self._by_key[request.key]
        self._service.begin(request.params.tenant)

    def find(self, key: int) -> Request:
        """The request with this number. Raises KeyError if it does not wait."""
        return self._by_key[key]

    def first(self, most: int, now: float) -> list[Request]:
        """The next `most` requests, in the order in which they may begin.

        Args:
            now: seconds of the clock of `Request.arrival_time`.
        """
        chosen: list[Request] = []
        if most < 1 or not self._lanes:
            return chosen
        top = max(priority for priority, _ in self._lanes)
        extra: dict[str | None, int] = {}

        low = min(priority for priority, _ in self._lanes)

        def entry(lane: list[Request], place: int, tenant: str | None) -> Head:
            request = lane[place]
            level = top if low == top else _level(request, top, now)
            return -level, self._service[tenant] + extra.get(tenant, 0), request.key, place, lane

        heads = [entry(lane, 0, tenant) for (_, tenant), lane in self._lanes.items()]
        heapq.heapify(heads)
        while heads and len(chosen) < most:
            level, served, _, place, lane = heapq.heappop(heads)
            tenant = lane[place].params.tenant
            current = entry(lane, place, tenant)
            if served != current[1]:  # another lane of the tenant has had a turn since
                heapq.heappush(heads, current)
                continue
            request = lane[place]
            chosen.append(request)
            extra[tenant] = extra.get(tenant, 0) + request.length  # what it is about to be given
            if place + 1 < len(lane):
                heapq.heappush(heads, entry(lane, place + 1, tenant))
        return chosen


def _level(request: Request, top: int, now: float) -> int:
    """Priority with the time that it has waited; never above the highest of anybody who waits."""
    return min(top, request.params.priority + int(max(0.0, now - request.arrival_time) / AGEING))


def _lane(request: Request) -> Lane:
    return request.params.priority, request.params.tenant


def _key(request: Request) -> int:
    return request.key
