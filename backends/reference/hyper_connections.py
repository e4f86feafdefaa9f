"""Hyper-connections: m residual streams, mixed by coefficients computed from the streams themselves."""

from __future__ import annotations

import torch
from torch import Tensor

from ...hal.registry import kernel
from .common import finish
from .norm import inverse_rms
from .portable import exp, sigmoid
from .tiles import matmul

POST_SCALE = 2.0


@kernel("hc_coefficients", version=0, backend="reference")
def hc_coefficients(
    x: Tensor, fn: Tensor, base: Tensor, scale: Tensor, norm_eps: float, hc_eps: float, iterations: int,
    out: tuple[Tensor, Tensor, Tensor] | None,
) -> tuple[Tensor, Tensor, Tensor]:
    rows, m, _ = x.shape
    flat = x.flatten(1).to(torch.float32)
    mix = matmul(flat, fn) * inverse_rms(flat, norm_eps)
    pre = sigmoid(mix[:, :m] * scale[0] + base[:m]) + hc_eps
    post = sigmoid(mix[:, m : 2 * m] * scale[1] + base[m : 2 * m]) * POST_SCALE
    comb = sinkhorn((mix[:, 2 * m :] * scale[2] + base[2 * m :]).view(rows, m, m), hc_eps, iterations)
    return finish((pre, post, comb), out)


@kernel("hc_collapse", version=0, backend="reference")
def hc_collapse(x: Tensor, pending: Tensor, out: Tensor | None) -> Tensor:
    return finish(_fold((x.to(torch.float32) * pending.unsqueeze(-1)).unbind(1)).to(torch.bfloat16), out)


@kernel("hc_expand", version=0, backend="reference")
def hc_expand(x: Tensor, y: Tensor, post: Tensor, comb: Tensor, out: Tensor | None) -> Tensor:
    streams = x.to(torch.float32)
    total = post.unsqueeze(-1) * y.to(torch.float32).unsqueeze(1)
    for source in range(x.shape[1]):
        total += comb[:, source].unsqueeze(-1) * streams[:, source].unsqueeze(1)
    return finish(total.to(torch.bfloat16), out)


def sinkhorn(logits: Tensor, eps: float, iterations: int) -> Tensor:
    """Row softmax, then alternating column and row normalisation of [T, m, m]; ends with a column step.

    Every sum of m terms runs in index order. Each step works on planes [m, m, T], so that a sum is m - 1 additions.
    """
    c = logits.permute(1, 2, 0)
    c = exp(c - c.amax(1, keepdim=True))
    c = c / _fold(c.unbind(1)).unsqueeze(1) + eps
    c = c / (_fold(c.unbind(0)) + eps)
    for _ in range(iterations - 1):
        c = c / (_fold(c.unbind(1)) + eps).unsqueeze(1)
        c = c / (_fold(c.unbind(0)) + eps)
    return c.permute(2, 0, 1).contiguous()


def _fold(terms: tuple[Tensor, ...]) -> Tensor:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total
