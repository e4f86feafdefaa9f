"""Feed-forward sub-layer: router, routed FP4 experts, shared FP8 expert."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .. import ops
from ..ops.fused import NormQuant
from ..ops.spec import WeightHandle


@dataclass(frozen=True)
class MoEWeights:
    """Weights of one MoE sub-layer; `w13` and `shared_w13` hold the gate branch, then the up branch.

    The routed experts are `first_expert` and those after it: all of them, or one rank's part.
    """

    gate: WeightHandle
    bias: torch.Tensor
    bias_vl: torch.Tensor
    w13: WeightHandle
    w2: WeightHandle
    shared_w13: WeightHandle
    shared_w2: WeightHandle
    first_expert: int
    local_experts: int


class MoE:
    """Mixture of experts with one shared expert."""

    def __init__(self, weights: MoEWeights, *, experts_per_token: int, scaling: float, limit: float) -> None:
        self.weights = weights
        self.experts_per_token = experts_per_token
        self.scaling = scaling
        self.limit = limit

    def __call__(self, x: NormQuant, image: torch.Tensor) -> torch.Tensor:
        """Feed-forward of every row.

        Args:
            x: bf16 [T, D], the normed input, and its codes.
            image: bool [T], rows routed with the image bias.

        Returns:
            bf16 [T, D].
        """
        weights, limit = self.weights, self.limit
        route, experts, _ = ops.moe_route(
            x.y, weights.gate, weights.bias, weights.bias_vl, image, self.experts_per_token, self.scaling
        )
        x8 = x.q, x.scale
        source, packed_route, offsets, position = ops.moe_pack(
            experts, route, weights.first_expert, weights.local_experts
        )
        hidden = ops.swiglu_quant(ops.grouped_linear(*x8, weights.w13, source, offsets), packed_route, limit)
        routed = ops.grouped_linear(*hidden, weights.w2, None, offsets)
        shared_hidden = ops.swiglu_quant(ops.linear_fp8(*x8, weights.shared_w13), None, limit)
        return ops.moe_combine(routed, position, ops.linear_fp8(*shared_hidden, weights.shared_w2))
