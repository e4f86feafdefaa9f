"""Level (c): greedy tokens of a free run are equal where every decision on the way was clear.

A position qualifies if its two best logits, and the keys of every decision of every layer at this and all earlier
positions of its sequence, are further apart than right implementations bring them together. The bound of a decision:
each of its two values may be off by `MULTIPLE` times the rms change that the reference's variants, all of them
together, make at that layer and position on the very same text. After the first token that differs where the position
does not qualify, the sequences are different texts, and nothing more is compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor

from ..hal.registry import REFERENCE, REGISTRY
from ..model.transformer import Model
from .case import Finding, Outcome, Target
from .decisions import DECIDING, Place, Replay, changes, in_parts, margins, replaying
from .levels import MULTIPLE, of_own, reference_model, target_model
from .trace import OpCall, Trace, tracing
from .variants import installed, variants
from .walk import Walker

TOKENS = 3
"""Tokens that every sequence generates: the fewer positions a token stands on, the more of them qualify."""


@dataclass(frozen=True)
class Clear:
    """A generated token: which, and whether its position qualifies."""

    token: int
    qualifies: bool


def prompts(vocabulary: int, count: int, seed: int = 3) -> list[list[int]]:
    """Sequences of one token, and every eighth of a few."""
    rng = np.random.default_rng(seed)
    return [rng.integers(3, vocabulary, 2 + n % 4 if n % 8 == 7 else 1).tolist() for n in range(count)]


@dataclass(frozen=True)
class Run:
    """Generated tokens of every sequence, and each step's logits of all rows."""

    tokens: list[list[int]]
    logits: list[Tensor]


def free_run(
    model: Model, starts: Sequence[Sequence[int]], trace: Trace, text: Sequence[Sequence[int]] | None = None
) -> Run:
    """Generate greedily, or go through the tokens of another run."""
    walker = Walker(model, trace, slots=len(starts) + 1, pages=len(starts) + 1)
    tracks = [walker.add(tokens, room=TOKENS) for tokens in starts]
    run = Run([[] for _ in tracks], [])
    counts = [len(tokens) for tokens in starts]
    for step in range(TOKENS):
        logits = walker.step(list(zip(tracks, counts, strict=True))).cpu()
        run.logits.append(logits)
        last = np.cumsum(counts) - 1
        for number, (track, row) in enumerate(zip(tracks, last.tolist(), strict=True)):
            token = int(logits[row].argmax()) if text is None else text[number][step]
            run.tokens[number].append(token)
            track.tokens.append(token)
        counts = [1] * len(tracks)
    return run


def judge_greedy(preset: str, count: int, target: Target) -> Outcome:
    """Compare a free run with the reference's."""
    model, starts, _, clear = _reference(preset, count)
    here = Trace(keep=lambda op: False)
    mine = model if target == Target(REFERENCE, torch.device("cpu")) else target_model(preset, target)
    with tracing(here):
        got = free_run(mine, starts, here).tokens
    findings = list(compare_tokens(clear, got))
    total = sum(len(c) for c in clear)
    share = sum(c.qualifies for row in clear for c in row) / total
    if not share:
        findings.append(Finding("share", f"none of {total} positions qualifies, so nothing was compared"))
    note = f"{share:.1%} of {total} positions qualify; {agreement(clear, got):.1%} of all tokens are equal"
    borrowed = here.fallbacks(target.backend, target.device.type)
    return of_own(Outcome(tuple(findings), notes=(note,)), borrowed, target)


@cache
def _reference(preset: str, count: int) -> tuple[Model, list[list[int]], Run, list[list[Clear]]]:
    """The reference's free run, and which of its tokens qualify."""
    model = reference_model(preset)
    starts = prompts(model.config.text.vocab_size, count)
    trace = Trace(keep=lambda op: op in DECIDING)
    with REGISTRY.using(REFERENCE, ""):
        with tracing(trace), installed({"index_topk": in_parts}):
            want = free_run(model, starts, trace)
        with installed(variants()["all"]), replaying(Replay.of(trace.calls).complete()) as taken:
            other = free_run(model, starts, Trace(), want.tokens)
    where = positions(starts)
    spread = changes(trace.calls, taken.seen, where)
    for step, (a, b) in enumerate(zip(want.logits, other.logits, strict=True)):
        square = (a - b).double().square().mean(1)
        for position in set(where[step]):
            rows = [i for i, p in enumerate(where[step]) if p == position]
            known = spread.get(("logits", "", position), 0.0)
            spread["logits", "", position] = max(known, float(square[rows].mean().sqrt()))
    return model, starts, want, qualifying(starts, want, trace.calls, spread)


def positions(starts: Sequence[Sequence[int]]) -> list[list[int]]:
    """The position of every row of every step of a free run."""
    first = [p for tokens in starts for p in range(len(tokens))]
    return [first, *([len(tokens) + step for tokens in starts] for step in range(TOKENS - 1))]


def qualifying(
    starts: Sequence[Sequence[int]], run: Run, calls: Sequence[OpCall], spread: Mapping[Place, float]
) -> list[list[Clear]]:
    """Which generated tokens stand on clear decisions alone.

    Args:
        calls: the run's decisions. spread: rms change of a decision's values, and of logits as op 'logits'.
    """
    where = positions(starts)

    def bound(op: str, layer: str, position: int) -> float:
        return 2 * MULTIPLE * spread[op, layer, position]

    safe = [True] * len(starts)
    found: list[list[Clear]] = [[] for _ in starts]
    counts = [len(s) for s in starts]
    for step, logits in enumerate(run.logits):
        fine = torch.ones(sum(counts), dtype=torch.bool)
        for made in calls:
            if made.op in DECIDING and made.step == step:
                limits = torch.tensor([bound(made.op, made.layer, p) for p in where[step]])
                fine &= margins(made)[: len(fine)] > limits
        best = logits.topk(2, dim=1).values
        place = 0
        for i, n in enumerate(counts):
            safe[i] = safe[i] and bool(fine[place : place + n].all())
            place += n
            gap = float(best[place - 1, 0] - best[place - 1, 1])
            sure = gap > bound("logits", "", where[step][place - 1])
            found[i].append(Clear(run.tokens[i][step], safe[i] and sure))
        counts = [1] * len(starts)
    return found


def compare_tokens(clear: Sequence[Sequence[Clear]], got: Sequence[Sequence[int]]) -> list[Finding]:
    """Tokens that differ where the position qualifies, up to the first difference of each sequence."""
    findings = []
    for number, (want, tokens) in enumerate(zip(clear, got, strict=True)):
        for place, (one, token) in enumerate(zip(want, tokens, strict=True)):
            if token == one.token:
                continue
            if one.qualifies:
                text = f"sequence {number}, generated token {place}: got {token}, want {one.token}, all margins clear"
                findings.append(Finding("greedy", text))
            break
    return findings


def agreement(clear: Sequence[Sequence[Clear]], got: Sequence[Sequence[int]]) -> float:
    """Share of equal tokens."""
    pairs = [(c.token, t) for want, tokens in zip(clear, got, strict=True) for c, t in zip(want, tokens, strict=True)]
    return sum(a == b for a, b in pairs) / len(pairs)


__all__ = ["Clear", "Run", "compare_tokens", "free_run", "judge_greedy", "prompts", "qualifying"]
