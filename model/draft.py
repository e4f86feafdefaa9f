"""DSpark: draft layers that propose the next tokens of every sequence at once.

Each forward of the backbone leaves taps, from which `Drafter.remember` keeps the draft layers' window rings up to date.
A draft pass then runs one block of rows per sequence behind the token just drawn: all of its rows see the rings up to
the last computed position and one another. The block's own keys are not stored, so what a pass leaves in the caches is
nothing, and the rings hold what plain decoding leaves in them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from .. import ops
from ..hal import errors
from ..ops import sampling
from ..ops.draft import DraftRows
from ..ops.fused import NormQuant
from ..ops.spec import WeightHandle
from .attention import Attention
from .caches import Caches
from .config import TextConfig
from .layer import Layer
from .step import Step


@dataclass(frozen=True)
class DraftWeights:
    """Weights of the draft head.

    main_proj: [D, n_targets D], main_norm: bf16 [D], of the taps. norm: bf16 [D], before the backbone's head. bigram:
    bf16 [V, r] and head: [V, r], the correction by the token before. confidence: bf16 [D + r].
    """

    main_proj: WeightHandle
    main_norm: torch.Tensor
    norm: torch.Tensor
    bigram: torch.Tensor
    bigram_head: WeightHandle
    confidence: torch.Tensor


@dataclass(frozen=True)
class DraftRequest:
    """Sequences that draft, [S] int32 each, on the model's device.

    Attributes:
        tokens: the token drawn last, which no row has computed yet.
        base: position of the sequence's first row in the step that drew it; of a prompt, its last row. -1: the sequence
            does not draft (its results are unspecified; give it pool_slot -1).
        accepted: drafts of that step that were accepted; of a prompt, 0. The token stands at base + accepted + 1.
        valid_start: first position whose window keys may be seen.
        state_slot: the sequence's state slot.
        pool_slot: its row in the `DraftPool`; -1 for none.
        stop: bool [S], sequences that drew a stop token, whose confidences are stored as 0; None for nobody.
    """

    tokens: torch.Tensor
    base: torch.Tensor
    accepted: torch.Tensor
    valid_start: torch.Tensor
    state_slot: torch.Tensor
    pool_slot: torch.Tensor
    stop: torch.Tensor | None = None

    @classmethod
    def build(
        cls,
        tokens: Sequence[int],
        last: Sequence[int],
        state_slot: Sequence[int],
        device: torch.device,
        *,
        valid_start: Sequence[int] | None = None,
        pool_slot: Sequence[int] | None = None,
    ) -> DraftRequest:
        """From what the host knows: the tokens drawn and the positions before them (`last`, -1 for none)."""

        def put(values: Sequence[int]) -> torch.Tensor:
            return torch.tensor(list(values), dtype=torch.int32, device=device)

        none = [0] * len(tokens)
        slots = state_slot if pool_slot is None else pool_slot
        return cls(
            put(tokens),
            put(last),
            put(none),
            put(none if valid_start is None else valid_start),
            put(state_slot),
            put([-1 if place < 0 else slot for place, slot in zip(last, slots, strict=True)]),
        )


@dataclass(frozen=True)
class DraftSampling:
    """How drafts are drawn, as the sampling ops take it.

    Attributes:
        inv_temperature: f32 [S]; +inf is greedy. seeds: int64 [S]. top_k, top_p, min_p: [S] or None. force_top_k: int.
        shared: drafter-invariant mode: draw with the target's random numbers.
        inv_confidence: f32 [n], inverse temperatures of the confidences by place; None for 1.
    """

    inv_temperature: torch.Tensor
    seeds: torch.Tensor
    top_k: torch.Tensor | None = None
    top_p: torch.Tensor | None = None
    min_p: torch.Tensor | None = None
    force_top_k: int = 0
    shared: bool = False
    inv_confidence: torch.Tensor | None = None

    @classmethod
    def greedy(cls, sequences: int, device: torch.device) -> DraftSampling:
        """The most likely token at every place."""
        return cls(
            torch.full((sequences,), torch.inf, device=device),
            torch.zeros(sequences, dtype=torch.int64, device=device),
        )


@dataclass(frozen=True)
class DraftPool:
    """What drafts leave for the next step, by slot.

    Attributes:
        tokens: int32 [Z, n]. confidence: f32 [Z, n].
        log2q: f32 [Z, n, V], base-2 log-probabilities that the drafts were drawn from; None where verification needs
            none (greedy or drafter-invariant).
    """

    tokens: torch.Tensor
    confidence: torch.Tensor
    log2q: torch.Tensor | None

    @classmethod
    def new(cls, slots: int, n: int, vocab: int, device: torch.device, *, distributions: bool) -> DraftPool:
        """An empty pool: no drafts, confidence 0."""
        return cls(
            torch.full((slots, n), -1, dtype=torch.int32, device=device),
            torch.zeros((slots, n), device=device),
            torch.zeros((slots, n, vocab), device=device) if distributions else None,
        )


@dataclass(frozen=True)
class Drafts:
    """Result of a draft pass: tokens int32 [S, n], confidence f32 [S, n], logits f32 [S, n, V] where asked for."""

    tokens: torch.Tensor
    confidence: torch.Tensor
    logits: torch.Tensor | None


@dataclass(frozen=True)
class DraftStep:
    """State of one draft pass: its rows and the caches they read."""

    rows: DraftRows
    state_slot: torch.Tensor
    image: torch.Tensor
    caches: Caches
    block: int


class DraftAttention(Attention):
    """Attention of a draft layer: its window ring and the block's own rows, which are not stored."""

    def remember(self, hidden8: tuple[torch.Tensor, torch.Tensor], step: Step) -> None:
        """Store the keys of a backbone step.

        Args:
            hidden8: codes [T, D] and scales of the projected taps.
            step: the step.
        """
        batch = step.tapped
        assert batch is not None
        fresh = self.window_records(hidden8, batch.positions)
        ring = step.caches.rings[self.role.prefix]
        ops.window_store(fresh, ring, batch.positions, batch.row_seq, batch.seq_end, batch.state_slot)

    def draft(self, x: NormQuant, step: DraftStep) -> torch.Tensor:
        """Attention of the rows of a draft pass: bf16 [S*block, D] and its codes -> bf16 [S*block, D]."""
        rows = step.rows
        x8 = x.q, x.scale
        query, _ = self.queries(x8, rows.positions)
        output = ops.sparse_attention(
            query,
            self.window_records(x8, rows.positions),
            step.caches.rings[self.role.prefix],
            self.weights.sink,
            rows.first_key,
            rows.last_key,
            rows.row_seq,
            rows.seq_start,
            rows.row_begin,
            step.state_slot,
            None,
            None,
            None,
            window=self.text.sliding_window + step.block,
            ratio=0,
            scale=self.text.head_dim**-0.5,
            record=self.record,
        )
        return self.project(ops.rope(output, rows.positions, self.rope_table, True))


