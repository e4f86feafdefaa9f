"""Percentiles, times, goodput and the accounting behind them."""

from __future__ import annotations

from typing import Any

import pytest

from deepinfer.hal.errors import InvalidArgumentError
from deepinfer.runtime.bench.measure import AccountingError, Measured, Slo, percentile, spread, summary
from deepinfer.runtime.outputs import RequestOutput


def request(*moments: tuple[float, int], arrival: float = 0.0, reason: str = "length", index: int = 0) -> Measured:
    """A request whose tokens came at these moments."""
    one = Measured(index, arrival, prompt_len=3, asked=9)
    total = sum(count for _, count in moments)
    said = 0
    for at, count in moments:
        for _ in range(count):
            said += 1
            one.add(output(said, finished=said == total, finish_reason=reason if said == total else None), at)
    return one


def output(said: int, **more: Any) -> RequestOutput:
    return RequestOutput(request_id=0, token_id=5, num_output_tokens=said, **more)


def test_percentiles_interpolate_between_order_statistics() -> None:
    values = [40.0, 10.0, 30.0, 20.0]  # ranks 0..3
    assert percentile(values, 0) == 10 and percentile(values, 100) == 40
    assert percentile(values, 50) == 25.0  # rank 1.5: neither 20, the nearest below, nor 30
    assert percentile(values, 90) == pytest.approx(37.0)  # rank 2.7
    assert percentile(list(map(float, range(101))), 99) == 99.0
    assert percentile([3.0], 99) == 3.0 and percentile([], 50) is None
    found = spread([float(v) for v in range(1, 201)])
    assert found == {"mean": 100.5, "p50": 100.5, "p90": pytest.approx(180.1), "p95": pytest.approx(190.05),
                     "p99": pytest.approx(198.01), "max": 200.0}  # fmt: skip
    for bad in (-1, 101, float("nan")):
        with pytest.raises(InvalidArgumentError, match="percent"):
            percentile(values, bad)
    with pytest.raises(InvalidArgumentError, match="finite"):
        percentile([1.0, float("nan")], 50)


def test_times_of_a_request() -> None:
    one = request((2.0, 1), (3.0, 1), (4.5, 3), arrival=0.5)
    assert one.ttft == 1.5 and one.tbt == [1.0, 0.5, 0.5, 0.5] and one.e2e == 4.0 and one.tokens == 5
    first = request((2.0, 3), (3.0, 1))
    assert first.tbt == [0.0, 0.0, 1.0], "tokens that come with the first come at once"
    assert len(first.tbt) == first.tokens - 1
    silent = Measured(0, 1.0, 3, 4)
    silent.add(RequestOutput(request_id=0, finished=True, finish_reason="abort"), 2.0)
    assert (silent.ttft, silent.tbt, silent.tokens, silent.e2e, silent.good) == (None, [], 0, 1.0, False)


def test_drafts_are_never_output() -> None:
    """A step that verified five drafts and kept one gave two tokens, whatever its output says of drafts."""
    one = Measured(0, 0.0, 3, 2)
    one.add(output(1), 1.0)
    one.add(
        output(2, drafted=5, verified=5, accepted=1, draft_tok=6, accept_tok=2, finished=True, finish_reason="length"),
        1.0,
    )
    found = summary([one], Slo())
    assert found["output_tokens"] == 2 and found["drafts"]["verified"] == 5 and found["drafts"]["acceptance"] == 0.2


def test_counts_that_contradict_the_engine_are_refused() -> None:
    one = Measured(0, 0.0, 3, 9)
    one.add(output(1), 1.0)
    with pytest.raises(AccountingError, match="2 output tokens were counted, and the engine gave 7"):
        one.add(output(7, finished=True, finish_reason="length"), 2.0)  # 7 rows, 5 of them drafts that were rejected
    one = request((1.0, 2))
    one.verified, one.accepted = 5, 5
    with pytest.raises(AccountingError, match="5 of 5 verified drafts"):
        summary([one], Slo())
    one.verified, one.accepted = 1, 2
    with pytest.raises(AccountingError):
        summary([one], Slo())


def test_a_summary() -> None:
    run = [
        request((2.0, 1), (3.0, 1), arrival=1.0),
        request((4.0, 1), (7.0, 1), arrival=1.0, index=1),
        request((3.0, 1), arrival=2.0, reason="error", index=2),
    ]
    found = summary(run, Slo(ttft=1.0))
    assert found["outcomes"] == {"error": 1, "length": 2} and found["requests"] == 3
    assert found["seconds"] == 6.0 and found["output_tokens"] == 5
    assert found["requests_per_s"] == pytest.approx(2 / 6) and found["output_tokens_per_s"] == pytest.approx(5 / 6)
    assert found["total_tokens_per_s"] == pytest.approx((5 + 9) / 6)
    assert found["ttft"]["max"] == 3.0 and found["ttft"]["mean"] == 2.0, "failed ones are in no latency"
    assert found["tbt"]["mean"] == 2.0 and found["e2e"]["p50"] == 4.0
    assert found["goodput"]["requests"] == 1 and found["goodput"]["ratio"] == pytest.approx(1 / 3)
    assert found["goodput"]["requests_per_s"] == pytest.approx(1 / 6)
    nothing = summary([], Slo())
    assert nothing["requests_per_s"] is None and nothing["ttft"]["p99"] is None and nothing["goodput"]["ratio"] is None


def test_what_keeps_a_limit() -> None:
    one = request((1.0, 1), (2.0, 1), (6.0, 1))  # TTFT 1, times between tokens 1 and 4
    assert Slo().kept_by(one) and Slo(ttft=1.0).kept_by(one) and not Slo(ttft=0.99).kept_by(one)
    assert Slo(tbt=2.5).kept_by(one) and not Slo(tbt=2.4).kept_by(one)
    assert not Slo(tbt=3.9, of="max").kept_by(one) and Slo(tbt=4.0, of="max").kept_by(one)
    assert not Slo(tbt=3.9, of="p99").kept_by(one) and Slo(tbt=3.7, of="p90").kept_by(one)
    assert Slo(tbt=0.001).kept_by(request((1.0, 1))), "one token has no time between tokens"
    assert not Slo().kept_by(request((1.0, 1), reason="abort")), "who failed was not served in time"
    for bad in ({"ttft": 0.0}, {"tbt": -1.0}, {"ttft": float("nan")}, {"of": "p42"}):
        with pytest.raises(InvalidArgumentError, match="--slo"):
            Slo(**bad)
