"""Suite `sampling`: draws follow the filtered distribution within 5 sigma, and are the reference's, draw for draw.

Rows of one distribution at consecutive positions, or of consecutive seeds. Seeds and positions are fixed, so a finding
is never bad luck. The distribution is one of float64, made here: the algorithm itself is held to be right, where suite
`ops` holds an implementation against the algorithm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from ...hal.registry import REFERENCE, REGISTRY
from ...ops.chosen import SAMPLED
from ...ops.sampling import Filter, Purpose, fixed31, inverse_temperature
from ...ops.spec import SPECS, OpSpec
from ..calls import Unsupported, call, to_target
from ..case import Case, Finding, Outcome, Target, Tier
from ..recording import ON_THIS_CPU
from ..registry import suite

DRAWS: dict[Tier, int] = {"quick": 1000, "full": 40_000, "deep": 400_000}
WIDTH = 37
SIGMAS = 5.0


@dataclass(frozen=True)
class Filters:
    """Temperature and cuts of a distribution; 0, 1 and 0 for no cut."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0


PLAIN, CUT, MIXED = Filters(), Filters(0.3, 20, 0.95), Filters(1.5, 12, 0.9, 0.05)


@suite("sampling", about="draws follow the filtered distribution within 5 sigma, and are the reference's one by one")
def cases(tier: Tier, ops: Sequence[OpSpec]) -> Iterator[Case]:
    """Cases of the ops that draw; they take the target's own filter besides."""
    runs: dict[str, Callable[[int, Target], Outcome]] = {
        "no filter, over positions": partial(judge_draws, PLAIN, "positions"),
        "no filter, over seeds": partial(judge_draws, PLAIN, "seeds"),
        "temperature 0.3, top-k 20, top-p 0.95": partial(judge_draws, CUT, "positions"),
        "temperature 1.5, top-k 12, top-p 0.9, min-p 0.05": partial(judge_draws, MIXED, "positions"),
        "drafts of another distribution": partial(judge_drafts, MIXED, False),
        "drafts that were certain": partial(judge_drafts, PLAIN, True),
    }
    for spec in ops:
        for label in SAMPLED.get(spec.name, ()):
            yield Case("sampling", spec.name, label, partial(runs[label], DRAWS[tier]))


def logits(seed: int) -> Tensor:
    """[WIDTH]: three equal tokens, and one that cannot be drawn."""
    z = torch.from_numpy((np.random.default_rng(seed).standard_normal(WIDTH) * 2).astype(np.float32))
    z[[4, 9]] = z[2].clone()
    z[7] = -torch.inf
    return z


def probabilities(z: Tensor, filters: Filters) -> Tensor:
    """The filtered distribution in float64: softmax, a stable sort, the cuts, the rest scaled to one."""
    p = torch.softmax(z.double() / filters.temperature, 0)
    order = torch.argsort(p, descending=True, stable=True)
    least = p[order]
    keep = (least.cumsum(0) - least <= filters.top_p) & (least >= filters.min_p * least[0]) & (least > 0)
    if filters.top_k:
        keep[filters.top_k :] = False
    p[order[~keep]] = 0
    return p / p.sum()


