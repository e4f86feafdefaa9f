"""Metrics: what is counted, exactly, and how Prometheus reads it."""

from __future__ import annotations

import sys
import threading
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from deepinfer.hal.errors import InvalidArgumentError, NotSupportedError
from deepinfer.runtime import metrics as module
from deepinfer.runtime.execute import Work
from deepinfer.runtime.lives import Life
from deepinfer.runtime.metrics import CATALOGUE, OUTCOMES, EngineMetrics, Histogram
from deepinfer.runtime.metrics_server import MetricsServer, exposition
from deepinfer.runtime.offload import HostSettings
from deepinfer.runtime.outputs import FinishReason, RequestOutput
from deepinfer.runtime.params import SamplingParams
from deepinfer.runtime.prefix import PrefixSettings
from delayed import Delayed
from engines import FREE, Faulty, alone, build_engine, drain

DOCS = Path(__file__).resolve().parents[2] / "docs"


def params(length: int = 6, **more: Any) -> SamplingParams:
    return SamplingParams(max_tokens=length, **{**FREE, **more})


def watched(**options: Any) -> tuple[Any, EngineMetrics]:
    engine = build_engine(**options)
    return engine, EngineMetrics(engine)


def count(metrics: EngineMetrics, name: str, label: str = "") -> float:
    return metrics.counters[name][label]


class Clock:
    """A monotonic clock that a test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)


def test_the_values_of_a_bucket_are_at_most_its_bound() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 2.5, -3.0):
        histogram.add(value)
    assert histogram.cumulative() == [("1.0", 3.0), ("2.0", 5.0), ("+Inf", 6.0)]
    assert (histogram.count, histogram.total) == (6, 7.5)


def test_outcomes_tokens_and_rows_add_up() -> None:
    engine, metrics = watched(max_drafts=3, max_tokens=64)
    for key in range(10):  # of which two have to wait
        engine.add_request(None, key, params(7, seq_seed=key), [3 + key] * (4 + key))
    engine.step()
    engine.abort_request([2, 9])
    outputs = [one for some in drain(engine).values() for one in some]
    done = count(metrics, "requests_total", "length"), count(metrics, "requests_total", "abort")
    assert done == (8, 2) and sum(metrics.counters["requests_total"].values()) == 10
    assert count(metrics, "output_tokens_total") == engine.stats.output_tokens >= 56
    assert count(metrics, "verified_tokens_total") == engine.stats.verified > 0
    assert count(metrics, "accepted_tokens_total") == engine.stats.accepted > 0
    assert count(metrics, "drafted_tokens_total") >= count(metrics, "verified_tokens_total")
    assert count(metrics, "prompt_tokens_total") == sum(4 + key for key in range(9)), "9 never began"
    assert sum(metrics.counters["steps_total"].values()) == engine.stats.steps
    assert sum(metrics.counters["rows_total"].values()) == engine.executor.rows
    assert count(metrics, "rows_total", "draft") == engine.stats.verified + sum(
        one.verified for one in outputs if one.finish_reason == "abort"
    )
    tbt = metrics.histograms["tbt_seconds"][""]
    first = metrics.histograms["ttft_seconds"][""].count
    assert tbt.count + first == count(metrics, "output_tokens_total"), "a time per token, the first of which is TTFT"
    assert not metrics.lives and not metrics._by_name, "nothing is kept of who has ended"


def test_times_are_those_of_the_definitions(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    engine, metrics = watched(max_requests=1, num_slots=1)
    for key in range(2):
        engine.add_request(None, key, params(3), [5 + key] * 3)
    clock.now += 2.0
    run = engine.executor.run

    def slow(work: Any) -> Any:
        clock.now += 0.25
        return run(work)

    monkeypatch.setattr(engine.executor, "run", slow)
    for _ in range(6):
        engine.step()
        clock.now += 1.0

    def total(name: str, label: str = "") -> tuple[int, float]:
        return metrics.histograms[name][label].count, round(metrics.histograms[name][label].total, 6)

    # The first begins 2 s after it came, and a step is returned every 1.25 s; the second begins three steps later.
    assert total("queue_seconds") == (2, 2.0 + 2.0 + 3 * 1.25)
    assert total("prefill_seconds") == (2, 0.5)
    assert total("ttft_seconds") == (2, 2.25 + 2.25 + 3 * 1.25)
    assert total("tbt_seconds") == (4, 5.0)
    assert total("decode_seconds") == (2, 5.0)
    assert total("e2e_seconds") == (2, 2 * 4.75 + 3 * 1.25)
    assert total("step_seconds", "prefill") == (2, 0.5) and total("step_seconds", "decode") == (4, 1.0)


def test_tokens_of_one_step_share_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    engine, metrics = watched()
    engine.add_request(None, "x", params(60), [5])
    engine.step()
    clock.now += 0.9
    said = [RequestOutput(request_id="x", token_id=7, num_output_tokens=2 + i) for i in range(3)]
    metrics.returned(said)
    tbt = metrics.histograms["tbt_seconds"][""]
    assert tbt.count == 3 and tbt.total == pytest.approx(0.9) and tbt.counts[tbt.bounds.index(0.5)] == 3


def test_preemptions_failures_and_resumed_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    executor = Faulty(97, 7, 8, 4)
    executor.raise_at = (3,)
    engine, metrics = watched(executor=executor, num_pages=7, max_model_len=28)
    for key in range(3):
        engine.add_request(None, key, params(12), [5 + key] * 4)
    drain(engine)
    assert count(metrics, "preemptions_total") == engine.stats.preemptions > 0
    assert count(metrics, "step_failures_total") == 1
    assert metrics.histograms["queue_seconds"][""].count == 3, "a sample waits once, however often it gives way"
    assert count(metrics, "requests_total", "length") == 3


def test_the_last_word_of_an_aborted_request_is_not_said_by_the_next_of_its_name() -> None:
    engine, metrics = watched()
    engine.add_request(None, "x", params(5), [5] * 3)
    engine.abort_request("x")
    engine.add_request(None, "x", params(4), [6] * 7)
    (old, new) = metrics.lives.values() if len(metrics.lives) == 2 else (None, *metrics.lives.values())
    drain(engine)
    assert new.tokens == 4 and (old is None or old.tokens == 0) and not metrics.lives
    assert (count(metrics, "requests_total", "abort"), count(metrics, "requests_total", "length")) == (1, 1)


def test_tokens_by_who_had_them() -> None:
    """A second sample goes on from the first's prompt; a preempted one comes back from host memory."""
    engine, metrics = watched(slack=8)
    engine.add_request(None, "x", params(3, n=2), [5] * 9)
    drain(engine)
    assert count(metrics, "cached_tokens_total", "fork") == engine.stats.forked_tokens > 0
    assert count(metrics, "cached_tokens_total", "device") == 0
    life = Life(7, "y", 0, 3, 0.0, began=1.0, start=12)
    metrics.offloaded(SimpleNamespace(key=7))  # type: ignore[arg-type]
    metrics.resumed(life, 2.0)
    assert count(metrics, "offloads_total") == 1 and count(metrics, "cached_tokens_total", "host") == 12
    life.start = 8
    metrics.resumed(life, 3.0)  # computed again, but for what the prefix cache had
    assert count(metrics, "cached_tokens_total", "host") == 12 and count(metrics, "cached_tokens_total", "device") == 8


