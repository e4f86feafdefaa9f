"""The three levels at which two backends are compared on a model.

(a) teacher-forced: every op, and every layer, on what the reference recorded; (b) end to end, with the reference's
routing and selections replayed: rms errors of the residual streams, against the spread of the reference's own
legitimate variants; (c) greedy tokens of a free run, where every decision on the way was clear.

The limit of an rms error is `MULTIPLE` times the spread. Two implementations that are both off by independent errors of
the size that one variant shows are apart by sqrt(2) times it; the rest, again sqrt(2), is for quantisers, of which few
codes flip in a small model.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor

from ..hal.catalog import CATALOG
from ..hal.registry import REFERENCE, REGISTRY
from ..model.loading import load_model
from ..model.presets import ensure_preset
from ..model.transformer import Model
from ..ops.rows import restride
from ..ops.spec import SPECS, OpSpec
from .calls import Unsupported, call, difference, to_target
from .case import UNSUPPORTED, Finding, Outcome, Target, skip
from .compare.classes import compare, names_of
from .decisions import Replay, replaying
from .trace import OpCall, Trace, tracing
from .variants import installed, variants
from .walk import Force, Schedule, StepRecord, Walker, schedule

MULTIPLE = 2.0
LISTED = 5
"""Findings of one kind that are written out."""


@dataclass(frozen=True)
class World:
    """The reference's run of a schedule on the CPU, and the spread of its variants.

    Attributes:
        model, plan: what ran.
        calls: every op call, those of a draft pass behind the last step included.
        steps: every layer of every step.
        replay: the decisions.
        alone: relative rms spread of a layer that starts from recorded states; the largest over layers.
        spread: rms spread of the streams at the exit of each layer, end to end; the largest so far.
        logits: rms spread of the logits.
    """

    model: Model
    plan: Schedule
    calls: list[OpCall]
    steps: list[StepRecord]
    replay: Replay
    alone: float
    spread: list[float]
    logits: float


@cache
def world(preset: str, long: int) -> World:
    """Run the reference and its variants; once per process."""
    model = reference_model(preset)
    with REGISTRY.using(REFERENCE, ""):
        plan = schedule(model.config.text.vocab_size, long)
        trace = Trace()
        walker = Walker(model, trace, drafts=True)
        with tracing(trace):
            walker.draft(plan.run(walker))
        steps = walker.steps
        replay = Replay.of(trace.calls).complete()
        layers = len(model.layers)
        spread, logits, alone = [0.0] * layers, 0.0, 0.0
        for name, functions in variants().items():
            with installed(functions), replaying(replay.again()):
                other = steps_of(plan, Walker(model))
            spread = [max(s, e) for s, e in zip(spread, layer_errors(other, steps), strict=True)]
            logits = max(logits, logit_error(other, steps))
            if name == "all":
                with installed(functions), replaying(replay.again()):
                    other = steps_of(plan, Walker(model), lambda step, layer: steps[step].layers[layer])
                alone = max(relative(other, steps))
    for layer in range(1, layers):
        spread[layer] = max(spread[layer], spread[layer - 1])
    return World(model, plan, trace.calls, steps, replay, alone, spread, logits)


def steps_of(plan: Schedule, walker: Walker, force: Force | None = None) -> list[StepRecord]:
    """What every layer gave in a run of a schedule."""
    plan.run(walker, force)
    return walker.steps


@cache
def reference_model(preset: str) -> Model:
    """The preset on the CPU, its weights as the contract packs them."""
    CATALOG.load(REFERENCE)
    with REGISTRY.using(REFERENCE, ""):
        return load_model(ensure_preset(preset))


@cache
def target_model(preset: str, target: Target) -> Model:
    """The preset on a target, its weights prepared by the target's kernels."""
    return load_model(ensure_preset(preset), device=target.device)


# ---- errors ---------------------------------------------------------------------------------------------------------


def layer_errors(got: Sequence[StepRecord], want: Sequence[StepRecord]) -> list[float]:
    """rms difference of the streams at the exit of each layer, over the rows of all steps."""
    return [_rms(_streams(got, n) - _streams(want, n)) for n in range(len(want[0].layers))]


def logit_error(got: Sequence[StepRecord], want: Sequence[StepRecord]) -> float:
    """rms difference of the logits."""
    return _rms(torch.cat([_logits(a) - _logits(b) for a, b in zip(got, want, strict=True)]))


def relative(got: Sequence[StepRecord], want: Sequence[StepRecord]) -> list[float]:
    """`layer_errors` as shares of the rms of what the layer gave."""
    size = [_rms(_streams(want, n)) for n in range(len(want[0].layers))]
    return [error / s for error, s in zip(layer_errors(got, want), size, strict=True)]


def _streams(steps: Sequence[StepRecord], layer: int) -> Tensor:
    return torch.cat([s.layers[layer].out[: s.rows].double().cpu().flatten(1) for s in steps])


def _logits(step: StepRecord) -> Tensor:
    assert step.logits is not None
    return step.logits.double().cpu()


def _rms(x: Tensor) -> float:
    return float(x.square().mean().sqrt())


# ---- (a) ------------------------------------------------------------------------------------------------------------