class Drafter:
    """The draft layers and their head."""

    def __init__(
        self, text: TextConfig, layers: list[Layer], weights: DraftWeights, embed: torch.Tensor, head: WeightHandle
    ) -> None:
        self.text = text
        self.layers = layers
        self.weights = weights
        self.embed = embed
        self.head = head

    def remember(self, step: Step) -> None:
        """Store what the taps of a backbone step are to the draft layers; every row, accepted later or not."""
        assert step.taps is not None
        weights, eps = self.weights, self.text.rms_norm_eps
        hidden = ops.linear_fp8(*ops.quant_fp8(step.taps.flatten(1)), weights.main_proj)
        normed = ops.rms_norm_quant(hidden, weights.main_norm, eps)
        for layer in self.layers:
            attention = layer.attention
            assert isinstance(attention, DraftAttention)
            attention.remember((normed.q, normed.scale), step)

    def __call__(
        self,
        request: DraftRequest,
        sampling_: DraftSampling,
        caches: Caches,
        block: int,
        pool: DraftPool | None = None,
        *,
        keep_logits: bool = False,
    ) -> Drafts:
        """Draft `block` tokens for every sequence; see `Model.draft`."""
        rows = ops.draft_inputs(
            request.tokens,
            request.base,
            request.accepted,
            request.valid_start,
            block,
            self.text.sliding_window,
            self.text.dspark_noise_token_id,
        )
        hidden = self._layers(rows, request, caches, block)
        base = self._base_logits(hidden).unflatten(0, (-1, block))
        before, kept_logits = [request.tokens], []
        for place in range(block):
            logits = ops.draft_logits(base[:, place], before[-1], self.weights.bigram, self.weights.bigram_head)
            before.append(self._draw(logits, rows.draws[place], sampling_, request, pool, place))
            if keep_logits:
                kept_logits.append(logits)
        tokens = torch.stack(before[1:], dim=1)
        confidence = ops.draft_confidence(
            hidden.unflatten(0, (-1, block)),
            torch.stack(before[:-1], dim=1),
            self.weights.bigram,
            self.weights.confidence,
            base.new_ones(block) if sampling_.inv_confidence is None else sampling_.inv_confidence,
        )
        if pool is not None:
            ops.draft_store(tokens, confidence, request.stop, request.pool_slot, pool.tokens, pool.confidence)
        return Drafts(tokens, confidence, torch.stack(kept_logits, dim=1) if keep_logits else None)

    def _layers(self, rows: DraftRows, request: DraftRequest, caches: Caches, block: int) -> torch.Tensor:
        """Collapsed streams bf16 [S*block, D] behind the last draft layer, not normed."""
        streams, pending = ops.embed_streams(rows.ids, self.embed, self.text.hc_mult)
        image = torch.zeros(rows.ids.shape, dtype=torch.bool, device=rows.ids.device)
        step = DraftStep(rows, request.state_slot, image, caches, block)
        for layer in self.layers:
            attention = layer.attention
            assert isinstance(attention, DraftAttention)
            y = attention.draft(layer.attention_mix.enter(streams, pending), step)
            streams, pending = layer.attention_mix.leave(streams, y)
            y = layer.moe(layer.moe_mix.enter(streams, pending), image)
            streams, pending = layer.moe_mix.leave(streams, y)
        return ops.hc_collapse(streams, pending)

    def _base_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return ops.linear_bf16(ops.rms_norm(hidden, self.weights.norm, self.text.rms_norm_eps), self.head, True)

    def _draw(
        self,
        logits: torch.Tensor,
        positions: torch.Tensor,
        how: DraftSampling,
        request: DraftRequest,
        pool: DraftPool | None,
        place: int,
    ) -> torch.Tensor:
        """Tokens int32 [S] of one place."""
        kept = sampling.sample_filter(
            logits, how.inv_temperature, how.top_k, how.top_p, how.min_p, force_top_k=how.force_top_k
        )
        purpose = sampling.Purpose.TARGET if how.shared else sampling.Purpose.DRAFT
        tokens = sampling.sample_draw(logits, how.inv_temperature, kept, how.seeds, positions, purpose)
        if pool is not None and pool.log2q is not None:
            ops.draft_distribution(logits, how.inv_temperature, kept, tokens, request.pool_slot, pool.log2q, place)
        return tokens


def check_block(block: int, most: int) -> None:
    """Raises InvalidArgumentError unless the rings leave room for a block of this length."""
    if not 1 <= block <= most:
        raise errors.InvalidArgumentError("block", block, f"1 to {most}, the drafts that the model was loaded for")
