"""Two recordings held against each other: per op how far they agree, where they differ most, who is nearer the oracle.

Outputs of equal digests agree. Others of an exact op are a finding. Others of any other op are each held against the
op's class on the recorded arguments, which are made again here: two results may differ and both be right. With an
oracle all kept outputs are, those that agree included, and for each op it is said which of the two is nearer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from math import inf
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..hal.catalog import CATALOG
from ..hal.registry import REFERENCE, REGISTRY
from ..ops.numerics import DIGITS, Exact, spacing
from ..ops.spec import SPECS, OpSpec, Sample
from .agreement import SIDES, Agreement, Comparison, Worst
from .case import Finding
from .compare.classes import compare
from .compare.exact import bits
from .compare.nonfinite import defined_of
from .compare.report import index_of, shown
from .oracle import expected
from .recording import ON_THIS_CPU, chosen, digest, masks, of_arguments, results, written_by
from .recording_format import RecordingError, read

_OTHERS = "this version makes other arguments"


def compare_recordings(
    a: Path,
    b: Path,
    ops: Sequence[str] = (),
    *,
    oracle: bool = False,
    report: Callable[[str], None] = lambda op: None,
) -> Comparison:
    """Hold two recordings against each other.

    Args:
        ops: globs of op names; all by default.
        oracle: judge outputs of equal bits as well, and say who is nearer.
        report: called with each op before its calls.

    Raises:
        RecordingError: one of them cannot be read, they have no call in common, or of those that they have no output
            can be compared; says why.
    """
    sides = [_Side(*read(folder)) for folder in (a, b)]
    CATALOG.load(REFERENCE)
    expected.load_oracles()
    names = list(dict.fromkeys(op for side in sides for op, _ in side.calls))
    names = [op for op in names if not ops or any(fnmatchcase(op, glob) for glob in ops)]
    found = []
    for op in names:
        report(op)
        found.append(_Op(op, sides, oracle).agreement())
    of_ops = f" of ops {', '.join(ops)}" * bool(ops)
    if not any(each.calls for each in found):
        raise RecordingError(f"{a} and {b} have no call in common{of_ops}")
    if not any(each.equal + each.within + each.outside for each in found):
        # Else recordings of other samples, or of another version, would pass for ones that agree.
        raise RecordingError(f"no output of {a} and {b}{of_ops} can be compared: {_reasons(found)}")
    heads = tuple({k: v for k, v in side.facts.items() if k != "calls"} for side in sides)
    return Comparison((heads[0], heads[1]), tuple(found), oracle)


class _Side:
    """One recording: its calls by op and sample, its kept outputs by call and name."""

    def __init__(self, facts: dict[str, Any], kept: dict[str, Tensor]) -> None:
        self.facts, self.kept = facts, kept
        self.calls = {(each["op"], each["sample"]): (n, each) for n, each in enumerate(facts["calls"])}

    def value(self, number: int, out: dict[str, Any]) -> Tensor | None:
        """A kept output."""
        return self.kept.get(f"{number}/{out['name']}")


class _Op:
    """The calls of one op in both recordings."""

    def __init__(self, op: str, sides: Sequence[_Side], oracle: bool) -> None:
        self.op, self.sides, self.oracle = op, sides, oracle
        self.spec: OpSpec | None = SPECS.get(op)
        self.found = Agreement(op, self.spec.numerics.label if self.spec is not None else "unknown")
        self._samples: dict[str, Sample] | None = None

    def agreement(self) -> Agreement:
        """Compare all calls."""
        keys = list(dict.fromkeys(key for side in self.sides for key in side.calls if key[0] == self.op))
        for key in keys:
            there = [side.calls.get(key) for side in self.sides]
            if there[0] is None or there[1] is None:
                only = there[0] or there[1]
                assert only is not None
                self.found.over("only in A" if there[0] else "only in B", len(only[1]["outputs"]))
                continue
            self.found.calls += 1
            self._call(key[1], there[0], there[1])
        return self.found

    def _call(self, label: str, a: tuple[int, Any], b: tuple[int, Any]) -> None:
        calls = (a, b)
        outs = [each["outputs"] for _, each in calls]
        if a[1]["version"] != b[1]["version"]:
            return self.found.over("another version of the op", len(outs[0]))
        if a[1]["arguments"] != b[1]["arguments"]:
            return self.found.over("other arguments", len(outs[0]))
        forms = [[f"{o['name']} {o['dtype']} {o['shape']}" for o in each] for each in outs]
        if forms[0] != forms[1]:
            self.found.outside += len(outs[0])
            text = f"{self.op}, {label}: A has {', '.join(forms[0])}, B has {', '.join(forms[1])}"
            return self.found.findings.append(Finding("outputs", text))
        same = [x["digest"] == y["digest"] for x, y in zip(*outs, strict=True)]
        sample = None
        if self.oracle or not (all(same) or self._exact):
            sample = self._sample(label, a[1])
        self._furthest(label, calls, same, sample)
        if self._exact:
            return self._exactly(label, calls, same, sample)
        return self._in_class(label, calls, same, sample)

    @property
    def _exact(self) -> bool:
        return self.spec is not None and isinstance(self.spec.numerics, Exact)

    def _sample(self, label: str, call: dict[str, Any]) -> Sample | None:
        """The sample of a call, made again; None where this version makes another one."""
        if self.spec is None or self.spec.version != call["version"]:
            return None
        if self._samples is None:
            self._samples = {sample.label: sample for sample in chosen(self.spec)}
        sample = self._samples.get(label)
        return sample if sample is not None and of_arguments(sample.args) == call["arguments"] else None

    def _exactly(self, label: str, calls: Any, same: list[bool], sample: Sample | None) -> None:
        """An exact op: every bit; with an oracle, whose bits are the reference's."""
        outs = [each["outputs"] for _, each in calls]
        wanted = None if sample is None else self._reference(sample)[1]
        right = [
            [wanted is None or o["digest"] == w for o, w in zip(each, wanted or outs[0], strict=True)] for each in outs
        ]
        if wanted is not None:
            self._near(*(sum(not ok for ok in side) for side in right))
        for n, agree in enumerate(same):
            fine = agree and right[0][n] and right[1][n]
            self.found.equal += fine
            self.found.outside += not fine
            name, place = outs[0][n]["name"], f"{self.op}, {label}"
            if not agree:
                whose = _whose(right[0][n], right[1][n]) if wanted is not None else ""
                self.found.findings.append(Finding("bits", f"{place}: {name} of A and of B differ{whose}"))
            elif not fine:
                text = f"{place}: {name} of A and B agree, and differ from the reference's"
                self.found.findings.append(Finding("bits", text))
        if sample is None and self.oracle:
            self.found.alone(_OTHERS, len(same))

    def _in_class(self, label: str, calls: Any, same: list[bool], sample: Sample | None) -> None:
        """An op of another class: each side by itself, where they differ or an oracle is asked."""
        if all(same) and not self.oracle:
            self.found.equal += len(same)
            return
        if sample is None:
            if all(same):
                self.found.equal += len(same)
                return self.found.alone(_OTHERS, len(same))
            return self.found.over(f"they differ, and {_OTHERS}", len(same))
        assert self.spec is not None
        want, wanted = self._reference(sample)
        sets = [
            self._outputs(side, n, each["outputs"], want, wanted)
            for side, (n, each) in zip(self.sides, calls, strict=True)
        ]
        if any(each is None for each in sets):
            if all(same):
                self.found.equal += len(same)
                return self.found.alone("not kept", len(same))
            return self.found.over("not kept", len(same))
        wrong, reached = False, []
        for side, got in zip(SIDES, sets, strict=True):
            assert got is not None
            made = compare(self.spec, sample.args, got, want)
            for f in made.findings:
                self.found.findings.append(Finding(f.check, f"{side.upper()}: {self.op}, {label}: {f.message}"))
            wrong |= bool(made.findings)
            own = self.found.share[side]
            share = inf if made.findings and made.worst is None else made.worst
            if share is not None:
                self.found.share[side] = share if own is None else max(own, share)
            reached.append((self._errors(side, sample, got), share or 0.0))
        self._near(*reached)
        kind = "outside" if wrong else "equal" if all(same) else "within"
        setattr(self.found, kind, getattr(self.found, kind) + len(same))

    def _reference(self, sample: Sample) -> tuple[list[Tensor], list[str]]:
        """What the reference gives here, and the digests."""
        assert self.spec is not None
        with REGISTRY.using(REFERENCE):
            want = results(self.spec, sample, ON_THIS_CPU)
        assert len(want) == len(written_by(self.spec, sample))
        return want, [digest(w, m) for w, m in zip(want, masks(self.spec, sample), strict=True)]

    def _outputs(
        self, side: _Side, number: int, outs: list[dict[str, Any]], want: list[Tensor], wanted: list[str]
    ) -> list[Tensor] | None:
        """A side's outputs: kept ones, and the reference's in place of equal ones; None if one is neither."""
        if len(outs) != len(want):
            return None
        found = []
        for out, value, other in zip(outs, want, wanted, strict=True):
            kept = side.value(number, out)
            if kept is None and out["digest"] != other:
                return None
            found.append(value if kept is None else kept)
        return found

    def _errors(self, side: str, sample: Sample, got: list[Tensor]) -> float:
        """Mean square of error / limit of a call's float outputs; adds them to the op's."""
        assert self.spec is not None
        if self.spec.name not in expected.FLOATS:
            return 0.0
        total, count = 0.0, 0
        for oracle, value in zip(expected.FLOATS[self.spec.name](*sample.args), got, strict=True):
            judged = defined_of(oracle) & oracle.want.isfinite() & value.isfinite() & (oracle.limit > 0)
            share = ((value.double() - oracle.want) / oracle.limit)[judged.expand(value.shape)]
            total, count = total + float(share.square().sum()), count + share.numel()
        self.found.error[side][0] += total
        self.found.error[side][1] += count
        return total / count if count else 0.0

    def _near(self, a: Any, b: Any) -> None:
        """Count a call for the side of the smaller error."""
        self.found.nearer["a" if a < b else "b" if b < a else "both"] += 1

    def _furthest(self, label: str, calls: Any, same: list[bool], sample: Sample | None) -> None:
        """Keep the element in which the two differ most."""
        stated = [None] * len(same) if sample is None or self.spec is None else masks(self.spec, sample)
        for n, agree in enumerate(same):
            out = calls[0][1]["outputs"][n]
            x, y = (side.value(number, out) for side, (number, _) in zip(self.sides, calls, strict=True))
            if agree or x is None or y is None or not x.numel():
                continue
            apart = distance(x, y)
            if (defined := stated[n]) is not None:
                apart = torch.where(defined, apart, 0.0)
            flat = int(apart.argmax())
            far = float(apart.flatten()[flat])
            if far > 0 and (self.found.worst is None or far > self.found.worst.apart):
                place = f"{label}: {out['name']}{index_of(flat, x.shape)}"
                self.found.worst = Worst(place, shown(x.flatten()[flat]), shown(y.flatten()[flat]), far)


def distance(a: Tensor, b: Tensor) -> Tensor:
    """How far elements are apart, float64: floats in units in the last place of the larger, infinitely where only one
    is NaN or infinite; other numbers by their difference. Elements of equal bits are 0 apart."""
    if a.dtype in DIGITS:
        x, y = a.double(), b.double()
        unit = spacing(torch.maximum(x.abs().nan_to_num(0, 0, 0), y.abs().nan_to_num(0, 0, 0)), a.dtype)
        apart = ((x - y).abs() / unit).nan_to_num(inf, inf)
    else:
        apart = (a.double() - b.double()).abs().nan_to_num(inf, inf)
    return torch.where(bits(a) == bits(b), 0.0, apart)


def _reasons(found: Sequence[Agreement]) -> str:
    """Why outputs were passed over, the most frequent reason first."""
    over: Counter[str] = Counter()
    for each in found:
        over.update(each.passed_over)
    return ", ".join(f"{why} ({count} outputs)" for why, count in over.most_common()) or "there are none"


def _whose(a: bool, b: bool) -> str:
    if a == b:
        return "; neither is the reference's"
    return f"; {'A' if a else 'B'} has the reference's"
