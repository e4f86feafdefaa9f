"""What happened to each request, and when: events on the monotonic clock, and a trace that browsers draw.

`Timeline.write` makes the JSON of Chrome's tracing format, which Perfetto (ui.perfetto.dev) and chrome://tracing open:
a track of steps, and a track for each request that was in the engine at a time. Memory is bounded: so many requests,
so many steps, so many events per request; what did not fit is told, not hidden.
"""

from __future__ import annotations

import heapq
import json
import time
from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..hal.errors import InvalidArgumentError
from .checks import check_int
from .lives import Life, Lives
from .metrics import rows_of, step_kind
from .outputs import RequestOutput

if TYPE_CHECKING:
    from .engine import LLMEngine
    from .execute import Work
    from .plan import StepPlan
    from .queues import Queues

REQUESTS, STEPS, EVENTS = 1000, 20_000, 2000


@dataclass(slots=True)
class Record:
    """One sample.

    Attributes:
        lane: number that no other sample has at the time; its track.
        chunks: rows of its known text that steps computed: (began, ended, first row, end).
        token_times, token_counts: moments at which tokens were returned, and how many.
        waits: (preempted at, ran again at), the last one open with None.
        dropped: events beyond the limit.
    """

    life: Life
    lane: int
    chunks: list[tuple[float, float, int, int]] = field(default_factory=list)
    token_times: array[float] = field(default_factory=lambda: array("d"))
    token_counts: array[int] = field(default_factory=lambda: array("i"))
    waits: list[tuple[float, float | None]] = field(default_factory=list)
    finished: float | None = None
    finish_reason: str | None = None
    dropped: int = 0

    @property
    def events(self) -> int:
        """Number of those that are kept."""
        return len(self.chunks) + len(self.token_times) + len(self.waits)


class Timeline(Lives):
    """Keeps the latest requests of an engine.

    Args:
        engine: observed from now on.
        requests, steps, events: how many finished samples, how many steps, and how many events per sample are kept.

    Raises:
        InvalidArgumentError: a limit below 1.
    """

    def __init__(self, engine: LLMEngine, requests: int = REQUESTS, steps: int = STEPS, events: int = EVENTS) -> None:
        super().__init__()
        for name, value in (("requests", requests), ("steps", steps), ("events", events)):
            check_int(name, value, 1, 1 << 31)
        self._engine = engine
        self._events = events
        self._start = time.monotonic()
        self._done: deque[Record] = deque(maxlen=requests)
        self._steps: deque[tuple[float, float, str, tuple[int, int, int], int]] = deque(maxlen=steps)
        self._plans: deque[tuple[float, float]] = deque(maxlen=steps)
        self._lanes: list[int] = []
        self._lane_count = 0
        self.forgotten = 0
        engine.observers.add(self)

    # ---- what happens

    def arrived(self, life: Life) -> None:
        if not self._lanes:
            self._lanes.append(self._lane_count)
            self._lane_count += 1
        life.notes = Record(life, heapq.heappop(self._lanes))  # the lowest that is free, so that tracks are few

    def gave_way(self, life: Life, now: float) -> None:
        if self._room(life.notes):
            life.notes.waits.append((now, None))

    def resumed(self, life: Life, now: float) -> None:
        record: Record = life.notes
        if record.waits and record.waits[-1][1] is None:
            record.waits[-1] = (record.waits[-1][0], max(now, record.waits[-1][0]))

    def spoke(self, life: Life, output: RequestOutput, count: int, gap: float | None, now: float) -> None:
        record: Record = life.notes
        if self._room(record):
            record.token_times.append(now)
            record.token_counts.append(count)

    def ended(self, life: Life, output: RequestOutput, now: float) -> None:
        record: Record = life.notes
        record.finished, record.finish_reason = now, output.finish_reason
        heapq.heappush(self._lanes, record.lane)
        self.forgotten += len(self._done) == self._done.maxlen
        self._done.append(record)

    def planned(self, plan: StepPlan, seconds: float) -> None:
        if plan.items:
            now = time.monotonic()
            self._plans.append((now - seconds, now))

    def ran(self, work: Sequence[Work], began: float, ended: float, queues: Queues, launched: float) -> None:
        super().ran(work, began, ended, queues, launched)
        for item in work:
            life = self.lives.get(item.request.key)
            known = item.end - len(item.drafts)
            if life is None or (known - item.start == 1 and item.start >= item.request.prompt_len):
                continue
            if self._room(life.notes):
                life.notes.chunks.append((began, ended, item.start, known))
        rows = rows_of(work)
        self._steps.append((began, ended, step_kind(rows), rows, len(work)))

    def _room(self, record: Record) -> bool:
        if record.events < self._events:
            return True
        record.dropped += 1
        return False

    # ---- showing

    def records(self) -> list[dict[str, Any]]:
        """Every kept sample, those that have not ended last: names, lengths, and its events in order of time.

        Each event has `name` and `at`, and `until` where it took time; seconds of time.monotonic().
        """
        with self._engine._lock:
            return [_described(record) for record in self._kept()]

    def _kept(self) -> list[Record]:
        return [*self._done, *(life.notes for life in self.lives.values())]

    def trace(self) -> dict[str, Any]:
        """All of it in Chrome's tracing format. Timestamps are microseconds since the timeline began."""
        with self._engine._lock:
            now = time.monotonic()
            events = [*_names(self._lane_count), *self._engine_events()]
            for record in self._kept():
                events += _request_events(record, now)
        for event in events:
            if "ts" in event:
                event["ts"] = round((event["ts"] - self._start) * 1e6, 3)
        notes = {"clock": "monotonic", "forgotten_requests": self.forgotten}
        return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": notes}

    def write(self, path: str | Path) -> None:
        """The trace as a file.

        Raises:
            InvalidArgumentError: it cannot be written.
        """
        try:
            Path(path).write_text(json.dumps(self.trace(), separators=(",", ":")), encoding="utf-8")
        except OSError as error:
            raise InvalidArgumentError(
                "timeline", str(path), f"a file that can be written ({error.strerror})"
            ) from None

    def _engine_events(self) -> Iterator[dict[str, Any]]:
        for began, ended, kind, rows, samples in self._steps:
            numbers = {"prefill_rows": rows[0], "decode_rows": rows[1], "draft_rows": rows[2], "samples": samples}
            yield _span(kind, 1, 1, began, ended, **numbers)
        for began, ended in self._plans:
            yield _span("plan", 1, 2, began, ended)


