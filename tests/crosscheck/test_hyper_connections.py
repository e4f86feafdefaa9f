"""Hyper-connections and their Sinkhorn steps against transformers' DeepSeek-V4.

Its module normalises the streams and projects them in fp32 whatever it is given; with float64 parameters everything
after the projection runs in float64. So errors come from one fp32 projection there, and from fp32 throughout here.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bounds import U32, UBF16, assert_within, share
from deepinfer import ops

pytestmark = pytest.mark.crosscheck

EPS, HC_EPS, M, D, T = 1e-20, 1e-6, 4, 64, 19
K = M * D
OUTPUTS = (2 + M) * M


class Case:
    """Streams and parameters of one sub-layer, and the largest errors that follow from the number of roundings."""

    def __init__(self, seed: int, spread: float = 1.0) -> None:
        draw = torch.Generator().manual_seed(seed)
        self.x = (torch.randn(T, M, D, generator=draw) * torch.logspace(-2, 2, T)[:, None, None]).bfloat16()
        self.fn = torch.randn(OUTPUTS, K, generator=draw) * K**-0.5
        self.base = torch.randn(OUTPUTS, generator=draw) * spread
        self.scale = torch.tensor([0.7, 1.3, 0.9])

    def module(self, v4: ModuleType, config: Any) -> nn.Module:
        connection = v4.DeepseekV4HyperConnection(config)
        return fill(connection, fn=self.fn, base=self.base, scale=self.scale)

    def coefficients(self, iterations: int = 20) -> tuple[Tensor, Tensor, Tensor]:
        return ops.hc_coefficients(self.x, self.fn, self.base, self.scale, EPS, HC_EPS, iterations)

    def logit_error(self) -> tuple[Tensor, Tensor]:
        """Limit of the difference of the logits [T, OUTPUTS], and their magnitude.

        The projection: K terms, so K roundings at most of the sum of magnitudes; the inverse root of a mean of K
        squares: K/2 and 3; one more product. Both sides make these. Then scale (both) and base (ours).
        """
        flat = self.x.flatten(1).double()
        inverse = flat.square().mean(-1, keepdim=True).rsqrt()
        magnitude = flat.abs() @ self.fn.double().abs().T * inverse
        scale = self.scale.double().repeat_interleave(torch.tensor([M, M, M * M]))
        size = scale * (flat @ self.fn.double().T * inverse).abs() + self.base.double().abs()
        return scale * magnitude * 2 * (1.5 * K + 4) * U32 + 3 * U32 * size, size


class ExactCase(Case):
    """Small integers whose mean square is 16: the projection and the norm are exact in fp32, in any order.

    The limits of a general projection are three orders wider than its usual error; here they are a few roundings.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        draw = torch.Generator().manual_seed(seed + 100)
        flat = torch.randint(-4, 5, (T, K), generator=draw)
        flat[:, -4:] = 0
        for row in flat:
            row[-4:] = four_squares(16 * K - int(row.square().sum()))
        x = flat[:, torch.randperm(K, generator=draw)]
        self.x = x.view(T, M, D).bfloat16()
        self.fn = torch.randint(-9, 10, (OUTPUTS, K), generator=draw) / 256
        assert self.x.flatten(1).long().equal(x) and x.square().sum(1).eq(16 * K).all()
        assert torch.rsqrt(torch.tensor([16.0 + EPS])).item() == 0.25

    def logit_error(self) -> tuple[Tensor, Tensor]:
        size = super().logit_error()[1]
        return 3 * U32 * size, size


def four_squares(n: int) -> Tensor:
    """Four integers whose squares add up to n, large ones first (Lagrange)."""
    for a in range(isqrt(n), -1, -1):
        for b in range(isqrt(n - a * a), -1, -1):
            for c in range(isqrt(n - a * a - b * b), -1, -1):
                d = isqrt(n - a * a - b * b - c * c)
                if a * a + b * b + c * c + d * d == n:
                    return torch.tensor([a, b, c, d])
    raise AssertionError(n)


