"""Attention with sinks, and the grouped output projection, against transformers' DeepSeek-V4 in float64.

Keys are gathered for it from the same records: window keys first, compressed entries after them, a key that stands in
both sections twice. An additive mask says which of them a row has.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from bounds import U32, UBF16, assert_within, share
from cache_world import Stage, Story
from deepinfer import ops
from deepinfer.backends.reference.attention import dequantize_records
from deepinfer.backends.reference.formats import dequantize_fp8

pytestmark = pytest.mark.crosscheck

WINDOW = 16


class Case:
    """A sequence's rows [start, end), their keys in float64, and who sees which."""

    def __init__(self, seed: int, ratio: int, start: int = 0, length: int = 50, k: int = 12) -> None:
        self.story = story = Story(seed, length, ratio=ratio, k=k)
        self.stage = Stage([(story, start, length)])
        self.q = story.q[start:length].double()
        window = dequantize_records(torch.from_numpy(story.window), "fp8_32", story.d)
        entries = dequantize_records(torch.from_numpy(story.entries), story.record, story.d)
        self.keys = torch.cat((window, entries)).double()
        position = torch.arange(start, length)[:, None]
        key = torch.arange(length)
        seen = (key <= position) & (key > position - WINDOW)
        chosen = torch.zeros(length - start, length // ratio + 1, dtype=torch.bool)
        indices = torch.as_tensor(story.indices)[start:length].long()
        chosen.scatter_(1, torch.where(indices < 0, length // ratio, indices), True)
        visible = torch.arange(length // ratio) < (position + 1) // ratio
        assert not (chosen[:, :-1] & ~visible).any()
        self.present = torch.cat((seen, chosen[:, :-1]), dim=1)
        self.scale = story.d**-0.5

    def ours(self, sink: Tensor) -> Tensor:
        return self.stage.attention(WINDOW, sink=sink)

    def theirs(self, v4: ModuleType, sink: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
        heads = self.q.shape[1]
        mask = torch.zeros(self.present.shape, dtype=dtype).masked_fill_(~self.present, -torch.inf)
        holder = SimpleNamespace(num_key_value_groups=heads, sinks=sink if dtype != torch.float64 else sink.double())
        holder.training = False
        keys = self.keys.to(dtype)[None, None]
        q = self.q.to(dtype).transpose(0, 1)[None]
        output: Tensor = v4.eager_attention_forward(holder, q, keys, keys, mask[None, None], scaling=self.scale)[0]
        return output[0]

    def limit(self, sink: Tensor, want: Tensor) -> Tensor:
        """Errors of ours around the exact result.

        A score is a dot of d terms, scaled: d + 1 roundings of its magnitude; the difference from the maximum one more.
        P takes the exponential's 2 roundings, then one to bf16, which only the numerator sees. Sums of n terms: n
        roundings each. The quotient and the output: one fp32 and one bf16 rounding.
        """
        n, d = self.present.shape[1], self.q.shape[2]
        mask = torch.where(self.present, 0.0, -torch.inf)[:, None]
        score = torch.einsum("thd,nd->thn", self.q, self.keys) * self.scale + mask
        size = torch.einsum("thd,nd->thn", self.q.abs(), self.keys.abs()) * self.scale
        size = torch.where(self.present[:, None], size, 0.0).amax(-1, keepdim=True)
        joined = torch.cat((score, sink.double()[None, :, None].expand(*score.shape[:2], 1)), dim=-1)
        share_of = joined.softmax(-1)[..., :-1]
        magnitude = share_of @ self.keys.abs()
        # Scores move numerator and denominator: twice. The maximum moves by the same, and cancels, but for the sink.
        exponent = 3 * (d + 3) * U32 * size
        return UBF16 * want.abs() + magnitude * (UBF16 + exponent + (2 * n + 8) * U32) * (1 + UBF16)


SINKS = {"ordinary": [-1.0, 0.0, 0.5, 2.0], "none": [-1e30] * 4, "above": [6.0, 12.0, 25.0, 60.0]}


@pytest.mark.parametrize("sinks", SINKS)
@pytest.mark.parametrize(("ratio", "start"), [(1, 0), (2, 0), (2, 33)])
def test_attention_with_sinks(v4: ModuleType, ratio: int, start: int, sinks: str) -> None:
    case, sink = Case(ratio, ratio, start), torch.tensor(SINKS[sinks])
    want = case.theirs(v4, sink)
    limit = case.limit(sink, want)
    got = case.ours(sink)
    assert_within(f"attention, sinks {sinks}", got, want, limit)
    if sinks == "ordinary":  # the limit tells a sink from none, and its sign
        assert share(case.ours(torch.full((4,), -torch.inf)), want, limit) > 1
        assert share(case.ours(-sink), want, limit) > 1


def test_the_maximum_with_and_without_the_sink(v4: ModuleType) -> None:
    """Difference: there the sink takes part in the maximum, here it joins the denominator last. One value, two ways.

    With a sink 88.7 above the scores exp(sink - M) leaves fp32, and the result is 0; the exact one is below e^-88 of a
    value. Theirs in fp32 loses P to underflow at about 104.
    """
    case = Case(5, 1)
    far = torch.tensor([80.0, 95.0, 120.0, 1e4])
    got, exact = case.ours(far), case.theirs(v4, far)
    assert got.isfinite().all()
    largest = case.keys.abs().max().item()
    assert (got.double() - exact).abs().max() < 2.0**-110 * largest  # e^-80 is 2^-115
    assert not got[:, 2:].any() and exact[:, 2].any()
    assert (case.theirs(v4, far, torch.float32).double() - exact).abs().max() < 2.0**-110 * largest
    low = torch.full((4,), -500.0)
    assert_within("sinks far below", case.ours(low), case.theirs(v4, low), case.limit(low, case.theirs(v4, low)))


def test_bf16_scores_are_coarser(v4: ModuleType) -> None:
    """Difference: with bf16 inputs the scores there are rounded to bf16 and P is rounded after the division.

    Ours keeps scores in fp32 and rounds P = exp(s - M) before the sums are divided.
    """
    case, sink = Case(8, 1), torch.tensor(SINKS["ordinary"])
    exact = case.theirs(v4, sink)
    limit = case.limit(sink, exact)
    assert share(case.ours(sink), exact, limit) <= 1
    theirs = case.theirs(v4, sink, torch.bfloat16)
    assert theirs.dtype == torch.bfloat16
    print(f"bf16 there: {share(theirs, exact, limit):.3g} of our limit")
    assert share(theirs, exact, limit) > 1
    # The product and the scaled score are rounded to bf16: a score of size s moves by 2 roundings of s.
    score = torch.einsum("thd,nd->thn", case.q, case.keys) * case.scale
    moved = 2 * 2 * UBF16 * torch.where(case.present[:, None], score.abs(), 0.0).amax(-1, keepdim=True)
    magnitude = (limit - UBF16 * exact.abs()) / UBF16  # at least the magnitude of the terms
    assert_within("attention in bf16", theirs, exact, limit + magnitude * torch.expm1(moved))


def test_rows_without_keys(v4: ModuleType) -> None:
    """Everything goes to the sink: zeros on both sides."""
    case = Case(9, 1)
    case.present[:] = False
    sink = torch.tensor(SINKS["ordinary"])
    assert not case.theirs(v4, sink).any()
    stage = Stage([(case.story, 0, 7)], padding=3)
    assert not stage.attention(WINDOW)[7:].any()


def test_grouped_output_projection(v4: ModuleType, make_config: Callable[..., Any]) -> None:
    """Each group of heads has its own block of rows, group-major, in the weight and in the result."""
    groups, n, k, rows = 2, 64, 96, 5
    draw = torch.Generator().manual_seed(10)
    x = torch.randn(rows, groups, k, generator=draw).bfloat16()
    weight = torch.randn(groups, n, k, generator=draw).to(torch.float8_e4m3fn)
    scale = torch.randint(120, 130, (groups, n // 32, k // 32), generator=draw, dtype=torch.uint8)
    expanded = weight.double() * torch.exp2(scale.double() - 127).repeat_interleave(32, 1).repeat_interleave(32, 2)
    q, s = ops.quant_fp8(x.flatten(1))
    q, s = q.view(rows, groups, k), s.view(rows, groups, k // 32)
    exact = dequantize_fp8(q, s).double()  # what the product sees; quantisation is not compared here
    module = v4.DeepseekV4GroupedLinear(k, groups * n, groups).double()
    module.weight.copy_(expanded.flatten(0, 1))
    want = module(exact)
    magnitude = torch.einsum("tgk,gnk->tgn", exact.abs(), expanded.abs())
    got = ops.linear_fp8_grouped(q, s, ops.linear_fp8_grouped_prepare(weight, scale))
    limit = UBF16 * want.abs() + (k + 2) * U32 * magnitude
    assert_within("grouped projection", got, want, limit)
