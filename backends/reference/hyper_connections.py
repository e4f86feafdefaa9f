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
    x: Tensor,
    fn: Tensor,
    base: Tensor,
    scale: Tensor,
    norm_eps: float,
    hc_eps: float,
    iterations: int,
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

    Works on planes [m, m, T] in place. A sum of m planes adds halves, as `tree_sum` does; with the views made once, a
    normalisation of four streams is four short calls, which matters since there are 2 * iterations of them.
    """
    c = logits.permute(1, 2, 0).contiguous()
    c = exp(c - c.amax(1, keepdim=True))
    rows, columns = _PlaneSum(c, 1), _PlaneSum(c, 0)
    floor = torch.full((1, 1, 1), eps, dtype=torch.float32, device=c.device)  # quicker to add than a Python number
    c.div_(rows()).add_(floor)
    c.div_(columns().add_(floor))
    for _ in range(iterations - 1):
        c.div_(rows().add_(floor))
        c.div_(columns().add_(floor))
    return c.permute(2, 0, 1).contiguous()


class _PlaneSum:
    """Sum of `c` over dim 0 or 1, kept with length 1, into one scratch buffer; the sum of the moment it is called."""

    def __init__(self, c: Tensor, dim: int) -> None:
        width = c.shape[dim]
        scratch = torch.empty_like(c).narrow(dim, 0, (width + 1) // 2)
        self.steps: list[tuple[Tensor, Tensor, Tensor]] = []
        source = c
        while width > 1:
            half = width // 2
            halves = source.narrow(dim, 0, half), source.narrow(dim, half, half)
            self.steps.append((*halves, scratch.narrow(dim, 0, half)))
            if width % 2:  # the last plane waits for the next round
                self.steps.append((source.narrow(dim, width - 1, 1), c.new_zeros(()), scratch.narrow(dim, half, 1)))
            source, width = scratch, half + width % 2
        self.total = source.narrow(dim, 0, 1)

    def __call__(self) -> Tensor:
        for first, second, out in self.steps:
            torch.add(first, second, out=out)
        return self.total


def _fold(terms: tuple[Tensor, ...]) -> Tensor:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total
