"""Oracles of fused ops: each decision on the op's own numbers, those numbers against float64."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ...ops.layouts import PAGE_TOKENS
from ..case import Finding
from ..compare.exact import compare_bits
from ..compare.report import Report
from ..compare.within import compare_within
from . import formulas
from .cache import index_planes, index_scores
from .expected import (
    FP32_MAX,
    U16,
    U32,
    Args,
    Within,
    accumulated,
    judged,
    largest_run,
    torched,
)
from .formats import POSITIVE, f64, signed_codes
from .layers import rms_norm
from .moe import judge_gate


def _quantised(y: Tensor, q: Tensor, scale: Tensor) -> Report:
    """Codes and scales of the op's own rows, every bit."""
    groups = f64(y).reshape(y.shape[0], y.shape[1] // 32, 32)
    lost = ~np.isfinite(groups).all(-1, keepdims=True)
    groups = np.where(lost, 0.0, groups)
    # 448 = 0.875 * 2^9, so the smallest 2^e with 448 * 2^e >= m * 2^x, m in [0.5, 1), is read off m.
    m, x = np.frexp(np.maximum(np.abs(groups).max(-1, initial=0.0), float(np.float32(1e-4))))
    e = np.where(m <= 0.875, x - 9, x - 8)
    rounded = signed_codes(groups * 2.0 ** -e[..., None], POSITIVE, 0x80)
    codes = torch.from_numpy(np.where(lost, 0x7F, rounded).astype(np.uint8).reshape(y.shape))
    scales = torch.from_numpy(np.where(np.squeeze(lost, -1), 255, e + 127).astype(np.uint8))
    return Report.of(
        compare_bits("q", q.view(torch.uint8), codes, than="its own y gives"),
        compare_bits("scale", scale, scales, than="its own y gives"),
    )


@judged("rms_norm_quant")
def rms_norm_quant(args: Args, got: Sequence[Tensor], twin: Sequence[Tensor]) -> Report:
    return compare_within("y", rms_norm(*args)[0], got[0], twin[0]) + _quantised(*got)


def collapsed_norm(x: Tensor, pending: Tensor, weight: Tensor, eps: float) -> Within:
    """Normed mix of streams. The mix u is off by e (6.3, its rounding to bf16 among it); through the norm that moves a
    value by |w|/rms * e, and all values by the share that the mean square moves, half of mean(2*|u|*e + e^2) / rms^2.
    The norm itself takes D/2 + 9 roundings, and one to bf16."""
    terms = f64(pending)[:, :, None] * f64(x)
    width = x.shape[2]
    with np.errstate(all="ignore"):
        u = terms.sum(1)
        e = accumulated(x.shape[1], np.abs(terms).sum(1), u).limit.numpy()
        square = (u * u).mean(-1, keepdims=True) + eps
        want = torched(formulas.rms_norm(u, f64(weight), eps))
        moved = (2 * np.abs(u) * e + e * e).mean(-1, keepdims=True) / square
        share = 1 / np.sqrt(np.maximum(1 - moved, 0.25)) - 1
        direct = np.abs(f64(weight)) * e / np.sqrt(square) * (1 + share)
        limit = torched(direct + np.abs(want.numpy()) * (share + (width / 2 + 9) * U32))
        limit = limit * (1 + U16) + U16 * want.abs() + 2.0**-126
        # Where the mix may vanish its direction is open, and a normed value is at most sqrt(D) times its weight.
        most = torched(2 * np.sqrt(width) * np.abs(f64(weight)) * np.ones_like(u))
        limit = torch.where(torched(moved * np.ones_like(u)) > 0.75, most, limit)
        overflow = torched((u * u).sum(-1, keepdims=True)) > FP32_MAX
    want = torch.where(overflow & want.isfinite(), 0.0, want)
    return Within(want, limit.nan_to_num(0.0))


@judged("hc_collapse_norm")
def hc_collapse_norm(args: Args, got: Sequence[Tensor], twin: Sequence[Tensor]) -> Report:
    return compare_within("y", collapsed_norm(*args), got[0], twin[0]) + _quantised(*got)


@judged("moe_route")
def moe_route(args: Args, got: Sequence[Tensor], twin: Sequence[Tensor]) -> Report:
    x, gate, bias, bias_vl, image, _, scaling = args
    weights, experts, logits = got
    wide, w = f64(x), f64(gate.tensors[0])
    with np.errstate(invalid="ignore"):
        want = wide @ w.T
    oracle = accumulated(x.shape[1], largest_run(wide, w), want, torch.float32)
    found = compare_within("logits", oracle, logits, twin[2])
    return found + judge_gate(logits, bias, bias_vl, image, scaling, weights, experts)


@judged("index_topk")
def index_topk(args: Args, got: Sequence[Tensor], twin: Sequence[Tensor]) -> Report:
    """Chosen entries are visible, ascending, distinct and as many as there can be; their scores are within the limit;
    none left out is better than one chosen by more than both limits, nor equal to it in every byte and lower."""
    query, head_weight, pages, visible, row_seq, table, blocks, ratio, entries, size, k = args
    indices, scores = got
    reach = int(visible.max()) if len(visible) else 0
    entry = torch.arange(reach).expand(len(visible), -1)
    seen = (entry < visible.unsqueeze(1)) & (row_seq >= 0).unsqueeze(1)
    if blocks is None:
        seen = seen & (entry < entries)
    else:
        seen = seen & (entry.unsqueeze(2) // size == blocks.unsqueeze(1)).any(2)
    where = (query, head_weight, pages, row_seq, table)
    terms = query.shape[1] * (query.shape[2] * 32 // 17)
    oracle = index_scores(terms, where, ratio, torch.where(seen, entry, -1))
    report = Report()
    for t in range(len(visible)):
        row = indices[t]
        chosen = row[row >= 0].long()
        count = min(k, int(seen[t].sum()))
        ordered = torch.cat((chosen, torch.full((k - len(chosen),), -1))).equal(row.long())
        legal = ordered and len(chosen) == count and bool((chosen[1:] > chosen[:-1]).all())
        if not legal or not bool((chosen < reach).all()) or not bool(seen[t][chosen].all()):
            return report + Report(
                (
                    Finding(
                        "decision",
                        f"indices[{t}]: got {row.tolist()[:16]}, want {count} visible entries, ascending, then -1",
                    ),
                )
            )
        if not count:
            continue
        want, limit = oracle.want[t], oracle.limit[t]
        own = Within(want[chosen], limit[chosen])
        report += compare_within(f"scores[{t}]", own, scores[t, :count], None)
        report += _left_out(t, chosen, seen[t], want, limit, _records(pages, table[int(row_seq[t])], ratio, reach))
    return report


def _left_out(t: int, chosen: Tensor, seen: Tensor, want: Tensor, limit: Tensor, records: Tensor) -> Report:
    """Whether an entry that was left out should have been chosen; `records` number the distinct keys."""
    rest = seen.clone()
    rest[chosen] = False
    if not len(chosen) or not bool(rest.any()):
        return Report()
    lost = want.isnan()
    if bool(lost[chosen].any()):
        late = int(chosen[lost[chosen]].max())
        if bool((rest & ~lost).any()) or late > int(torch.nonzero(rest)[0]):
            words = f"entry {late}, whose score is NaN, before a number or before a lower NaN"
            return Report((Finding("decision", f"indices[{t}]: got {words}"),))
    value, limit = torch.where(lost, -torch.inf, want), limit.nan_to_num(0.0)
    low, high = int((value + limit)[chosen].argmin()), int(torch.where(rest, value - limit, -torch.inf).argmax())
    a, b = int(chosen[low]), high
    if value[b] - limit[b] > value[a] + limit[a]:
        words = f"entry {a} of score {float(want[a]):.9g}, want entry {b} of {float(want[b]):.9g}"
        return Report(
            (Finding("decision", f"indices[{t}]: got {words}, limits {float(limit[a]):.3g}, {float(limit[b]):.3g}"),)
        )
    last = {int(records[e]): int(e) for e in chosen}  # ascending, so the highest chosen of every key
    for e in torch.nonzero(rest).flatten().tolist():
        if (other := last.get(int(records[e]), -1)) > e:
            return Report(
                (Finding("decision", f"indices[{t}]: entries {e} and {other} have equal keys, {e} comes first"),)
            )
    return Report()


def _records(pages: Tensor, columns: Tensor, ratio: int, reach: int) -> Tensor:
    """A number per entry of a sequence, equal where all bytes of the keys are."""
    per_page = PAGE_TOKENS // ratio
    channels = pages.shape[1] // per_page * 32 // 17
    entry = torch.arange(reach)
    column = (entry // per_page).clamp(max=max(0, len(columns) - 1))
    page = columns.long()[column].clamp(min=0) if len(columns) else torch.zeros(0, dtype=torch.long)
    data, scale = (plane[page, entry[: len(page)] % per_page] for plane in index_planes(pages, channels, ratio))
    if not len(page):
        return torch.zeros(reach, dtype=torch.long)
    _, number = torch.unique(torch.cat((data, scale), 1), dim=0, return_inverse=True)
    return torch.as_tensor(number)
