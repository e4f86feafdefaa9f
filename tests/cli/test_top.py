"""`deepinfer top`: rates, percentiles of buckets, and what it says when nobody answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from deepinfer.cli import top
from deepinfer.cli.main import main
from deepinfer.cli.top import DEFAULT_URL, Scrape, parse, quantile, rate, render
from deepinfer.runtime.metrics import CATALOGUE, EngineMetrics
from deepinfer.runtime.metrics_server import DEFAULT_PORT, LOOPBACK, MetricsServer, exposition
from deepinfer.runtime.params import SamplingParams
from engines import FREE, build_engine, drain

pytest.importorskip("prometheus_client")


@pytest.fixture
def served() -> Iterator[tuple[Any, MetricsServer]]:
    engine = build_engine(max_drafts=2, max_tokens=32)
    metrics = EngineMetrics(engine)
    server = MetricsServer(metrics, 0)
    yield engine, server
    server.close()


def work(engine: Any, count: int = 4) -> None:
    for key in range(count):
        engine.add_request(None, key, SamplingParams(max_tokens=6, **FREE), [5 + key] * 4)
    drain(engine)


def test_rates_are_of_the_time_between_and_a_new_engine_has_none() -> None:
    old = Scrape(10.0, {"x{a}": 4.0, "x{b}": 2.0, "xy": 100.0})
    new = Scrape(12.0, {"x{a}": 9.0, "x{b}": 3.0, "xy": 0.0})
    assert rate(new, old, "x") == 3.0 and rate(new, None, "x") == 0.0 and rate(new, old, "xy") == 0.0
    assert rate(new, new, "x") == 0.0


def test_percentiles_of_buckets() -> None:
    inf = float("inf")
    old = Scrape(0.0, buckets={"t": {1.0: 5.0, 2.0: 5.0, inf: 5.0}})
    new = Scrape(1.0, buckets={"t": {1.0: 9.0, 2.0: 13.0, inf: 15.0}})  # since then 4 up to 1, 4 up to 2, 2 above
    assert quantile(new, old, "t", 0.4) == 1.0 and quantile(new, old, "t", 0.2) == 0.5
    assert quantile(new, old, "t", 0.6) == 1.5 and quantile(new, old, "t", 0.99) == 2.0
    assert quantile(new, None, "t", 0.3) == pytest.approx(0.5)
    assert quantile(old, new, "t", 0.5) == 0.5, "counts that fell are those of another engine"
    assert quantile(new, new, "t", 0.5) is None and quantile(new, old, "none", 0.5) is None


def test_what_is_read_is_what_is_served() -> None:
    engine = build_engine(max_drafts=2, max_tokens=32)
    metrics = EngineMetrics(engine)
    work(engine)
    found = parse(exposition(metrics).decode(), 0.0)
    assert found.sum("output_tokens_total") == 24 and found.values["requests_total{length}"] == 4
    assert found.sum("requests_total") == 4 and max(found.buckets["tbt_seconds"].values()) == 20
    names = {metric.name for metric in CATALOGUE}
    text = "\n".join(render(found, None, "u"))
    assert "0 of 64" in text and "length 4" in text and "since the engine began" in text
    shown = [line.split()[0] for line in render(found, None, "u")[-7:]]
    assert all(f"{name}_seconds" in names for name in shown), "every row is of a metric that exists"


def test_every_number_of_the_view_is_of_a_metric_that_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: set[str] = set()
    monkeypatch.setattr(Scrape, "sum", lambda self, name: asked.add(name) or 1.0)
    render(Scrape(2.0), Scrape(1.0), "u")
    known = {f"{m.name}{{{v}}}" for m in CATALOGUE for v in m.values} | {metric.name for metric in CATALOGUE}
    assert len(asked) > 15 and asked <= known


def test_views_of_an_engine(served: tuple[Any, MetricsServer], monkeypatch: pytest.MonkeyPatch) -> None:
    engine, server = served
    monkeypatch.setattr(top.time, "sleep", lambda seconds: work(engine))
    result = CliRunner().invoke(main, ["top", server.url, "--count", "3"])
    assert result.exit_code == 0, result.output
    views = result.stdout.split("deepinfer top")[1:]
    assert len(views) == 3 and "none yet" in views[0] and "length 8" in views[2]
    assert "\x1b" not in result.stdout, "no codes of a terminal where there is none"


def test_an_engine_that_goes_away_is_waited_for(
    served: tuple[Any, MetricsServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, server = served
    fetch, calls = top.fetch, []

    def flaky(url: str) -> Scrape:
        calls.append(url)
        return fetch("http://127.0.0.1:9" if len(calls) == 2 else url)

    monkeypatch.setattr(top, "fetch", flaky)
    result = CliRunner().invoke(main, ["top", server.url, "--count", "3", "--interval", "0.1"])
    assert result.exit_code == 0 and result.stdout.count("trying again") == 1 and result.stdout.count("slots") == 2


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:9/metrics", "ftp://x", "nothing", "http://127.0.0.1:99999/", "http://["]
)
def test_nobody_there_is_a_message(url: str) -> None:
    result = CliRunner().invoke(main, ["top", url, "--count", "1"])
    assert result.exit_code == 2 and "URL: got" in result.stderr and "Traceback" not in result.stderr


def test_something_else_there_is_a_message(monkeypatch: pytest.MonkeyPatch, served: tuple[Any, MetricsServer]) -> None:
    def wrong(text: str, at: float) -> Scrape:
        raise ValueError("no number")

    monkeypatch.setattr(top, "parse", wrong)
    result = CliRunner().invoke(main, ["top", served[1].url, "--count", "1"])
    assert result.exit_code == 2 and "what came from there is none" in result.stderr


def test_it_looks_where_engines_serve() -> None:
    assert DEFAULT_URL == f"http://{LOOPBACK}:{DEFAULT_PORT}/metrics"