def fill(module: nn.Module, **values: Tensor) -> nn.Module:
    """The module in float64 with these parameters."""
    module.double()
    for name, value in values.items():
        getattr(module, name).copy_(value)
    return module


def sinkhorn_limit(logit_error: Tensor, span: Tensor, iterations: int) -> Tensor:
    """Relative limit [T, 1, 1] of the entries after Sinkhorn steps.

    A softmax entry moves by twice the error of its logits, plus the difference from the maximum (a rounding of `span`),
    the exponential (2), the sum (2), the quotient and eps. Call that a. The result is the softmax times one factor per
    row and one per column. A factor is the inverse of a mean of entries times the other factors, so it moves by at most
    the error of the entries and that of the factors before it: 2 * iterations - 1 steps, each adding a and its own 5
    roundings (2 of the sum, eps, the quotient, and what the entries have gathered, one per step).
    """
    entry = 2 * logit_error + (span + 6) * U32 + 2 * iterations * U32
    return torch.expm1((4 * iterations - 1) * (entry + 5 * U32))


def collapse_weights(streams: Tensor, collapsed: Tensor) -> Tensor:
    """The weights [T, m] of `collapsed` [T, D] over `streams` [T, m, D]; the module does not return them."""
    weights: Tensor = torch.linalg.lstsq(streams.transpose(1, 2), collapsed.unsqueeze(-1)).solution
    return weights.squeeze(-1)


@pytest.mark.parametrize("iterations", [1, 20])
@pytest.mark.parametrize("kind", [Case, ExactCase])
def test_coefficients(v4: ModuleType, make_config: Callable[..., Any], kind: type[Case], iterations: int) -> None:
    case = kind(3)
    module = case.module(v4, make_config(hc_sinkhorn_iters=iterations))
    post, comb, collapsed = (part[0] for part in module(case.x.double()[None]))
    got_pre, got_post, got_comb = case.coefficients(iterations)
    error, size = case.logit_error()
    # The slope of a sigmoid is at most 1/4; evaluating it takes 4 roundings, eps one more.
    want_pre = collapse_weights(case.x.double(), collapsed)
    assert_within("pre", got_pre, want_pre, error[:, :M] / 4 + 5 * U32 * want_pre)
    assert_within("post", got_post, post, error[:, M : 2 * M] / 2 + 5 * U32 * post)
    worst, span = (part[:, 2 * M :].amax(1)[:, None, None] for part in (error, 2 * size))
    assert_within("comb", got_comb, comb, comb * sinkhorn_limit(worst, span, iterations))


@pytest.mark.parametrize("iterations", [1, 2, 3, 20])
@pytest.mark.parametrize("spread", [1.0, 8.0])
def test_sinkhorn_of_equal_logits(
    v4: ModuleType, make_config: Callable[..., Any], iterations: int, spread: float
) -> None:
    """With scale 0 the logits are `base`, bit for bit, so only the fp32 steps of ours differ from float64."""
    case = Case(7, spread)
    case.scale.zero_()
    config = make_config(hc_sinkhorn_iters=iterations)
    comb = case.module(v4, config)(case.x.double()[None])[1][0]
    logits = case.base[2 * M :].double()
    limit = comb * sinkhorn_limit(torch.tensor(0.0), logits.max() - logits.min(), iterations)
    assert_within(f"sinkhorn {iterations}", case.coefficients(iterations)[2], comb, limit)
    assert share(case.coefficients(iterations)[2].transpose(1, 2), comb, limit) > 1  # rows are not columns
    if iterations < 20 or spread > 1:  # else converged
        assert share(case.coefficients(iterations + 1)[2], comb, limit) > 1


def test_columns_sum_to_one_first(v4: ModuleType, make_config: Callable[..., Any]) -> None:
    """The last step is a column step on both sides: columns are exact to rounding and eps, rows only converge."""
    case = Case(7, 8.0)
    for comb in (case.module(v4, make_config())(case.x.double()[None])[1][0], case.coefficients()[2]):
        assert (comb.sum(1) - 1).abs().max() < 2 * HC_EPS
        assert (comb.sum(2) - 1).abs().max() > 100 * HC_EPS