def judge_ops(preset: str, long: int, ops: Sequence[OpSpec], target: Target) -> Outcome:
    """Every recorded call, made again on the target with the recorded arguments, meets the op's class."""
    names = {spec.name for spec in ops}
    diverged: list[Finding] = []
    missing: dict[str, str] = {}
    ran, worst = 0, 0.0
    for made in world(preset, long).calls:
        if made.op not in names or made.op in missing:
            continue
        try:
            found, share = again(made, target)
        except Unsupported as error:
            missing[made.op] = str(error)
            continue
        ran, worst = ran + 1, max(worst, share)
        diverged += found
    if not ran and missing:
        return skip(UNSUPPORTED, "; ".join(missing.values()))
    notes = () if ran else ("the model calls none of these ops; nothing was compared",)
    return of_own(Outcome(_first(diverged, "calls"), worst=worst, notes=notes), sorted(missing), target)


def again(made: OpCall, target: Target) -> tuple[list[Finding], float]:
    """One recorded call on the target: findings, and the share of the limit."""
    spec = SPECS[made.op]
    args = to_target(spec, made.args, target)
    outs = call(spec, args, target)
    written = (v for a, v in zip(spec.args, args, strict=True) if getattr(a, "mutable", False) and v is not None)
    got = tuple(_home(v) for v in (*outs, *written))
    masks = (*spec.defined(*made.args), *[None] * len(got))
    pairs = zip(names_of(spec), got, made.results, masks, strict=False)
    if not any(difference(spec, name, g, w, m) for name, g, w, m in pairs):
        return [], 0.0  # the reference's own bits
    report = compare(spec, made.args, got, made.results)
    return [Finding(f.check, f"{made}: {f.message}") for f in report.findings], report.worst or 0.0


def _home(value: Tensor) -> Tensor:
    return value.cpu() if value.is_contiguous() else restride(value).cpu()


def judge_layers(preset: str, long: int, target: Target) -> Outcome:
    """Every layer, started from recorded states with recorded decisions."""
    w = world(preset, long)
    got, borrowed = _run(w, preset, target, lambda step, layer: w.steps[step].layers[layer])
    return of_own(layers_within(relative(got, w.steps), w.alone), borrowed, target)


def layers_within(errors: Sequence[float], alone: float) -> Outcome:
    """Whether the relative errors of layers that started from recorded states lie in the limit."""
    limit, findings = MULTIPLE * alone, []
    shares = [_share(error, limit) for error in errors]
    for layer, (error, share) in enumerate(zip(errors, shares, strict=True)):
        if not share <= 1:
            text = (
                f"layer {layer}: relative rms error {error:.3g}, limit {limit:.3g} ({MULTIPLE} x the variants' spread)"
            )
            findings.append(Finding("layer", text))
    return Outcome(_first(findings, "layers"), worst=max(shares))


# ---- (b) ------------------------------------------------------------------------------------------------------------


def judge_replayed(preset: str, long: int, target: Target) -> Outcome:
    """End to end with recorded decisions: rms errors of the streams after every layer, and of the logits."""
    w = world(preset, long)
    got, borrowed = _run(w, preset, target, None)
    findings, shares = [], []
    errors = [*layer_errors(got, w.steps), logit_error(got, w.steps)]
    for place, (error, spread) in enumerate(zip(errors, [*w.spread, w.logits], strict=True)):
        share = _share(error, MULTIPLE * spread)
        shares.append(share)
        if not share <= 1:
            name = f"streams after layer {place}" if place < len(w.spread) else "logits"
            text = f"{name}: rms error {error:.3g}, limit {MULTIPLE * spread:.3g} ({MULTIPLE} x the variants' spread)"
            findings.append(Finding("replayed", text))
    return of_own(Outcome(_first(findings, "places"), worst=max(shares)), borrowed, target)


def _run(w: World, preset: str, target: Target, force: Force | None) -> tuple[list[StepRecord], list[str]]:
    """What every layer gave on the target, and the ops that ran on another backend's kernels."""
    model = w.model if target == Target(REFERENCE, torch.device("cpu")) else target_model(preset, target)
    trace = Trace(keep=lambda op: False)
    with ExitStack() as stack:
        stack.enter_context(tracing(trace))
        stack.enter_context(replaying(w.replay.again()))
        steps = steps_of(w.plan, Walker(model, trace), force)
    return steps, trace.fallbacks(target.backend, target.device.type)


def of_own(outcome: Outcome, borrowed: Sequence[str], target: Target) -> Outcome:
    """The outcome of a model; without findings a skip, where the target has no kernels for some ops.

    What is wrong is wrong whoever ran the other ops; that nothing is wrong would be said of the reference's kernels.
    With `target.fallback` the ops are named instead, and the case does not count as the backend's own.
    """
    if target.fallback:
        return replace(outcome, borrowed=tuple(borrowed))
    if outcome.findings or not borrowed:
        return outcome
    return replace(outcome, skipped=f"{UNSUPPORTED}: no kernels of its own for {', '.join(borrowed)}")


def _share(error: float, limit: float) -> float:
    """Share of a limit; NaN stays NaN."""
    return 0.0 if error == 0 else error / limit if limit else float("inf")


def _first(findings: list[Finding], what: str) -> tuple[Finding, ...]:
    """The first findings, and how many there are."""
    if len(findings) <= LISTED:
        return tuple(findings)
    more = Finding(findings[0].check, f"{len(findings)} {what} in all diverge; the first ones are above")
    return (*findings[:LISTED], more)
