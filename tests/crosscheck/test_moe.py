"""Routing and the clamped SwiGLU against transformers' DeepSeek-V4, in float64."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from bounds import U32, UE4M3, assert_within, share
from deepinfer import ops
from deepinfer.backends.reference.formats import dequantize_fp8

pytestmark = pytest.mark.crosscheck

EXPERTS, TOP, SCALING = 48, 6, 1.5


def router(v4: ModuleType, make_config: Callable[..., Any], bias: Tensor, dtype: torch.dtype = torch.float64) -> Any:
    """Their router with the identity as weight, so that hidden states are logits."""
    gate = v4.DeepseekV4TopKRouter(
        make_config(hidden_size=EXPERTS, n_routed_experts=EXPERTS, num_experts_per_tok=TOP)
    ).to(dtype)
    gate.weight.copy_(torch.eye(EXPERTS))
    gate.e_score_correction_bias.copy_(bias)
    assert gate.routed_scaling_factor == SCALING
    return gate


def by_expert(weights: Tensor, experts: Tensor) -> Tensor:
    """[T, EXPERTS], zero where an expert is not chosen: the order of the slots does not matter."""
    dense = torch.zeros(weights.shape[0], EXPERTS, dtype=torch.float64)
    return dense.scatter_(1, experts.long(), weights.double())


def logits(seed: int, rows: int = 64) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, EXPERTS, generator=draw) * torch.logspace(-1, 1.5, rows)[:, None]
    x[:, :4] += 22.0  # beyond the point where softplus turns linear
    x[:, 4:8] -= 15.0  # where it is an exponential
    return x


@pytest.mark.parametrize("image", [False, True])
def test_gate(v4: ModuleType, make_config: Callable[..., Any], image: bool) -> None:
    """V4 has one bias; V4.1 has a second one, for rows of images, which acts in the same place."""
    x = logits(1)
    draw = torch.Generator().manual_seed(2)
    bias, bias_vl = torch.randn(2, EXPERTS, generator=draw)
    gate = router(v4, make_config, bias_vl if image else bias)
    _, weights, experts = gate(x.double())
    # Score: exponential and log1p (2 each), root (half of them, and one): 3. Key: one more, of both its terms.
    score = gate.score_fn(x.double())
    key = score + gate.e_score_correction_bias
    error = 4 * U32 * (score + gate.e_score_correction_bias.abs())
    ranked = key.sort(1, descending=True)
    gap = ranked.values[:, TOP - 1] - ranked.values[:, TOP]
    assert (gap > 2 * error.amax(1)).all(), "a row of this seed lets rounding decide; choose another"
    got_weights, got_experts = ops.moe_gate(x, bias, bias_vl, torch.full((len(x),), image), TOP, SCALING)
    assert got_experts.sort(1).values.equal(experts.sort(1).values.int())
    # Weight: score 3, sum 3 and TOP, quotient and product 2.
    want = by_expert(weights, experts)
    limit = want * (8 + TOP) * U32
    assert_within("gate weights", by_expert(got_weights, got_experts), want, limit)
    # Weights are made of scores without the bias.
    biased = key.gather(1, got_experts.long())
    biased = biased / biased.sum(1, keepdim=True) * SCALING
    assert share(by_expert(biased, got_experts), want, limit) > 1
    # Ours come in descending order of the key, theirs in none.
    ordered = key.gather(1, got_experts.long())
    assert (ordered[:, 1:] <= ordered[:, :-1] + 2 * error.amax(1, keepdim=True)).all()


def test_scores_that_vanish(v4: ModuleType, make_config: Callable[..., Any]) -> None:
    """All scores zero in fp32: the floor of 1e-20 makes the weights 0 on both sides, not NaN."""
    x = torch.full((1, EXPERTS), -200.0)
    zero = torch.zeros(EXPERTS)
    _, theirs, _ = router(v4, make_config, zero, torch.float32)(x)
    ours, _ = ops.moe_gate(x, zero, zero, torch.zeros(1, dtype=torch.bool), TOP, SCALING)
    assert not theirs.any() and not ours.any()


def test_ties_go_to_the_lower_expert_here(v4: ModuleType, make_config: Callable[..., Any]) -> None:
    """Difference: equal keys. Ours chooses the lower id, theirs whatever the library's top-k gives; weights agree."""
    x = torch.full((3, EXPERTS), 0.5)
    zero = torch.zeros(EXPERTS)
    _, weights, experts = router(v4, make_config, zero)(x.double())
    got_weights, got_experts = ops.moe_gate(x, zero, zero, torch.zeros(3, dtype=torch.bool), TOP, SCALING)
    assert got_experts.tolist() == [list(range(TOP))] * 3
    assert all(len(set(row)) == TOP for row in experts.tolist())
    assert_within("weights of ties", got_weights, weights, weights * (8 + TOP) * U32)
    print(f"their choice among equals: {experts[0].tolist()}")


