"""The decided class, choices: the largest keys, where they are clear of the border (docs/numerics.md, 6.5)."""

from __future__ import annotations

import torch
from torch import Tensor

from ..case import Finding
from ..oracle.expected import Choice
from .report import Report


def compare_choices(name: str, oracle: Choice, ids: Tensor, inputs: tuple[Tensor, ...]) -> Report:
    """Chosen keys are at least the others' less the limits, in descending order; equal inputs in ascending ids.

    Args:
        ids: [T, k]. inputs: [T, E] each; where all of them are equal so are the keys, bit for bit.
    """
    findings: list[Finding] = []
    for t, row in enumerate(ids.tolist()):
        found = _row(f"{name}[{t}]", row, oracle.key[t], oracle.limit[t], [part[t] for part in inputs])
        if found is not None:
            findings.append(found)
    if len(findings) > 1:
        more = Finding("decision", f"{name}: {len(findings)} of {len(ids)} rows are wrong; the first is above")
        findings = [findings[0], more]
    return Report(tuple(findings))


def _row(name: str, row: list[int], key: Tensor, limit: Tensor, inputs: list[Tensor]) -> Finding | None:
    """What is wrong with one row's choice."""
    if len(set(row)) < len(row) or not all(0 <= e < len(key) for e in row):
        return Finding("decision", f"{name}: got {row}, want {len(row)} distinct ids in 0..{len(key) - 1}")
    key = torch.where(key.isnan(), -1e300, key.double().clamp(-1e200, 1e200))  # NaN last
    limit = limit.nan_to_num(0.0, 0.0)
    rest = torch.ones(len(key), dtype=torch.bool)
    rest[row] = False
    chosen, slack = key[row], limit[row]
    rise = chosen[1:] - chosen[:-1] - slack[1:] - slack[:-1]
    if len(rise) and rise.max() > 0:
        i = int(rise.argmax())
        return Finding("decision", f"{name}: got {row}: keys do not descend at slot {i + 1}, by {float(rise[i]):.3g}")
    if rest.any():
        low, high = int((chosen + slack).argmin()), int(torch.where(rest, key - limit, -torch.inf).argmax())
        if chosen[low] + slack[low] < key[high] - limit[high]:
            return Finding(
                "decision",
                f"{name}: got id {row[low]} of key {float(chosen[low]):.9g}, want id {high} of key "
                f"{float(key[high]):.9g}, limits {float(slack[low]):.3g} and {float(limit[high]):.3g}",
            )
    rank = torch.full((len(key),), len(row))
    rank[row] = torch.arange(len(row))
    equal = torch.ones((len(key), len(key)), dtype=torch.bool).triu(1)
    for x in inputs:
        equal &= x.unsqueeze(1) == x
    if (late := equal & (rank.unsqueeze(1) > rank)).any():
        a, b = torch.nonzero(late)[0].tolist()
        return Finding("decision", f"{name}: got {row}: ids {a} and {b} have equal keys, {a} must come first")
    return None
