"""The text model: embedding, layers with Engram memory, final collapse, logits."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from .. import ops
from ..hal import errors
from ..ops.spec import WeightHandle
from .batch import Batch
from .cache_layout import CacheLayout
from .caches import Caches
from .config import ModelConfig
from .draft import Drafter, DraftPool, DraftRequest, Drafts, DraftSampling, check_block
from .engram import Engram, EngramFetcher, Rows, given_rows
from .layer import Layer
from .step import Step
from .topology import Topology
from .vision.tower import VisionTower


@dataclass(frozen=True)
class Memory:
    """Bytes a loaded model holds.

    Attributes:
        device: on its device: weights, rotary and hash tables.
        mapped: mapped from files in host memory.
    """

    device: int
    mapped: int


class Model:
    """A loaded DeepSeek-V4.1 text model.

    `Model.load` makes one from a checkpoint directory. `drafter` holds the draft layers and their head, None where the
    model has none or was loaded for no drafts; `vision` encodes images.
    """

    def __init__(
        self,
        config: ModelConfig,
        layout: CacheLayout,
        device: torch.device,
        *,
        embed: torch.Tensor,
        layers: list[Layer],
        engrams: dict[int, Engram],
        norm: torch.Tensor,
        head: WeightHandle,
        drafter: Drafter | None,
        max_draft: int,
        vision: VisionTower,
        max_model_len: int,
        world_size: int,
        memory: Memory,
        path: Path | None = None,
    ) -> None:
        self.config = config
        self.cache_layout = layout
        self.device = device
        self.embed = embed
        self.layers = layers
        self.engrams = engrams
        self.norm = norm
        self.head = head
        self.drafter = drafter
        self.max_draft = max_draft
        self.vision = vision
        self.max_model_len = max_model_len
        self.world_size = world_size
        self.memory = memory
        self.path = path
        self._fetcher = EngramFetcher()

    @classmethod
    def load(cls, path: str | Path, **options: Any) -> Model:
        """Load a checkpoint directory; the options and errors are those of `loading.load_model`."""
        from .loading import load_model

        return load_model(path, **options)

    @property
    def topology(self) -> Topology:
        """Roles of the layers."""
        return self.config.topology

    def new_caches(self, pages: int, slots: int) -> Caches:
        """Empty cache pools: `pages` pages of 128 tokens and `slots` state slots, number 0 of each reserved."""
        return Caches(self.cache_layout, pages, slots, self.device, self.config.text.head_dim)

    def forward(
        self,
        batch: Batch,
        caches: Caches,
        rows: Mapping[int, Rows] | None = None,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Compute a step: writes the rows' cache entries, returns logits of the rows that asked for them.

        Args:
            batch: the rows. Positions before a sequence's `start` must be in the caches.
            caches: read and written.
            rows: Engram rows of the step by layer, where somebody has gathered them already.
            out: where the logits go.

        Returns:
            fp32 [L, vocab], in the order of the batch's sequences and positions.

        Raises:
            NotSupportedError: the model holds one rank's part of the experts only.
        """
        self._check_ranks("a forward")
        step = Step(batch, caches)
        streams, pending = self.enter(batch)
        fetched = self._fetcher.start(self.engrams, batch) if rows is None else given_rows(rows)
        for number, layer in enumerate(self.layers):
            if number == self.topology.n_prefill_layer:
                streams, pending = self.cross(streams, pending, step)
            streams = self.remember(number, streams, fetched, step.batch)
            self.tap(number, streams, step)
            streams, pending = layer(streams, pending, step)
        if self.drafter is not None:
            self.drafter.remember(step)
        return self.logits(streams, pending, step.batch.logit_rows, out)

    def draft(
        self,
        request: DraftRequest,
        sampling: DraftSampling,
        caches: Caches,
        block: int,
        pool: DraftPool | None = None,
        *,
        keep_logits: bool = False,
    ) -> Drafts:
        """Draft the next tokens of sequences whose last drawn token is known.

        Call it after the `forward` that the token was drawn from, that of the prompt's last chunk included, and before
        the next one of the sequence. It reads the draft layers' rings and changes no cache. A sequence's drafts depend
        on that sequence alone, and those of place i not on `block`'s later places' tokens.

        Args:
            request: the sequences, S of them. sampling: how drafts are drawn, place i at the index in the sequence
                that the draft will have.
            caches: of the model. block: drafts per sequence.
            pool: where tokens, confidences and distributions are kept for the next step, by `request.pool_slot`.
            keep_logits: return the corrected logits.

        Raises:
            NotSupportedError: the model has no draft layers, or holds one rank's part of the experts only.
            InvalidArgumentError: `block` is not in 1 .. max_draft.
        """
        self._check_ranks("a draft pass")
        if self.drafter is None:
            raise errors.NotSupportedError("drafting", "the model has no draft layers, or was loaded with max_draft 0")
        check_block(block, self.max_draft)
        return self.drafter(request, sampling, caches, block, pool, keep_logits=keep_logits)

    def _check_ranks(self, what: str) -> None:
        if self.world_size > 1:
            raise errors.NotSupportedError(
                f"{what} over {self.world_size} ranks", "expert parallelism comes with the all-to-all ops"
            )

    def tap(self, number: int, streams: torch.Tensor, step: Step) -> None:
        """At the entry of a tapped layer, behind its Engram update: keep the streams' mean for the draft layers."""
        place = self.topology.layers[number].tap
        if self.drafter is None or place is None:
            return
        if step.taps is None:
            rows, _, width = streams.shape
            step.taps = streams.new_empty((rows, len(self.config.text.dspark_target_layer_ids), width))
            step.tapped = step.batch
        ops.draft_tap(streams, step.taps, place)

    def cross(self, streams: torch.Tensor, pending: torch.Tensor, step: Step) -> tuple[torch.Tensor, torch.Tensor]:
        """At the entry of the first consumer layer: go on with the rows that are kept, where prompts are truncated.

        What all rows owe to the caches of the consumer layers is written before: their compressed entries and index
        keys depend on nothing but what enters here. Streams and pending mix as in `enter`.

        Raises:
            NotSupportedError: rows are to be dropped that some consumer layer of this model needs.
        """
        boundary = step.batch.boundary
        if boundary is None:
            return streams, pending
        if boundary.rows is not None:
            if self.topology.compact_refusal is not None:
                raise errors.NotSupportedError("dropping rows of a prompt", self.topology.compact_refusal)
            consumers = self.layers[self.topology.n_prefill_layer :]
            hidden = consumers[0].attention_mix.enter(streams, pending).y
            for layer in consumers:
                layer.attention.write_entries(hidden, step)
            step.entries_written = True
            mult, width = streams.shape[1:]
            streams = ops.gather_rows(streams.view(-1, mult * width), boundary.rows).view(-1, mult, width)
            pending = ops.gather_rows(pending, boundary.rows)
        step.batch = boundary.batch
        return streams, pending

    def enter(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Residual streams bf16 [T, m, D] and pending mix fp32 [T, m] of the embedded tokens and images."""
        streams, pending = ops.embed_streams(batch.tokens, self.embed, self.config.text.hc_mult)
        if batch.images is not None:
            images = batch.images
            streams = ops.scatter_embeds(streams, images.values, self.vision.marks, images.source, out=streams)
        return streams, pending

    def remember(self, number: int, streams: torch.Tensor, rows: dict[int, Future[Rows]], batch: Batch) -> torch.Tensor:
        """Engram update at the entry of a layer, where it has one; waits for the layer's rows."""
        if number not in self.engrams:
            return streams
        return self.engrams[number](streams, rows[number].result(), batch.image)

    def logits(
        self, streams: torch.Tensor, pending: torch.Tensor, rows: torch.Tensor, out: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Logits fp32 [L, vocab] of the given rows int32 [L]."""
        mult, width = streams.shape[1:]
        picked = ops.gather_rows(streams.view(-1, mult * width), rows).view(-1, mult, width)
        hidden = ops.hc_collapse(picked, ops.gather_rows(pending, rows))
        return ops.linear_bf16(ops.rms_norm(hidden, self.norm, self.config.text.rms_norm_eps), self.head, True, out=out)

    def close(self) -> None:
        """Stop the worker that fetches Engram rows."""
        self._fetcher.close()
