"""What is copied before a step runs: pages and state slots that are saved, shared, brought back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from .pool import Lease

Pairs = list[tuple[int, int]]
"""Pages or state slots, (from, to) each."""


class Moves(Protocol):
    """The part of an executor that copies cache memory. All of it takes effect in the order of the calls, behind the
    steps that ran and before the next."""

    def save(self, pages: Pairs, slots: Pairs) -> None:
        """Copy pages and state slots, drafts included, from the device to host memory. No step is in flight."""
        ...

    def restore(self, pages: Pairs, slots: Pairs) -> None:
        """Copy pages and state slots, drafts included, from host memory to the device."""
        ...

    def copy_pages(self, pairs: Pairs) -> None:
        """Copy pages on the device. No page is in two pairs as a target, or a target of one and a source of another."""
        ...

    def copy_states(self, pairs: Pairs) -> None:
        """Copy state slots on the device; as with pages."""
        ...


@dataclass(slots=True)
class MoveList:
    """Copies that a step is launched behind, in the order in which they are made.

    Attributes:
        anchors: state slots, kept for samples that begin where another one is now.
        restored_pages, restored_slots: of requests that come back, from the host to the device.
        pages: pages that are shared up to their middle.
        states: state slots that requests go on from.
        pins: what is read by the copies. It returns when the step has landed.
    """

    anchors: Pairs = field(default_factory=list)
    restored_pages: Pairs = field(default_factory=list)
    restored_slots: Pairs = field(default_factory=list)
    pages: Pairs = field(default_factory=list)
    states: Pairs = field(default_factory=list)
    pins: list[Lease] = field(default_factory=list)

    def carry_out(self, executor: Moves) -> None:
        """Queues all of it."""
        if self.anchors:
            executor.copy_states(self.anchors)
        if self.restored_slots:
            executor.restore(self.restored_pages, self.restored_slots)
        if self.pages:
            executor.copy_pages(self.pages)
        if self.states:
            executor.copy_states(self.states)
