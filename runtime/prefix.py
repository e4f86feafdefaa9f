"""Prefix cache: what earlier requests computed, for later ones that begin with the same tokens.

A block is a page full of tokens. It is named by a hash of everything that its entries follow from: the model and cache
layout, the salt of the request, the images in it, and all tokens up to its end (`Chain`). Blocks alone do not suffice
to go on behind them: the window rings and compressor rings of a state slot are needed, too. So the cache keeps two
things, each under the name of the block it ends with:

* pages, shared by whoever holds them; full pages are never written again;
* states: copies of state slots from which a sequence can go on at the end of that block.

A request begins at the end of the longest run of blocks that are all here and end in a state; to the same bits as
without, since rows do not depend on how a sequence was cut. A slot serves the last block border that its rings still
reach back behind, so rings are a page longer than without the cache (`PrefixSettings.slack`).

Both kinds live in memory that nobody else wants at the moment. Whoever needs a page or a slot takes the one that was
used longest ago.
"""

from __future__ import annotations

import hashlib
import struct
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from ..model.truncation import EXACT, Truncation
from .forks import Anchor, Forks
from .images import PromptImage
from .pool import Lease, Pool

if TYPE_CHECKING:
    from .request import Request

Hash = bytes
Source = Hash | Anchor
"""What a request goes on from."""
_DIGEST = 16


@dataclass(frozen=True)
class PrefixSettings:
    """How an engine shares prefixes.

    Attributes:
        slack: positions that window rings keep beyond the window. A slot whose last written position is e - 1 holds the
            state at a border b if e - b <= slack.
        truncation: how prompts are computed. Nobody goes on behind the first position that its prompt keeps: before it,
            consumer layers look at no window, so the states of others serve; behind it they would.
        replay: tokens, whole pages, that are computed again where pages are there and the state behind them is not,
            with nothing older in the windows; 0 begins at the last state instead. Results then depend on the cache.
        identity: bytes that differ wherever entries of the same tokens differ: model, precision, cache layout.
    """

    slack: int
    identity: bytes = b""
    truncation: Truncation = EXACT
    replay: int = 0


