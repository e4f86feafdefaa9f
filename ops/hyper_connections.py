"""Hyper-connections: m parallel residual streams mixed around every sub-layer.

A sub-layer reads `u = hc_collapse(X, pending)` with the mix that the sub-layer before it left, and writes
`X = hc_expand(X, y, post, comb)`; its own `pre` is the next pending mix. Coefficients come from the streams at entry.
"""

from __future__ import annotations

from torch import Tensor

from . import layer_samples as samples
from .numerics import Accumulated
from .spec import BF16, F32, Cost, define, result, scalar, tensor

HC_COEFFICIENTS = define(
    "hc_coefficients",
    version=0,
    family="hyper_connections",
    args=[
        tensor("x", "T m D", BF16),
        tensor("fn", "(2+m)*m m*D", F32),
        tensor("base", "(2+m)*m", F32),
        tensor("scale", "3", F32),
        scalar("norm_eps", float, low=0),
        scalar("hc_eps", float, low=0),
        scalar("iterations", int, low=1),
    ],
    outs=[result("pre", "T m", F32), result("post", "T m", F32), result("comb", "T m m", F32)],
    dynamic="T",
    semantics="""v = x[t] flattened stream-major; mix = (fn @ v) * rsqrt(mean(v^2) + norm_eps), one statistic over all
        m*D values. pre[j] = sigmoid(mix[j]*scale[0] + base[j]) + hc_eps; post[k] = 2*sigmoid(mix[m+k]*scale[1] +
        base[m+k]); C[j,k] = mix[2m+jm+k]*scale[2] + base[2m+jm+k]. Then C = softmax over k + hc_eps; C = C / (column
        sums + hc_eps); and iterations-1 times: C = C / (row sums + hc_eps), C = C / (column sums + hc_eps). All fp32,
        orders of sums fixed. iterations >= 1. A zero row gives the coefficients of `base` alone; a row with NaN or
        infinity gives NaN.""",
    numerics=Accumulated("m*D", output="fp32"),
    cost=lambda d: Cost(
        flops=2 * d["T"] * (3 + d["m"]) * d["m"] ** 2 * d["D"],
        bytes=2 * d["T"] * d["m"] * d["D"] + 4 * (2 + d["m"]) * d["m"] * (d["m"] * d["D"] + 1 + d["T"]) + 12,
    ),
    samples=samples.hc_coefficients,
)

HC_COLLAPSE = define(
    "hc_collapse",
    version=0,
    family="hyper_connections",
    args=[tensor("x", "T m D", BF16), tensor("pending", "T m", F32)],
    outs=[result("u", "T D", BF16)],
    dynamic="T",
    semantics="""u = bf16(sum_j pending[j] * x[j]), fp32, j ascending. Accumulated, not rounded: streams of opposite
        sign cancel, and the fp32 error is relative to the terms. A stream with weight zero still takes part: NaN or
        infinity in it gives NaN.""",
    numerics=Accumulated("m"),
    cost=lambda d: Cost(flops=2 * d["T"] * d["m"] * d["D"], bytes=d["T"] * (2 * (d["m"] + 1) * d["D"] + 4 * d["m"])),
    samples=samples.hc_collapse,
)

HC_EXPAND = define(
    "hc_expand",
    version=0,
    family="hyper_connections",
    args=[
        tensor("x", "T m D", BF16),
        tensor("y", "T D", BF16),
        tensor("post", "T m", F32),
        tensor("comb", "T m m", F32),
    ],
    outs=[result("x_new", "T m D", BF16, in_place="x")],
    dynamic="T",
    semantics="""x_new[k] = bf16(post[k]*y + sum_j comb[j,k]*x[j]): j, the source stream, is the row index of comb.
        fp32, post[k]*y first, then j ascending. Accumulated, not rounded, as hc_collapse.""",
    numerics=Accumulated("m+1"),
    cost=lambda d: Cost(
        flops=2 * d["T"] * d["m"] * (d["m"] + 1) * d["D"],
        bytes=d["T"] * (2 * (2 * d["m"] + 1) * d["D"] + 4 * d["m"] * (d["m"] + 1)),
    ),
    samples=samples.hc_expand,
)


def hc_coefficients(
    x: Tensor,
    fn: Tensor,
    base: Tensor,
    scale: Tensor,
    norm_eps: float,
    hc_eps: float,
    iterations: int,
    *,
    out: tuple[Tensor, Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Mixing coefficients of one sub-layer from the streams at its entry.

    Args:
        x: bf16 [T, m, D]. fn: f32 [(2+m)m, mD], the norm weight folded in. base: f32 [(2+m)m]. scale: f32 [3].
        norm_eps: added to the mean square. hc_eps: added to `pre` and inside the Sinkhorn steps.
        iterations: column normalisations.

    Returns:
        pre f32 [T, m], the next pending mix; post f32 [T, m]; comb f32 [T, m, m], source stream first.
    """
    return HC_COEFFICIENTS.run(x, fn, base, scale, norm_eps, hc_eps, iterations, out)  # type: ignore[no-any-return]


def hc_collapse(x: Tensor, pending: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Mix the streams into one input: bf16 [T, m, D] and f32 [T, m] -> bf16 [T, D]."""
    return HC_COLLAPSE.run(x, pending, out)  # type: ignore[no-any-return]


def hc_expand(x: Tensor, y: Tensor, post: Tensor, comb: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Write a sub-layer's output back into the streams.

    Args:
        x: bf16 [T, m, D], the streams at entry. y: bf16 [T, D]. post: f32 [T, m]. comb: f32 [T, m, m].

    Returns:
        bf16 [T, m, D].
    """
    return HC_EXPAND.run(x, y, post, comb, out)  # type: ignore[no-any-return]
