"""The complete tensor inventory of a checkpoint, as data.

`inventory(config)` maps every tensor name to its storage dtype, shape and kind. Names carry no `model.` prefix. The
dtype codes are those of the safetensors header: BF16, F32, F8_E4M3 (e4m3fn), F8_E8M0 (byte b is 2^(b - 127)) and I8
(two FP4 codes a byte, the even channel in the low nibble).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Literal

from .config import QUANT_GROUP, ModelConfig, TextConfig
from .topology import LayerRole

DType = Literal["BF16", "F32", "F8_E4M3", "F8_E8M0", "I8"]
Kind = Literal[
    "embedding", "norm", "attention", "compressor", "indexer", "hyper_connection", "router",
    "shared_expert", "expert", "engram_table", "engram", "draft_head", "vision",
]  # fmt: skip
ITEM_BYTES: dict[str, int] = {"BF16": 2, "F32": 4, "F8_E4M3": 1, "F8_E8M0": 1, "I8": 1}

IGNORED = re.compile(r"mtp\.\d+\.(embed|head)\.weight")
"""Tensors some exports add: the draft layers use the backbone's embedding and head. Passed over when present."""
FOLDED = re.compile(r"(.+\.)?hc_\w+_norm\.weight")
"""Hyper-connection norm weights. Released weights have them multiplied into hc_*_fn; a checkpoint that still carries
them has other hc_*_fn values and is refused."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One tensor as a checkpoint must hold it.

    Fields:
        dtype: safetensors dtype code.
        shape: as stored; packed FP4 has half the logical width in its last dimension.
        kind: what it belongs to, for reports.
        expert: index of the routed expert it belongs to, or None.
        engram: index of the Engram table whose rows it holds, or None.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    kind: Kind
    expert: int | None = None
    engram: int | None = None

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * ITEM_BYTES[self.dtype]

    @property
    def is_scale(self) -> bool:
        return self.dtype == "F8_E8M0"

    @property
    def parameters(self) -> int:
        """Logical parameters: two per byte of packed FP4, none for a scale."""
        if self.is_scale:
            return 0
        return prod(self.shape) * (2 if self.dtype == "I8" else 1)


def inventory(config: ModelConfig) -> dict[str, TensorSpec]:
    """Every tensor of the checkpoint, in reading order (backbone by layer, draft layers, vision)."""
    return {spec.name: spec for spec in _all(config)}


def _all(config: ModelConfig) -> Iterator[TensorSpec]:
    text, topology = config.text, config.topology
    d = text.hidden_size
    yield TensorSpec("embed.weight", "BF16", (text.vocab_size, d), "embedding")
    yield TensorSpec("head.weight", "BF16", (text.vocab_size, d), "embedding")
    yield TensorSpec("norm.weight", "BF16", (d,), "norm")
    for role in topology.layers:
        yield from _layer(text, role, text.n_routed_experts)
    for role in topology.drafts:
        yield from _layer(text, role, text.dspark_n_routed_experts)
        yield from _draft(text, role.layer)
    yield from _vision(config)


def _fp8(name: str, n: int, k: int, kind: Kind) -> Iterator[TensorSpec]:
    """An FP8 matrix [n, k] and its 32 x 32 block scales."""
    yield TensorSpec(f"{name}.weight", "F8_E4M3", (n, k), kind)
    yield TensorSpec(f"{name}.scale", "F8_E8M0", (-(-n // QUANT_GROUP), -(-k // QUANT_GROUP)), kind)


def _layer(text: TextConfig, role: LayerRole, experts: int) -> Iterator[TensorSpec]:
    p, d, m = role.prefix, text.hidden_size, text.hc_mult
    yield TensorSpec(f"{p}.attn_norm.weight", "BF16", (d,), "norm")
    yield TensorSpec(f"{p}.ffn_norm.weight", "BF16", (d,), "norm")
    for part in ("attn", "ffn"):
        yield TensorSpec(f"{p}.hc_{part}_fn", "F32", ((2 + m) * m, m * d), "hyper_connection")
        yield TensorSpec(f"{p}.hc_{part}_base", "F32", ((2 + m) * m,), "hyper_connection")
        yield TensorSpec(f"{p}.hc_{part}_scale", "F32", (3,), "hyper_connection")
    yield from _attention(text, f"{p}.attn")
    if role.owns_kv:
        yield from _compressor(text, f"{p}.attn.compressor", role.ratio)
    yield from _indexer(text, role, f"{p}.attn.indexer")
    yield from _ffn(text, f"{p}.ffn", experts)
    if role.engram is not None:
        yield from _engram(text, f"{p}.engram", role.engram)


def _attention(text: TextConfig, p: str) -> Iterator[TensorSpec]:
    d, h, dh = text.hidden_size, text.num_attention_heads, text.head_dim
    out = text.o_groups * text.o_lora_rank
    yield from _fp8(f"{p}.wq_a", text.q_lora_rank, d, "attention")
    yield TensorSpec(f"{p}.q_norm.weight", "BF16", (text.q_lora_rank,), "norm")
    yield from _fp8(f"{p}.wq_b", h * dh, text.q_lora_rank, "attention")
    yield from _fp8(f"{p}.wkv", dh, d, "attention")
    yield TensorSpec(f"{p}.kv_norm.weight", "BF16", (dh,), "norm")
    yield from _fp8(f"{p}.wo_a", out, h // text.o_groups * dh, "attention")
    yield from _fp8(f"{p}.wo_b", d, out, "attention")
    yield TensorSpec(f"{p}.attn_sink", "F32", (h,), "attention")


def _compressor(text: TextConfig, p: str, ratio: int) -> Iterator[TensorSpec]:
    shape = (text.head_dim, text.hidden_size)
    yield TensorSpec(f"{p}.wkv.weight", "BF16", shape, "compressor")
    if ratio == 2:
        yield TensorSpec(f"{p}.wgate.weight", "BF16", shape, "compressor")
    yield TensorSpec(f"{p}.norm.weight", "BF16", (text.head_dim,), "norm")


def _indexer(text: TextConfig, role: LayerRole, p: str) -> Iterator[TensorSpec]:
    width = text.index_head_dim
    if role.owns_index_k:
        yield TensorSpec(f"{p}.wk.weight", "BF16", (width, text.head_dim), "indexer")
        yield TensorSpec(f"{p}.k_norm.weight", "BF16", (width,), "norm")
    if role.runs_indexer:
        yield from _fp8(f"{p}.wq_b", text.index_n_heads * width, text.q_lora_rank, "indexer")
        yield TensorSpec(f"{p}.weights_proj.weight", "BF16", (text.index_n_heads, text.hidden_size), "indexer")


def _ffn(text: TextConfig, p: str, experts: int) -> Iterator[TensorSpec]:
    d, inter = text.hidden_size, text.moe_intermediate_size
    yield TensorSpec(f"{p}.gate.weight", "BF16", (experts, d), "router")
    yield TensorSpec(f"{p}.gate.bias", "F32", (experts,), "router")
    yield TensorSpec(f"{p}.gate.bias_vl", "F32", (experts,), "router")
    shared = text.n_shared_experts * inter
    for w, n, k in (("w1", shared, d), ("w3", shared, d), ("w2", d, shared)):
        yield from _fp8(f"{p}.shared_experts.{w}", n, k, "shared_expert")
    for e in range(experts):
        for w, n, k in (("w1", inter, d), ("w3", inter, d), ("w2", d, inter)):
            yield TensorSpec(f"{p}.experts.{e}.{w}.weight", "I8", (n, k // 2), "expert", expert=e)
            yield TensorSpec(f"{p}.experts.{e}.{w}.scale", "F8_E8M0", (n, k // QUANT_GROUP), "expert", expert=e)


def _engram(text: TextConfig, p: str, table: int) -> Iterator[TensorSpec]:
    m, d, width = text.hc_mult, text.hidden_size, text.engram_head_dim
    rows = text.engram_num_embeddings[table]
    columns = (text.engram_max_ngram_size - 1) * text.engram_n_heads
    yield TensorSpec(f"{p}.embed.weight", "F8_E4M3", (rows, width), "engram_table", engram=table)
    yield TensorSpec(f"{p}.embed.scale", "F8_E8M0", (rows, width // QUANT_GROUP), "engram_table", engram=table)
    yield from _fp8(f"{p}.wkv", (m + 1) * d, columns * width, "engram")
    yield TensorSpec(f"{p}.q_weight", "BF16", (m, d), "engram")
    yield TensorSpec(f"{p}.k_weight", "BF16", (m, d), "engram")


def _draft(text: TextConfig, layer: int) -> Iterator[TensorSpec]:
    """What the first and the last draft layer carry besides a layer's own tensors."""
    d, rank, p = text.hidden_size, text.dspark_markov_rank, f"mtp.{layer}"
    if layer == 0:
        yield from _fp8(f"{p}.main_proj", d, len(text.dspark_target_layer_ids) * d, "draft_head")
        yield TensorSpec(f"{p}.main_norm.weight", "BF16", (d,), "norm")
    if layer == text.num_nextn_predict_layers - 1:
        yield TensorSpec(f"{p}.norm.weight", "BF16", (d,), "norm")
        yield TensorSpec(f"{p}.markov_head.embed.weight", "BF16", (text.vocab_size, rank), "draft_head")
        yield TensorSpec(f"{p}.markov_head.head.weight", "BF16", (text.vocab_size, rank), "draft_head")
        yield TensorSpec(f"{p}.confidence_head.proj.weight", "BF16", (1, d + rank), "draft_head")