class Chain:
    """Names of the full blocks of a request, made as its text grows.

    Args:
        root: from `PrefixCache.root`.
        images: of the prompt; a block is also named after the pixels of those that it has a part of.
    """

    __slots__ = ("_images", "_root", "hashes")

    def __init__(self, root: Hash, images: Sequence[PromptImage] = ()) -> None:
        self._root = root
        self._images = images
        self.hashes: list[Hash] = []

    def extend(self, tokens: np.ndarray[Any, np.dtype[np.int32]], block: int) -> list[Hash]:
        """Names of all full blocks of `tokens`, which begin with the tokens of earlier calls."""
        for index in range(len(self.hashes), len(tokens) // block):
            begin, end = index * block, (index + 1) * block
            digest = hashlib.blake2b(self.hashes[-1] if self.hashes else self._root, digest_size=_DIGEST)
            digest.update(tokens[begin:end].tobytes())
            for image in self._images:
                if image.lies_in(begin, end):
                    digest.update(struct.pack("<q", image.start - begin) + image.image.digest)
            self.hashes.append(digest.digest())
        return self.hashes


@dataclass(frozen=True, slots=True)
class Match:
    """What the cache holds of a request.

    Attributes:
        tokens: from the beginning, after which the request can go on; a multiple of the page size.
        reclaimed: pages of these that nobody but the cache holds, so that they count as free.
        replays: whether there is no state behind them, and windows begin there.
        seen: tokens whose pages are here, with or without a state behind them; at least `tokens`.
    """

    tokens: int = 0
    reclaimed: int = 0
    seen: int = 0
    replays: bool = False


NO_MATCH = Match()


class PrefixCache:
    """Pages and states of earlier requests.

    Args:
        settings: None keeps nothing.
        pages, slots: pools that the cache shares with the requests.
        page_tokens: tokens per page.
        forks: anchors, which take room of the same pools; they are given up last.
    """

    def __init__(
        self, settings: PrefixSettings | None, pages: Pool, slots: Pool, page_tokens: int, forks: Forks | None = None
    ) -> None:
        self.settings = settings
        self.forks = Forks(pages, slots, page_tokens, 0) if forks is None else forks
        self._pages = pages
        self._slots = slots
        self._block = page_tokens
        self._blocks: OrderedDict[Hash, Lease] = OrderedDict()  # the longest unused first, as are the states
        self._states: OrderedDict[Hash, Lease] = OrderedDict()
        self._version = 0  # rises with every block and state that comes or goes

    @property
    def version(self) -> tuple[int, int]:
        """Another one whenever a request might find something else than before."""
        return self._version, self._pages.version

    @property
    def free_pages(self) -> int:
        """Pages that a request can have: nobody holds them, or nobody but the cache."""
        return self._pages.free + self._pages.reclaimable

    @property
    def free_slots(self) -> int:
        """State slots that a request can have."""
        return self._slots.free + self._slots.reclaimable

    def leases(self) -> tuple[Iterator[Lease], Iterator[Lease]]:
        """Page leases and slot leases, for the conservation check."""
        pages, slots = self.forks.leases()
        return chain(self._blocks.values(), pages), chain(self._states.values(), slots)

    @property
    def counts(self) -> tuple[int, int]:
        """Numbers of page leases and slot leases."""
        anchors = self.forks.slots_kept
        return len(self._blocks) + anchors, len(self._states) + anchors

    def root(self, salt: str | None) -> Hash:
        """The beginning of the chains of requests with this salt: they share with each other and with nobody else."""
        identity = b"" if self.settings is None else self.settings.identity
        parts = (identity, b"" if salt is None else b"salt:" + salt.encode("utf-8", "surrogatepass"))
        digest = hashlib.blake2b(digest_size=_DIGEST)
        for part in parts:
            digest.update(struct.pack("<q", len(part)) + part)
        return digest.digest()

    # ---- looking up

    def match(self, request: Request) -> Match:
        """The longest prefix that the request can go on behind; its last computed row is never part of it."""
        if self.settings is None or not self._blocks:
            return NO_MATCH
        known = request.matched
        if known is None or known[0] != self.version:
            known = request.matched = self.version, self._match(request, self.settings)
        return known[1]

    def _match(self, request: Request, settings: PrefixSettings) -> Match:
        most = request.most_cached()
        if settings.truncation.on:
            most = min(most, settings.truncation.keep_from(request.prompt_len))
        names = self._chain(request)[: most // self._block]
        found, reclaimed = 0, [0]
        for count, name in enumerate(names, 1):
            lease = self._blocks.get(name)
            if lease is None:
                break
            reclaimed.append(reclaimed[-1] + (self._pages.holders(lease.ids[0]) == 0))
            if name in self._states:
                found = count
        seen, again = len(reclaimed) - 1, settings.replay // self._block
        if again and seen - found >= 2 * again:  # it spares at least as much as it takes
            begin = seen - again
            return Match(begin * self._block, reclaimed[begin], seen * self._block, True)
        return Match(found * self._block, reclaimed[found], seen * self._block)

    def attach(self, request: Request, tokens: int) -> Hash | None:
        """Makes the request an owner of the pages of its first `tokens` tokens, which `match` has found.

        Returns:
            The name of the state behind them; None where there is none, so that its windows begin here.
        """
        names = self._chain(request)[: tokens // self._block]
        lease = self._pages.lease()
        for name in names:
            lease.join(self._blocks[name])
        self._use(names)
        request.pages, request.computed, request.stored = lease, tokens, len(names)
        for image in request.images:
            image.computed(request.key, tokens)
        if names[-1] not in self._states:
            request.valid_start = tokens
            return None
        self._states.move_to_end(names[-1])
        return names[-1]

    # ---- giving room

    def make_room(self, pages: int) -> None:
        """Gives up pages, those unused for longest, until so many are free. The planner has seen that there are."""
        for _ in range(len(self._blocks)):  # each is looked at once
            if self._pages.free >= pages:
                return
            name, lease = next(iter(self._blocks.items()))
            if self._pages.holders(lease.ids[0]):  # a request reads it, so it is not old
                self._blocks.move_to_end(name)
            else:
                self._forget(name)
        while self._pages.free < pages and self.forks.give_up():
            pass

    def take_slot(self, source: Source | None, sources: Iterable[Source]) -> tuple[Lease, int | None] | None:
        """A state slot for a request, and the slot whose content it needs, if it is another one.

        Args:
            source: the state that the request goes on from: its name in the cache, or an anchor.
            sources: those of all requests of this step; only who goes on from one of them may have its slot.

        Returns:
            None where every slot left is one that another request of this step goes on from, or where another one has
            taken over the slot that the request would go on from.
        """
        if isinstance(source, Anchor):
            wanted = source.slot if source.alive else None
        else:
            wanted = None if source is None else self._states.get(source)
        if source is not None and wanted is None:
            return None
        kept = list(sources)
        anchors = [one for one in kept if isinstance(one, Anchor)]
        if not self._slots.free and not self._spare_state(kept) and not self.forks.give_up(anchors, for_slot=True):
            if wanted is None or source is None:
                return None
            if isinstance(source, Anchor):
                return self.forks.take_slot(source), None
            return self._take_state(source), None
        return self._slots.lease(1), None if wanted is None else wanted.ids[0]

    def _spare_state(self, sources: Sequence[Source]) -> bool:
        """Gives up the oldest state that none of `sources` is. False where there is none."""
        # Whose slot is still to be read frees nothing.
        for name, lease in self._states.items():
            if name not in sources and not self._slots.holders(lease.ids[0]):
                self._take_state(name).release()
                return True
        return False

    # ---- keeping

    def keep_pages(self, request: Request) -> None:
        """Keeps the pages that the request has filled since the last call. Its tokens up to `valid` are computed."""
        if self.settings is None or request.pages is None or request.valid_start:
            return  # what is computed by bounded replay is no other request's
        full = request.valid // self._block
        if full <= request.stored:
            return
        names = self._chain(request)
        for index in range(request.stored, full):
            if names[index] not in self._blocks:
                lease = self._pages.lease()
                lease.join(request.pages, index, index + 1)
                self._pages.mark(lease.ids[0])
                self._blocks[names[index]] = lease
                self._version += 1
        self._use(names[request.stored : full])
        request.stored = full

    def keep_slot(self, request: Request) -> None:
        """Takes the state slot of a request that has ended or is preempted, where it serves the last block border."""
        name = self._border(request, request.valid)
        if name is None or request.slot is None:
            return
        self._put_state(name, request.slot)
        request.slot = None

    def copy_slot(self, request: Request, tokens: int) -> tuple[int, int] | None:
        """Makes room for a copy of the request's state at the last block border among its first `tokens` tokens.

        Returns:
            The slots (from, to) to copy; None where nothing is to be copied.
        """
        name = self._border(request, tokens)
        if name is None or request.slot is None:
            return None
        if not self._slots.free and not self._spare_state(()):
            return None
        self._put_state(name, self._slots.lease(1))
        return request.slot.ids[0], self._states[name].ids[0]

    def forget(self, request: Request) -> None:
        """Gives up whatever a request may have made or used."""
        if self.settings is not None:
            for name in self._chain(request):
                self._forget(name)

    def clear(self) -> None:
        """Gives everything up, anchors too."""
        for name in list(self._blocks):
            self._forget(name)
        self.forks.clear()

    def _put_state(self, name: Hash, slot: Lease) -> None:
        self._states[name] = slot
        self._version += 1
        self._slots.mark(slot.ids[0])

    def _take_state(self, name: Hash) -> Lease:
        slot = self._states.pop(name)
        self._version += 1
        self._slots.unmark(slot.ids[0])
        return slot

    def _border(self, request: Request, tokens: int) -> Hash | None:
        """Name of the last block among these tokens, where the slot holds the state there and the cache has none."""
        if self.settings is None or request.valid_start:
            return None
        count = tokens // self._block
        if not count or request.written - count * self._block > self.settings.slack:
            return None
        name = self._chain(request)[count - 1]
        if name in self._states:
            self._states.move_to_end(name)
            return None
        return name if name in self._blocks else None

    def _chain(self, request: Request) -> list[Hash]:
        if request.chain is None:
            request.chain = Chain(self.root(request.params.cache_salt), request.images)
        return request.chain.extend(request.tokens[: request.length], self._block)

    def _use(self, names: Sequence[Hash]) -> None:
        """Takes note that blocks were used. The first of a chain goes last, for without it the others are useless."""
        for name in reversed(names):
            if name in self._blocks:
                self._blocks.move_to_end(name)

    def _forget(self, name: Hash) -> None:
        """Gives up a block, and its state: nobody could find it any more."""
        lease = self._blocks.pop(name, None)
        if lease is not None:
            self._version += 1
            self._pages.unmark(lease.ids[0])
            lease.release()
        if name in self._states:
            self._take_state(name).release()
