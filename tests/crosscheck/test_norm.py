"""RMSNorm against transformers' DeepSeek-V4."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch

from bounds import U32, UBF16, assert_within, share
from deepinfer import ops

pytestmark = pytest.mark.crosscheck


def inputs(d: int) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(d)
    x = torch.randn(23, d, generator=draw) * torch.logspace(-6, 6, 23)[:, None]
    return x.bfloat16(), (1 + torch.randn(d, generator=draw) / 2).bfloat16()


@pytest.mark.parametrize("d", [33, 128, 512])
@pytest.mark.parametrize("eps", [1e-20, 1e-6])
def test_rms_norm(v4: ModuleType, d: int, eps: float) -> None:
    x, weight = inputs(d)
    module = v4.DeepseekV4RMSNorm(d, eps=eps)
    module.weight.copy_(weight)
    want = module(x.float())  # an fp32 input leaves the fp32 result unrounded
    got = ops.rms_norm(x, weight, eps)
    # On each side: the mean of squares is off by d roundings, its inverse root by half of that and two more; two
    # products. Ours is then rounded once to bf16.
    limit = want.double().abs() * (UBF16 + 2 * (d / 2 + 4) * U32)
    assert_within(f"rms_norm {d}", got, want, limit)


def test_one_rounding_not_two(v4: ModuleType) -> None:
    """Rounding to bf16 before the weight as well leaves the limit of one rounding; neither implementation does it."""
    x, weight = inputs(512)
    module = v4.DeepseekV4RMSNorm(512, eps=1e-20)
    module.weight.copy_(weight)
    exact = module.double()(x.double())
    limit = exact.abs() * (UBF16 + 2 * (512 / 2 + 4) * U32)
    once = ops.rms_norm(x, weight, 1e-20)
    twice = ops.rms_norm(x, torch.ones_like(weight), 1e-20) * weight
    assert share(once, exact, limit) <= 1
    assert share(twice, exact, limit) > 1
    theirs = module.float()(x).to(torch.bfloat16)  # some releases hand the fp32 result on
    # Releases before 5.24 round twice.
    assert share(theirs, exact, limit) <= 1 or torch.equal(theirs, twice)
    changed = (once != twice).double().mean()
    print(f"a second rounding changes {changed:.1%} of the elements")
    assert 0.05 < changed < 0.6
