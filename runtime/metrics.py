"""Metrics of an engine, in the words of Prometheus.

Counting takes no package: the engine's thread adds to plain numbers. `prometheus_client` (the extra `metrics`) is
imported where they are shown. Every metric and label value is in `CATALOGUE`, so that their number is bounded whatever
comes in; docs/observability.md holds the table that `python -m deepinfer.runtime.metrics` prints.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..hal.errors import NotSupportedError
from .lives import Life, Lives
from .occupancy import Occupancy, occupancy_of
from .outputs import FinishReason, RequestOutput

if TYPE_CHECKING:
    from .engine import LLMEngine
    from .execute import Work
    from .plan import StepPlan
    from .queues import Queues
    from .request import Request

PREFIX = "deepinfer_"
STEP_KINDS = ("prefill", "decode", "mixed")
ROW_KINDS = ("prefill", "decode", "draft")
TIERS = ("device", "fork", "host")
OUTCOMES = tuple(str(reason) for reason in FinishReason)

_FAST = (1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
_TOKEN = (1e-3, 2e-3, 5e-3, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_REQUEST = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0)


@dataclass(frozen=True)
class Metric:
    """One metric: its name without the prefix, kind, help text, and the label that it is split by, with its values."""

    name: str
    kind: str
    text: str
    label: str | None = None
    values: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()

    @property
    def full_name(self) -> str:
        """As Prometheus shows it."""
        return PREFIX + self.name


CATALOGUE: tuple[Metric, ...] = (
    Metric("requests_total", "counter", "Samples that ended, by reason.", "outcome", OUTCOMES),
    Metric("preemptions_total", "counter", "Running samples that gave their pages back."),
    Metric("offloads_total", "counter", "Of these, samples whose caches went to host memory."),
    Metric("steps_total", "counter", "Steps that ran, by what they computed.", "kind", STEP_KINDS),
    Metric("step_failures_total", "counter", "Steps that raised; their samples are tried again."),
    Metric(
        "rows_total",
        "counter",
        "Rows computed: of known text, of decoding samples, of drafts. Not those of a sample that was aborted, or met "
        "a stop string, while they were launched.",
        "kind",
        ROW_KINDS,
    ),
    Metric("prompt_tokens_total", "counter", "Tokens of the prompts of samples that began to run."),
    Metric("cached_tokens_total", "counter", "Tokens that a sample need not compute to run, by who had them.",
           "tier", TIERS),
    Metric("output_tokens_total", "counter", "Tokens returned. Drafts count when they are accepted, and only then."),
    Metric("drafted_tokens_total", "counter", "Drafts proposed."),
    Metric("verified_tokens_total", "counter", "Drafts that were among the rows of a step."),
    Metric("accepted_tokens_total", "counter", "Drafts that became output."),
    Metric("queue_seconds", "histogram", "From the arrival of a sample to the launch of its first rows.",
           bounds=_REQUEST),
    Metric("prefill_seconds", "histogram", "From the launch of a sample's first rows to its first token.",
           bounds=_REQUEST),
    Metric("decode_seconds", "histogram", "From the first token of a sample to its last.", bounds=_REQUEST),
    Metric("ttft_seconds", "histogram", "From the arrival of a sample to its first token.", bounds=_REQUEST),
    Metric("tbt_seconds", "histogram", "Between tokens of a sample; tokens of one step share its time evenly.",
           bounds=_TOKEN),
    Metric("e2e_seconds", "histogram", "From the arrival of a sample to its end.", bounds=_REQUEST),
    Metric("plan_seconds", "histogram", "Planning a step and carrying the plan out on the pools.", bounds=_FAST),
    Metric("step_seconds", "histogram", "From the launch of a step to its results.", "kind", STEP_KINDS, _TOKEN),
    Metric("commit_seconds", "histogram", "Making outputs of the results of a step.", bounds=_FAST),
    Metric("running", "gauge", "Samples that run."),
    Metric("waiting", "gauge", "Samples that wait."),
    Metric("pages", "gauge", "Cache pages of the pool."),
    Metric("pages_in_use", "gauge", "Cache pages that samples hold."),
    Metric("pages_cached", "gauge", "Cache pages that only the prefix cache holds."),
    Metric("slots", "gauge", "State slots of the pool."),
    Metric("slots_in_use", "gauge", "State slots that samples hold."),
    Metric("fragmentation_ratio", "gauge", "Part of the token places in the pages of running samples that hold none."),
)  # fmt: skip
"""Every metric. Names are kept once they are released."""

_BY_NAME = {metric.name: metric for metric in CATALOGUE}


class Histogram:
    """Counts by bucket, as Prometheus wants them: a bucket holds what is at most its bound."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def add(self, value: float, times: int = 1) -> None:
        """A value; one below zero, which no monotonic clock gives, counts as zero."""
        value = max(value, 0.0)
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    @property
    def count(self) -> int:
        return sum(self.counts)

    def cumulative(self) -> list[tuple[str, float]]:
        """(upper bound, number of values up to it) of every bucket."""
        found, below = [], 0
        for bound, count in zip((*map(repr, self.bounds), "+Inf"), self.counts):
            below += count
            found.append((bound, float(below)))
        return found


