"""How full an engine is at a moment."""

from __future__ import annotations

from dataclasses import dataclass

from .queues import Queues


@dataclass(frozen=True)
class Occupancy:
    """Samples, pages and slots.

    Attributes:
        running, waiting: samples. chunked: running ones whose known text is not computed to its end yet.
        pages, slots: of the pools. pages_in_use, slots_in_use: held by samples. pages_cached: held by the prefix cache
            alone.
        fragmentation: 1 - tokens computed / token places, over the pages that running samples hold; a page that several
            share counts for each. 0 where nobody holds any.
    """

    running: int
    waiting: int
    chunked: int
    pages: int
    pages_in_use: int
    pages_cached: int
    slots: int
    slots_in_use: int
    fragmentation: float


def occupancy_of(queues: Queues, page_tokens: int) -> Occupancy:
    """The queues must not change meanwhile: call it under the engine's lock."""
    held = tokens = chunked = slots = 0
    for request in queues.running:
        chunked += request.computed < request.length - 1
        slots += request.slot is not None
        if request.pages is not None:
            held += len(request.pages)
            tokens += min(request.computed, request.length)
    places = held * page_tokens
    return Occupancy(
        running=len(queues.running),
        waiting=len(queues.waiting),
        chunked=chunked,
        pages=queues.pages.capacity,
        pages_in_use=queues.pages_in_use,
        pages_cached=queues.pages.used - queues.pages_in_use,
        slots=queues.slots.capacity,
        slots_in_use=slots,
        fragmentation=1.0 - tokens / places if places else 0.0,
    )
