"""The requests that wait, and whose turn it is.

Higher priority first; a request that has waited for long counts as of a higher one, so it is overtaken for a while
only. Among equals, the tenant that has been given the fewest rows; so a tenant with thousands of requests delays
another one's first by no more than its own share. Within a tenant, in the order of submission.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import count

from .request import Request

AGEING = 10.0
"""Seconds of waiting that count as one step of priority."""

Lane = tuple[int, str | None]
"""Priority and tenant."""
Entry = tuple[int, int, int, "_Line"]
"""Of a lane, in its level: rows of its tenant, number of its first request; a serial number, and the lane."""
Head = tuple[int, int, int, int, int, "_Line"]
"""The next of a lane: minus its level, rows of its tenant, its number; a serial number, its place, and the lane."""


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


class _Line:
    """The requests of one lane, in the order of submission.

    Attributes:
        level: of the first one, no more than `Waiting` counts.
        entry: the one that stands for the lane; others are left over.
    """

    __slots__ = ("entry", "level", "name", "requests")

    def __init__(self, name: Lane) -> None:
        self.name = name
        self.requests: list[Request] = []
        self.level = 0
        self.entry: Entry | None = None


class Waiting:
    """Requests in lanes, one per priority and tenant, each in the order of submission.

    Lanes stand in one heap per level, by the rows of their tenant as they were when somebody last looked; rows only
    rise, so whoever comes up too early is put back. Another heap says when waiting raises the level of a lane. So
    asking for the next few costs the same for any number of tenants, but for the logarithm of a heap.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._lanes: dict[Lane, _Line] = {}
        self._by_key: dict[int, Request] = {}
        self._serial = count()
        self._forget()

    def _forget(self) -> None:
        self._now = 0.0
        self._highest = -math.inf  # of the priorities since nobody waited; levels count up to it
        self._priorities: Counter[int] = Counter()
        self._levels: dict[int, list[Entry]] = {}
        self._rises: list[tuple[float, int, _Line]] = []

    def __len__(self) -> int:
        return len(self._by_key)

    def __bool__(self) -> bool:
        return bool(self._lanes)

    def __iter__(self) -> Iterator[Request]:
        """All of them, in the order of submission."""
        return iter(list(heapq.merge(*(line.requests for line in self._lanes.values()), key=_key)))

    def extend(self, requests: Iterable[Request]) -> None:
        """Requests that have just come."""
        for request in requests:
            self.insert(request)

    def insert(self, request: Request) -> None:
        """A request takes the place that its submission gives it."""
        name = _lane(request)
        line = self._lanes.get(name)
        if line is None:
            line = self._lanes[name] = _Line(name)
            self._priorities[name[0]] += 1
        lane = line.requests
        place = bisect_left(lane, request.key, key=_key) if lane and lane[-1].key > request.key else len(lane)
        lane.insert(place, request)
        self._by_key[request.key] = request
        self._service.wait(request.params.tenant)
        if name[0] > self._highest:
            self._highest = name[0]
            self._arrange()
        elif place == 0:
            self._place(line)

    def remove(self, request: Request) -> None:
        """Raises ValueError if it does not wait."""
        name = _lane(request)
        line = self._lanes.get(name)
        lane = [] if line is None else line.requests
        place = bisect_left(lane, request.key, key=_key)
        if line is None or place == len(lane) or lane[place] is not request:
            raise ValueError(f"request {request.key} does not wait")
        del lane[place]
        del self._by_key[request.key]
        self._service.begin(request.params.tenant)
        if not lane:
            del self._lanes[name]
            line.entry = None
            self._priorities[name[0]] -= 1
            if not self._priorities[name[0]]:
                del self._priorities[name[0]]
            if not self._lanes:
                self._forget()
        elif place == 0:
            self._place(line)

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
        self._advance(now)
        top = max(self._priorities)
        extra: dict[str | None, int] = {}

        def head(line: _Line, place: int) -> Head:
            request = line.requests[place]
            tenant = request.params.tenant
            served = self._service[tenant] + extra.get(tenant, 0)
            return -min(top, self._level(request)), served, request.key, next(self._serial), place, line

        taken: list[Entry] = []
        heads: list[Head] = []  # of lanes that were looked at, with what is about to be given counted
        while len(chosen) < most:
            entry = self._next(top)
            if entry is not None:
                first = (-min(top, entry[3].level), entry[0], entry[1])
                if not heads or first < heads[0][:3]:
                    heapq.heappop(self._levels[entry[3].level])
                    taken.append(entry)
                    heapq.heappush(heads, head(entry[3], 0))
                    continue
            if not heads:
                break
            _, served, _, _, place, line = heapq.heappop(heads)
            current = head(line, place)
            if served != current[1]:  # another lane of the tenant has had a turn since
                heapq.heappush(heads, current)
                continue
            request = line.requests[place]
            chosen.append(request)
            tenant = request.params.tenant
            extra[tenant] = extra.get(tenant, 0) + request.length  # what it is about to be given
            if place + 1 < len(line.requests):
                heapq.heappush(heads, head(line, place + 1))
        for entry in taken:
            heapq.heappush(self._levels.setdefault(entry[3].level, []), entry)
        return chosen

    def levels(self, requests: Sequence[Request], now: float) -> list[int]:
        """Priorities of some that wait as `first` counts them: with their waiting, up to the highest that waits."""
        top = max(self._priorities, default=0)
        return [min(top, _raised(request, now)) for request in requests]

    def _next(self, top: int) -> Entry | None:
        """The entry that comes first: of the highest level, where all from `top` on are one."""
        best: Entry | None = None
        for level in sorted(self._levels, reverse=True):
            if level < top and best is not None:
                break
            entry = self._clean(level)
            if entry is not None and (best is None or entry < best):
                best = entry
        return best

    def _clean(self, level: int) -> Entry | None:
        """The first entry of a level that stands for a lane and is up to date."""
        heap = self._levels[level]
        while heap:
            entry = heap[0]
            line = entry[3]
            if line.entry is not entry:
                heapq.heappop(heap)
                continue
            rows = self._service[line.name[1]]
            if rows == entry[0]:
                return entry
            line.entry = (rows, entry[1], next(self._serial), line)
            heapq.heapreplace(heap, line.entry)
        del self._levels[level]
        return None

    def _place(self, line: _Line) -> None:
        """Puts a lane where its first request belongs."""
        request = line.requests[0]
        line.level = self._level(request)
        line.entry = (self._service[line.name[1]], request.key, next(self._serial), line)
        heapq.heappush(self._levels.setdefault(line.level, []), line.entry)
        if line.level < self._highest:
            at = request.arrival_time + AGEING * (line.level - line.name[0] + 1)
            heapq.heappush(self._rises, (max(at, math.nextafter(self._now, math.inf)), next(self._serial), line))

    def _arrange(self) -> None:
        """Puts all lanes where they belong."""
        self._levels, self._rises = {}, []
        for line in self._lanes.values():
            self._place(line)

    def _advance(self, now: float) -> None:
        """Raises the levels of those who have waited long enough."""
        back, self._now = now < self._now, now
        if back:
            self._arrange()
        due: set[_Line] = set()
        while self._rises and self._rises[0][0] <= now + 1e-6:  # a little early: levels are computed from times
            due.add(heapq.heappop(self._rises)[2])
        for line in due:
            if line.entry is not None:
                self._place(line)

    def _level(self, request: Request) -> int:
        """Priority with the time that it has waited, as far as that counts."""
        return int(min(self._highest, _raised(request, self._now)))


def _raised(request: Request, now: float) -> int:
    return request.params.priority + int(max(0.0, now - request.arrival_time) / AGEING)


def _lane(request: Request) -> Lane:
    return request.params.priority, request.params.tenant


def _key(request: Request) -> int:
    return request.key