class EngineMetrics(Lives):
    """Metrics of one engine. Counters only rise; times come from the monotonic clock.

    Args:
        engine: observed from now on.
    """

    def __init__(self, engine: LLMEngine) -> None:
        super().__init__()
        self._engine = engine
        self.counters: dict[str, dict[str, float]] = {}
        self.histograms: dict[str, dict[str, Histogram]] = {}
        for metric in CATALOGUE:
            values = metric.values or ("",)
            if metric.kind == "counter":
                self.counters[metric.name] = dict.fromkeys(values, 0.0)
            elif metric.kind == "histogram":
                self.histograms[metric.name] = {value: Histogram(metric.bounds) for value in values}
        self._offloaded: set[int] = set()
        self._tokens = 0
        self._drafts = engine.config.limits.max_drafts > 0
        self._tbt = self.histograms["tbt_seconds"][""]
        engine.observers.add(self)

    def _count(self, name: str, amount: float = 1, label: str = "") -> None:
        self.counters[name][label] += amount

    def _time(self, name: str, seconds: float, label: str = "") -> None:
        self.histograms[name][label].add(seconds)

    # ---- samples

    def began(self, life: Life) -> None:
        assert life.began is not None
        self._time("queue_seconds", life.began - life.arrival)
        self._count("prompt_tokens_total", life.prompt_len)
        self._count("cached_tokens_total", life.cached_tokens, "device")
        self._count("cached_tokens_total", life.forked_tokens, "fork")

    def spoke(self, life: Life, output: RequestOutput, count: int, gap: float | None, now: float) -> None:
        self._tokens += count
        if gap is not None:
            self._tbt.add(gap / count, count)
            return
        self._time("ttft_seconds", now - life.arrival)
        self._time("prefill_seconds", now - (life.arrival if life.began is None else life.began))
        if count > 1:
            self._tbt.add(0.0, count - 1)

    def ended(self, life: Life, output: RequestOutput, now: float) -> None:
        self._count("requests_total", label=output.finish_reason or "")
        self._time("e2e_seconds", now - life.arrival)
        self._offloaded.discard(life.key)
        if life.first is not None and life.last is not None:
            self._time("decode_seconds", life.last - life.first)

    def gave_way(self, life: Life, now: float) -> None:
        self._count("preemptions_total")

    def resumed(self, life: Life, now: float) -> None:
        tier = "host" if life.key in self._offloaded else "device"  # computed again, but for what the cache had of it
        self._offloaded.discard(life.key)
        self._count("cached_tokens_total", life.start, tier)

    # ---- steps

    def planned(self, plan: StepPlan, seconds: float) -> None:
        if plan.items:
            self._time("plan_seconds", seconds)

    def offloaded(self, request: Request) -> None:
        self._offloaded.add(request.key)
        self._count("offloads_total")

    def ran(self, work: Sequence[Work], began: float, ended: float, queues: Queues, launched: float) -> None:
        super().ran(work, began, ended, queues, launched)
        rows = rows_of(work)
        kind = step_kind(rows)
        self._count("steps_total", label=kind)
        self._time("step_seconds", ended - began, kind)
        for name, count in zip(ROW_KINDS, rows, strict=True):
            self._count("rows_total", count, name)

    def failed(self, work: Sequence[Work], error: Exception) -> None:
        super().failed(work, error)
        self._count("step_failures_total")

    def timed(self, name: str, seconds: float) -> None:
        if name == "commit":
            self._time("commit_seconds", seconds)

    def returned(self, outputs: Sequence[RequestOutput]) -> None:
        self._tokens = 0
        super().returned(outputs)
        self._count("output_tokens_total", self._tokens)
        if self._drafts:
            for name in ("drafted", "verified", "accepted"):
                self._count(f"{name}_tokens_total", sum(getattr(output, name) for output in outputs))

    # ---- showing

    def gauges(self) -> dict[str, float]:
        """Every gauge, as it is now."""
        with self._engine._lock:
            now = occupancy_of(self._engine._queues, self._engine.config.limits.page_tokens)
        return gauges_of(now)

    def collect(self) -> Iterator[Any]:
        """The metrics, as a collector of `prometheus_client` gives them.

        Raises:
            NotSupportedError: it is not installed.
        """
        core = prometheus().core
        with self._engine._lock:  # no step adds to a part of them meanwhile
            gauges = self.gauges()
            counters = {name: dict(found) for name, found in self.counters.items()}
            histograms = {
                name: {value: (one.cumulative(), one.total) for value, one in found.items()}
                for name, found in self.histograms.items()
            }
        # Whoever takes them may be slow, and no step waits for that.
        for metric in CATALOGUE:
            labels = [] if metric.label is None else [metric.label]
            if metric.kind == "gauge":
                yield core.GaugeMetricFamily(metric.full_name, metric.text, value=gauges[metric.name])
            elif metric.kind == "counter":
                family = core.CounterMetricFamily(metric.full_name, metric.text, labels=labels)
                for value, count in counters[metric.name].items():
                    family.add_metric([value] if labels else [], count)
                yield family
            else:
                family = core.HistogramMetricFamily(metric.full_name, metric.text, labels=labels)
                for value, (buckets, total) in histograms[metric.name].items():
                    family.add_metric([value] if labels else [], buckets, total)
                yield family


