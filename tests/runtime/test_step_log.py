"""The periodic log of an engine."""

from __future__ import annotations

import logging
import re
import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from deepinfer.runtime.flops import FlopModel
from deepinfer.runtime.outputs import RequestOutput
from deepinfer.runtime.params import SamplingParams
from deepinfer.runtime.prefix import PrefixSettings
from deepinfer.runtime.step_log import StepLog, Window, describe
from engines import FREE, build_engine, drain

MODEL = FlopModel(
    linear={"F8_E4M3": 100.0}, head=10.0, window=4, window_layers=1, selected={}, index={}, key_work=1, index_work=1
)


def log_of(engine: Any) -> StepLog:
    (found,) = engine.observers
    assert isinstance(found, StepLog)
    return found


def finish(engine: Any) -> None:
    drain(engine)
    log_of(engine).flush()


def params(length: int = 5, **more: Any) -> SamplingParams:
    return SamplingParams(max_tokens=length, **{**FREE, **more})


def test_a_record_every_so_many_steps(caplog: pytest.LogCaptureFixture) -> None:
    engine = build_engine(log_interval=2)
    engine.add_request(None, 0, params(), [4, 5])
    with caplog.at_level("INFO", logger="deepinfer"):
        finish(engine)
    assert [message.split(":")[0] for message in caplog.messages] == ["step 2", "step 4"]
    assert "1 running, 0 waiting" in caplog.messages[0] and "of 64 pages" in caplog.messages[0]
    assert not list(build_engine(log_interval=0).observers)


def test_pages_that_only_the_prefix_cache_holds_are_not_in_use(caplog: pytest.LogCaptureFixture) -> None:
    engine = build_engine(log_interval=1, prefix=PrefixSettings(slack=4))
    for key in range(2):
        engine.add_request(None, key, params(1), [4 + key] * 9)
        with caplog.at_level("INFO", logger="deepinfer"):
            finish(engine)
    assert engine._queues.pages.used == 4 and len(caplog.messages) == 2
    assert all("0 running, 0 waiting" in m and "0 of 64 pages" in m for m in caplog.messages)


def test_everything_that_it_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    engine = build_engine(log_interval=1000, prefix=PrefixSettings(slack=4), flops=MODEL, peak_flops=1e12)
    log = log_of(engine)
    run = engine.executor.run

    def slow(work: Any) -> Any:
        now[0] += 0.5
        return run(work)

    monkeypatch.setattr(engine.executor, "run", slow)
    engine.add_request(None, "a", params(1), [4] * 9)
    drain(engine)  # one step of 9 rows
    engine.add_request(None, "b", params(4), [4] * 9)  # 8 of its tokens are cached
    engine.add_request(None, "c", params(40), [5] * 3)
    for _ in range(4):
        engine.step()
    engine.abort_request("c")
    drain(engine)
    from deepinfer.runtime.occupancy import occupancy_of

    lines = list(describe(engine.config, 5, log._window, now[0], occupancy_of(engine._queues, 4)))
    text = "\n".join(lines)
    # 5 steps in 2.5 s: 9 rows; 1 + 3 rows; then 2 that decode, three times.
    assert "step 5: 2.0 steps/s, 5.2 prompt tokens/s, 3.6 output tokens/s; 0 running, 0 waiting, 0 in prefill" in text
    assert "batch 22% of requests, 24% of rows" in text  # (1 + 2 * 4) / 5 of 8; (9 + 4 + 6) / 5 of 16
    assert "time: prefill 40%, decode 60%; cached 38% of prompts; TTFT max 0.500 s, mean 0.500 s" in text
    assert "requests: 2 finished, 0 preempted, 1 aborted, 0 failed; mean lengths 7.0 prompt, 3.0 output" in text
    # q * k: 81, then 1 * 9 + 3 * 3, then 10 + 4, 11 + 5, 12 + 6; the window of 4 keys is all that attention sees.
    assert "sum q*k 147, k 3 to 12" in text
    keys = (1 + 2 + 3 + 4 * 6) + 4 + (1 + 2 + 3) + 3 * (4 + 4)
    flops = 2 * 100 * 19 + 4 * 10 * 9 + 4 * keys  # logits: of the last rows of prompts, and of rows that decode
    assert f"{2 * keys / 2.5 / 1e12:.3f} TFLOPS" in text and f"MFU {flops / 2.5 / 1e12:.2%}" in text
    assert "timer step: mean 500.000 ms, max 500.000 ms, 5 calls, 100% of the time" in text
    assert re.search(r"timer plan: mean 0.000 ms, max 0.000 ms, 5 calls", text) and "timer commit" in text


