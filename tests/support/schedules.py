"""Drives a model through arbitrary schedules of the same sequences, and compares what is left behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from deepinfer.model.batch import Batch, SequenceSlice
from deepinfer.model.transformer import Model


@dataclass
class Track:
    """One sequence: its tokens, where its caches lie, and the logits of every position computed so far."""

    tokens: Any
    slot: int
    pages: list[int]
    done: int = 0
    logits: dict[int, torch.Tensor] = field(default_factory=dict)


class Driver:
    """A model with one pair of cache pools, filled with `poison` before anything is written."""

    def __init__(self, model: Model, *, pages: int = 16, slots: int = 6, poison: int = 0) -> None:
        self.model = model
        self.caches = model.new_caches(pages, slots)
        self.caches.pages.fill_(poison)
        self.caches.state.fill_(poison)
        self._pages = list(range(1, pages))
        self._slots = list(range(1, slots))

    def add(self, tokens: Sequence[int]) -> Track:
        """A new sequence with pages for all its tokens, handed out in falling order."""
        count = self.model.cache_layout.pages_for(len(tokens))
        return Track(np.array(tokens, np.int32), self._slots.pop(0), [self._pages.pop() for _ in range(count)])

    def step(self, work: Sequence[tuple[Track, int]], *, rows: int | None = None) -> None:
        """Compute the next n tokens of each track side by side, logits of every row."""
        slices = [
            SequenceSlice(t.tokens, t.done, t.done + n, t.slot, t.pages, list(range(t.done, t.done + n)))
            for t, n in work
        ]
        batch = Batch.build(slices, self.model.config.text, self.model.device, rows=rows)
        logits = self.model.forward(batch, self.caches)
        taken = 0
        for track, n in work:
            for i in range(n):
                track.logits[track.done + i] = logits[taken + i].clone()
            track.done, taken = track.done + n, taken + n

    def run(self, tokens: Sequence[int], chunks: Sequence[int] | None = None) -> Track:
        """One sequence alone, in the given chunks (default: at once)."""
        track = self.add(tokens)
        for n in chunks or [len(tokens)]:
            self.step([(track, n)])
        return track

    def state(self, track: Track) -> tuple[torch.Tensor, torch.Tensor]:
        """All bytes of the sequence's state slot and pages."""
        return self.caches.state[track.slot].clone(), self.caches.pages[track.pages].clone()


def assert_same_logits(got: Track, want: Track) -> None:
    """Bit-equal logits at every position of `want`."""
    for position, expected in want.logits.items():
        assert torch.equal(got.logits[position], expected), f"position {position} differs"


def assert_same_caches(got: tuple[torch.Tensor, torch.Tensor], want: tuple[torch.Tensor, torch.Tensor]) -> None:
    """Bit-equal state slots and pages."""
    for name, a, b in zip(("state", "pages"), got, want, strict=True):
        different = (a != b).nonzero()
        assert not len(different), f"{name}: {len(different)} bytes differ, the first at {different[0].tolist()}"


def cuts(length: int, *sizes: int) -> list[int]:
    """Chunk sizes repeated until they add up to `length`."""
    chunks: list[int] = []
    while sum(chunks) < length:
        chunks.append(min(sizes[len(chunks) % len(sizes)], length - sum(chunks)))
    return chunks
