"""`deepinfer top`: a live view of an engine that serves metrics."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import click

DEFAULT_URL = "http://127.0.0.1:9760/metrics"
PREFIX = "deepinfer_"
HOME, CLEAR_LINE, CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
LARGEST = 1 << 22
WIDTH = 24


@dataclass
class Scrape:
    """Metrics at a moment of time.monotonic().

    Attributes:
        values: by name, label values in braces behind it. buckets: of histograms, summed over labels: (bound, count).
    """

    at: float
    values: dict[str, float] = field(default_factory=dict)
    buckets: dict[str, dict[float, float]] = field(default_factory=dict)

    def sum(self, name: str) -> float:
        """Of a metric over its label values; 0 of one that is not there."""
        return sum(value for key, value in self.values.items() if key == name or key.startswith(name + "{"))


def parse(text: str, at: float) -> Scrape:
    """From Prometheus' text format. Raises ValueError where it is none."""
    from ..runtime.metrics import prometheus

    prometheus()
    from prometheus_client.parser import text_string_to_metric_families

    found = Scrape(at)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            name = sample.name.removeprefix(PREFIX)
            labels = {key: value for key, value in sample.labels.items() if key != "le"}
            if "le" in sample.labels:
                some = found.buckets.setdefault(name.removesuffix("_bucket"), {})
                bound = float(sample.labels["le"])
                some[bound] = some.get(bound, 0.0) + sample.value
            else:
                key = name + (f"{{{','.join(labels.values())}}}" if labels else "")
                found.values[key] = sample.value
    return found


def rate(now: Scrape, before: Scrape | None, name: str) -> float:
    """Rise per second; 0 without a scrape before, and of a counter that fell, since the engine is another one then."""
    if before is None or now.at <= before.at:
        return 0.0
    return max(0.0, now.sum(name) - before.sum(name)) / (now.at - before.at)


def quantile(now: Scrape, before: Scrape | None, name: str, part: float) -> float | None:
    """Of what a histogram got since the scrape before, or since its beginning: linear within a bucket.

    None of nothing; of the last bucket, which has no end, its beginning.
    """
    counts = now.buckets.get(name, {})
    old: Mapping[float, float] = {} if before is None else before.buckets.get(name, {})
    if any(counts[bound] < old.get(bound, 0.0) for bound in counts):
        old = {}
    below = {bound: counts[bound] - old.get(bound, 0.0) for bound in sorted(counts)}
    total = max(below.values(), default=0.0)
    if not total:
        return None
    low = under = 0.0
    for bound, count in below.items():
        if count >= part * total and count > under:
            return low if math.isinf(bound) else low + (bound - low) * (part * total - under) / (count - under)
        low, under = bound, count
    return low


def render(now: Scrape, before: Scrape | None, url: str) -> list[str]:
    """The lines of the view."""
    value = now.sum
    seconds = now.at - before.at if before is not None else 0.0
    since = f"over {seconds:.1f} s" if before is not None else "since the engine began"
    lines = [
        f"deepinfer top  {url}  {since}",
        "",
        f"samples   {value('running'):8.0f} running {value('waiting'):8.0f} waiting"
        f" {value('preemptions_total'):8.0f} preempted in all",
        f"pages     {_bar(value('pages_in_use'), value('pages'))} {value('pages_in_use'):.0f} of {value('pages'):.0f}, "
        f"{value('pages_cached'):.0f} more in the prefix cache, fragmentation {value('fragmentation_ratio'):.0%}",
        f"slots     {_bar(value('slots_in_use'), value('slots'))} {value('slots_in_use'):.0f} of {value('slots'):.0f}",
        "",
        f"per s     {rate(now, before, 'steps_total'):8.1f} steps {rate(now, before, 'prompt_tokens_total'):10.1f} "
        f"prompt tokens {rate(now, before, 'output_tokens_total'):10.1f} output tokens "
        f"{rate(now, before, 'requests_total'):8.2f} requests",
        f"rows      {_shares(now, before, 'rows_total', ('prefill', 'decode', 'draft'))}",
        f"cached    {_ratio(value('cached_tokens_total{device}'), value('prompt_tokens_total'))} of prompt tokens"
        f"   drafts accepted {_ratio(value('accepted_tokens_total'), value('verified_tokens_total'))}",
        f"ended     {_outcomes(now)}",
        "",
        f"{'seconds':10}{'p50':>10}{'p90':>10}{'p99':>10}",
    ]
    for name in ("queue", "ttft", "tbt", "e2e", "plan", "step", "commit"):
        parts = (quantile(now, before, f"{name}_seconds", part) for part in (0.5, 0.9, 0.99))
        lines.append(f"{name:10}" + "".join(f"{'-' if part is None else f'{part:.4f}':>10}" for part in parts))
    return lines