def gauges_of(now: Occupancy) -> dict[str, float]:
    """The values of every gauge."""
    return {
        "running": now.running,
        "waiting": now.waiting,
        "pages": now.pages,
        "pages_in_use": now.pages_in_use,
        "pages_cached": now.pages_cached,
        "slots": now.slots,
        "slots_in_use": now.slots_in_use,
        "fragmentation_ratio": now.fragmentation,
    }


def rows_of(work: Sequence[Work]) -> tuple[int, int, int]:
    """Rows of a step by kind: of known text, of decoding samples, of drafts.

    A sample that decodes computes one known token, behind its prompt.
    """
    prefill = decode = draft = 0
    for item in work:
        drafts = len(item.drafts)
        known = item.end - drafts - item.start
        draft += drafts
        if known == 1 and item.start >= item.request.prompt_len:
            decode += 1
        else:
            prefill += known
    return prefill, decode, draft


def step_kind(rows: tuple[int, int, int]) -> str:
    """What a step with such rows is called."""
    return "mixed" if rows[0] and rows[1] else "prefill" if rows[0] else "decode"


def prometheus() -> Any:
    """The package. Raises NotSupportedError where it is not installed."""
    try:
        import prometheus_client
        import prometheus_client.core
    except ImportError:
        raise NotSupportedError("showing metrics", "it needs prometheus_client: install the extra `metrics`") from None
    return prometheus_client


def render() -> str:
    """The catalogue as a table of Markdown."""
    lines = ["| metric | kind | label | meaning |", "|---|---|---|---|"]
    for metric in CATALOGUE:
        label = "" if metric.label is None else f"`{metric.label}`: " + ", ".join(f"`{v}`" for v in metric.values)
        lines.append(f"| `{metric.full_name}` | {metric.kind} | {label} | {metric.text} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(render(), end="")
