"""Level (a) of the suite `model` on some layers and few rows: what a test of every change can afford.

The reference runs a short schedule: a prompt, then one row of it beside another prompt and padding, then a draft pass.
Chosen layers are run again from what it recorded, and chosen calls, those of the draft layers among them, are made
again; comparisons and limits are those of `conformance/levels.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch

from ..hal.registry import REFERENCE, REGISTRY
from ..model.transformer import Model
from .case import Finding, Outcome, Target
from .decisions import Replay, replaying
from .levels import again, layers_within, of_own, reference_model, relative, target_model
from .trace import OpCall, Trace, tracing
from .variants import installed, variants
from .walk import Schedule, StepRecord, Walker, short_schedule


@dataclass(frozen=True)
class Brief:
    """The reference's run of the short schedule on the CPU: every op call, and every layer of every step."""

    model: Model
    plan: Schedule
    calls: list[OpCall]
    steps: list[StepRecord]


@cache
def brief(preset: str) -> Brief:
    """Run the reference; once per process."""
    model = reference_model(preset)
    plan, trace = short_schedule(model.config.text.vocab_size), Trace()
    with REGISTRY.using(REFERENCE, ""):
        walker = _walker(model, trace, drafts=True)
        with tracing(trace):
            walker.draft(plan.run(walker))
    return Brief(model, plan, trace.calls, walker.steps)


@cache
def alone(preset: str, layers: tuple[int, ...]) -> float:
    """Relative rms spread of a layer that starts from recorded states; the largest over the layers."""
    b = brief(preset)
    with REGISTRY.using(REFERENCE, ""), installed(variants()["all"]):
        return max(_errors(b, layers, _walker(b.model)))


def judge_some_layers(preset: str, layers: tuple[int, ...], target: Target) -> Outcome:
    """Some layers, started from recorded states with recorded decisions; as `levels.judge_layers`."""
    b, trace = brief(preset), Trace(keep=lambda op: False)
    model = b.model if target == Target(REFERENCE, torch.device("cpu")) else target_model(preset, target)
    with tracing(trace):
        errors = _errors(b, layers, _walker(model, trace))
    found = layers_within(errors, alone(preset, layers))
    return of_own(found, trace.fallbacks(target.backend, target.device.type), target)


def _errors(b: Brief, layers: tuple[int, ...], walker: Walker) -> list[float]:
    """Relative rms errors of the layers; 0 of those that were not run."""
    places = {f"layer {layer}" for layer in layers}
    with replaying(Replay.of([call for call in b.calls if call.layer in places])):
        b.plan.run(walker, lambda step, layer: b.steps[step].layers[layer], layers)
    return relative(walker.steps, b.steps)


def judge_some_calls(preset: str, which: Callable[[OpCall], bool], target: Target) -> Outcome:
    """Some recorded calls, made again on the target with the recorded arguments; as `levels.judge_ops`.

    Raises:
        Unsupported: the target has no kernel of its own for one of them.
    """
    chosen = [call for call in brief(preset).calls if which(call)]
    findings: list[Finding] = []
    worst = 0.0
    for call in chosen:
        found, share = again(call, target)
        findings, worst = findings + found, max(worst, share)
    return Outcome(tuple(findings), worst=worst, notes=(f"{len(chosen)} calls",))


def _walker(model: Model, trace: Trace | None = None, *, drafts: bool = False) -> Walker:
    """With pools just large enough: what they hold is kept for every layer of every step."""
    return Walker(model, trace, pages=4, slots=4, drafts=drafts)