class Stub(nn.Module):
    """Takes the place of attention: keeps its input, returns what it was told to."""

    def __init__(self, result: Tensor) -> None:
        super().__init__()
        self.result, self.seen = result, torch.empty(0)

    def forward(self, x: Tensor, **_: Any) -> tuple[Tensor, None]:
        self.seen = x[0]
        return self.result[None], None


def attention_sublayer(
    v4: ModuleType, config: Any, case: Case, y: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor, Tensor]]:
    """Run a decoder layer around a stub: (input of attention, streams after it, coefficients and collapsed streams)."""
    layer = v4.DeepseekV4DecoderLayer(config, 0).double()
    fill(layer.attn_hc, fn=case.fn, base=case.base, scale=case.scale)
    fill(layer.ffn_hc, fn=case.fn, base=case.base, scale=case.scale)
    if dtype != torch.float64:
        layer.float()
    layer.self_attn = Stub(y.to(dtype))
    layer.mlp = nn.Identity()
    layer.mlp.forward = lambda x, **_: x
    after: list[Tensor] = []
    layer.ffn_hc.register_forward_pre_hook(lambda _, args: after.append(args[0][0]))
    streams = case.x.to(dtype)[None]
    layer(streams)
    return layer.self_attn.seen, after[0], tuple(part[0] for part in layer.attn_hc(streams))


def test_expansion_in_a_decoder_layer(v4: ModuleType, make_config: Callable[..., Any]) -> None:
    case = Case(11)
    y = torch.randn(T, D, generator=torch.Generator().manual_seed(12)).bfloat16()
    _, want, (post, comb, _) = attention_sublayer(v4, make_config(), case, y, torch.float64)
    x, y64 = case.x.double(), y.double()
    got = ops.hc_expand(case.x, y, post.float(), comb.float())
    # Coefficients are rounded to fp32 here; m + 1 products and m sums; one rounding to bf16.
    magnitude = post[..., None] * y64.abs()[:, None] + comb.transpose(1, 2) @ x.abs()
    limit = UBF16 * want.abs() + (M + 3) * U32 * magnitude
    assert_within("expand", got, want, limit)
    wrong = ops.hc_expand(case.x, y, post.float(), comb.float().transpose(1, 2).contiguous())
    assert share(wrong, want, limit) > 100  # the row of comb is the source stream


def test_coefficients_in_bf16_are_coarser(v4: ModuleType, make_config: Callable[..., Any]) -> None:
    """Difference: a bf16 layer there rounds post and comb to bf16, and the terms and their sum; ours round once."""
    case = ExactCase(13)
    y = torch.randn(T, D, generator=torch.Generator().manual_seed(14)).bfloat16()
    _, exact, (post, comb, _) = attention_sublayer(v4, make_config(), case, y, torch.float64)
    _, theirs, _ = attention_sublayer(v4, make_config(), case, y, torch.bfloat16)
    assert theirs.dtype == torch.bfloat16
    got = ops.hc_expand(case.x, y, *case.coefficients()[1:])
    magnitude = post[..., None] * y.double().abs()[:, None] + comb.transpose(1, 2) @ case.x.double().abs()
    error = case.logit_error()[0].amax(1)[:, None, None]
    span = 2 * case.logit_error()[1].amax(1)[:, None, None]
    ours = UBF16 * exact.abs() + (sinkhorn_limit(error, span, 20) + (M + 3) * U32) * magnitude
    assert_within("expand with own coefficients", got, exact, ours)
    assert share(theirs, exact, ours) > 1
    # bf16 coefficients, bf16 terms (two matrices' worth) and a bf16 sum: four roundings of the magnitude.
    assert_within("expand in bf16", theirs, exact, ours + 4 * UBF16 * (1 + UBF16) ** 3 * magnitude)


