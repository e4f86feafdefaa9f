"""What becomes of each sample, as its observers want it: when it began to run, its tokens, its end.

Definitions used by metrics, step log and timeline alike, all on the monotonic clock:

* queue time: from the arrival to the launch of the first step that computes a row of the sample;
* TTFT: from the arrival to the moment at which the engine returns the first token;
* TBT: from the moment at which a step of the sample returned tokens to the next such moment, divided evenly among the
  tokens of the latter, each of which counts (a step may return several, where drafts held);
* prefill time: from that launch to the first token; decode time: from the first token to the last.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .observe import Observer
from .outputs import RequestOutput

if TYPE_CHECKING:
    from .execute import Work
    from .queues import Queues
    from .request import Request


@dataclass(slots=True, eq=False)
class Life:
    """One sample.

    Attributes:
        key: the engine's number of it.
        arrival, began, first, last: moments: it arrived, its first rows were launched, its first and its latest tokens
            were returned; None before.
        tokens: returned so far.
        start: first row that was computed when it last began to run: those before were found in a cache.
        cached_tokens, forked_tokens: rows before the first one, by who had them: the prefix cache, another sample.
        notes: the observer's own.
    """

    key: int
    request_id: Any
    sample_index: int
    prompt_len: int
    arrival: float
    began: float | None = None
    first: float | None = None
    last: float | None = None
    tokens: int = 0
    preemptions: int = 0
    start: int = 0
    cached_tokens: int = 0
    forked_tokens: int = 0
    notes: Any = None


class Lives(Observer):
    """Follows every sample from the moment it is added. Samples added before the observer was are passed over."""

    def __init__(self) -> None:
        self.lives: dict[int, Life] = {}
        self._still: set[int] = set()  # keys of those that do not run: who begins in a step is among them
        self._by_name: dict[tuple[Any, int], deque[Life]] = {}  # an id may be given again before its last word is read

    # ---- what is made of it

    def arrived(self, life: Life) -> None:
        """A sample was queued."""

    def began(self, life: Life) -> None:
        """Its first rows were launched, at `life.began`."""

    def resumed(self, life: Life, now: float) -> None:
        """It runs again after a preemption."""

    def gave_way(self, life: Life, now: float) -> None:
        """It was preempted."""

    def spoke(self, life: Life, output: RequestOutput, count: int, gap: float | None, now: float) -> None:
        """A step gave it `count` tokens, the last in `output`, `gap` seconds after those before; None for the first."""

    def ended(self, life: Life, output: RequestOutput, now: float) -> None:
        """Its last output."""

    # ---- what the engine says

    def added(self, samples: Sequence[Request]) -> None:
        for request in samples:
            life = Life(request.key, request.request_id, request.sample_index, request.prompt_len, request.arrival_time)
            self.lives[request.key] = life
            self._still.add(request.key)
            self._by_name.setdefault((request.request_id, request.sample_index), deque()).append(life)
            self.arrived(life)

    def preempted(self, request: Request) -> None:
        life = self.lives.get(request.key)
        if life is not None:
            self._still.add(request.key)
            life.preemptions += 1
            self.gave_way(life, time.monotonic())

    def ran(self, work: Sequence[Work], began: float, ended: float, queues: Queues, launched: float) -> None:
        still = self._still
        if not still:
            return
        for item in work:
            key = item.request.key
            if key not in still:
                continue
            still.remove(key)
            life = self.lives[key]
            life.start = item.start
            if life.began is None:
                life.began = launched
                life.cached_tokens = item.request.cached_tokens or 0
                life.forked_tokens = max(0, item.start - life.cached_tokens)
                self.began(life)
            else:
                self.resumed(life, launched)

    def failed(self, work: Sequence[Work], error: Exception) -> None:
        self._still.update(item.request.key for item in work if item.request.key in self.lives)

    def returned(self, outputs: Sequence[RequestOutput]) -> None:
        now = time.monotonic()
        last: RequestOutput | None = None
        count = 0
        for output in outputs:  # those that a step gave one sample are in a row
            if last is not None and (
                last.sample_index != output.sample_index or last.request_id != output.request_id or last.finished
            ):
                self._returned(last, count, now)
                count = 0
            last = output
            count += output.token_id >= 0
        if last is not None:
            self._returned(last, count, now)

    def _returned(self, output: RequestOutput, count: int, now: float) -> None:
        name = (output.request_id, output.sample_index)
        lives = self._by_name.get(name)
        if not lives:
            return
        life = lives[0]
        if count:
            before, life.last = life.last, now
            life.tokens += count
            if before is None:
                life.first = now
            self.spoke(life, output, count, None if before is None else now - before, now)
        if output.finished:
            lives.popleft()
            if not lives:
                del self._by_name[name]
            del self.lives[life.key]
            self._still.discard(life.key)
            self.ended(life, output, now)