def swiglu_inputs() -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(3)
    gate_up = (torch.randn(40, 128, generator=draw) * 6).bfloat16()
    gate_up[0, :4] = torch.tensor([9.9375, 10.0, 10.0625, -30.0])
    gate_up[0, 64:68] = torch.tensor([-9.9375, -10.0, -10.0625, 30.0])
    assert (gate_up > 10).any() and (gate_up < -10).any()
    return gate_up, torch.rand(40, generator=draw) + 0.1


def quantised_limit(exact: Tensor, scale: Tensor) -> Tensor:
    """One E4M3 rounding (half a step of 2^-9 among subnormals), the sigmoid's 4 roundings and 3 products before it.

    What those 7 move an activation by can carry it over a border between codes, so both parts add.
    """
    step = torch.exp2(scale.double() - 127).repeat_interleave(32, dim=1)
    return torch.maximum(UE4M3 * exact.abs(), 2.0**-10 * step) * (1 + 2.0**-10) + 8 * U32 * exact.abs()


@pytest.mark.parametrize("weighted", [False, True])
def test_swiglu(v4: ModuleType, make_config: Callable[..., Any], weighted: bool) -> None:
    """Difference: V4 there weighs the expert's output, ours the activation in front of the down projection, then Q8."""
    gate_up, weight = swiglu_inputs()
    config = make_config(swiglu_limit=10.0)
    exact = v4.DeepseekV4Experts(config)._apply_gate(gate_up.double())
    if weighted:
        exact = exact * weight.double()[:, None]
    q, scale = ops.swiglu_quant(gate_up, weight if weighted else None, 10.0)
    limit = quantised_limit(exact, scale)
    assert_within("swiglu", dequantize_fp8(q, scale), exact, limit)
    for wrong in (9.0, 30.0):
        q, scale = ops.swiglu_quant(gate_up, weight if weighted else None, wrong)
        assert share(dequantize_fp8(q, scale), exact, limit) > 1


def test_the_gate_is_clamped_from_above_only(v4: ModuleType, make_config: Callable[..., Any]) -> None:
    gate_up = torch.zeros(1, 64).bfloat16()
    gate_up[0, :4] = torch.tensor([-12.0, -10.0, 12.0, 10.0])
    gate_up[0, 32:36] = torch.tensor([1.0, 1.0, -12.0, 12.0])
    exact = v4.DeepseekV4Experts(make_config())._apply_gate(gate_up.double())
    q, scale = ops.swiglu_quant(gate_up, None, 10.0)
    # The amax of the group is 100, so -12*sigmoid(-12) = -7e-5 lies below half the smallest code: widen by the scale.
    assert_within("clamps", dequantize_fp8(q, scale), exact, quantised_limit(exact, scale))
    assert exact[0, 0] != exact[0, 1]
    alone = gate_up.clone()
    alone[0, 2:4] = 0.0
    q, scale = ops.swiglu_quant(alone, None, 10.0)
    got = dequantize_fp8(q, scale)[0]
    assert got[0] != got[1], "a gate of -12 was clamped"
    want = v4.DeepseekV4Experts(make_config())._apply_gate(alone.double())
    assert_within("small activations", got[None], want, quantised_limit(want, scale))


def test_where_the_weight_goes_is_the_same_in_real_numbers(v4: ModuleType, make_config: Callable[..., Any]) -> None:
    """Their whole expert layer in float64 equals activations weighed before the down projection."""
    draw = torch.Generator().manual_seed(4)
    config = make_config(hidden_size=24, n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=32)
    experts = v4.DeepseekV4Experts(config).double()
    experts.gate_up_proj.copy_(torch.randn(experts.gate_up_proj.shape, generator=draw))
    experts.down_proj.copy_(torch.randn(experts.down_proj.shape, generator=draw))
    x = torch.randn(9, 24, generator=draw).double()
    bias = torch.zeros(4)
    router_logits = torch.randn(9, 4, generator=draw)
    weights, chosen = ops.moe_gate(router_logits, bias, bias, torch.zeros(9, dtype=torch.bool), 2, SCALING)
    want = experts(x, chosen.long(), weights.double())
    rows, packed, offsets, position = ops.moe_pack(chosen, weights, 0, 4)
    y = torch.zeros(18, 24, dtype=torch.float64)
    for e in range(4):
        part = slice(int(offsets[e]), int(offsets[e + 1]))
        act = experts._apply_gate(x[rows[part].long()] @ experts.gate_up_proj[e].T)
        y[part] = (packed[part].double()[:, None] * act) @ experts.down_proj[e].T
    torch.testing.assert_close(y[position.long()].sum(1), want, rtol=1e-12, atol=1e-12)