def _vision(config: ModelConfig) -> Iterator[TensorSpec]:
    v, d = config.vision, config.text.hidden_size
    h, inter, ds = v.hidden_size, v.intermediate_size, v.downsample_ratio
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("image_start", "image_end", "image_newline"), (d,))
    shapes |= {"vision.patch_embed.proj.weight": (h, 3 * v.patch_size**2), "vision.patch_embed.proj.bias": (h,)}
    for b in range(v.num_hidden_layers):
        p = f"vision.blocks.{b}"
        shapes |= {f"{p}.norm1.weight": (h,), f"{p}.norm2.weight": (h,)}
        shapes |= {f"{p}.attn.wqkv.weight": (3 * h, h), f"{p}.attn.wqkv.bias": (3 * h,)}
        shapes |= {f"{p}.attn.wo.weight": (h, h), f"{p}.attn.wo.bias": (h,)}
        shapes |= {f"{p}.mlp.w1.weight": (2 * inter, h), f"{p}.mlp.w2.weight": (h, inter)}
    shapes |= {"vision.norm.weight": (h,)}
    shapes |= {"aligner.w1.weight": (d, h * ds * ds), "aligner.w1.bias": (d,)}
    shapes |= {"aligner.w2.weight": (d, d), "aligner.w2.bias": (d,)}
    for name, shape in shapes.items():
        yield TensorSpec(name, "BF16", shape, "vision")
