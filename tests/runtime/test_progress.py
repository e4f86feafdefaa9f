"""The log line of an engine."""

from __future__ import annotations

import pytest

from deepinfer.runtime.params import SamplingParams
from deepinfer.runtime.prefix import PrefixSettings
from engines import FREE, build_engine, drain


def test_progress_is_logged_every_so_many_steps(caplog: pytest.LogCaptureFixture) -> None:
    engine = build_engine(log_interval=2)
    engine.add_request(None, 0, SamplingParams(max_tokens=5, **FREE), [4, 5])
    with caplog.at_level("INFO", logger="deepinfer"):
        drain(engine)
    assert [message.split(":")[0] for message in caplog.messages] == ["step 2", "step 4"]
    assert "1 running, 0 waiting" in caplog.messages[0] and "of 64 pages" in caplog.messages[0]


def test_pages_that_only_the_prefix_cache_holds_are_not_in_use(caplog: pytest.LogCaptureFixture) -> None:
    engine = build_engine(log_interval=1, prefix=PrefixSettings(slack=4))
    for key in range(2):
        engine.add_request(None, key, SamplingParams(max_tokens=1, **FREE), [4 + key] * 9)
        with caplog.at_level("INFO", logger="deepinfer"):
            drain(engine)
    assert engine._queues.pages.used == 4 and all("0 running, 0 waiting, 0 of 64 pages" in m for m in caplog.messages)
