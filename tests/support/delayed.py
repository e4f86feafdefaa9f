"""A simulated executor whose results come late: a step is computed when its results are asked for, not before.

So whatever the host does between launch and landing (pages that go back too early, tokens read before they are there)
shows. Like a device it knows requests by their state slots only, and reads of the host what was there at the launch.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deepinfer.runtime.engine import LLMEngine
from deepinfer.runtime.execute import Result, Work
from deepinfer.runtime.pool import PoolError
from deepinfer.runtime.request import Proposal, Request
from engines import Faulty


@dataclass
class Ids:
    """What a lease held at the launch."""

    ids: list[int]


class Ticket:
    """Results that are computed when they are asked for."""

    immediate = False

    def __init__(self, executor: Delayed, cells: list[Cell]) -> None:
        self.executor = executor
        self.cells = cells
        self.found: list[Result] | None = None
        self.error: BaseException | None = None

    def compute(self) -> None:
        try:
            self.found = self.executor.compute(self.cells)
        except BaseException as error:
            self.error = error

    def results(self) -> list[Result]:
        self.executor.run_until(self)
        if self.error is not None:
            raise self.error
        assert self.found is not None
        for cell, result in zip(self.cells, self.found, strict=True):
            item = cell.item
            if result.tokens and not (item.request.finished or item.request.aborted):
                assert not item.ahead and cell.span == (item.start, item.end), "the host took another step to have run"
        return self.found


@dataclass
class Cell:
    """One item of a launched step: the request as the device knows it, None where it is the one of its slot."""

    item: Work
    key: int
    slot: int
    generation: int
    pages: list[int]
    shadow: Request | None
    bounds: tuple[int, int]
    span: tuple[int, int] = (0, 0)


class Delayed(Faulty):
    """See above. `lands`: how often a launch asks for the step before, every so many steps; 0 is never."""

    lands = 0
    launch_faults: Sequence[int] = ()

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.device: dict[int, Request] = {}
        self.stopped: set[int] = set()
        self.queue: deque[tuple[Any, Callable[[], None]]] = deque()
        self.launches = self.overlapped = self.masked = 0

    def launch(self, work: Sequence[Work], land: Callable[[], None]) -> Ticket:
        self.launches += 1
        if self.lands and self.launches % self.lands == 0:
            land()
            assert not any(item.ahead and not (item.request.finished or item.request.aborted) for item in work)
        self._check_leases([item for item in work if item.request.slot is not None])
        cells = [self._cell(item) for item in work]
        if self.launches in self.launch_faults:
            raise RuntimeError(f"fault in launch {self.launches}")
        self.overlapped += bool(self.queue)
        ticket = Ticket(self, cells)
        self.queue.append((ticket, ticket.compute))
        return ticket

    def run(self, work: Sequence[Work]) -> list[Result]:
        self.run_until(None)
        return super().run(work)

    def copy_states(self, pairs: Sequence[tuple[int, int]]) -> None:
        self.queue.append((None, lambda: super(Delayed, self).copy_states(list(pairs))))

    def copy_pages(self, pairs: Sequence[tuple[int, int]]) -> None:
        self.queue.append((None, lambda: super(Delayed, self).copy_pages(list(pairs))))

    def save(self, pages: Sequence[tuple[int, int]], slots: Sequence[tuple[int, int]]) -> None:
        self.run_until(None)  # no step is in flight, and what was saved may be overwritten from now on
        super().save(list(pages), list(slots))

    def restore(self, pages: Sequence[tuple[int, int]], slots: Sequence[tuple[int, int]]) -> None:
        self.queue.append((None, lambda: super(Delayed, self).restore(list(pages), list(slots))))

    def run_until(self, ticket: Ticket | None) -> None:
        while self.queue and (ticket is None or (ticket.found is None and ticket.error is None)):
            self.queue.popleft()[1]()

    def _cell(self, item: Work) -> Cell:
        request = item.request
        assert request.slot is not None and request.pages is not None
        slot, pages = request.slot.ids[0], list(request.pages.ids)
        shadow = None
        if not item.ahead:
            shadow = copy.copy(request)
            shadow.tokens = request.tokens[: request.length].copy()
            shadow.proposal = Proposal(list(request.proposal.tokens), list(request.proposal.confidences))
        return Cell(item, request.key, slot, request.generation, pages, shadow, (item.start, item.end))

    def compute(self, cells: Sequence[Cell]) -> list[Result]:
        """The device's side: nothing here looks at a request of the host."""
        self.steps += 1
        works = [self._work(cell) for cell in cells]
        results = [Result() if work is None else self._one(work) for work in works]
        alive = [work for work in works if work is not None]
        error = None if self.fault is None else self.fault(alive)
        if error is not None:
            raise error
        if self.steps in self.raise_at:
            raise RuntimeError(f"fault in step {self.steps}")
        for cell, work, result in zip(cells, works, results, strict=True):
            if work is not None:
                if result.drawn is not None and work.request.tokens[0] == self.bad_first_token:
                    result.drawn.valid = False
                self._advance(cell, work, result)
        return results

    def _work(self, cell: Cell) -> Work | None:
        item, shadow = cell.item, cell.shadow
        if shadow is None:
            shadow = self.device.get(cell.slot)
            if shadow is None or (shadow.key, shadow.generation) != (cell.key, cell.generation):
                raise PoolError(f"slot {cell.slot} is read, which belongs to another request by now")
            if cell.slot in self.stopped:
                self.masked += 1
                return None
            drafts = shadow.proposal.tokens[: shadow.draft_count()]
            work = Work(shadow, shadow.computed, shadow.length + len(drafts), True, drafts=drafts)
        else:
            start, end = cell.bounds
            work = Work(shadow, start, end, item.sample, item.prompt_rows, list(item.drafts), item.redraft)
        if (
            work.start > cell.bounds[0]
            or work.end > cell.bounds[1]
            or work.end - work.start > cell.bounds[1] - cell.bounds[0]
        ):
            raise PoolError(f"rows {work.start} to {work.end} are beyond the bounds {cell.bounds}")
        shadow.pages, shadow.slot = Ids(cell.pages), Ids([cell.slot])  # type: ignore[assignment]
        cell.span = (work.start, work.end)
        return work

    def _advance(self, cell: Cell, work: Work, result: Result) -> None:
        shadow = work.request
        self.device[cell.slot] = shadow
        self.stopped.discard(cell.slot)
        shadow.computed = work.known_end + result.accepted
        for drawn in result.tokens:
            shadow.tokens = np.append(shadow.tokens, np.int32(drawn.token))
            shadow.length += 1
            full = shadow.num_output_tokens >= shadow.max_output_tokens
            if not drawn.valid or shadow.ends_with(drawn.token) or full:
                self.stopped.add(cell.slot)
                break
        shadow.proposal = result.proposal or Proposal([])


def poison_freed(engine: LLMEngine, in_order: bool = False) -> None:
    """Whatever goes back to a pool is overwritten at once, though steps that were launched have not run.

    `in_order`: behind what has been launched, as whoever takes it would: copies for the prefix cache count on that.
    """
    executor: Any = engine.executor
    for pool, spoil in (
        (engine._queues.pages, lambda page: executor._pages[page].fill(-7)),
        (engine._queues.slots, lambda slot: executor._slots.__setitem__(slot, {})),
    ):
        drop = pool._drop

        def spoiled(index: int, *, pool: Any = pool, drop: Any = drop, spoil: Any = spoil) -> None:
            drop(index)
            if pool.references(index) == 0 and in_order:
                executor.queue.append((None, lambda: spoil(index)))
            elif pool.references(index) == 0:
                spoil(index)

        pool._drop = spoiled  # type: ignore[method-assign]
