"""Forks: samples that go on where another one is, with its pages and its state instead of the work.

The n samples of a request differ behind the prompt only. So the first one, the leader, computes the prompt while the
others rest; then an `Anchor` keeps what it has computed: a second owner of its pages and a copy of its state slot. Each
of the others shares the full pages, copies the page that ends in the middle (for both will write to it) and the state,
and computes the last row of the prompt again, to draw from it with its own seed. Rows do not depend on how a sequence
was cut, so the tokens are those of samples that compute everything by themselves.

That last row lies before rows that the leader has written since. Window and compressor rings reach back some positions
(`EngineConfig.slack`), as they do for rejected drafts, and the anchor is made before they no longer do.

An anchor is a favour, never a claim: whoever needs its memory takes it, and its heirs then compute their prompt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .moves import MoveList
from .pool import Lease, Pool

if TYPE_CHECKING:
    from .prefix import Source
    from .queues import Queues
    from .request import Request


@dataclass(slots=True, eq=False)
class Anchor:
    """A computed beginning that samples go on from.

    Attributes:
        tokens: computed tokens; an heir computes the row behind them.
        valid_start: of the sample that computed them.
        pages: all pages that hold them. slot: the state behind them.
        heirs: samples that will begin here.
    """

    tokens: int
    valid_start: int
    pages: Lease
    slot: Lease
    heirs: set[Request] = field(default_factory=set)

    @property
    def alive(self) -> bool:
        return not self.slot.released


@dataclass(slots=True, eq=False)
class _Wish:
    """Samples that are to begin behind `tokens` tokens of `source`.

    `resting`: they wait until these are computed; else they wait in the queue already.
    """

    source: Request
    tokens: int
    heirs: list[Request]
    resting: bool


class Forks:
    """The anchors of an engine, and the samples that wait for theirs.

    Args:
        pages, slots: pools that anchors share with the requests.
        page_tokens: tokens per page.
        slack: positions that the state of a sequence reaches back; 0 makes no anchors at all.

    Attributes:
        pins: what copies read that were queued and may not have been made; some of it has returned.
    """

    def __init__(self, pages: Pool, slots: Pool, page_tokens: int, slack: int) -> None:
        self._pages = pages
        self._slots = slots
        self._block = page_tokens
        self._slack = slack
        self._anchors: list[Anchor] = []
        self._wishes: list[_Wish] = []
        self._copies: list[tuple[Lease, Lease]] = []  # slots, (from, to), that the next step is launched behind
        self.pins: list[Lease] = []

    @property
    def slots_kept(self) -> int:
        """State slots of anchors."""
        return len(self._anchors)

    def leases(self) -> tuple[Iterator[Lease], Iterator[Lease]]:
        """Page leases and slot leases, for the conservation check."""
        return (one.pages for one in self._anchors), (one.slot for one in self._anchors)

    def resting(self) -> Iterator[Request]:
        """Samples that are in no queue."""
        for wish in self._wishes:
            if wish.resting:
                yield from wish.heirs

    # ---- wishes

    def rests(self, request: Request) -> bool:
        """Whether the sample is in no queue."""
        return any(wish.resting and request in wish.heirs for wish in self._wishes)

    def begin(self, samples: Sequence[Request]) -> list[Request]:
        """Takes the samples of a request that has come. Returns those that are queued at once; the others rest."""
        leader, *others = samples
        if not others or not self._slack or leader.prompt_len < 2:
            return list(samples)
        self._wishes.append(_Wish(leader, leader.prompt_len - 1, others, True))
        return [leader]

    def wish(self, source: Request, heir: Request) -> None:
        """A sample that is queued would begin where `source` is now."""
        tokens = heir.length - 1
        if self._slack and source.slot is not None and 0 < tokens <= source.computed:
            self._wishes.append(_Wish(source, tokens, [heir], False))

    def has_wishes(self) -> bool:
        """Whether `grant` has something to look at."""
        return bool(self._wishes)

    def grant(self) -> list[Request]:
        """Makes anchors of what has been computed, or will be when the steps in flight land.

        Called before a step is planned: rows of that step come behind the copies.

        Returns:
            Samples that rest no longer.
        """
        woken: list[Request] = []
        left: list[_Wish] = []
        for wish in self._wishes:
            source = wish.source
            if source.slot is None or _reached(source, wish) < wish.tokens + wish.resting:
                # Who asked for what is there now does not wait for it to be computed again.
                if wish.resting and not source.finished:
                    left.append(wish)
                elif wish.resting:
                    woken += self._wake(wish, left)
                continue
            if source.written - wish.tokens <= self._slack and self._slots.free and not source.tainted:
                read = self._slots.lease()
                read.join(source.slot)
                self._copies.append((read, self._keep(wish, self._slots.lease(1)).slot))
                self.pins = [one for one in self.pins if not one.released] + [read]
            woken += wish.heirs if wish.resting else []
        self._wishes = left
        return woken

    @staticmethod
    def _wake(wish: _Wish, left: list[_Wish]) -> list[Request]:
        """The leader has ended before it had computed the prompt: the next one leads."""
        leader, *others = wish.heirs
        if others:
            left.append(_Wish(leader, wish.tokens, others, True))
        return [leader]

    def ended(self, request: Request) -> list[Request]:
        """A sample gives its memory back for good.

        Returns:
            Samples that rest no longer; others rest behind the first of them.
        """
        woken: list[Request] = []
        left: list[_Wish] = []
        self.leave(request)
        for wish in self._wishes:
            if request in wish.heirs:
                wish.heirs.remove(request)
            if not wish.heirs:
                continue
            if wish.source is not request:
                left.append(wish)
                continue
            reaches = request.computed >= wish.tokens and request.written - wish.tokens <= self._slack
            if reaches and request.slot is not None and not request.tainted:
                slot, request.slot = request.slot, None
                self._keep(wish, slot)
                woken += wish.heirs if wish.resting else []
            elif wish.resting:
                woken += self._wake(wish, left)
        self._wishes = left
        return woken

    def copies(self, moves: MoveList) -> None:
        """Adds the copies of states to what the next step is launched behind."""
        for read, slot in self._copies:
            if not slot.released:  # an heir may own it by now
                moves.anchors.append((read.ids[0], slot.ids[0]))
            moves.pins.append(read)
        self._copies = []

    def _keep(self, wish: _Wish, slot: Lease) -> Anchor:
        source = wish.source
        assert source.pages is not None
        pages = self._pages.lease()
        pages.join(source.pages, 0, -(-wish.tokens // self._block))
        for page in pages.ids:
            self._pages.mark(page)
        self._slots.mark(slot.ids[0])
        anchor = Anchor(wish.tokens, source.valid_start, pages, slot, set(wish.heirs))
        self._anchors.append(anchor)
        for heir in wish.heirs:
            heir.anchor = anchor
            if wish.resting:
                heir.prompt_logprobs = list(source.prompt_logprobs)
        return anchor

    # ---- anchors

    def of(self, request: Request) -> Anchor | None:
        """The anchor that a waiting sample goes on from."""
        anchor = request.anchor
        if anchor is None or not anchor.alive:
            return None
        return anchor if request.length - 1 == request.most_cached() == anchor.tokens else None

    def reclaimed(self, anchor: Anchor) -> int:
        """Pages of an anchor that count as free and would not, once an heir has begun."""
        return sum(self._pages.holders(page) == 0 for page in anchor.pages.ids)

    def attach(self, request: Request, anchor: Anchor) -> tuple[Lease, int | None]:
        """Makes the sample an owner of the full pages of its anchor.

        Returns:
            A lease of pages that the copies of the step read; and the page that is to be copied, if there is one.
        """
        full = anchor.tokens // self._block
        request.pages = self._pages.lease()
        request.pages.join(anchor.pages, 0, full)
        request.computed, request.stored, request.valid_start = anchor.tokens, 0, anchor.valid_start
        for image in request.images:
            image.computed(request.key, anchor.tokens)
        pinned = self._pages.lease()
        pinned.join(anchor.pages, full)
        self.pins = [one for one in self.pins if not one.released] + [pinned]
        return pinned, anchor.pages.ids[full] if anchor.tokens % self._block else None

    def leave(self, request: Request) -> None:
        """The sample needs its anchor no longer: it has what it gives, or has ended."""
        anchor, request.anchor = request.anchor, None
        if anchor is not None and anchor.alive:
            anchor.heirs.discard(request)
            if not anchor.heirs:
                self._release(anchor)

    def take_slot(self, anchor: Anchor) -> Lease:
        """The slot of an anchor, which is no more."""
        slot = anchor.slot
        anchor.slot = self._slots.lease()
        anchor.slot.hold(slot.ids[0])
        self._release(anchor)
        return slot

    def give_up(self, keep: Sequence[Anchor] = (), for_slot: bool = False) -> bool:
        """Gives up the oldest anchor that is not to be kept. False where there is none."""
        for anchor in self._anchors:
            # Whose slot is still to be read frees none.
            if anchor not in keep and not (for_slot and self._slots.holders(anchor.slot.ids[0])):
                self._release(anchor)
                return True
        return False

    def clear(self) -> None:
        """Gives all anchors up, after a failed step, and wakes nobody: who rests waits for its leader."""
        while self.give_up():
            pass
        self._wishes = [wish for wish in self._wishes if wish.resting]
        for read, _ in self._copies:
            read.release()
        self._copies = []

    def _release(self, anchor: Anchor) -> None:
        self._anchors.remove(anchor)
        for page in anchor.pages.ids:
            self._pages.unmark(page)
        self._slots.unmark(anchor.slot.ids[0])
        anchor.pages.release()
        anchor.slot.release()
        anchor.heirs.clear()


class Begun:
    """Requests that begin in one step: each shares, copies or brings back what there is of its text.

    Args:
        queues: of the engine.
    """

    def __init__(self, queues: Queues) -> None:
        self._queues = queues
        self._moves = MoveList()
        self._sources: dict[int, Source] = {}
        self._halves: dict[int, int] = {}
        self._heirs: list[Request] = []

    def attach(self, request: Request, start: int) -> None:
        """The request becomes an owner of pages that others have filled, up to `start`."""
        forks = self._queues.forks
        anchor = forks.of(request)
        if anchor is None:
            forks.leave(request)
            if start and request.host is None:
                state = self._queues.cache.attach(request, start)
                if state is not None:
                    self._sources[request.key] = state
            return
        pin, half = forks.attach(request, anchor)
        self._sources[request.key] = anchor
        self._heirs.append(request)
        self._moves.pins.append(pin)
        if half is not None:
            self._halves[request.key] = half

    def give_slot(self, request: Request) -> bool:
        """A state slot. False where all that are left are those of others in this step."""
        taken = self._queues.cache.take_slot(self._sources.get(request.key), self._sources.values())
        if taken is None:
            return False
        request.slot, source = taken
        if source is not None:
            self._moves.states.append((source, request.slot.ids[0]))
            pin = self._queues.slots.lease()
            pin.hold(source)
            self._moves.pins.append(pin)
            self._queues.forks.pins.append(pin)
        return True

    def fill(self, request: Request) -> None:
        """The request has its slot and pages: what belongs there is to be copied."""
        assert request.pages is not None
        if request.host is not None:
            self._queues.host.restore(request, self._moves)
        half = self._halves.get(request.key)
        if half is not None:
            self._moves.pages.append((half, request.pages.ids[request.computed // self._queues.page_tokens]))

    def moves(self, launched: bool) -> MoveList:
        """What is to be copied. Anchors without heirs go.

        `launched`: whether a step comes behind; without one, nothing has begun and nothing is copied yet.
        """
        if launched:
            self._queues.forks.copies(self._moves)
        else:
            for pin in self._moves.pins:
                pin.release()
        for request in self._heirs:
            if request.slot is not None:
                self._queues.forks.leave(request)
        return self._moves


def _reached(source: Request, wish: _Wish) -> int:
    """Tokens that a sample has computed when the steps in flight have landed."""
    if source.flying is None or source.params.prompt_logprobs:  # log-probabilities of a prompt come with the landing
        return source.computed
    return source.flying.end if wish.resting else source.computed