def test_the_mix_is_immediate_there_and_pending_here(v4: ModuleType, make_config: Callable[..., Any]) -> None:
    """Difference: V4 collapses the streams with the coefficients just computed, V4.1 with the sub-layer before's.

    Our ops give V4's attention input when they are called in V4's order, and another one in V4.1's.
    """
    before, case = ExactCase(16), ExactCase(15)
    seen, _, (_, _, collapsed) = attention_sublayer(
        v4, make_config(), case, torch.zeros(T, D).bfloat16(), torch.float64
    )
    own, pending = case.coefficients()[0], before.coefficients()[0]
    x, error = case.x.double(), case.logit_error()[0][:, :M].amax(1)[:, None]
    # Each weight is off as in test_coefficients, at most 1 in size; m products and sums; one bf16 rounding.
    magnitude = x.abs().sum(1)
    limit = UBF16 * collapsed.abs() + (error / 4 + (5 + M) * U32) * magnitude
    immediate = ops.hc_collapse(case.x, own)
    assert_within("collapse, immediate", immediate, collapsed, limit)

    shifted = ops.hc_collapse(case.x, pending)
    assert share(shifted, collapsed, limit) > 100
    module = before.module(v4, make_config())
    weights = collapse_weights(before.x.double(), module(before.x.double()[None])[2][0])
    want = (weights.unsqueeze(-1) * x).sum(1)
    error = before.logit_error()[0][:, :M].amax(1)[:, None]
    limit = UBF16 * want.abs() + (error / 4 + (5 + M) * U32) * magnitude
    assert_within("collapse, pending", shifted, want, limit)

    # What attention gets: the norm follows. bf16(u) moves an element and the root mean square by one rounding each,
    # the norm rounds once more; 0.1 % covers second-order terms and fp32.
    got = ops.rms_norm(immediate, torch.ones(D).bfloat16(), EPS)
    slack = limit.new_tensor(1.001)
    root = collapsed.square().mean(-1, keepdim=True).sqrt()
    cancelled = (case.logit_error()[0][:, :M].amax(1)[:, None] / 4 + (5 + M) * U32) * magnitude / root
    assert_within("attention input", got, seen, slack * 3 * UBF16 * seen.abs() + 2 * cancelled)


def test_the_last_mix_takes_the_place_of_the_head(v4: ModuleType, make_config: Callable[..., Any]) -> None:
    """Difference: V4 ends with a head that mixes by the final streams; V4.1 uses the last sub-layer's pending mix.

    V4's head has the formula of `pre` (own parameters, no iterations), so our op reproduces it.
    """
    case = ExactCase(17)
    head = v4.DeepseekV4HyperHead(make_config())
    fill(head, hc_fn=case.fn[:M], hc_base=case.base[:M], hc_scale=case.scale[:1])
    want = head(case.x.double()[None])[0]
    got = ops.hc_collapse(case.x, case.coefficients()[0])
    # The head's parameters are made fp32: its sum, sigmoid and eps count as ours do.
    error = case.logit_error()[0][:, :M].amax(1)[:, None]
    limit = UBF16 * want.abs() + (error / 2 + (10 + M) * U32) * case.x.double().abs().sum(1)
    assert_within("head", got, want, limit)


def test_the_first_mix_is_the_embedding(v4: ModuleType, make_config: Callable[..., Any]) -> None:
    """Difference: V4's first sub-layer mixes m equal streams by its own `pre`, whose sum need not be 1."""
    case = ExactCase(19)
    # +-4 everywhere: equal streams whose mean square is 16, as the exact projection needs.
    embedding = (torch.randint(0, 2, (T, D), generator=torch.Generator().manual_seed(18)) * 8 - 4).bfloat16()
    streams, pending = ops.embed_streams(torch.arange(T, dtype=torch.int32), embedding, M)
    assert pending.tolist() == [[1.0, 0.0, 0.0, 0.0]] * T
    assert ops.hc_collapse(streams, pending).equal(embedding)
    case.x = streams
    want = case.module(v4, make_config())(streams.double()[None])[2][0]
    mixed = ops.hc_collapse(streams, case.coefficients()[0])
    error = case.logit_error()[0][:, :M].amax(1)[:, None]
    limit = UBF16 * want.abs() + (error / 4 + (5 + M) * U32) * streams.double().abs().sum(1)
    assert_within("collapse of equal streams", mixed, want, limit)
    assert share(embedding, want, limit) > 100
