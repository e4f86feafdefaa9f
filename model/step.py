"""What one forward carries from layer to layer, beside the residual streams."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from .batch import Batch
from .caches import Caches


@dataclass
class Step:
    """State of one forward.

    Attributes:
        batch: the rows of the layers that run now.
        caches: the pools they read and write.
        latent: KV source -> bf16 [T, head_dim], its normed latent before rotation; index keys are made from it.
        selected: index source -> int32 [T, index_topk], ascending entry ids, -1 unused.
        blocks: int32 [T, candidate_topk_blocks], candidate blocks of the row, once the candidate source has run.
        shared_hidden: bf16 [T, D], attention input of the first consumer layer; later consumer KV sources project it.
        taps: bf16 [T, n, D], mean of the streams at the entry of the tapped layers; None without draft layers.
        tapped: the rows of `taps`.
        entries_written: the sources of the layers to come have written the step's compressed entries and index keys.
    """

    batch: Batch
    caches: Caches
    latent: dict[int, torch.Tensor] = field(default_factory=dict)
    selected: dict[int, torch.Tensor] = field(default_factory=dict)
    blocks: torch.Tensor | None = None
    shared_hidden: torch.Tensor | None = None
    taps: torch.Tensor | None = None
    tapped: Batch | None = None
    entries_written: bool = False