def _bar(value: float, whole: float) -> str:
    full = round(WIDTH * min(1.0, value / whole)) if whole else 0
    return "[" + "#" * full + "." * (WIDTH - full) + "]"


def _ratio(value: float, whole: float) -> str:
    return f"{value / whole:.0%}" if whole else "-"


def _shares(now: Scrape, before: Scrape | None, name: str, labels: tuple[str, ...]) -> str:
    rates = {label: rate(now, before, f"{name}{{{label}}}") for label in labels}
    return "  ".join(f"{label} {amount:.1f}/s" for label, amount in rates.items())


def _outcomes(now: Scrape) -> str:
    begin = "requests_total{"
    found = {key[len(begin) : -1]: value for key, value in now.values.items() if key.startswith(begin)}
    return "  ".join(f"{label} {count:.0f}" for label, count in found.items() if count) or "none yet"


def fetch(url: str) -> Scrape:
    """Ask the engine.

    Raises:
        InvalidArgumentError: nobody answers there, or with something else.
        NotSupportedError: prometheus_client is not installed.
    """
    import http.client
    from urllib.error import URLError
    from urllib.request import ProxyHandler, build_opener

    from ..hal.errors import InvalidArgumentError

    allowed = "the address of an engine's metrics"
    if not url.startswith(("http://", "https://")):
        raise InvalidArgumentError("URL", url, f"{allowed}, http://HOST:PORT/metrics")
    try:
        with build_opener(ProxyHandler({})).open(url, timeout=5) as answer:
            text = answer.read(LARGEST).decode("utf-8")
        return parse(text, time.monotonic())
    except (URLError, OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise InvalidArgumentError("URL", url, f"{allowed} that answers ({reason})") from None
    except ValueError:
        raise InvalidArgumentError("URL", url, f"{allowed}: what came from there is none") from None


@click.command("top")
@click.argument("url", default=DEFAULT_URL)
@click.option("--interval", type=click.FloatRange(0.1, 3600), default=1.0, show_default=True, help="Seconds.")
@click.option("--count", type=click.IntRange(1), help="End after so many views.")
def command(url: str, interval: float, count: int | None) -> None:
    """Watch an engine that serves metrics at URL, see EngineArgs(metrics_port=PORT); Ctrl-C ends it.

    Rates and percentiles are those since the view before; of the first view, since the engine began.
    """
    from ..hal.errors import DeepInferError

    live = sys.stdout.isatty()
    before: Scrape | None = None
    shown = 0
    try:
        while True:
            try:
                now = fetch(url)
                lines = render(now, before, url)
                before = now
            except DeepInferError as error:
                if before is None:
                    raise
                lines = [f"deepinfer top  {url}", "", f"no answer; trying again: {error}"]
            _show(lines, live)
            shown += 1
            if count is not None and shown >= count:
                return
            time.sleep(interval)
    except KeyboardInterrupt:
        click.echo()


def _show(lines: list[str], live: bool) -> None:
    if live:
        click.echo(HOME + "".join(line + CLEAR_LINE + "\n" for line in lines) + CLEAR_BELOW, nl=False)
    else:
        click.echo("\n".join(lines) + "\n")
