"""The text model: embedding, layers with Engram memory, final collapse, logits."""

from __future__ import annotations

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
from .engram import Engram, EngramFetcher, Rows
from .layer import Layer
from .step import Step
from .topology import Topology


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

    `Model.load` makes one from a checkpoint directory. The draft layers, the draft head and the vision tower are loaded
    too; `draft_layers`, `draft_head` and `vision` hold their weights.
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
        draft_layers: list[Layer],
        draft_head: dict[str, torch.Tensor],
        vision: dict[str, torch.Tensor],
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
        self.draft_layers = draft_layers
        self.draft_head = draft_head
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

    def forward(self, batch: Batch, caches: Caches) -> torch.Tensor:
        """Compute a step: writes the rows' cache entries, returns logits of the rows that asked for them.

        Args:
            batch: the rows. Positions before a sequence's `start` must be in the caches.
            caches: read and written.

        Returns:
            fp32 [L, vocab], in the order of the batch's sequences and positions.

        Raises:
            NotSupportedError: the model holds one rank's part of the experts only.
        """
        if self.world_size > 1:
            raise errors.NotSupportedError(
                f"a forward over {self.world_size} ranks", "expert parallelism comes with the all-to-all ops"
            )
        step = Step(batch, caches)
        streams, pending = self.enter(batch)
        rows = self._fetcher.start(self.engrams, batch)
        for number, layer in enumerate(self.layers):
            streams = self.remember(number, streams, rows, batch)
            streams, pending = layer(streams, pending, step)
        return self.logits(streams, pending, batch.logit_rows)

    def enter(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Residual streams bf16 [T, m, D] and pending mix fp32 [T, m] of the embedded tokens."""
        return ops.embed_streams(batch.tokens, self.embed, self.config.text.hc_mult)

    def remember(self, number: int, streams: torch.Tensor, rows: dict[int, Future[Rows]], batch: Batch) -> torch.Tensor:
        """Engram update at the entry of a layer, where it has one; waits for the layer's rows."""
        if number not in self.engrams:
            return streams
        return self.engrams[number](streams, rows[number].result(), batch.image)

    def logits(self, streams: torch.Tensor, pending: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Logits fp32 [L, vocab] of the given rows int32 [L]."""
        mult, width = streams.shape[1:]
        picked = ops.gather_rows(streams.view(-1, mult * width), rows).view(-1, mult, width)
        hidden = ops.hc_collapse(picked, ops.gather_rows(pending, rows))
        return ops.linear_bf16(ops.rms_norm(hidden, self.norm, self.config.text.rms_norm_eps), self.head, True)

    def close(self) -> None:
        """Stop the worker that fetches Engram rows."""
        self._fetcher.close()
