"""One transformer layer: the two sub-layers inside their hyper-connections."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .. import ops
from ..ops.fused import NormQuant
from .attention import Attention
from .config import TextConfig
from .moe import MoE
from .step import Step


@dataclass(frozen=True)
class HyperWeights:
    """Hyper-connection parameters of one sub-layer and the norm in front of its function.

    fn: fp32 [(2+m) m, m D]; base: fp32 [(2+m) m]; scale: fp32 [3]; norm: bf16 [D].
    """

    fn: torch.Tensor
    base: torch.Tensor
    scale: torch.Tensor
    norm: torch.Tensor


class HyperConnection:
    """Collapse before, and mixing after, one sub-layer (the shifted variant: collapse uses the previous pre-mix)."""

    def __init__(self, weights: HyperWeights, text: TextConfig) -> None:
        self.weights = weights
        self.text = text

    def enter(self, streams: torch.Tensor, pending: torch.Tensor) -> NormQuant:
        """Normed input of the sub-layer bf16 [T, D], with its codes: streams bf16 [T, m, D], pending fp32 [T, m]."""
        return ops.hc_collapse_norm(streams, pending, self.weights.norm, self.text.rms_norm_eps)

    def leave(self, streams: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """New streams bf16 [T, m, D] and the pre-mix fp32 [T, m] pending for the next sub-layer."""
        weights, text = self.weights, self.text
        pre, post, comb = ops.hc_coefficients(
            streams, weights.fn, weights.base, weights.scale, text.rms_norm_eps, text.hc_eps, text.hc_sinkhorn_iters
        )
        return ops.hc_expand(streams, y, post, comb), pre


@dataclass(frozen=True)
class Layer:
    """Attention and MoE sub-layer of one backbone or draft layer."""

    attention_mix: HyperConnection
    attention: Attention
    moe_mix: HyperConnection
    moe: MoE

    def __call__(self, streams: torch.Tensor, pending: torch.Tensor, step: Step) -> tuple[torch.Tensor, torch.Tensor]:
        """Run both sub-layers; shapes as in `HyperConnection`."""
        y = self.attention(self.attention_mix.enter(streams, pending), step)
        streams, pending = self.attention_mix.leave(streams, y)
        y = self.moe(self.moe_mix.enter(streams, pending), step.batch.image)
        return self.moe_mix.leave(streams, y)
