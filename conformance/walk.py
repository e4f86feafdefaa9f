"""A model driven layer by layer over a fixed schedule of steps, so that what enters and leaves each layer is seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from ..model.batch import Batch, SequenceSlice
from ..model.step import Step
from ..model.transformer import Model
from .trace import Trace

PAGES, SLOTS = 24, 12


@dataclass
class Track:
    """One sequence: its tokens, where its caches lie, how far it is computed."""

    tokens: list[int]
    slot: int
    pages: list[int]
    done: int = 0


@dataclass(frozen=True)
class LayerState:
    """What a layer starts from, and what it gave; all on the model's device.

    Attributes:
        streams, pending: at entry (before the layer's Engram memory).
        shared: selected entries, candidate blocks, latents and shared hidden state at entry.
        pools: pages and state slots at entry.
        out: streams at exit.
    """

    streams: Tensor
    pending: Tensor
    shared: Shared
    pools: tuple[Tensor, Tensor]
    out: Tensor


@dataclass(frozen=True)
class Shared:
    """What earlier layers of the step left for later ones; see `model.step.Step`."""

    latent: dict[int, Tensor]
    selected: dict[int, Tensor]
    blocks: Tensor | None
    hidden: Tensor | None

    @classmethod
    def of(cls, step: Step) -> Shared:
        return cls(dict(step.latent), dict(step.selected), step.blocks, step.shared_hidden)

    def restore(self, step: Step, device: torch.device) -> None:
        """Put it into a step, on another device."""
        step.latent = {k: v.to(device) for k, v in self.latent.items()}
        step.selected = {k: v.to(device) for k, v in self.selected.items()}
        step.blocks = None if self.blocks is None else self.blocks.to(device)
        step.shared_hidden = None if self.hidden is None else self.hidden.to(device)


@dataclass
class StepRecord:
    """One step: its layers, and the logits of all rows but padding."""

    rows: int
    layers: list[LayerState] = field(default_factory=list)
    logits: Tensor | None = None


Force = Callable[[int, int], "LayerState | None"]
"""(step, layer) -> what the layer must start from instead of what the layers before it gave."""


class Walker:
    """A model, a pair of cache pools full of poison, and the sequences in them."""

    def __init__(self, model: Model, trace: Trace | None = None, *, pages: int = PAGES, slots: int = SLOTS) -> None:
        self.model, self.trace = model, trace or Trace()
        self.caches = model.new_caches(pages, slots)
        self.caches.pages.fill_(0xFF)
        self.caches.state.fill_(0xFF)
        self.steps: list[StepRecord] = []
        self._pages, self._slots = list(range(1, pages)), list(range(1, slots))

    def add(self, tokens: Sequence[int], room: int = 0) -> Track:
        """A sequence with pages for its tokens and `room` more."""
        count = self.model.cache_layout.pages_for(len(tokens) + room)
        return Track(list(tokens), self._slots.pop(0), [self._pages.pop() for _ in range(count)])

    def step(self, work: Sequence[tuple[Track, int]], *, padding: int = 0, force: Force | None = None) -> Tensor:
        """Compute the next n tokens of each track; returns logits fp32 of every row, padding left out."""
        model = self.model
        slices = [
            SequenceSlice(
                np.array(t.tokens, np.int32), t.done, t.done + n, t.slot, t.pages, list(range(t.done, t.done + n))
            )
            for t, n in work
        ]
        rows = sum(n for _, n in work)
        batch = Batch.build(slices, model.config.text, model.device, rows=rows + padding)
        number = len(self.steps)
        record = StepRecord(rows)
        self.steps.append(record)
        state = Step(batch, self.caches)
        self.trace.place = f"step {number}, entry"
        memory = {layer: engram.fetch(batch) for layer, engram in sorted(model.engrams.items())}
        streams, pending = model.enter(batch)
        for layer in range(len(model.layers)):
            self.trace.place = f"step {number}, layer {layer}"
            forced = None if force is None else force(number, layer)
            if forced is not None:
                streams, pending = forced.streams.to(model.device), forced.pending.to(model.device)
                forced.shared.restore(state, model.device)
                self.caches.pages.copy_(forced.pools[0])
                self.caches.state.copy_(forced.pools[1])
            before = streams, pending, Shared.of(state), (self.caches.pages.clone(), self.caches.state.clone())
            if layer in memory:
                streams = model.engrams[layer](streams, memory[layer], batch.image)
            streams, pending = model.layers[layer](streams, pending, state)
            record.layers.append(LayerState(*before, streams))
        self.trace.place = f"step {number}, logits"
        record.logits = model.logits(streams, pending, batch.logit_rows)
        for track, n in work:
            track.done += n
        return record.logits


@dataclass(frozen=True)
class Schedule:
    """Which rows each step computes: sequence -> number of rows, and padding rows behind."""

    prompts: tuple[tuple[int, ...], ...]
    steps: tuple[tuple[tuple[int, ...], int], ...]

    def run(self, walker: Walker, force: Force | None = None) -> Walker:
        """All steps, in order."""
        tracks = [walker.add(tokens) for tokens in self.prompts]
        for counts, padding in self.steps:
            work = [(track, n) for track, n in zip(tracks, counts, strict=True) if n]
            walker.step(work, padding=padding, force=force)
        return walker


def schedule(vocabulary: int, long: int, seed: int = 0) -> Schedule:
    """A prompt of `long` tokens in two chunks beside short ones; then single rows and draft-like rows, with padding."""
    rng = np.random.default_rng(seed)
    first = long * 2 // 3
    lengths = (long + 1, 12, 9)
    prompts = tuple(tuple(rng.integers(3, vocabulary, n).tolist()) for n in lengths)
    return Schedule(prompts, (((first, 5, 0), 0), ((long - first, 1, 3), 5), ((1, 6, 6), 3)))
