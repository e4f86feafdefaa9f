"""From a checkpoint to a model's weights: tensors where the ops want them, packed as they were stored.

Every tensor is read once, straight into the buffer that is kept: experts of a layer lie in one tensor, the gate and up
branches behind one another, so nothing is copied together afterwards. `ops.*_prepare` then hands the buffers to the
kernels that will read them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy.typing as npt
import torch

from .. import ops
from ..ops.spec import WeightHandle
from .attention import Attention, AttentionWeights, CompressorWeights, IndexerWeights, IndexKeyWeights
from .checkpoint import torch_dtype
from .config import ModelConfig
from .draft import DraftAttention, DraftWeights
from .engram import Engram, EngramWeights
from .engram_tables import EngramTable
from .layer import HyperConnection, HyperWeights, Layer
from .moe import MoE, MoEWeights
from .names import TensorSpec
from .rope_table import plain_frequencies, rope_table
from .shard_plan import ShardPlan
from .topology import LayerRole
from .vision.spans import MARKS
from .vision.tower import BlockWeights, LinearWeights, VisionTower, VisionWeights, most_patches

Progress = Callable[[int], None]


class Source(Protocol):
    """Where tensors come from: a checkpoint, or a generator of dummy values."""

    def read_into(self, name: str, out: torch.Tensor, rows: tuple[int, int] | None = None) -> None:
        """Fill `out`, in the loader's staging memory, with the tensor's values, or with a range of its rows."""

    def map(self, name: str, rows: tuple[int, int] | None = None) -> torch.Tensor:
        """The tensor, or a range of its rows, without reading it into memory."""


class Loader:
    """Builds the parts of a model from a source. Several threads may ask for parts at a time.

    Args:
        source: the tensors.
        config: the model.
        plan: what this rank reads.
        inventory: all tensors of the model.
        device: where the weights go.
        progress: called with the bytes of each tensor read.
        staging: where the source puts tensors: host memory, or the device itself.
    """

    def __init__(
        self,
        source: Source,
        config: ModelConfig,
        plan: ShardPlan,
        inventory: Mapping[str, TensorSpec],
        device: torch.device,
        progress: Progress | None = None,
        staging: torch.device | None = None,
    ) -> None:
        self.staging = torch.device("cpu") if staging is None else staging
        self.source = source
        self.config = config
        self.plan = plan
        self.parts = {part.spec.name: part for part in plan.parts(inventory)}
        self.device = device
        self.progress = progress
        self._lock = threading.Lock()
        self.device_bytes = 0
        self.mapped_bytes = 0

    # ---- reading ------------------------------------------------------------------------------------------------

    def _read(self, jobs: list[tuple[str, torch.Tensor]]) -> None:
        for name, out in jobs:
            self.source.read_into(name, out, self.parts[name].rows)
        nbytes = sum(_nbytes(out) for _, out in jobs)
        with self._lock:
            self.device_bytes += nbytes
            if self.progress is not None:
                self.progress(nbytes)

    def tensor(self, name: str) -> torch.Tensor:
        """One tensor, on the device."""
        spec = self.parts[name].spec
        out = torch.empty(spec.shape, dtype=torch_dtype(spec.dtype), device=self.staging)
        self._read([(name, out)])
        return out.to(self.device)

    def _mapped(self, name: str) -> torch.Tensor:
        mapped = self.source.map(name, self.parts[name].rows)
        self.mapped_bytes += _nbytes(mapped)
        return mapped

    def joined(self, names: list[str]) -> torch.Tensor:
        """Tensors behind one another along their first dim, on the device."""
        specs = [self.parts[name].spec for name in names]
        shape = (sum(s.shape[0] for s in specs), *specs[0].shape[1:])
        out = torch.empty(shape, dtype=torch_dtype(specs[0].dtype), device=self.staging)
        self._read(list(zip(names, out.split([s.shape[0] for s in specs]), strict=True)))
        return out.to(self.device)

    def stacked(self, groups: list[list[str]]) -> torch.Tensor:
        """Joined tensors of each group, stacked in a new first dim, on the device."""
        specs = [self.parts[name].spec for name in groups[0]] if groups else []
        sizes = [s.shape[0] for s in specs]
        shape = (len(groups), sum(sizes), *specs[0].shape[1:])
        out = torch.empty(shape, dtype=torch_dtype(specs[0].dtype), device=self.staging)
        jobs = [
            job for names, part in zip(groups, out, strict=True) for job in zip(names, part.split(sizes), strict=True)
        ]
        self._read(jobs)
        return out.to(self.device)

    def _keep(self, handle: WeightHandle, *read: torch.Tensor) -> WeightHandle:
        """Count what a backend's own layout takes more or less than the tensors it was made from."""
        with self._lock:
            self.device_bytes += handle.nbytes - sum(_nbytes(t) for t in read)
        return handle

    def fp8(self, *prefixes: str) -> WeightHandle:
        """FP8 weights of one linear, joined along their outputs."""
        weight, scale = (self.joined([f"{p}.{kind}" for p in prefixes]) for kind in ("weight", "scale"))
        return self._keep(ops.linear_fp8_prepare(weight, scale), weight, scale)

    def bf16(self, prefix: str) -> WeightHandle:
        """A bf16 linear."""
        weight = self.tensor(f"{prefix}.weight")
        return self._keep(ops.linear_bf16_prepare(weight), weight)

    def router(self, prefix: str) -> WeightHandle:
        """The linear that routes to experts."""
        weight = self.tensor(f"{prefix}.weight")
        return self._keep(ops.moe_route_prepare(weight), weight)

    def grouped_output(self, prefix: str) -> WeightHandle:
        """The output projection by groups of heads: [G * N, K] seen as [G, N, K]."""
        shape = (self.config.text.o_groups, -1)
        weight, scale = (self.tensor(f"{prefix}.{kind}").unflatten(0, shape) for kind in ("weight", "scale"))
        return self._keep(ops.linear_fp8_grouped_prepare(weight, scale), weight, scale)

    def fp4_experts(self, prefix: str, experts: range, parts: tuple[str, ...]) -> WeightHandle:
        """Routed experts' FP4 weights: one [E, N, K/2] tensor with its scales."""
        weight, scale = (
            self.stacked([[f"{prefix}.experts.{e}.{part}.{kind}" for part in parts] for e in experts])
            for kind in ("weight", "scale")
        )
        return self._keep(ops.grouped_linear_prepare(weight, scale), weight, scale)

    # ---- parts of a model ---------------------------------------------------------------------------------------

    def layer(self, role: LayerRole, record: str, rotary: torch.Tensor) -> Layer:
        """One backbone or draft layer."""
        text = self.config.text
        draft = role.half == "draft"
        experts = text.dspark_n_routed_experts if draft else text.n_routed_experts
        moe = MoE(
            self._moe(f"{role.prefix}.ffn", self.plan.experts(experts)),
            experts_per_token=text.dspark_num_experts_per_tok if draft else text.num_experts_per_tok,
            scaling=text.routed_scaling_factor,
            limit=text.swiglu_limit,
        )
        attention = (DraftAttention if draft else Attention)(role, text, record, self._attention(role), rotary)
        return Layer(self._mix(role.prefix, "attn"), attention, self._mix(role.prefix, "ffn"), moe)

    def draft_head(self) -> DraftWeights:
        """What the draft layers share: the projection of the taps, the bigram correction, the confidence head."""
        last = f"mtp.{len(self.config.topology.drafts) - 1}"
        weight = self.tensor(f"{last}.markov_head.head.weight")
        return DraftWeights(
            main_proj=self.fp8("mtp.0.main_proj"),
            main_norm=self.tensor("mtp.0.main_norm.weight"),
            norm=self.tensor(f"{last}.norm.weight"),
            bigram=self.tensor(f"{last}.markov_head.embed.weight"),
            bigram_head=self._keep(ops.draft_logits_prepare(weight), weight),
            confidence=self.tensor(f"{last}.confidence_head.proj.weight").squeeze(0),
        )

    def _mix(self, prefix: str, part: str) -> HyperConnection:
        fn, base, scale = (self.tensor(f"{prefix}.hc_{part}_{kind}") for kind in ("fn", "base", "scale"))
        return HyperConnection(
            HyperWeights(fn, base, scale, self.tensor(f"{prefix}.{part}_norm.weight")), self.config.text
        )

    def _attention(self, role: LayerRole) -> AttentionWeights:
        p = f"{role.prefix}.attn"
        return AttentionWeights(
            wq_a=self.fp8(f"{p}.wq_a"),
            q_norm=self.tensor(f"{p}.q_norm.weight"),
            wq_b=self.fp8(f"{p}.wq_b"),
            wkv=self.fp8(f"{p}.wkv"),
            kv_norm=self.tensor(f"{p}.kv_norm.weight"),
            wo_a=self.grouped_output(f"{p}.wo_a"),
            wo_b=self.fp8(f"{p}.wo_b"),
            sink=self.tensor(f"{p}.attn_sink"),
            compressor=self._compressor(f"{p}.compressor", role.ratio) if role.owns_kv else None,
            index_key=self._index_key(f"{p}.indexer") if role.owns_index_k else None,
            indexer=self._indexer(f"{p}.indexer") if role.runs_indexer else None,
        )

    def _compressor(self, prefix: str, ratio: int) -> CompressorWeights:
        gate = self.bf16(f"{prefix}.wgate") if ratio == 2 else None
        return CompressorWeights(self.bf16(f"{prefix}.wkv"), gate, self.tensor(f"{prefix}.norm.weight"))

    def _index_key(self, prefix: str) -> IndexKeyWeights:
        return IndexKeyWeights(self.bf16(f"{prefix}.wk"), self.tensor(f"{prefix}.k_norm.weight"))

    def _indexer(self, prefix: str) -> IndexerWeights:
        return IndexerWeights(self.fp8(f"{prefix}.wq_b"), self.bf16(f"{prefix}.weights_proj"))

    def _moe(self, prefix: str, experts: range) -> MoEWeights:
        shared = f"{prefix}.shared_experts"
        return MoEWeights(
            gate=self.router(f"{prefix}.gate"),
            bias=self.tensor(f"{prefix}.gate.bias"),
            bias_vl=self.tensor(f"{prefix}.gate.bias_vl"),
            w13=self.fp4_experts(prefix, experts, ("w1", "w3")),
            w2=self.fp4_experts(prefix, experts, ("w2",)),
            shared_w13=self.fp8(f"{shared}.w1", f"{shared}.w3"),
            shared_w2=self.fp8(f"{shared}.w2"),
            first_expert=experts.start,
            local_experts=len(experts),
        )

    def put(self, array: npt.NDArray[Any], *, on_host: bool = False) -> torch.Tensor:
        """A table computed here rather than read, on the device or in host memory; counted where it lies."""
        tensor = torch.from_numpy(array).to("cpu" if on_host else self.device)
        if tensor.device.type == self.device.type:
            self.device_bytes += _nbytes(tensor)
        return tensor

    def engram(self, role: LayerRole, table: EngramTable, lookup: torch.Tensor, pad: int, *, on_host: bool) -> Engram:
        """One Engram layer.

        Args:
            lookup: int32 [V], compressed ids; one tensor for all layers, where the table is.
            pad: compressed id that stands for a missing token.
            on_host: leave the table mapped from the checkpoint; it is never read whole.
        """
        p = f"{role.prefix}.engram"
        names = (f"{p}.embed.weight", f"{p}.embed.scale")
        rows, scales = (self._mapped(name) if on_host else self.tensor(name) for name in names)
        hashes = (self.put(part, on_host=on_host) for part in (table.multipliers, table.primes, table.offsets))
        multipliers, primes, offsets = hashes
        weights = EngramWeights(
            table=rows,
            table_scale=scales,
            lookup=lookup,
            multipliers=multipliers,
            primes=primes,
            offsets=offsets,
            pad=pad,
            wkv=self.fp8(f"{p}.wkv"),
            q_weight=self.tensor(f"{p}.q_weight"),
            k_weight=self.tensor(f"{p}.k_weight"),
        )
        return Engram(weights, self.device, self.config.text.rms_norm_eps)

    def vision(self) -> VisionTower:
        """The image tower, the projector, and the learned vectors of separators."""
        config = self.config.vision
        blocks = [
            BlockWeights(
                norm1=self.tensor(f"{p}.norm1.weight"),
                wqkv=self._vision_linear(f"{p}.attn.wqkv"),
                wo=self._vision_linear(f"{p}.attn.wo"),
                norm2=self.tensor(f"{p}.norm2.weight"),
                w1=self._vision_linear(f"{p}.mlp.w1", bias=False),
                w2=self._vision_linear(f"{p}.mlp.w2", bias=False),
            )
            for p in (f"vision.blocks.{b}" for b in range(config.num_hidden_layers))
        ]
        half = config.hidden_size // config.num_attention_heads // 2
        table = rope_table(plain_frequencies(half, config.rope_theta), most_patches(config))
        weights = VisionWeights(
            patch_embed=self._vision_linear("vision.patch_embed.proj"),
            blocks=blocks,
            norm=self.tensor("vision.norm.weight"),
            project1=self._vision_linear("aligner.w1"),
            project2=self._vision_linear("aligner.w2"),
            marks=torch.stack([self.tensor(f"image_{mark}") for mark in MARKS]),
            table=self.put(table),
        )
        return VisionTower(config, weights, self.device)

    def _vision_linear(self, prefix: str, *, bias: bool = True) -> LinearWeights:
        weight = self.tensor(f"{prefix}.weight")
        handle = self._keep(ops.vision_linear_prepare(weight), weight)
        return LinearWeights(handle, self.tensor(f"{prefix}.bias") if bias else None)


def _nbytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()
