"""The requests that wait, and whose turn it is.

Higher priority first; a request that has waited for long counts as of a higher one, so it is overtaken for a while
only. Among equals, the tenant that has been given the fewest rows; so a tenant with thousands of requests delays
another one's first by no more than its own share. Within a tenant, in the order of submission.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterable, Iterator

from .request import Request

AGEING = 10.0
"""Seconds of waiting that count as one step of priority."""

Lane = tuple[int, str | None]
"""Priority and tenant."""


class Service:
    """Rows that tenants have been given. Only differences matter.

    Who comes back after a pause begins with what the least served of the others has: pauses save nothing up.
    """

    def __init__(self) -> None:
        self._rows: dict[str | None, int] = {}
        self._unfinished: dict[str | None, int] = {}

    def __getitem__(self, tenant: str | None) -> int:
        return self._rows.get(tenant, 0)

    def join(self, tenant: str | None) -> None:
        """A request of the tenant has come."""
        if tenant not in self._unfinished:
            least = min((self._rows[one] for one in self._unfinished), default=0)
            self._rows[tenant] = max(least, self[tenant])
            self._unfinished[tenant] = 0
            # Whoever is away and would begin with that anyway needs no entry.
            for one in [one for one, rows in self._rows.items() if rows <= least and one not in self._unfinished]:
                del self._rows[one]
        self._unfinished[tenant] += 1

    def charge(self, tenant: str | None, rows: int) -> None:
        """Rows of a step."""
        self._rows[tenant] += rows

    def leave(self, tenant: str | None) -> None:
        """A request of the tenant has ended."""
        self._unfinished[tenant] -= 1
        if not self._unfinished[tenant]:
            del self._unfinished[tenant]


class Waiting:
    """Requests in lanes, one per priority and tenant, each in the order of submission."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._lanes: dict[Lane, list[Request]] = {}

    def __len__(self) -> int:
        return sum(len(lane) for lane in self._lanes.values())

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

    def find(self, key: int) -> Request:
        """The request with this number. Raises KeyError if it does not wait."""
        for lane in self._lanes.values():
            place = bisect_left(lane, key, key=_key)
            if place < len(lane) and lane[place].key == key:
                return lane[place]
        raise KeyError(key)

    def first(self, count: int, now: float) -> list[Request]:
        """The next `count` requests, in the order in which they may begin.

        Args:
            now: seconds of the clock of `Request.arrival_time`.
        """
        chosen: list[Request] = []
        if count < 1 or not self._lanes:
            return chosen
        top = max(priority for priority, _ in self._lanes)
        extra: dict[str | None, int] = {}

        def entry(lane: list[Request], place: int) -> tuple[int, int, int, int, list[Request]]:
            request = lane[place]
            tenant = request.params.tenant
            served = self._service[tenant] + extra.get(tenant, 0)
            return -_level(request, top, now), served, request.key, place, lane

        heads = [entry(lane, 0) for lane in self._lanes.values()]
        heapq.heapify(heads)
        while heads and len(chosen) < count:
            level, served, _, place, lane = heapq.heappop(heads)
            current = entry(lane, place)
            if served != current[1]:  # another lane of the tenant has had a turn since
                heapq.heappush(heads, current)
                continue
            request = lane[place]
            chosen.append(request)
            tenant = request.params.tenant
            extra[tenant] = extra.get(tenant, 0) + request.length  # what it is about to be given
            if place + 1 < len(lane):
                heapq.heappush(heads, entry(lane, place + 1))
        return chosen


def _level(request: Request, top: int, now: float) -> int:
    """Priority with the time that it has waited; never above the highest of anybody who waits."""
    return min(top, request.params.priority + int(max(0.0, now - request.arrival_time) / AGEING))


def _lane(request: Request) -> Lane:
    return request.params.priority, request.params.tenant


def _key(request: Request) -> int:
    return request.key
