"""Pooling, visibility and index scores against transformers' DeepSeek-V4.

V4's non-overlapping compressor with a rate of 2 and without position bias is V4.1's compressor of ratio 2.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bounds import U32, UBF16, assert_within, share
from cache_world import CPU
from deepinfer import ops
from deepinfer.backends.reference.formats import dequantize_fp4_pow2
from deepinfer.ops import cache_steps
from deepinfer.ops.layouts import FP4_32_INDEX

pytestmark = pytest.mark.crosscheck

D, T = 64, 37  # an odd length leaves an open group


class Slice(nn.Module):
    """Takes the place of a projection: a slice of what comes in."""

    def __init__(self, first: int) -> None:
        super().__init__()
        self.first = first

    def forward(self, x: Tensor) -> Tensor:
        return x[..., self.first : self.first + D]


def compressor(v4: ModuleType, make_config: Callable[..., Any]) -> Any:
    rates = {"compressed_sparse_attention": 4, "heavily_compressed_attention": 2}
    config = make_config(head_dim=D, qk_rope_head_dim=32, compress_rates=rates)
    module = v4.DeepseekV4HCACompressor(config).double()
    module.kv_proj, module.gate_proj = Slice(0), Slice(D)
    module.position_bias.zero_()
    return module


def inputs() -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(1)
    return torch.randn(T, D, generator=draw), torch.randn(T, D, generator=draw) * 4


def pooled(value: Tensor, gate: Tensor) -> Tensor:
    step = cache_steps.make_step(np.random.default_rng(0), CPU, [(0, T)])
    ring = torch.full((step.slots, 2, 2, D), torch.nan)
    args = (step.positions, step.row_seq, step.seq_start, step.state_slot)
    return ops.compress_pool(value, gate, ring, *args)[1::2]


def test_pooling_of_ratio_2(v4: ModuleType, make_config: Callable[..., Any]) -> None:
    value, gate = inputs()
    module = compressor(v4, make_config)
    seen: list[Tensor] = []
    module.kv_norm.register_forward_pre_hook(lambda _, args: seen.append(args[0][0]))
    positions = torch.arange(T)[None]
    entries, bias = module(torch.cat((value, gate), dim=1).double()[None], None, positions, None, 0)
    want = seen[0]
    # Their softmax is evaluated in fp32 whatever comes in: difference from the maximum (a rounding of it, up to the
    # span), exponential 2, sum, quotient. Ours the same, two products, a sum, and one bf16 rounding.
    pair, gates = value[: T - 1].view(-1, 2, D).double(), gate[: T - 1].view(-1, 2, D).double()
    magnitude = (gates.softmax(1) * pair.abs()).sum(1)
    span = (gates[:, 0] - gates[:, 1]).abs()
    limit = UBF16 * want.abs() + (2 * 2 * (span + 4) + 2) * U32 * magnitude
    assert_within("pooled", pooled(value, gate), want, limit)
    assert share(pooled(value, gate.flip(0)), want, limit) > 100

    # The rest of the way: norm, then rotation at the position of the group's first token.
    table = torch.stack(module.rotary_emb(torch.zeros(1), positions, layer_type="compress"), dim=-1)[0]
    latent = ops.rms_norm(pooled(value, gate), torch.ones(D).bfloat16(), 1e-20)
    first = torch.arange(0, T - 1, 2, dtype=torch.int32)
    got = ops.rope(latent[:, None], first, table, False)[:, 0]
    # bf16 roundings: the pooled value moves an element and the root mean square (2), the norm (1), each by at most
    # one; the rotation mixes two channels of that and rounds once more. 1.01 covers fp32 and second-order terms.
    root = want.square().mean(-1, keepdim=True).sqrt()
    before = want.abs() / root
    pairs = before[:, 32:].view(-1, 16, 2).norm(dim=-1).repeat_interleave(2, -1)
    reach = torch.cat((before[:, :32], pairs * 2**0.5), dim=1)
    noise = (2 * 2 * (span + 4) + 2) * U32 * magnitude / root
    assert_within("entries", got, entries[0, 0], 1.01 * 4 * UBF16 * reach + 4 * noise.amax(-1, keepdim=True))
    late = ops.rope(latent[:, None], first + 1, table, False)[:, 0]
    assert share(late, entries[0, 0], 1.01 * 4 * UBF16 * reach + 4 * noise.amax(-1, keepdim=True)) > 10

    # A row at position p sees the entries below (p + 1) // 2.
    step = cache_steps.make_step(np.random.default_rng(0), CPU, [(0, T)])
    assert step.visible(2).tolist() == (bias[0, 0] == 0).sum(-1).tolist()


def test_index_scores(v4: ModuleType, make_config: Callable[..., Any]) -> None:
    """Difference: V4's scores carry the factors d^-1/2 and H^-1/2, here left out as a power of two; ours are bf16."""
    heads, di, ratio = 16, 64, 1
    rng = np.random.default_rng(2)
    step = cache_steps.make_step(rng, CPU, [(0, T)])
    query = torch.from_numpy(cache_steps.records(rng, FP4_32_INDEX, (T, heads), di))
    keys = torch.from_numpy(cache_steps.records(rng, FP4_32_INDEX, (T,), di))
    weight = cache_steps.normal(rng, CPU, T, heads)
    pages = torch.full((step.pages, FP4_32_INDEX.page_bytes(di, ratio)), 0xFF, dtype=torch.uint8)
    page = pages[int(step.block_table[0, 0])]
    page[: T * di // 2] = keys[:, : di // 2].flatten()
    scales = FP4_32_INDEX.scale_offset(0, di, ratio)
    page[scales : scales + T * di // 32] = keys[:, di // 2 :].flatten()

    scorer = v4.DeepseekV4IndexerScorer(make_config(index_n_heads=heads, index_head_dim=di))
    scorer.weights_proj = nn.Identity()
    q, k = (dequantize_fp4_pow2(r[..., : di // 2], r[..., di // 2 :]).double() for r in (query, keys))
    factor = di**-0.5 * heads**-0.5
    assert factor == 2.0**-5
    want = scorer(q[None], k[None], weight[None].float())[0].double() / factor
    visible = step.visible(ratio)
    got = ops.index_score(query, weight, pages, visible, step.row_seq, step.block_table, ratio, T)
    # Their scorer runs in fp32 as ours does: the dot (exact products, di sums), a product and H sums on both sides.
    magnitude = torch.einsum("thd,nd,th->tn", q.abs(), k.abs(), weight.double().abs())
    limit = UBF16 * want.abs() + 2 * (di + heads + 4) * U32 * magnitude
    lanes = torch.arange(T) < visible[:, None]
    assert_within("index scores", got[lanes], want[lanes], limit[lanes])
