"""The decided class, quantised values: a code and a scale each stand for an interval of values.

`docs/numerics.md`, section 6.4, has the rule.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ...ops.layouts import LAYOUTS, RecordLayout
from ..case import Finding
from ..oracle.expected import Codes
from ..oracle.formats import E2M1, E4M3, power
from .report import Report, index_of, share_text, worst_of

GRIDS = {8: E4M3[:127], 4: E2M1[:8]}
"""Ascending magnitudes that a code of so many bits stands for."""
LOST = {8: 0x7F, 4: 0}
"""The code of every channel of a group that is lost to NaN or infinity; its scale is NaN."""
SCALE_FLOOR = {"fp8_32": float(np.float32(1e-4)), "fp4_32_index": 6 * 2.0**-126, "fp4_16": 6 * 2.0**-9}


def compare_codes(name: str, oracle: Codes, record: Tensor) -> Report:
    """Every code and every scale is one that a value within the limit of the oracle's rounds to.

    Args:
        record: u8 [n, bytes], the data of a row and then its scales.
    """
    layout = LAYOUTS[oracle.kind]
    rows, channels = oracle.value.shape
    shape = (rows, channels // layout.group, layout.group)
    value, limit = oracle.value.reshape(shape), oracle.limit.reshape(shape)
    grid = torch.from_numpy(GRIDS[layout.bits])
    negative, code = _magnitude_codes(layout, record, shape)
    scale = record[:, layout.data_bytes(channels) :].long()
    e8m0 = layout.scale == "e8m0"
    lost = value.isnan().any(-1) | (~value.isfinite().all(-1) if e8m0 else torch.tensor(False))
    nan_scale = scale == (255 if e8m0 else 0x7F)
    if (wrong := nan_scale != lost).any():
        return Report((_scale_finding(name, "nonfinite", wrong, scale, "NaN", lost),))
    if (wrong := lost.unsqueeze(-1) & (negative | (code != LOST[layout.bits]))).any():
        at = worst_of(wrong)
        got = f"code {int(code.flatten()[at]):#x}" + ", negative" * bool(negative.flatten()[at])
        text = f"{name}: code{index_of(at, wrong.shape)}: got {got}, must be {LOST[layout.bits]:#x} under a NaN scale"
        return Report((Finding("nonfinite", text),))
    fine = ~lost & ~nan_scale
    if (wrong := fine.unsqueeze(-1) & (code >= len(grid))).any():
        at = worst_of(wrong)
        return Report((Finding("nonfinite", f"{name}: code{index_of(at, wrong.shape)} is NaN, the oracle is not"),))
    value, limit = value.clamp(-1e38, 1e38).nan_to_num(0.0), limit.nan_to_num(0.0, 0.0)
    factor, low, high, moved, limit = _scale_interval(oracle.kind, scale, value, limit)
    amax = value.abs().amax(-1).clamp(min=SCALE_FLOOR[oracle.kind])
    findings, shares = [], []
    wrong = fine & _beyond(amax, low, high, moved)
    shares.append(_share(amax, low, high, moved, fine))
    if wrong.any():
        findings.append(_interval_finding(name, "scale", wrong, scale, amax, low, high, moved, float(shares[0])))
    low, high = (edge * factor.unsqueeze(-1) for edge in borders(grid, code.clamp(max=len(grid) - 1)))
    magnitude, usable = torch.where(negative, -value, value), fine.unsqueeze(-1).expand(shape)
    wrong = usable & _beyond(magnitude, low, high, limit)
    shares.append(_share(magnitude, low, high, limit, usable))
    if wrong.any():
        findings.append(_interval_finding(name, "code", wrong, code, magnitude, low, high, limit, float(shares[1])))
    return Report(tuple(findings), float(max(shares)))


def borders(grid: Tensor, code: Tensor) -> tuple[Tensor, Tensor]:
    """The ends of the interval of magnitudes that rounds to each code."""
    middle = (grid[1:] + grid[:-1]) / 2
    low = torch.cat((torch.zeros(1), middle))
    high = torch.cat((middle, torch.full((1,), torch.inf)))
    return low[code], high[code]


def _magnitude_codes(layout: RecordLayout, record: Tensor, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Sign and magnitude code of every channel, in groups."""
    data = record[:, : layout.data_bytes(shape[1] * shape[2])].long()
    if layout.bits == 4:
        data = torch.stack((data & 15, data >> 4), dim=-1).flatten(1)
    sign_bit = 1 << (layout.bits - 1)
    return (data & sign_bit > 0).reshape(shape), (data & (sign_bit - 1)).reshape(shape)


def _scale_interval(kind: str, scale: Tensor, value: Tensor, limit: Tensor) -> tuple[Tensor, ...]:
    """Factor of a scale code, the interval of group maxima it stands for, and how far maxima and values may be off."""
    layout = LAYOUTS[kind]
    moved = limit.amax(-1) if limit.shape[0] else limit.new_zeros(limit.shape[:-1])
    if layout.scale == "e8m0":
        top = float(GRIDS[layout.bits][-1])
        factor = torch.from_numpy(power(scale)).nan_to_num(1.0)
        return factor, factor * top / 2, factor * top, moved, limit
    eighths = torch.from_numpy(GRIDS[8])
    factor = eighths[scale.clamp(max=126)]
    low, high = (6 * edge for edge in borders(eighths, scale.clamp(max=126)))
    amax = value.abs().amax(-1).clamp(min=SCALE_FLOOR[kind])
    moved = moved + 2.0**-23 * amax  # the product with 1/6 and that with the rounded reciprocal
    return factor, low, high, moved, limit + 2.0**-23 * value.abs()


def _beyond(value: Tensor, low: Tensor, high: Tensor, limit: Tensor) -> Tensor:
    return (value < low - limit) | (value > high + limit)


def _excess(value: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """How far a value lies outside its interval."""
    return torch.maximum(low - value, value - high).clamp(min=0)


def _share(value: Tensor, low: Tensor, high: Tensor, limit: Tensor, judged: Tensor) -> float:
    """Largest share of the limit that leaving the interval takes."""
    excess = torch.where(judged, _excess(value, low, high), 0.0)
    share = torch.where(excess == 0, 0.0, excess / limit)
    return float(share.max()) if share.numel() else 0.0


def _interval_finding(
    name: str, what: str, wrong: Tensor, code: Tensor, value: Tensor, low: Tensor, high: Tensor, limit: Tensor, w: float
) -> Finding:
    at = worst_of(wrong, _excess(value, low, high) / limit.clamp(min=1e-300))
    got, want, a, b, most = (float(x.flatten()[at]) for x in (code, value, low, high, limit))
    meaning = "the group's largest magnitude" if what == "scale" else "the value"
    return Finding(
        "decision",
        f"{name}: {what}{index_of(at, wrong.shape)}: got {int(got):#x}, which stands for [{a:.6g}, {b:.6g}]; want a "
        f"{what} for {meaning} {want:.9g}, limit {most:.3g}, {share_text(w)}; "
        f"{int(wrong.sum())} of {wrong.numel()} {what}s",
    )


def _scale_finding(name: str, check: str, wrong: Tensor, scale: Tensor, meaning: str, want: Tensor) -> Finding:
    at = worst_of(wrong)
    verb = "must be" if bool(want.flatten()[at]) else "must not be"
    return Finding(
        check,
        f"{name}: scale{index_of(at, wrong.shape)}: got {int(scale.flatten()[at]):#x}, {verb} {meaning}; "
        f"{int(wrong.sum())} of {wrong.numel()} scales",
    )
