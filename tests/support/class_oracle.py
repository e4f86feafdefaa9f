"""Float64 oracles of the ops that are not exact, with the largest error that each op's numerics class allows.

An oracle takes an op's arguments on the CPU and returns one `Within` per float output, or `Codes` and `Choice` for
decided ones. Section 6 of `docs/numerics.md` has the derivations; the comments here count roundings. One elementary
function (exponential, log1p, root, inverse root) counts as 4: two units in the last place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

import cache_oracle
import layer_oracle
from deepinfer.backends.reference import attention as slots
from deepinfer.backends.reference.kv import index_planes
from deepinfer.ops.layouts import FP4_32_INDEX, FP8_32, entries_per_page
from deepinfer.ops.numerics import FLOOR, Accumulated, Decided, Rounded
from deepinfer.ops.spec import SPECS, Dim
from layer_oracle import Floats, f64

U32, U16 = 2.0**-24, 2.0**-8
FP32_MAX = float(torch.finfo(torch.float32).max)
BF16 = torch.bfloat16


@dataclass(frozen=True)
class Within:
    """A float output: `want`, `limit`, float64; `defined` is False where the value is unspecified."""

    want: Tensor
    limit: Tensor
    defined: Tensor | None = None


@dataclass(frozen=True)
class Codes:
    """Quantised rows [n, channels]: values before quantisation, how far they may be off, and the record kind."""

    value: Tensor
    limit: Tensor
    kind: str


@dataclass(frozen=True)
class Choice:
    """Ids chosen by the largest key, [T, E], and how far a key may be off."""

    key: Tensor
    limit: Tensor


def torched(x: Floats) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(x, dtype=np.float64))


def terms_of(name: str, args: tuple[Any, ...]) -> int:
    """The number of terms that a spec of the accumulated class states, for one call."""
    spec = SPECS[name]
    assert isinstance(spec.numerics, Accumulated)
    return Dim.parse(spec.numerics.terms).value({"K": 0} | spec.dims(*args))


def decided(name: str) -> Decided:
    numerics = SPECS[name].numerics
    assert isinstance(numerics, Decided)
    return numerics


def accumulated(terms: int, magnitude: Floats, want: Floats, dtype: torch.dtype = BF16) -> Within:
    return Within(torched(want), Accumulated.limit(terms, torched(magnitude), torched(want), dtype))


def linear_fp8(*args: Any) -> list[Within]:
    xq, xs, weight = args
    want, magnitude = layer_oracle.product(layer_oracle.fp8(xq, xs), layer_oracle.fp8_blocks(*weight.tensors))
    return [accumulated(terms_of("linear_fp8", args), magnitude, want)]


def linear_fp8_grouped(*args: Any) -> list[Within]:
    xq, xs, weight = args
    x, w = layer_oracle.fp8(xq, xs), layer_oracle.fp8_blocks(*weight.tensors)
    with np.errstate(invalid="ignore"):
        want = np.stack([x[:, g] @ w[g].T for g in range(len(w))], axis=1)
        magnitude = np.stack([np.abs(x[:, g]) @ np.abs(w[g]).T for g in range(len(w))], axis=1)
    return [accumulated(terms_of("linear_fp8_grouped", args), magnitude, want)]


def linear_bf16(*args: Any) -> list[Within]:
    x, weight, fp32_out = args
    wide, w, dtype = f64(x), f64(weight.tensors[0]), torch.float32 if fp32_out else BF16
    want, magnitude = layer_oracle.product(wide, w)
    return [accumulated(terms_of("linear_bf16", args), largest_run(wide, w) if fp32_out else magnitude, want, dtype)]


def largest_run(x: Floats, w: Floats) -> Floats:
    """Largest absolute sum of consecutive terms of x @ w.T: what a partial sum can be."""
    largest = np.zeros((len(x), len(w)))
    for row, out in zip(x, largest, strict=True):
        with np.errstate(invalid="ignore"):
            partial = np.cumsum(row * w, axis=1)
        out[:] = np.maximum(partial.max(1), 0) - np.minimum(partial.min(1), 0)
    return largest


def grouped_linear(*args: Any) -> list[Within]:
    xq, xs, weight, source_row, offsets = args
    x, bounds = layer_oracle.fp8(xq, xs), offsets.tolist()
    rows = len(x) if source_row is None else len(source_row)
    want, magnitude = np.zeros((2, rows, weight.tensors[0].shape[1]))
    for e, (begin, end) in enumerate(zip(bounds, bounds[1:], strict=False)):
        if begin < end:
            part = x[begin:end] if source_row is None else x[source_row[begin:end].long().numpy()]
            w = layer_oracle.fp4(weight.tensors[0][e], weight.tensors[1][e])
            want[begin:end], magnitude[begin:end] = layer_oracle.product(part, w)
    found = accumulated(terms_of("grouped_linear", args), magnitude, want)
    defined = (torch.arange(rows) < bounds[-1]).unsqueeze(1).expand(found.want.shape)
    return [Within(found.want, found.limit, defined)]


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> list[Within]:
    wide = f64(x)
    with np.errstate(all="ignore"):
        want = torched(layer_oracle.rms_norm(wide, f64(weight), eps))
        overflow = torched((wide * wide).sum(-1, keepdims=True)) > FP32_MAX
    numerics = SPECS["rms_norm"].numerics
    assert isinstance(numerics, Rounded)
    want = torch.where(overflow & want.isfinite(), 0.0, want)  # as the semantics say
    return [Within(want, numerics.limit(want, BF16))]


def turned(x: Floats, positions: Any, table: Floats, inverse: bool = False) -> tuple[Floats, Floats]:
    """Rotated channels of [T, h, d], and the sums of magnitudes of their two terms (0 for channels that are copied)."""
    first = x.shape[-1] - 2 * table.shape[1]
    magnitude = layer_oracle.rope(np.abs(x), positions, np.abs(table) * [1, -1], False)  # |a cos| + |b sin|
    odd = layer_oracle.rope(np.abs(x), positions, np.abs(table), False)
    magnitude[..., first + 1 :: 2] = odd[..., first + 1 :: 2]
    magnitude[..., :first] = 0
    with np.errstate(invalid="ignore"):
        return layer_oracle.rope(x, positions, table, inverse), magnitude


def rope(*args: Any) -> list[Within]:
    x, positions, table, inverse = args
    want, magnitude = turned(f64(x), positions.tolist(), f64(table), inverse)
    found = accumulated(terms_of("rope", args), magnitude, want)
    return [Within(found.want, torch.where(torched(magnitude) == 0, 0.0, found.limit))]


def hc_collapse(*args: Any) -> list[Within]:
    x, pending = args
    terms = f64(pending)[:, :, None] * f64(x)
    return [accumulated(terms_of("hc_collapse", args), np.abs(terms).sum(1), terms.sum(1))]


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


def hc_coefficients(*args: Any) -> list[Within]:
    x, fn, base, scale, norm_eps, hc_eps, iterations = args
    rows, m, width = x.shape
    flat, w, b = f64(x).reshape(rows, m * width), f64(fn), f64(base)
    factor = np.repeat(f64(scale), [m, m, m * m])
    with np.errstate(invalid="ignore"):
        wants = layer_oracle.hc_coefficients(f64(x), w, b, f64(scale), norm_eps, hc_eps, iterations)
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


def compress_pool(*args: Any) -> list[Within]:
    value, gate, ring, positions, row_seq, seq_start, state_slot = args
    want, magnitude = np.zeros((2, *value.shape))
    for t, (p, s) in enumerate(zip(positions.tolist(), row_seq.tolist(), strict=True)):
        if s < 0 or p % 2 == 0:
            continue
        stored = f64(ring[int(state_slot[s]), (p - 1) % ring.shape[1]])
        before = (f64(gate[t - 1]), f64(value[t - 1])) if p - 1 >= int(seq_start[s]) else (stored[0], stored[1])
        gates, values = (np.stack((a, f64(b[t]))) for a, b in zip(before, (gate, value), strict=True))
        with np.errstate(all="ignore"):
            weight = np.exp(gates - gates.max(0))
            weight = weight / weight.sum(0)
            want[t] = (weight * values).sum(0)
            # A weight: the difference of the gates (a rounding of it) and the exponential (4), in it and in the sum it
            # is divided by; sum and quotient 2: at most 4 + |difference| times the class's 4 = 2 terms + 2.
            magnitude[t] = (weight * np.abs(values)).sum(0) * (4 + np.abs(gates[0] - gates[1]))
    return [accumulated(terms_of("compress_pool", args), magnitude, want)]


def moe_combine(*args: Any) -> list[Within]:
    y, position, shared = args
    base, place = f64(shared), position.numpy()
    parts = np.zeros((*place.shape, base.shape[1]))
    parts[place >= 0] = f64(y)[place[place >= 0]]
    magnitude = np.abs(parts).sum(1) + np.abs(base)
    return [accumulated(terms_of("moe_combine", args), magnitude, parts.sum(1) + base)]


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
        outer, inner = (np.sqrt(np.maximum(np.abs(dot) + e, layer_oracle.GATE_FLOOR)) for e in (error, -error))
        # Where the sign is open the root may lie on either side of 0. Slope 1/4; root 4, sigmoid 6.
        moved = np.where((np.abs(dot) <= error) & (error > 0), 2 * outer, outer - inner) / 4 + 10 * U32
        want = layer_oracle.engram_gate(wide, f64(kv), f64(q_weight), f64(k_weight), eps)
        gate = np.abs(want - wide) / np.where(value == 0, 1, np.abs(value))
    found = accumulated(2, np.abs(wide) + gate * np.abs(value), want)
    same = image.view(rows, 1, 1)
    limit = found.limit + torched(moved * np.abs(value)) * (1 + U16)
    return [Within(torch.where(same, torched(wide), found.want), torch.where(same, 0.0, limit))]


def sparse_attention(*args: Any) -> list[Within]:
    q, fresh, ring, sink, positions, row_seq, start, begin, state, pages, table, indices, window, ratio, scale, kind = (
        args
    )
    live = row_seq >= 0
    want, limit = torch.zeros((2, *q.shape), dtype=torch.float64)
    if start.numel() == 0:
        return [Within(want, limit)]
    sequence = row_seq.clamp(min=0).long()
    records, present = slots.window_records(fresh, ring, positions.long(), live, sequence, start, begin, state, window)
    keys = [cache_oracle.decode(records.numpy(), FP8_32.name)]
    there = [present.numpy()]
    if indices is not None and indices.shape[1]:
        records, present = slots.selected_records(pages, table, indices.long(), live, sequence, ratio)
        keys.append(cache_oracle.decode(records.numpy(), kind))
        there.append(present.numpy())
    for t in range(len(q)):
        rows = [k[t][p[t]] for k, p in zip(keys, there, strict=True)]
        if sum(map(len, rows)):
            value, bound = cache_oracle.attention(f64(q[t]), np.concatenate(rows), f64(sink), scale)
            want[t], limit[t] = torched(value), torched(bound)
    return [Within(want, limit)]


def _index_scores(name: str, args: tuple[Any, ...], entry: Tensor) -> list[Within]:
    """`entry` [T, lanes]: the entry of a lane, -1 where it is unspecified."""
    query, head_weight, pages, row_seq, table = (args[SPECS_ARGS[name][n]] for n in _INDEX_ARGS)
    ratio = args[SPECS_ARGS[name]["ratio"]]
    want, magnitude = torch.zeros((2, *entry.shape), dtype=torch.float64)
    per_page, channels = entries_per_page(ratio), FP4_32_INDEX.channels(query.shape[2])
    for t in range(len(entry)):
        lanes = torch.nonzero(entry[t] >= 0).squeeze(1)
        if not len(lanes):
            continue
        j = entry[t, lanes]
        page = table[int(row_seq[t])].long()[j // per_page]
        data, scale = (plane[page, j % per_page] for plane in index_planes(pages, channels, ratio))
        keys = cache_oracle.decode(torch.cat((data, scale), 1).numpy(), FP4_32_INDEX.name)
        q, w = cache_oracle.decode(query[t].numpy(), FP4_32_INDEX.name), f64(head_weight[t])
        want[t, lanes] = torched((w[:, None] * np.maximum(q @ keys.T, 0)).sum(0))
        magnitude[t, lanes] = torched((np.abs(w)[:, None] * (np.abs(q) @ np.abs(keys).T)).sum(0))
    return [Within(want, Accumulated.limit(terms_of(name, args), magnitude, want, BF16), entry >= 0)]


_INDEX_ARGS = ("query", "head_weight", "pages", "row_seq", "block_table")
SPECS_ARGS = {n: {a.name: i for i, a in enumerate(SPECS[n].args)} for n in ("index_score", "index_score_blocks")}


def index_score(*args: Any) -> list[Within]:
    visible, row_seq, entries = args[3], args[4], args[7]
    lane = torch.arange(entries).expand(len(visible), -1)
    seen = (lane < visible.unsqueeze(1)) & (row_seq >= 0).unsqueeze(1)
    return _index_scores("index_score", args, torch.where(seen, lane, -1))


def index_score_blocks(*args: Any) -> list[Within]:
    blocks, visible, row_seq, size = args[3], args[4], args[5], args[8]
    entry = (blocks.long().unsqueeze(2) * size + torch.arange(size)).flatten(1)
    seen = (blocks >= 0).repeat_interleave(size, 1) & (entry < visible.unsqueeze(1)) & (row_seq >= 0).unsqueeze(1)
    return _index_scores("index_score_blocks", args, torch.where(seen, entry, -1))


def _rotated(name: str, x: Tensor, positions: Any, table: Tensor, kind: str) -> Codes:
    """Rows of bf16 [T, h, d] as they are before quantisation: rotated, then rounded to bf16 by the implementation."""
    want, magnitude = (torched(v).flatten(0, 1) for v in turned(f64(x), positions, f64(table)))
    want = torch.where(want.abs() >= (2 - U16) * 2.0**127, torch.inf, want)  # what bf16 rounds to infinity
    limit = decided(name).limit(want.abs() + Accumulated.error(2, magnitude) / U16)
    return Codes(want, torch.where(magnitude == 0, 0.0, limit), kind)


def window_pack(kv: Tensor, positions: Tensor, table: Tensor) -> Codes:
    return _rotated("window_pack", kv.unsqueeze(1), positions.tolist(), table, FP8_32.name)


def index_query_pack(q: Tensor, positions: Tensor, table: Tensor) -> Codes:
    return _rotated("index_query_pack", q, positions.tolist(), table, FP4_32_INDEX.name)


def stored_entries(name: str, args: tuple[Any, ...]) -> tuple[Codes, list[tuple[int, int]]]:
    """What `compressed_store` or `index_key_store` is to write, and the page and slot of each entry."""
    latent, pages, positions, row_seq, block_table, table, ratio = args[:7]
    rows, places = [], []
    for t, (p, s) in enumerate(zip(positions.tolist(), row_seq.tolist(), strict=True)):
        if s >= 0 and (p + 1) % ratio == 0:
            column, slot = divmod((p + 1) // ratio - 1, entries_per_page(ratio))
            rows.append(t)
            places.append((int(block_table[s, column]), slot))
    kind = FP4_32_INDEX.name if name == "index_key_store" else args[7]
    starts = [int(positions[t]) + 1 - ratio for t in rows]
    return _rotated(name, latent[rows].unsqueeze(1), starts, table, kind), places


def swiglu_quant(gate_up: Tensor, weight: Tensor | None, limit: float) -> Codes:
    with np.errstate(all="ignore"):
        value = torched(layer_oracle.swiglu(f64(gate_up), None if weight is None else f64(weight), limit))
    return Codes(value, decided("swiglu_quant").limit(value.abs()), FP8_32.name)


def gate_scores(logits: Tensor) -> Tensor:
    wide = logits.double()
    return torch.where(wide > 20, wide, torch.log1p(torch.exp(wide))).sqrt()


def moe_gate(*args: Any) -> Choice:
    logits, bias, bias_vl, image = args[:4]
    added = torch.where(image.unsqueeze(1), bias_vl, bias).double()
    score = gate_scores(logits)
    return Choice(score + added, decided("moe_gate").limit(score + added.abs()))


def gate_weights(logits: Tensor, experts: Tensor, scaling: float) -> Within:
    """Weights of the experts that were chosen.

    A score takes 8 roundings (exponential and log1p 4 each, halved by the root, which takes 4), their sum as many and
    one per slot, the quotient and the product 2.
    """
    score = gate_scores(logits).gather(1, experts.long().clamp(0, logits.shape[1] - 1))
    want = score / (score.sum(1, keepdim=True) + 1e-20) * scaling
    return Within(want, (8 + 8 + experts.shape[1] + 2) * U32 * want.abs() + FLOOR)


FLOATS: dict[str, Callable[..., list[Within]]] = {
    f.__name__: f
    for f in (
        linear_fp8,
        linear_fp8_grouped,
        linear_bf16,
        grouped_linear,
        rms_norm,
        rope,
        hc_collapse,
        hc_expand,
        hc_coefficients,
        compress_pool,
        moe_combine,
        engram_gate,
        sparse_attention,
        index_score,
        index_score_blocks,
    )
}
CODES: dict[str, Callable[..., Codes]] = {f.__name__: f for f in (window_pack, index_query_pack, swiglu_quant)}