def test_mfu_counts_what_it_should_and_says_when_it_cannot() -> None:
    engine = build_engine(log_interval=1, flops=MODEL)
    window = Window(0.0, steps=1, rows=[1, 0, 0], samples=1)
    import numpy as np

    window.spans.append((np.array([0]), np.array([1])))
    from deepinfer.runtime.occupancy import occupancy_of

    full = occupancy_of(engine._queues, 4)
    assert "MFU unknown" in "\n".join(describe(engine.config, 1, window, 1.0, full))
    config = replace(engine.config, peak_flops=408.0)  # 2 * 100 of the row, 4 for its one key, and no logits: 204
    assert "MFU 50.00%" in "\n".join(describe(config, 1, window, 1.0, full))
    window.logits = 1
    assert "MFU 59.80%" in "\n".join(describe(config, 1, window, 1.0, full))
    assert "FLOPS" not in "\n".join(describe(replace(config, flops=None), 1, window, 1.0, full))


def test_drafts_by_place_and_the_error_of_confidence() -> None:
    log = StepLog(build_engine(log_interval=9).config)
    for accepted, confidences in ((1, [0.9, 0.5, 0.7]), (2, [0.8, 0.6])):
        log._count_drafts(
            RequestOutput(request_id=0, verified=len(confidences), accepted=accepted, confidence_score=confidences)
        )
    window = log._window
    assert (window.verified_at, window.accepted_at) == ([2, 2, 1], [2, 1, 0])
    # The third draft of the first was never looked at: -0.1 + 0.5, then -0.2 - 0.4.
    assert window.confidence == [pytest.approx(-0.2), 4]
    text = "\n".join(describe(log._config, 1, window, window.began + 1, full=_empty()))
    assert "drafts: 3 of 5 verified were accepted (60%; by place 1.00 0.50 0.00)" in text
    assert "mean verified length 2.50, mean confidence error -0.050" in text
    assert "TTFT -" in text and "mean lengths - prompt, - output" in text, "of nothing there is no mean"


def _empty() -> Any:
    from deepinfer.runtime.occupancy import occupancy_of

    return occupancy_of(build_engine()._queues, 4)


def test_a_slow_handler_holds_no_step_up(caplog: pytest.LogCaptureFixture) -> None:
    opened, threads = threading.Event(), set()

    class Slow(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            threads.add(threading.current_thread().name)
            opened.wait(20)

    logger, slow = logging.getLogger("deepinfer.runtime.step_log"), Slow()
    logger.addHandler(slow)
    try:
        with caplog.at_level("INFO", logger="deepinfer"):
            engine = build_engine(log_interval=1)
            engine.add_request(None, 0, params(), [4, 5])
            drain(engine)  # with a handler that has not returned from the first record
            opened.set()
            log_of(engine).flush()
    finally:
        logger.removeHandler(slow)
    assert threads == {"deepinfer log"}


def test_a_log_that_is_stuck_keeps_no_more_than_a_few_records(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deepinfer.runtime.step_log.MOST_RECORDS", 2)
    opened, stuck = threading.Event(), threading.Event()

    class Stuck(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            stuck.set()
            opened.wait(20)

    logger, handler = logging.getLogger("deepinfer.runtime.step_log"), Stuck()
    logger.addHandler(handler)
    engine = build_engine(log_interval=1)
    try:
        with caplog.at_level("INFO", logger="deepinfer"):
            for key, length in enumerate((1, 9, 1)):
                engine.add_request(None, key, params(length), [4, 5])
                drain(engine)
                assert stuck.wait(10) and log_of(engine)._lines.qsize() <= 2
                if key == 1:
                    opened.set()
                    log_of(engine).flush()
            log_of(engine).flush()
    finally:
        opened.set()
        logger.removeHandler(handler)
    assert [message.split(":")[0] for message in caplog.messages] == ["step 1", "step 2", "step 3", "step 11"]
    assert ["dropped" in message for message in caplog.messages] == [False] * 3 + [True]
    assert "7 records before this one were dropped" in caplog.messages[-1]


def test_ranks_write_at_different_steps(caplog: pytest.LogCaptureFixture) -> None:
    for rank, expected in ((0, ["step 4", "step 8"]), (1, ["step 2", "step 6"])):
        caplog.clear()
        engine = build_engine()
        log = StepLog(replace(engine.config, log_interval=4), rank, 2)
        engine.observers.add(log)
        engine.add_request(None, 0, params(9), [4, 5])
        with caplog.at_level("INFO", logger="deepinfer"):
            drain(engine)
            log.flush()
        assert [message.split(":")[0] for message in caplog.messages] == expected


def test_closing_ends_the_thread() -> None:
    engine = build_engine(log_interval=1)
    engine.add_request(None, 0, params(), [4, 5])
    drain(engine)
    (writer,) = [t for t in threading.enumerate() if t is log_of(engine)._writer]
    engine.close()
    writer.join(10)
    assert not writer.is_alive()
