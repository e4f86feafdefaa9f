"""Attention sub-layer: window and selected compressed keys, compressor, indexer, grouped output projection."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .. import ops
from ..ops.fused import NormQuant
from ..ops.spec import WeightHandle
from .config import TextConfig
from .step import Step
from .topology import LayerRole


@dataclass(frozen=True)
class CompressorWeights:
    """Weights of a KV source: `wgate` only where two tokens are pooled."""

    wkv: WeightHandle
    wgate: WeightHandle | None
    norm: torch.Tensor


@dataclass(frozen=True)
class IndexKeyWeights:
    """Weights of an index-key source."""

    wk: WeightHandle
    k_norm: torch.Tensor


@dataclass(frozen=True)
class IndexerWeights:
    """Weights of an index source."""

    wq_b: WeightHandle
    weights_proj: WeightHandle


@dataclass(frozen=True)
class AttentionWeights:
    """Weights of one attention sub-layer; the last three are absent where the layer is no source."""

    wq_a: WeightHandle
    q_norm: torch.Tensor
    wq_b: WeightHandle
    wkv: WeightHandle
    kv_norm: torch.Tensor
    wo_a: WeightHandle
    wo_b: WeightHandle
    sink: torch.Tensor
    compressor: CompressorWeights | None
    index_key: IndexKeyWeights | None
    indexer: IndexerWeights | None


class Attention:
    """One layer's attention: reads and writes that layer's caches."""

    def __init__(
        self, role: LayerRole, text: TextConfig, record: str, weights: AttentionWeights, rope_table: torch.Tensor
    ) -> None:
        self.role = role
        self.text = text
        self.record = record
        self.weights = weights
        self.rope_table = rope_table

    def __call__(self, x: NormQuant, step: Step) -> torch.Tensor:
        """Attention of every row.

        Args:
            x: bf16 [T, D], the normed input, and its codes.
            step: caches and what earlier layers left; this layer adds to both.

        Returns:
            bf16 [T, D].
        """
        positions = step.batch.positions
        x8 = x.q, x.scale
        query, bottleneck8 = self.queries(x8, positions)
        fresh = self.window_records(x8, positions)
        if not step.entries_written:
            self.write_entries(x.y, step)
        self._select(x.y, bottleneck8, step)
        output = self._attend(query, fresh, step)
        return self.project(ops.rope(output, positions, self.rope_table, True))

    def write_entries(self, x: torch.Tensor, step: Step) -> None:
        """On a source: write the compressed entries and index keys that the rows of the step complete.

        Args:
            x: bf16 [T, D], the normed input of this layer; a later consumer source reads that of the first one instead.
            step: the step.
        """
        self._write_compressed(x, step)
        self._write_index_keys(step)

    def queries(
        self, x8: tuple[torch.Tensor, torch.Tensor], positions: torch.Tensor
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        """Rotated queries bf16 [T, h, d] and the quantised bottleneck they come from."""
        text, weights = self.text, self.weights
        bottleneck = ops.rms_norm_quant(ops.linear_fp8(*x8, weights.wq_a), weights.q_norm, text.rms_norm_eps)
        bottleneck8 = bottleneck.q, bottleneck.scale
        query = ops.linear_fp8(*bottleneck8, weights.wq_b).view(-1, text.num_attention_heads, text.head_dim)
        return ops.rope(query, positions, self.rope_table, False), bottleneck8

    def window_records(self, x8: tuple[torch.Tensor, torch.Tensor], positions: torch.Tensor) -> torch.Tensor:
        """Window records of rows, uint8 [T, record]."""
        kv = ops.rms_norm(ops.linear_fp8(*x8, self.weights.wkv), self.weights.kv_norm, self.text.rms_norm_eps)
        return ops.window_pack(kv, positions, self.rope_table)

    def project(self, output: torch.Tensor) -> torch.Tensor:
        """[T, h, d] -> [T, D] through the grouped and the joint projection."""
        weights, groups = self.weights, self.text.o_groups
        # Sizes are spelled out: there may be no rows, and then nothing can be inferred.
        codes, scales = (x.unflatten(1, (groups, x.shape[1] // groups)) for x in ops.quant_fp8(output.flatten(1)))
        grouped = ops.linear_fp8_grouped(codes, scales, weights.wo_a)
        return ops.linear_fp8(*ops.quant_fp8(grouped.flatten(1)), weights.wo_b)

    def _attend(self, query: torch.Tensor, fresh: torch.Tensor, step: Step) -> torch.Tensor:
        role, batch = self.role, step.batch
        ring = step.caches.rings[role.prefix]
        compressed = role.kv_source is not None and role.index_source is not None
        output = ops.sparse_attention(
            query,
            fresh,
            ring,
            self.weights.sink,
            batch.first_key,
            batch.last_key,
            batch.row_seq,
            batch.seq_start,
            batch.row_begin,
            batch.state_slot,
            step.caches.main[role.kv_source] if role.kv_source is not None else None,
            batch.block_table if compressed else None,
            step.selected[role.index_source] if role.index_source is not None else None,
            window=self.text.sliding_window,
            ratio=role.ratio,
            scale=self.text.head_dim**-0.5,
            record=self.record,
        )
        # The ring still held the positions before this step while attention read it; now the step's own rows replace
        # the oldest ones.
        ops.window_store(fresh, ring, batch.positions, batch.row_seq, batch.seq_end, batch.state_slot)
        return output

    def _write_compressed(self, x: torch.Tensor, step: Step) -> None:
        """Compress the rows of a KV source and write the entries they complete."""
        weights, role, batch = self.weights.compressor, self.role, step.batch
        if weights is None:
            return
        if role.half == "consumer":
            # Every consumer source projects what entered the first consumer layer, so that a long prompt needs only
            # the producer layers.
            step.shared_hidden = x if step.shared_hidden is None else step.shared_hidden
            x = step.shared_hidden
        if weights.wgate is None:
            pooled = ops.linear_bf16(x, weights.wkv, False)
        else:
            value = ops.linear_bf16(x, weights.wkv, True)
            gate = ops.linear_bf16(x, weights.wgate, True)
            ring = step.caches.compressor_rings[role.layer]
            meta = (batch.positions, batch.row_seq)
            pooled = ops.compress_pool(value, gate, ring, *meta, batch.seq_start, batch.state_slot)
            ops.compressor_ring_store(value, gate, ring, *meta, batch.seq_end, batch.state_slot)
        latent = ops.rms_norm(pooled, weights.norm, self.text.rms_norm_eps)
        step.latent[role.layer] = latent
        ops.compressed_store(
            latent,
            step.caches.main[role.layer],
            batch.positions,
            batch.row_seq,
            batch.block_table,
            self.rope_table,
            role.ratio,
            self.record,
        )

    def _write_index_keys(self, step: Step) -> None:
        weights, role, batch = self.weights.index_key, self.role, step.batch
        if weights is None or role.kv_source is None:
            return
        latent = step.latent[role.kv_source]
        key = ops.rms_norm(ops.linear_bf16(latent, weights.wk, False), weights.k_norm, self.text.rms_norm_eps)
        ops.index_key_store(
            key,
            step.caches.index[role.layer],
            batch.positions,
            batch.row_seq,
            batch.block_table,
            self.rope_table,
            role.ratio,
        )

    def _select(self, x: torch.Tensor, bottleneck8: tuple[torch.Tensor, torch.Tensor], step: Step) -> None:
        """On an index source: score the visible entries and keep the best, for this layer and those that follow."""
        weights, role, text, batch = self.weights.indexer, self.role, self.text, step.batch
        if weights is None or role.index_k_source is None:
            return
        query = ops.linear_fp8(*bottleneck8, weights.wq_b).view(batch.rows, text.index_n_heads, text.index_head_dim)
        packed = ops.index_query_pack(query, batch.positions, self.rope_table)
        head_weight = ops.linear_bf16(x, weights.weights_proj, False)
        pages = step.caches.index[role.index_k_source]
        visible, size = batch.visible[role.ratio], text.candidate_block_size
        given = (packed, head_weight, pages, visible, batch.row_seq, batch.block_table)
        entries = batch.entries[role.ratio]
        if role.candidate == "source":
            # Both choices are made from these scores, so they are written out.
            scores = ops.index_score(*given, role.ratio, entries)
            selected = ops.topk_select(scores, visible, text.index_topk, None, size)
            step.blocks = ops.block_select(scores, visible, size, text.candidate_topk_blocks)
        else:
            blocks = step.blocks if role.candidate == "restricted" else None
            size = 1 if blocks is None else size
            selected, _ = ops.index_topk(*given, blocks, role.ratio, entries, size, text.index_topk)
        step.selected[role.layer] = selected
