"""Suite `faults`: bad arguments are refused, with the right error, before anything is written.

Bad calls are generated from every spec (`conformance/refusals.py`); what a spec says in words alone, such as a score
row that is wider than the page table, is listed in `conformance/misuse.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ...hal.registry import REGISTRY
from ...ops.rows import restride
from ...ops.spec import OpSpec, Sample
from ..calls import Unsupported, call, difference, samples, to_target
from ..case import Case, Finding, Outcome, Target, Tier
from ..misuse import MISUSES, Misuse
from ..refusals import Refusal, kinds
from ..registry import suite

PATTERN = 0xA5
"""What outputs hold before a call that must not write them."""


@suite("faults", about="bad arguments are refused: the right error, naming the argument, and nothing written")
def cases(tier: Tier, ops: Sequence[OpSpec]) -> Iterator[Case]:
    """A case per op and kind of fault; all tiers are the same."""
    for spec in ops:
        sample = _richest(spec)
        for kind in kinds():
            yield Case("faults", spec.name, kind, partial(judge_kind, spec, kind, sample.args))
        for misuse in MISUSES.get(spec.name, ()):
            yield Case("faults", spec.name, misuse.about, partial(judge_misuse, spec, misuse))


def _richest(spec: OpSpec) -> Sample:
    """The sample with most arguments given, and some rows, that is not large."""
    best: Sample | None = None
    for sample in samples(spec):
        if sample.label.startswith("real") and best is not None:
            break
        if best is None or _riches(sample) > _riches(best):
            best = sample
    assert best is not None, f"{spec.name} has no sample"
    return best


def _riches(sample: Sample) -> tuple[int, int, int]:
    given = [v for v in sample.args if isinstance(v, Tensor)]
    return sum(v is not None for v in sample.args), sum(v.numel() > 0 for v in given), -sum(v.numel() for v in given)


def judge_kind(spec: OpSpec, kind: str, sample: tuple[Any, ...], target: Target) -> Outcome:
    """Make every bad call of a kind, on signatures that were seen before and on new ones."""
    try:
        args = to_target(spec, sample, target)
        results = call(spec, args, target)
    except Unsupported as error:
        return error.outcome()
    findings: list[Finding] = []
    for refusal in kinds()[kind](spec, to_target(spec, sample, target), results):
        run = partial(spec.run, *refusal.args, refusal.out)
        with REGISTRY.using(target.backend, REGISTRY.arch):  # entering drops what was checked before
            findings += refused(
                spec, kind, refusal.about, refusal.says, refusal.error, run, _held(refusal, kind != "alias")
            )
            if not refusal.cold:
                call(spec, to_target(spec, sample, target), target)  # the signature has been seen from here on
                findings += refused(
                    spec, kind, refusal.about, refusal.says, refusal.error, run, _held(refusal, kind != "alias")
                )
    return Outcome(tuple(findings))


def judge_misuse(spec: OpSpec, misuse: Misuse, target: Target) -> Outcome:
    """Call the public function in a way that only words forbid."""
    sample = next(s for s in samples(spec) if misuse.sample in s.label)
    try:
        args = to_target(spec, sample.args, target)
        call(spec, args, target)
    except Unsupported as error:
        return error.outcome()
    args = to_target(spec, sample.args, target)
    given = {a.name: v for a, v in zip(spec.args, args, strict=True)}
    says = misuse.change(given)
    held = [v for v in given.values() if isinstance(v, Tensor)]
    return Outcome(tuple(refused(spec, "value", misuse.about, says, misuse.error, partial(misuse.call, given), held)))


def _held(refusal: Refusal, fill: bool) -> list[Tensor]:
    """Tensors of a bad call with memory that can be looked at; outputs, where they are apart, are filled first."""
    outs = refusal.out if isinstance(refusal.out, tuple) else (refusal.out,)
    inside = [v for v in (*refusal.args, *outs) if isinstance(v, Tensor) and v.device.type != "meta" and v.numel()]
    for out in outs if fill else ():
        if isinstance(out, Tensor) and out.device.type != "meta" and out.is_contiguous() and out.numel():
            out.view(torch.uint8).fill_(PATTERN)
    return [v.view(torch.uint8) if v.dtype == torch.bool else v for v in inside]  # a bool may hold any byte here


def refused(
    spec: OpSpec,
    kind: str,
    about: str,
    says: Sequence[str],
    wanted: type[Exception],
    run: Callable[[], Any],
    held: Sequence[Tensor],
) -> Iterator[Finding]:
    """Run a bad call; findings where it is not refused, not in the right words, or not before it wrote."""
    before = [restride(v) for v in held]
    try:
        run()
    except Exception as error:
        text = str(error)
        if type(error) is not wanted:
            yield Finding(kind, f"{about}: {type(error).__name__} instead of {wanted.__name__}: {text[:200]}")
        elif unsaid := [word for word in (spec.name, *says) if not _said(word, text)]:
            yield Finding(kind, f"{about}: the message does not say {unsaid}: {text[:300]}")
    else:
        yield Finding(kind, f"{about}: accepted")
    for now, then in zip(held, before, strict=True):
        if wrong := difference(spec, "a tensor of the call", now, then):
            yield Finding("stray_write", f"{about}: {wrong}")


def _said(word: str, text: str) -> bool:
    """Whether a message holds a word as such, not as a part of another."""
    start = r"(?<![\w.])" if word[:1].isalnum() else ""
    end = r"(?![\w])" if word[-1:].isalnum() else ""
    return re.search(start + re.escape(word) + end, text) is not None
