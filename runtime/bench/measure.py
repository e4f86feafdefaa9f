"""What is made of a run: times of each request, percentiles, goodput, and the accounting behind the numbers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ...hal.errors import DeepInferError, InvalidArgumentError
from ..outputs import FinishReason, RequestOutput

PERCENTILES = (50, 90, 95, 99)
SLO_OF = ("mean", "p90", "p99", "max")
GOOD = (str(FinishReason.STOP), str(FinishReason.LENGTH))

ACCOUNTING = {
    "output_tokens": "committed",
    "ttft": "from the arrival (open loops: the scheduled one) to the return of the step with the first token",
    "tbt": "from one return of tokens to the next, shared evenly by the tokens of the latter; each token counts",
    "e2e": "from the arrival to the return of the last output",
    "percentiles": "linear interpolation between order statistics: rank (n - 1) * p / 100, counted from 0",
    "latencies": "of requests that ended with stop or length",
    "seconds": "from the first arrival to the last output; warm-up and loading are not in it",
}
"""Goes into every record. Output tokens are those that became output: drafts are not, unless they were accepted."""


class AccountingError(DeepInferError):
    """Tokens were counted that nobody was given, drafts for example, or the other way round."""


def percentile(values: Sequence[float], percent: float) -> float | None:
    """Linear interpolation between order statistics; None of nothing.

    Raises:
        InvalidArgumentError: percent outside 0..100, or a value that is no finite number.
    """
    if not 0 <= percent <= 100:
        raise InvalidArgumentError("percent", percent, "a number from 0 to 100")
    if not all(map(math.isfinite, values)):
        raise InvalidArgumentError("values", "one that is not finite", "finite numbers")
    if not values:
        return None
    ordered = sorted(values)
    rank = (len(ordered) - 1) * percent / 100
    low = math.floor(rank)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (rank - low)


def spread(values: Sequence[float]) -> dict[str, float | None]:
    """Mean, percentiles and largest of some values; None of nothing."""
    found: dict[str, float | None] = {"mean": sum(values) / len(values) if values else None}
    found |= {f"p{percent}": percentile(values, percent) for percent in PERCENTILES}
    return found | {"max": max(values, default=None)}


@dataclass(slots=True)
class Measured:
    """One request of a run. Times in seconds, on one clock.

    Attributes:
        moments: when tokens were returned, and how many.
        reason: of its end; None while it runs. error: of its last output.
    """

    index: int
    arrival: float
    prompt_len: int
    asked: int
    moments: list[tuple[float, int]] = field(default_factory=list)
    tokens: int = 0
    ended: float = 0.0
    reason: str | None = None
    error: str | None = None
    cached: int = 0
    drafted: int = 0
    verified: int = 0
    accepted: int = 0

    def add(self, output: RequestOutput, now: float) -> None:
        """An output that was returned at `now`.

        Raises:
            AccountingError: the engine says that it has given another number of tokens.
        """
        if output.token_id >= 0:
            self.tokens += 1
            if self.moments and self.moments[-1][0] == now:
                self.moments[-1] = (now, self.moments[-1][1] + 1)
            else:
                self.moments.append((now, 1))
        self.cached += output.cached_tokens
        self.drafted += output.drafted
        self.verified += output.verified
        self.accepted += output.accepted
        if output.finished:
            self.ended, self.reason, self.error = now, output.finish_reason, output.error
            if output.num_output_tokens != self.tokens:
                raise AccountingError(
                    f"request {self.index}: {self.tokens} output tokens were counted, and the engine gave "
                    f"{output.num_output_tokens}"
                )

    @property
    def good(self) -> bool:
        """Whether it ended as it should."""
        return self.reason in GOOD

    @property
    def ttft(self) -> float | None:
        return self.moments[0][0] - self.arrival if self.moments else None

    @property
    def tbt(self) -> list[float]:
        """A time for each token but the first."""
        found = [0.0] * (self.moments[0][1] - 1) if self.moments else []
        for (before, _), (at, count) in zip(self.moments, self.moments[1:]):
            found += [(at - before) / count] * count
        return found

    @property
    def e2e(self) -> float:
        return self.ended - self.arrival

    def line(self) -> dict[str, Any]:
        """For a file of requests."""
        times = self.tbt
        return {
            "request": self.index,
            "arrival": self.arrival,
            "prompt_tokens": self.prompt_len,
            "cached_tokens": self.cached,
            "output_tokens": self.tokens,
            "outcome": self.reason,
            "error": self.error,
            "ttft": self.ttft,
            "tbt_mean": sum(times) / len(times) if times else None,
            "tbt_max": max(times, default=None),
            "e2e": self.e2e,
            "verified": self.verified,
            "accepted": self.accepted,
        }


@dataclass(frozen=True)
class Slo:
    """What a request must keep to count as good: seconds to the first token, seconds between tokens (None: no limit).

    `of`: which of a request's times between tokens is held against the limit: mean, p90, p99 or max.
    """

    ttft: float | None = None
    tbt: float | None = None
    of: str = "mean"

    def __post_init__(self) -> None:
        for name, value in (("--slo-ttft", self.ttft), ("--slo-tbt", self.tbt)):
            if value is not None and not (math.isfinite(value) and value > 0):
                raise InvalidArgumentError(name, value, "seconds above 0")
        if self.of not in SLO_OF:
            raise InvalidArgumentError("--slo-of", self.of, f"one of {', '.join(SLO_OF)}")

    def kept_by(self, one: Measured) -> bool:
        """Whether a request ended as it should, and in time. One of a single token has no time between tokens."""
        if not one.good:
            return False
        if self.ttft is not None and (one.ttft is None or one.ttft > self.ttft):
            return False
        times = one.tbt
        if self.tbt is None or not times:
            return True
        found = spread(times)[self.of]
        return found is not None and found <= self.tbt


def summary(run: Sequence[Measured], slo: Slo) -> dict[str, Any]:
    """The numbers of a record.

    Raises:
        AccountingError: more drafts were accepted than tokens came, or than were verified.
    """
    tokens, accepted, verified = (sum(getattr(one, name) for one in run) for name in ("tokens", "accepted", "verified"))
    if accepted > tokens or accepted > verified:
        raise AccountingError(f"{accepted} of {verified} verified drafts became output, which has {tokens} tokens")
    good = [one for one in run if one.good]
    seconds = max((one.ended for one in run), default=0.0) - min((one.arrival for one in run), default=0.0)
    kept = sum(map(slo.kept_by, run))

    def rate(count: float) -> float | None:
        return count / seconds if seconds > 0 else None

    outcomes = Counter(str(one.reason) for one in run)
    return {
        "requests": len(run),
        "outcomes": dict(sorted(outcomes.items())),
        "seconds": seconds,
        "prompt_tokens": sum(one.prompt_len for one in run),
        "cached_tokens": sum(one.cached for one in run),
        "output_tokens": tokens,
        "requests_per_s": rate(len(good)),
        "output_tokens_per_s": rate(tokens),
        "total_tokens_per_s": rate(tokens + sum(one.prompt_len for one in run)),
        "ttft": spread([one.ttft for one in good if one.ttft is not None]),
        "tbt": spread([time for one in good for time in one.tbt]),
        "e2e": spread([one.e2e for one in good]),
        "goodput": {
            "slo_ttft": slo.ttft,
            "slo_tbt": slo.tbt,
            "slo_of": slo.of,
            "requests": kept,
            "ratio": kept / len(run) if run else None,
            "requests_per_s": rate(kept),
        },
        "drafts": {
            "drafted": sum(one.drafted for one in run),
            "verified": verified,
            "accepted": accepted,
            "acceptance": accepted / verified if verified else None,
        },
    }
