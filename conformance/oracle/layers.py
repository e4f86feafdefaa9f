"""Oracles of norm, rotary embedding and hyper-connections."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...ops.numerics import FLOOR, Accumulated, Rounded
from ...ops.spec import SPECS
from . import formulas
from .expected import BF16, FP32_MAX, U32, Within, accumulated, floats, largest_run, terms_of, torched
from .formats import Floats, f64


@floats("rms_norm")
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> list[Within]:
    wide = f64(x)
    with np.errstate(all="ignore"):
        want = torched(formulas.rms_norm(wide, f64(weight), eps))
        overflow = torched((wide * wide).sum(-1, keepdims=True)) > FP32_MAX
    numerics = SPECS["rms_norm"].numerics
    assert isinstance(numerics, Rounded)
    want = torch.where(overflow & want.isfinite(), 0.0, want)  # as the semantics say
    return [Within(want, numerics.limit(want, BF16))]


def turned(x: Floats, positions: Any, table: Floats, inverse: bool = False) -> tuple[Floats, Floats]:
    """Rotated channels of [T, h, d], and the sums of magnitudes of their two terms (0 for channels that are copied)."""
    first = x.shape[-1] - 2 * table.shape[1]
    magnitude = formulas.rope(np.abs(x), positions, np.abs(table) * [1, -1], False)  # |a cos| + |b sin|
    odd = formulas.rope(np.abs(x), positions, np.abs(table), False)
    magnitude[..., first + 1 :: 2] = odd[..., first + 1 :: 2]
    magnitude[..., :first] = 0
    with np.errstate(invalid="ignore"):
        return formulas.rope(x, positions, table, inverse), magnitude


@floats("rope")
def rope(*args: Any) -> list[Within]:
    x, positions, table, inverse = args
    want, magnitude = turned(f64(x), positions.tolist(), f64(table), inverse)
    found = accumulated(terms_of("rope", args), magnitude, want)
    return [Within(found.want, torch.where(torched(magnitude) == 0, 0.0, found.limit))]


@floats("hc_collapse")
def hc_collapse(*args: Any) -> list[Within]:
    x, pending = args
    terms = f64(pending)[:, :, None] * f64(x)
    return [accumulated(terms_of("hc_collapse", args), np.abs(terms).sum(1), terms.sum(1))]


@floats("hc_expand")
def hc_expand(*args: Any) -> list[Within]:
    x, y, post, comb = args
    added, c, wide = f64(post)[:, :, None] * f64(y)[:, None], f64(comb), f64(x)
    magnitude = np.abs(added) + np.einsum("tjk,tjd->tkd", np.abs(c), np.abs(wide))
    return [accumulated(terms_of("hc_expand", args), magnitude, added + np.einsum("tjk,tjd->tkd", c, wide))]


def sinkhorn_limit(logit_error: Any, span: Any, iterations: int) -> Any:
    """Relative limit of the entries after Sinkhorn steps, of logits that are off by `logit_error` and span `span`.

    A softmax entry moves by twice the error of its logits, plus the difference from the maximum (a rounding of the
    span), the exponential (4), the sum (2), the quotient and eps. The result is that entry times one factor per row and
    one per column. A factor is the inverse of a mean of entries times the factors before it, so it moves by at most the
    errors of both: 2 * iterations - 1 steps, each adding the entry's error and its own 5 roundings (2 of the sum, eps,
    the quotient, and what the entries have gathered, one per step).
    """
    entry = 2 * logit_error + (span + 8) * U32 + 2 * iterations * U32
    return np.expm1((4 * iterations - 1) * (entry + 5 * U32))


@floats("hc_coefficients")
def hc_coefficients(*args: Any) -> list[Within]:
    x, fn, base, scale, norm_eps, hc_eps, iterations = args
    rows, m, width = x.shape
    flat, w, b = f64(x).reshape(rows, m * width), f64(fn), f64(base)
    factor = np.repeat(f64(scale), [m, m, m * m])
    with np.errstate(invalid="ignore"):
        wants = formulas.hc_coefficients(f64(x), w, b, f64(scale), norm_eps, hc_eps, iterations)
        inverse = 1 / np.sqrt((flat * flat).mean(1, keepdims=True) + norm_eps)
        magnitude = np.abs(flat) @ np.abs(w).T * inverse
        mix = np.abs(flat @ w.T) * inverse
        size = np.abs(factor) * mix + np.abs(b)
    # K terms and their products; the inverse root of a mean of K squares (half of K + 2, and 4); a product. Then scale
    # and base: 3.
    k = terms_of("hc_coefficients", args)
    mix = Accumulated.error(k, torched(largest_run(flat, w) * inverse)) + Accumulated.error(k // 2 + 6, torched(mix))
    mix = mix.numpy() + U32 * magnitude
    error = np.abs(factor) * mix + 3 * U32 * size
    # The slope of a sigmoid is at most 1/4; evaluating it takes 6 roundings (exponential 4, sum, quotient), eps one.
    limits = [error[:, :m] / 4 + 7 * U32 * wants[0], error[:, m : 2 * m] / 2 + 7 * U32 * wants[1]]
    if rows:
        worst, span = (part[:, 2 * m :].max(1)[:, None, None] for part in (error, 2 * size))
        limits.append(wants[2] * sinkhorn_limit(worst, span, iterations))
    else:
        limits.append(wants[2])
    return [Within(torched(a), torched(b) + FLOOR) for a, b in zip(wants, limits, strict=True)]