class _Rows:
    """Rows of one distribution on a target, filtered by its own kernel."""

    def __init__(self, z: Tensor, filters: Filters, count: int, over: str, target: Target) -> None:
        self.target, self.count = target, count
        self.z = z.expand(count, WIDTH).contiguous()
        self.inverse = torch.full((count,), inverse_temperature(filters.temperature))
        top_k = torch.full((count,), filters.top_k, dtype=torch.int32) if filters.top_k else None
        top_p = torch.full((count,), fixed31(filters.top_p)) if filters.top_p < 1 else None
        min_p = torch.full((count,), fixed31(filters.min_p)) if filters.min_p else None
        kept = self.run("sample_filter", self.z, self.inverse, top_k, top_p, min_p, 0)
        self.kept = Filter(*kept)
        steady, steps = torch.full((count,), 4321), torch.arange(count)
        self.seeds, self.positions = (steps - count // 2, steady) if over == "seeds" else (steady, steps)

    def run(self, op: str, *args: object) -> tuple[Tensor, ...]:
        """Outputs of one op, on the CPU."""
        spec = SPECS[op]
        return tuple(out.cpu() for out in call(spec, to_target(spec, args, self.target), self.target))

    @property
    def edges(self) -> tuple[Tensor, ...]:
        """What draws take of the filter."""
        return self.kept.threshold, self.kept.last_id, self.kept.count, self.kept.max_id

    def draw(self, purpose: int) -> Tensor:
        """A token of each row."""
        given = (self.z, self.inverse, *self.edges, self.seeds, self.positions, purpose)
        return self.run("sample_draw", *given)[0]

    def verify(self, drafts: Tensor, log2q: Tensor | None) -> tuple[Tensor, ...]:
        """A token of each row behind a draft, and whether it is the draft."""
        row = None if log2q is None else torch.zeros(self.count, dtype=torch.int32)
        given = (self.z, self.inverse, *self.edges, drafts, self.seeds, self.positions, log2q, row, False)
        return self.run("verify_drafts", *given)


def judge_draws(filters: Filters, over: str, count: int, target: Target) -> Outcome:
    """Draws of rows that differ in position or seed."""
    try:
        got = _Rows(logits(11), filters, count, over, target).draw(Purpose.TARGET)
    except Unsupported as error:
        return error.outcome()
    with REGISTRY.using(REFERENCE):
        want = _Rows(logits(11), filters, count, over, ON_THIS_CPU).draw(Purpose.TARGET)
    return _outcome([*_equal("token", got, want), *distributed(got, probabilities(logits(11), filters))])


def judge_drafts(filters: Filters, certain: bool, count: int, target: Target) -> Outcome:
    """Tokens behind verification have the target's distribution, whatever the drafts; drafts are accepted as often as
    the two distributions allow."""
    z, other = logits(11), logits(11) * 0.6 + logits(12) * 0.5
    p, q = probabilities(z, filters), probabilities(other, filters)
    if certain:
        q = torch.nn.functional.one_hot(p.argsort()[-3], WIDTH).double()
    with REGISTRY.using(REFERENCE):
        drafter = _Rows(other, filters, count, "positions", ON_THIS_CPU)
        drafts = torch.full((count,), int(q.argmax()), dtype=torch.int32) if certain else drafter.draw(Purpose.DRAFT)
        log2q = None if certain else q.log2().float().unsqueeze(0)
        want = _Rows(z, filters, count, "positions", ON_THIS_CPU).verify(drafts, log2q)
    try:
        token, accepted = _Rows(z, filters, count, "positions", target).verify(drafts, log2q)
    except Unsupported as error:
        return error.outcome()
    findings = [*_equal("token", token, want[0]), *_equal("accepted", accepted, want[1]), *distributed(token, p)]
    rate = float(torch.minimum(p, q).sum())
    limit = SIGMAS * (rate * (1 - rate) / count) ** 0.5 + 1 / count
    if abs(share := float(accepted.double().mean()) - rate) > limit:
        text = f"{share + rate:.4f} of the drafts are accepted, want {rate:.4f}, limit {limit:.2g}"
        findings.append(Finding("distribution", text))
    return _outcome(findings)


def distributed(tokens: Tensor, p: Tensor) -> Iterator[Finding]:
    """Findings where counts of tokens are not those of a distribution: a token that it excludes, one that is further
    off than 5 sigma (and one draw), or all of them together, by their squared distances."""
    count = len(tokens)
    if not bool(((tokens >= 0) & (tokens < len(p))).all()):
        yield Finding("distribution", f"a token is outside 0..{len(p) - 1}")
        return
    found = torch.bincount(tokens.long(), minlength=len(p)).double()
    mean, sigma = count * p, (count * p * (1 - p)).sqrt()
    if bool((wrong := (p == 0) & (found > 0)).any()):
        yield Finding("distribution", f"token {int(wrong.nonzero()[0])} was drawn and is filtered out")
    excess = (found - mean).abs() - SIGMAS * sigma - 1
    if float(excess.max()) > 0:
        at = int(excess.argmax())
        text = f"token {at} was drawn {int(found[at])} times of {count}, want {float(mean[at]):.1f}"
        yield Finding("distribution", f"{text}, one sigma is {float(sigma[at]):.1f}")
    common = mean >= SIGMAS
    squares = float(((found - mean).square() / mean)[common].sum())
    freedom = int(common.sum())
    if squares > freedom + SIGMAS * (2 * freedom) ** 0.5:
        yield Finding("distribution", f"squared distances add up to {squares:.1f}, want about {freedom}")


def _equal(name: str, got: Tensor, want: Tensor) -> Iterator[Finding]:
    if not torch.equal(got, want):
        row = int((got != want).nonzero()[0])
        text = f"{name}[{row}]: got {got[row].item()}, the reference draws {want[row].item()}"
        yield Finding("bits", f"{text}; {int((got != want).sum())} of {len(got)} differ")


def _outcome(findings: Sequence[Finding]) -> Outcome:
    return Outcome(tuple(findings))
