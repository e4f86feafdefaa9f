"""Who watches an engine: the step log, metrics, timelines, the profiler.

The engine tells its observers what happens, at step borders and in few calls per step; with none it tells nobody and
pays nothing. An observer can neither hold an engine up nor break it: one that raises is logged and told no more.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .outputs import RequestOutput

if TYPE_CHECKING:
    from .execute import Work
    from .plan import StepPlan
    from .queues import Queues
    from .request import Request

log = logging.getLogger(__name__)


class Observer:
    """What an engine says of itself. Every call may be overridden, and does nothing by default.

    Calls come under the engine's lock, from the thread that called the engine; all but `added` and some of `ended` from
    the one that steps. Times are seconds of time.monotonic().
    """

    def added(self, samples: Sequence[Request]) -> None:
        """The samples of a request have been queued."""

    def before_step(self, queues: Queues) -> None:
        """A step is about to be planned."""

    def planned(self, plan: StepPlan, seconds: float) -> None:
        """A step has been planned, and its plan carried out on the pools, in so many seconds."""

    def preempted(self, request: Request) -> None:
        """A running sample gives its pages back, to be computed again or to end."""

    def offloaded(self, request: Request) -> None:
        """Of these, one whose caches went to host memory."""

    def ran(self, work: Sequence[Work], began: float, ended: float, queues: Queues, launched: float) -> None:
        """The rows of a step have been computed, between two moments, and are committed.

        Args:
            work: without the rows of requests that had ended before.
            launched: when the step was launched: before `began` where it waited for the one before.
        """

    def failed(self, work: Sequence[Work], error: Exception) -> None:
        """A step raised. Its samples are in the queue again."""

    def timed(self, name: str, seconds: float) -> None:
        """A part of a step took so long: "commit" on the host, or a name with the prefix "device:"."""

    def returned(self, outputs: Sequence[RequestOutput]) -> None:
        """Outputs that the engine gives to its caller, in order, each once."""

    def closed(self) -> None:
        """The engine is closed; nothing follows."""


class Observers(Observer):
    """Passes everything on to those that were added. False while there are none."""

    def __init__(self) -> None:
        self._all: tuple[Observer, ...] = ()

    def __bool__(self) -> bool:
        return bool(self._all)

    def __iter__(self) -> Iterator[Observer]:
        return iter(self._all)

    def add(self, observer: Observer) -> None:
        """From now on it is told; it was not told what came before."""
        self._all = (*self._all, observer)

    def remove(self, observer: Observer) -> None:
        """It is told nothing more. One that is not there is passed over."""
        self._all = tuple(one for one in self._all if one is not observer)

    def added(self, samples: Sequence[Request]) -> None:
        self._tell("added", samples)

    def before_step(self, queues: Queues) -> None:
        self._tell("before_step", queues)

    def planned(self, plan: StepPlan, seconds: float) -> None:
        self._tell("planned", plan, seconds)

    def preempted(self, request: Request) -> None:
        self._tell("preempted", request)

    def offloaded(self, request: Request) -> None:
        self._tell("offloaded", request)

    def ran(self, work: Sequence[Work], began: float, ended: float, queues: Queues, launched: float) -> None:
        self._tell("ran", work, began, ended, queues, launched)

    def failed(self, work: Sequence[Work], error: Exception) -> None:
        self._tell("failed", work, error)

    def timed(self, name: str, seconds: float) -> None:
        self._tell("timed", name, seconds)

    def returned(self, outputs: Sequence[RequestOutput]) -> None:
        if outputs:
            self._tell("returned", outputs)

    def closed(self) -> None:
        self._tell("closed")

    def _tell(self, call: str, *values: Any) -> None:
        for one in self._all:
            try:
                getattr(one, call)(*values)
            except Exception:
                self.remove(one)
                log.exception("%s failed and is told no more", type(one).__name__)