def _described(record: Record) -> dict[str, Any]:
    life = record.life
    events: list[dict[str, Any]] = [{"name": "arrived", "at": life.arrival}]
    if life.began is not None:
        events.append({"name": "began", "at": life.began, "cached_tokens": life.cached_tokens})
    events += [{"name": "chunk", "at": b, "until": e, "rows": [s, end]} for b, e, s, end in record.chunks]
    events += [{"name": "tokens", "at": at, "count": n} for at, n in zip(record.token_times, record.token_counts)]
    events += [{"name": "preempted", "at": at, "until": until} for at, until in record.waits]
    if record.finished is not None:
        events.append({"name": "finished", "at": record.finished, "reason": record.finish_reason})
    events.sort(key=lambda event: event["at"])
    return {
        "request_id": life.request_id,
        "sample_index": life.sample_index,
        "prompt_len": life.prompt_len,
        "output_tokens": life.tokens,
        "preemptions": life.preemptions,
        "finish_reason": record.finish_reason,
        "dropped_events": record.dropped,
        "events": events,
    }


def _names(lanes: int) -> Iterator[dict[str, Any]]:
    for pid, name in ((1, "engine"), (2, "requests")):
        yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}
    tracks = [(1, 1, "steps"), (1, 2, "planning"), *((2, 1 + lane, f"lane {lane}") for lane in range(lanes))]
    for pid, tid, name in tracks:
        yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}


def _span(name: str, pid: int, tid: int, began: float, ended: float, **args: Any) -> dict[str, Any]:
    took = round(max(ended - began, 0.0) * 1e6, 3)
    return {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": began, "dur": took, "args": args}


def _request_events(record: Record, now: float) -> Iterator[dict[str, Any]]:
    life, tid = record.life, 1 + record.lane
    end = now if record.finished is None else record.finished
    who = f"{life.request_id}" + (f" [{life.sample_index}]" if life.sample_index else "")
    about = {
        "request": who,
        "prompt": life.prompt_len,
        "cached": life.cached_tokens,
        "output": life.tokens,
        "finish_reason": record.finish_reason,
        "dropped_events": record.dropped,
    }
    yield _span(who, 2, tid, life.arrival, end, **about)
    yield _span("queue", 2, tid, life.arrival, end if life.began is None else life.began)
    if life.began is not None:
        yield _span("prefill", 2, tid, life.began, end if life.first is None else life.first)
    if life.first is not None and life.last is not None:
        yield _span("decode", 2, tid, life.first, life.last)
    for began, ended, start, stop in record.chunks:
        yield _span("chunk", 2, tid, began, ended, rows=[start, stop])
    for began, until in record.waits:
        yield _span("preempted", 2, tid, began, end if until is None else until)
    for at, count in zip(record.token_times, record.token_counts):
        yield {"ph": "i", "name": "tokens", "pid": 2, "tid": tid, "ts": at, "s": "t", "args": {"count": count}}
