"""The two cache pools as tensors, and each layer's view into them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import torch

from ..hal import errors
from ..hal.stream import Event, Streams
from ..ops import copy_slots
from .cache_layout import CacheLayout, Section


class Caches:
    """Page pool and state pool of one device.

    Page 0 and slot 0 are never handed to a sequence: block tables and padding rows may name them without harm.

    Attributes:
        layout: byte layout of both pools.
        pages: uint8 [pages, page_bytes].
        state: uint8 [slots, state_bytes].
        main, index: owner layer -> uint8 view [pages, section bytes] with the page's stride.
        rings: layer prefix -> uint8 view [slots, ring_slots, ring_record].
        compressor_rings: ratio-2 owner -> fp32 view [slots, compressor_slots, 2, head_dim]; index 0 is the gate score.
        streams: of the device, through whose pinned memory numbers of pages and slots go there without a wait of the
            host; None where the device runs work as it is called.
    """

    streams: Streams | None = None

    def __init__(self, layout: CacheLayout, pages: int, slots: int, device: torch.device, head_dim: int) -> None:
        """Allocate zeroed pools.

        Raises:
            InvalidArgumentError: fewer than two pages or slots (number 0 of each is reserved).
        """
        for name, count in (("pages", pages), ("slots", slots)):
            if count < 2:
                raise errors.InvalidArgumentError(name, count, "at least 2; number 0 is reserved")
        self.layout = layout
        self._uploads: deque[tuple[torch.Tensor, Event]] = deque()
        self.pages = torch.zeros(pages, layout.page_bytes, dtype=torch.uint8, device=device)
        self.state = torch.zeros(slots, layout.state_bytes, dtype=torch.uint8, device=device)
        self.main = {owner: _cut(self.pages, section) for owner, section in layout.main.items()}
        self.index = {owner: _cut(self.pages, section) for owner, section in layout.index.items()}
        ring = (layout.ring_slots, layout.ring_record)
        self.rings = {name: _cut(self.state, section).unflatten(1, ring) for name, section in layout.rings.items()}
        compressor = (layout.compressor_slots, 2, head_dim)
        self.compressor_rings = {
            owner: _cut(self.state, section).view(torch.float32).unflatten(1, compressor)
            for owner, section in layout.compressor_rings.items()
        }

    def copy_pages(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy pages, (from, to) each; no target is a source."""
        if pairs:
            copy_slots(self.pages, self._upload(pairs))

    def copy_states(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy state slots, (from, to) each; no target is a source."""
        if pairs:
            copy_slots(self.state, self._upload(pairs))

    def _upload(self, pairs: Sequence[tuple[int, int]]) -> torch.Tensor:
        """int32 [pairs, 2] on the device. A copy from memory that is not pinned would wait for the steps in flight."""
        given = torch.tensor(pairs, dtype=torch.int32)
        if self.streams is None:
            return given.to(self.pages.device)
        while self._uploads and self._uploads[0][1].done():
            self._uploads.popleft()
        pinned = self.streams.pinned(given.shape, given.dtype)
        pinned.copy_(given)
        moved = pinned.to(self.pages.device, non_blocking=True)
        self._uploads.append((pinned, self.streams.record()))
        return moved

    @property
    def nbytes(self) -> int:
        """Bytes of both pools."""
        return self.pages.numel() + self.state.numel()


def _cut(pool: torch.Tensor, section: Section) -> torch.Tensor:
    return pool[:, section.offset : section.offset + section.size]
