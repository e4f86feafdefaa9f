"""A model driven layer by layer over a fixed schedule of steps, so that what enters and leaves each layer is seen."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from ..model.batch import Batch, SequenceSlice
from ..model.draft import Drafter, DraftRequest, Drafts, DraftSampling
from ..model.layer import Layer
from ..model.step import Step
from ..model.transformer import Model
from .trace import Trace

PAGES, SLOTS = 24, 12
DRAFTS = 2
"""Tokens of a draft pass."""


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
    """A model, a pair of cache pools full of poison, and the sequences in them.

    Args:
        drafts: whether what the draft layers keep of each step is computed as well, which `draft` needs.
    """

    def __init__(
        self,
        model: Model,
        trace: Trace | None = None,
        *,
        pages: int = PAGES,
        slots: int = SLOTS,
        drafts: bool = False,
    ) -> None:
        self.model, self.trace = model, trace or Trace()
        self.drafter = self._announced() if drafts else None
        self.caches = model.new_caches(pages, slots)
        self.caches.pages.fill_(0xFF)
        self.caches.state.fill_(0xFF)
        self.steps: list[StepRecord] = []
        self._pages, self._slots = list(range(1, pages)), list(range(1, slots))

    def _announced(self) -> Drafter:
        """The model's drafter; the trace's place names the layer at which it is."""
        made = self.model.drafter
        assert made is not None
        layers = _Announced(made.layers, self)
        return Drafter(made.text, layers, made.weights, made.embed, made.head)

    def add(self, tokens: Sequence[int], room: int = 0) -> Track:
        """A sequence with pages for its tokens and `room` more."""
        count = self.model.cache_layout.pages_for(len(tokens) + room)
        return Track(list(tokens), self._slots.pop(0), [self._pages.pop() for _ in range(count)])

    def step(
        self,
        work: Sequence[tuple[Track, int]],
        *,
        padding: int = 0,
        force: Force | None = None,
        only: Collection[int] | None = None,
    ) -> Tensor:
        """Compute the next n tokens of each track; returns logits fp32 of every row, padding left out.

        With `only`, of some layers, each starts as `force` says, the others give what was recorded, and there are no
        logits: an empty tensor.
        """
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
            if only is not None and layer not in only:
                assert forced is not None
                record.layers.append(forced)
                continue
            if forced is not None:
                streams, pending = forced.streams.to(model.device), forced.pending.to(model.device)
                forced.shared.restore(state, model.device)
                self.caches.pages.copy_(forced.pools[0])
                self.caches.state.copy_(forced.pools[1])
            before = streams, pending, Shared.of(state), (self.caches.pages.clone(), self.caches.state.clone())
            if layer in memory:
                streams = model.engrams[layer](streams, memory[layer], batch.image)
            if self.drafter is not None:
                model.tap(layer, streams, state)
            streams, pending = model.layers[layer](streams, pending, state)
            record.layers.append(LayerState(*before, streams))
        for track, n in work:
            track.done += n
        if only is not None:
            return torch.empty(0)
        if self.drafter is not None:
            self.drafter.remember(state)
        self.trace.place = f"step {number}, logits"
        record.logits = model.logits(streams, pending, batch.logit_rows)
        return record.logits

    def draft(self, tracks: Sequence[Track]) -> Drafts:
        """A draft pass behind what is computed of each track, as if its first token were drawn next."""
        assert self.drafter is not None
        device = self.model.device
        last, slots = [t.done - 1 for t in tracks], [t.slot for t in tracks]
        request = DraftRequest.build([t.tokens[0] for t in tracks], last, slots, device)
        return self.drafter(request, DraftSampling.greedy(len(tracks), device), self.caches, DRAFTS)


class _Announced(list[Layer]):
    """Draft layers: whoever goes through them says in the walker's trace where it is."""

    def __init__(self, layers: Sequence[Layer], walker: Walker) -> None:
        super().__init__(layers)
        self._walker = walker

    def __iter__(self) -> Iterator[Layer]:
        step = f"step {len(self._walker.steps) - 1}"
        for number, layer in enumerate(super().__iter__()):
            self._walker.trace.place = f"{step}, draft layer {number}"
            yield layer
        self._walker.trace.place = f"{step}, drafts"


@dataclass(frozen=True)
class Schedule:
    """Which rows each step computes: sequence -> number of rows, and padding rows behind."""

    prompts: tuple[tuple[int, ...], ...]
    steps: tuple[tuple[tuple[int, ...], int], ...]

    def run(self, walker: Walker, force: Force | None = None, only: Collection[int] | None = None) -> list[Track]:
        """All steps, in order; returns the sequences."""
        tracks = [walker.add(tokens) for tokens in self.prompts]
        for counts, padding in self.steps:
            work = [(track, n) for track, n in zip(tracks, counts, strict=True) if n]
            walker.step(work, padding=padding, force=force, only=only)
        return tracks


def schedule(vocabulary: int, long: int, seed: int = 0) -> Schedule:
    """A prompt of `long` tokens in two chunks beside short ones; then single rows and draft-like rows, with padding."""
    rng = np.random.default_rng(seed)
    first = long * 2 // 3
    lengths = (long + 1, 12, 9)
    prompts = tuple(tuple(rng.integers(3, vocabulary, n).tolist()) for n in lengths)
    return Schedule(prompts, (((first, 5, 0), 0), ((long - first, 1, 3), 5), ((1, 6, 6), 3)))


def short_schedule(vocabulary: int, seed: int = 0) -> Schedule:
    """A prompt of four tokens; then a row of it beside a prompt of three, and padding."""
    rng = np.random.default_rng(seed)
    prompts = tuple(tuple(rng.integers(3, vocabulary, n).tolist()) for n in (5, 3))
    return Schedule(prompts, (((4, 0), 0), ((1, 3), 1)))
