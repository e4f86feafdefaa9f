"""Steps that were launched and whose results have not been looked at.

With asynchronous scheduling the engine plans and launches step N+1 while the device runs step N, and looks at the
results of N after that. So at most two steps are in flight, and one between two calls of `LLMEngine.step`. What the
host does not know of a request when it plans N+1, it bounds (`Request.view`): its last token, its drafts and, where it
had drafts to verify, how many of these held. Everything of it is on the device, and what N+1 needs is read there.

When N lands, the rows of N+1 are settled: what was a bound becomes exact (`settle`). A request that ended with N is
passed over in N+1: the device has seen its end and computes no row of it, or, where only the host could see it (a stop
string, an abort), its rows write what nobody reads, and its pages and its slot return when N+1 has landed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from .execute import Result, Work
from .outputs import FinishReason
from .pool import Lease
from .request import Request


class Ticket(Protocol):
    """What a launched step will give."""

    immediate: bool
    """Whether the results are there already, so that nothing is gained by looking at them later."""

    def results(self) -> list[Result]:
        """One result per work item, in order; waits for the device. Called once.

        Raises:
            Exception: the step failed.
        """
        ...


@dataclass(slots=True)
class Done:
    """A step that ran while it was launched."""

    given: list[Result]
    immediate: bool = True

    def results(self) -> list[Result]:
        """See `Ticket.results`."""
        return self.given


@dataclass(slots=True, eq=False)
class Flight:
    """One launched step.

    Attributes:
        work: its rows. ticket: None until it is launched.
        launched: seconds of time.monotonic().
        pins: what copies before it read.
        generations: of the requests, when it was launched: results of one that has been released since are dropped.
    """

    work: Sequence[Work]
    launched: float
    pins: Sequence[Lease] = ()
    ticket: Ticket | None = None
    generations: list[int] = field(default_factory=list)

    def take_off(self) -> None:
        """Its requests are in flight from now on."""
        for item in self.work:
            request, end = item.request, item.end
            request.flights += 1
            request.flying = item
            if request.written < end:  # an earlier step may have had more drafts
                request.written = end
        self.generations = [item.request.generation for item in self.work]

    def set_down(self) -> list[Request]:
        """Its requests are no more in this flight. Returns those that are in no other."""
        for pin in self.pins:
            pin.release()
        landed = []
        for item in self.work:
            request = item.request
            request.flights -= 1
            if request.flying is item:
                request.flying = None
            if not request.flights:
                landed.append(request)
        return landed

    @staticmethod
    def is_late(request: Request, generation: int) -> bool:
        """Whether a result is of nobody any more: its request has ended, or has begun anew since the launch."""
        return request.finish_reason is not None or request.generation != generation


def is_given_up(item: Work) -> bool:
    """Whether a launched item is of a request that has ended before its rows were known, and the device could not see
    that: it may have computed them.
    """
    request = item.request
    seen = request.finish_reason in (FinishReason.STOP, FinishReason.LENGTH) and request.stops.matched is None
    return item.ahead and not seen


def settle(item: Work) -> None:
    """Makes the rows of an item exact, whose request is known up to the step before.

    Those of one that ended with it stay bounds, and so do those of one that was aborted: what it said is dropped.
    """
    request = item.request
    if item.ahead and request.finish_reason is None and not request.aborted:
        if not request.max_drafts:
            item.start, item.end, item.drafts, item.ahead = request.computed, request.length, (), False
            return
        drafts = request.drafts()
        item.start, item.end, item.drafts, item.ahead = request.computed, request.length + len(drafts), drafts, False