@pytest.mark.parametrize("how", ["saved", "fails", "ends"])
def test_an_offload_counts_when_it_has_happened(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    engine, metrics = watched(
        num_pages=7, max_model_len=28, host=HostSettings(40, 8), stop_preempted_request=how == "ends"
    )
    if how == "fails":
        monkeypatch.setattr(engine.executor, "save", Mock(side_effect=RuntimeError("no room")))
    for key in range(3):
        engine.add_request(None, key, params(12), [5 + key] * 4)
    drain(engine)
    assert count(metrics, "preemptions_total") > 0
    assert count(metrics, "offloads_total") == engine.stats.offloads
    assert (count(metrics, "offloads_total") > 0) == (how == "saved")
    assert (count(metrics, "cached_tokens_total", "host") > 0) == (how == "saved")


def test_overlapping_steps_make_no_queue_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step is launched while the one before runs: its requests have waited up to the launch and no longer."""
    clock = Clock(monkeypatch)
    executor = Delayed(97, 64, 8, 4, slack=1)
    engine, metrics = watched(executor=executor, async_scheduling=True)
    compute = executor.compute

    def slow(cells: Any) -> Any:
        clock.now += 1.0
        return compute(cells)

    monkeypatch.setattr(executor, "compute", slow)
    engine.add_request(None, 0, params(6), [5] * 3)
    engine.step()
    engine.add_request(None, 1, params(2), [6] * 3)
    drain(engine)
    queue, prefill = (metrics.histograms[name][""] for name in ("queue_seconds", "prefill_seconds"))
    assert (queue.count, queue.total) == (2, 0.0)
    # The first step runs while the second request's is launched behind it: that one's token takes both.
    assert (prefill.count, prefill.total) == (2, 1.0 + 2.0)


def test_rows_of_who_has_ended_are_not_counted() -> None:
    """The device sees the end of a sequence, and the step launched behind it has no row of it."""
    for drafts in (0, 2):
        executor = Delayed(97, 64, 8, 4, slack=3)
        engine, metrics = watched(executor=executor, async_scheduling=True, max_drafts=drafts, max_tokens=32, slack=3)
        compute, rows = executor.compute, 0

        def counted(cells: Any, compute: Any = compute) -> Any:
            nonlocal rows
            found = compute(cells)
            rows += sum(cell.span[1] - cell.span[0] for cell in cells)
            return found

        executor.compute = counted  # type: ignore[method-assign]
        said = [one.token_id for one in alone([4, 5], params(30), max_drafts=drafts, max_tokens=32)]
        stop = next(token for place, token in enumerate(said) if place >= 3 and token not in said[:place])
        engine.add_request(None, 0, params(30, stop_token_ids=[stop]), [4, 5])
        drain(engine)
        assert executor.masked == 1
        assert sum(metrics.counters["rows_total"].values()) == rows > 3


def test_cache_hits_and_occupancy() -> None:
    engine, metrics = watched(prefix=PrefixSettings(slack=4))
    for key in range(2):
        engine.add_request(None, key, params(1), [4] * 9)
        drain(engine)
    assert count(metrics, "cached_tokens_total", "device") == engine.stats.cached_tokens == 8
    assert count(metrics, "cached_tokens_total", "host") == 0
    gauges = metrics.gauges()
    assert gauges["pages_cached"] == engine._queues.pages.used > 0 and gauges["pages_in_use"] == 0
    engine.add_request(None, 2, params(9), [5] * 9)
    engine.add_request(None, 3, params(9), [6] * 60)
    engine.step()
    gauges = metrics.gauges()
    assert (gauges["running"], gauges["waiting"], gauges["slots"], gauges["slots_in_use"]) == (2, 0, 8, 2)
    # 9 tokens in 3 pages of 4; 60 tokens have their 15 pages, and 7 are computed.
    assert gauges["fragmentation_ratio"] == pytest.approx(1 - (9 + 7) / (12 + 60))


def test_every_metric_is_shown_whatever_has_happened() -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    engine, metrics = watched()
    before = {f.name: f for f in parser.text_string_to_metric_families(exposition(metrics).decode())}
    for key in range(20):  # names and tenants of clients make no line
        engine.add_request(f"user{key}", f"id{key}", params(2, tenant=f"tenant{key}"), [5])
    drain(engine)
    text = exposition(metrics).decode()
    after = {f.name: f for f in parser.text_string_to_metric_families(text)}
    expected = {metric.full_name.removesuffix("_total") for metric in CATALOGUE}
    assert set(before) == set(after) == expected
    for metric in CATALOGUE:
        family = after[metric.full_name.removesuffix("_total")]
        assert family.type == metric.kind and len(family.samples) == len(before[family.name].samples), metric.name
        if metric.label is not None:
            assert {s.labels[metric.label] for s in family.samples} == set(metric.values)
    assert "tenant" not in text and "id1" not in text
    samples = {(s.name, tuple(s.labels.items())): s.value for f in after.values() for s in f.samples}
    assert samples["deepinfer_requests_total", (("outcome", "length"),)] == 20
    assert samples["deepinfer_ttft_seconds_count", ()] == 20
    assert samples["deepinfer_output_tokens_total", ()] == 40


def test_no_step_waits_for_who_takes_the_metrics() -> None:
    pytest.importorskip("prometheus_client")
    engine, metrics = watched()
    families = metrics.collect()
    next(families)
    engine.add_request(None, 0, params(), [4, 5])
    steps = threading.Thread(target=drain, args=(engine,), daemon=True)
    steps.start()
    steps.join(10)
    assert not steps.is_alive()
    shown = {family.name: family for family in families}
    assert all(sample.value == 0 for sample in shown["deepinfer_output_tokens"].samples), "as they were at the call"


def test_counters_never_fall() -> None:
    engine, metrics = watched(num_pages=10, max_model_len=40)
    last: dict[str, float] = {}
    for key in range(8):
        engine.add_request(None, key, params(9), [5 + key] * (3 + key))
    while engine.has_unfinished_requests():
        engine.step()
        now = {f"{name} {label}": value for name, some in metrics.counters.items() for label, value in some.items()}
        assert all(now[name] >= value for name, value in last.items())
        last = now


def test_no_time_is_read_from_a_clock_that_may_jump(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong() -> float:
        raise AssertionError("the wall clock was read")

    engine, metrics = watched()
    monkeypatch.setattr(time, "time", wrong)
    engine.add_request(None, 0, params(3), [5])
    drain(engine)
    assert metrics in list(engine.observers), "an observer that raises is dropped"
    assert count(metrics, "output_tokens_total") == 3


def test_an_observer_that_raises_breaks_nothing(caplog: pytest.LogCaptureFixture) -> None:
    engine, metrics = watched()
    bad = EngineMetrics(engine)

    def broken(*_: Any) -> None:
        raise RuntimeError("planted")

    bad.ran = broken  # type: ignore[method-assign]
    engine.add_request(None, 0, params(3), [5])
    assert len(drain(engine)[0, 0]) == 3
    assert bad not in list(engine.observers) and metrics in list(engine.observers)
    assert caplog.text.count("EngineMetrics failed and is told no more") == 1


def test_requests_from_before_the_observer_are_passed_over() -> None:
    engine = build_engine()
    engine.add_request(None, 0, params(3), [5])
    metrics = EngineMetrics(engine)
    drain(engine)
    assert count(metrics, "output_tokens_total") == 0 and metrics in list(engine.observers)


def test_outcomes_are_those_that_exist() -> None:
    assert set(OUTCOMES) == {str(reason) for reason in FinishReason}


def test_served_on_this_machine_alone() -> None:
    pytest.importorskip("prometheus_client")
    engine, metrics = watched()
    engine.add_request(None, 0, params(3), [5])
    drain(engine)
    server = MetricsServer(metrics, 0)
    try:
        assert server.url.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(server.url, timeout=10) as answer:
            assert b'deepinfer_requests_total{outcome="length"} 1.0' in answer.read()
        with pytest.raises(InvalidArgumentError, match=f"metrics port: got {server.port}"):
            MetricsServer(metrics, server.port)
    finally:
        server.close()


def test_without_the_package_there_is_a_word_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    _, metrics = watched()
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(NotSupportedError, match="extra `metrics`"):
        exposition(metrics)
    with pytest.raises(NotSupportedError, match="extra `metrics`"):
        MetricsServer(metrics, 0)


def test_the_page_holds_the_catalogue() -> None:
    page = (DOCS / "observability.md").read_text(encoding="utf-8")
    assert module.render() in page, "write the table anew with python -m deepinfer.runtime.metrics"


def test_names_follow_the_rules_of_prometheus() -> None:
    names = [metric.name for metric in CATALOGUE]
    assert len(set(names)) == len(names)
    for metric in CATALOGUE:
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric.name
        assert (metric.kind == "histogram") == bool(metric.bounds) and list(metric.bounds) == sorted(metric.bounds)
        assert metric.kind != "histogram" or metric.name.endswith("_seconds")
        assert metric.text.endswith(".") and "|" not in metric.text


def test_what_rows_are_called() -> None:
    class Asked:
        prompt_len = 4

    def rows(*items: tuple[int, int, int]) -> tuple[str, tuple[int, int, int]]:
        work: Sequence[Any] = [Work(Asked(), s, e, True, drafts=[0] * d) for s, e, d in items]  # type: ignore[arg-type]
        found = module.rows_of(work)
        return module.step_kind(found), found

    assert rows((0, 4, 0)) == ("prefill", (4, 0, 0))
    assert rows((3, 4, 0)) == ("prefill", (1, 0, 0)), "the last row of a prompt is none that decodes"
    assert rows((4, 5, 0)) == ("decode", (0, 1, 0))
    assert rows((4, 8, 3)) == ("decode", (0, 1, 3))
    assert rows((4, 5, 0), (0, 3, 0)) == ("mixed", (3, 1, 0))
    assert rows((0, 6, 0)) == ("prefill", (6, 0, 0)), "text computed again after a preemption"
