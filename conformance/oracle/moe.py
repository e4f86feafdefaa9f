"""Oracles of the MoE family and of the Engram gate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...ops.layouts import FP8_32
from ...ops.numerics import FLOOR, Accumulated
from ..compare.decided_choices import compare_choices
from ..compare.report import Report
from ..compare.within import compare_within
from . import formulas
from .expected import (
    U16,
    U32,
    Args,
    Choice,
    Codes,
    Within,
    accumulated,
    codes,
    decided,
    floats,
    judged,
    terms_of,
    torched,
)
from .formats import f64


@floats("moe_combine")
def moe_combine(*args: Any) -> list[Within]:
    y, position, shared = args
    base, place = f64(shared), position.numpy()
    parts = np.zeros((*place.shape, base.shape[1]))
    parts[place >= 0] = f64(y)[place[place >= 0]]
    magnitude = np.abs(parts).sum(1) + np.abs(base)
    return [accumulated(terms_of("moe_combine", args), magnitude, parts.sum(1) + base)]


@floats("engram_gate")
def engram_gate(*args: Any) -> list[Within]:
    x, kv, q_weight, k_weight, image, eps = args
    rows, m, width = x.shape
    wide, whole = f64(x), f64(kv).reshape(rows, m + 1, width)
    key, value, weight = whole[:, :m], whole[:, m:], f64(q_weight) * f64(k_weight)
    with np.errstate(all="ignore"):
        inverse = 1 / np.sqrt((wide * wide).mean(-1, keepdims=True) + eps)
        inverse = inverse / np.sqrt((key * key).mean(-1, keepdims=True) + eps) * width**-0.5
        dot = (wide * weight * key).sum(-1, keepdims=True) * inverse
        # D terms of 3 factors; two inverse roots of means of D squares (half of D + 2, and 4); three products.
        terms = terms_of("engram_gate", args) + 2 + 2 * ((width + 2) // 2 + 4) + 3
        size = (np.abs(wide * weight * key)).sum(-1, keepdims=True) * inverse
        error = Accumulated.error(terms, torched(size)).numpy()
        outer, inner = (np.sqrt(np.maximum(np.abs(dot) + e, formulas.GATE_FLOOR)) for e in (error, -error))
        # Where the sign is open the root may lie on either side of 0. Slope 1/4; root 4, sigmoid 6.
        moved = np.where((np.abs(dot) <= error) & (error > 0), 2 * outer, outer - inner) / 4 + 10 * U32
        want = formulas.engram_gate(wide, f64(kv), f64(q_weight), f64(k_weight), eps)
        gate = np.abs(want - wide) / np.where(value == 0, 1, np.abs(value))
    found = accumulated(2, np.abs(wide) + gate * np.abs(value), want)
    same = image.view(rows, 1, 1)
    limit = found.limit + torched(moved * np.abs(value)) * (1 + U16)
    return [Within(torch.where(same, torched(wide), found.want), torch.where(same, 0.0, limit))]


@codes("swiglu_quant")
def swiglu_quant(gate_up: Tensor, weight: Tensor | None, limit: float) -> Codes:
    with np.errstate(all="ignore"):
        value = torched(formulas.swiglu(f64(gate_up), None if weight is None else f64(weight), limit))
    return Codes(value, decided("swiglu_quant").limit(value.abs()), FP8_32.name)


def gate_scores(logits: Tensor) -> Tensor:
    wide = logits.double()
    return torch.where(wide > 20, wide, torch.log1p(torch.exp(wide))).sqrt()


@judged("moe_gate")
def moe_gate(args: Args, got: Sequence[Tensor], twin: Sequence[Tensor]) -> Report:
    logits, bias, bias_vl, image, _, scaling = args
    return judge_gate(logits, bias, bias_vl, image, scaling, *got)


def judge_gate(
    logits: Tensor, bias: Tensor, bias_vl: Tensor, image: Tensor, scaling: float, weights: Tensor, experts: Tensor
) -> Report:
    """Experts and weights that were chosen from given logits."""
    added = torch.where(image.unsqueeze(1), bias_vl, bias)
    wrong = compare_choices("experts", gate_choice(logits, added), experts, (logits, added))
    return wrong + compare_within("weights", gate_weights(logits, experts, scaling), weights, None)


def gate_choice(logits: Tensor, added: Tensor) -> Choice:
    """Keys of the experts: scores and biases, [T, E] each."""
    score, bias = gate_scores(logits), added.double()
    return Choice(score + bias, decided("moe_gate").limit(score + bias.abs()))


def gate_weights(logits: Tensor, experts: Tensor, scaling: float) -> Within:
    """Weights of the experts that were chosen.

    A score takes 8 roundings (exponential and log1p 4 each, halved by the root, which takes 4), their sum as many and
    one per slot, the quotient and the product 2.
    """
    score = gate_scores(logits).gather(1, experts.long().clamp(0, logits.shape[1] - 1))
    want = score / (score.sum(1, keepdim=True) + 1e-20) * scaling
    return Within(want, (8 + 8 + experts.shape[1] + 2) * U32 * want.abs() + FLOOR)
