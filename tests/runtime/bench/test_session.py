"""A benchmark's engine: warm-up that leaves nothing, and what a record says of the run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from deepinfer import __version__
from deepinfer.runtime import loader
from deepinfer.runtime.args import EngineArgs
from deepinfer.runtime.bench.measure import Slo
from deepinfer.runtime.bench.session import Session, table
from deepinfer.runtime.bench.workload import Arrivals, Lengths, Synthetic
from deepinfer.runtime.prefix import PrefixSettings
from engines import build_engine


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    engine = build_engine(prefix=PrefixSettings(slack=4), chunked_prefill=True)
    made = SimpleNamespace(engine=engine, backend="simulated", chip="none", model=SimpleNamespace(device="cpu"))
    monkeypatch.setattr(loader, "load_engine", lambda args: made)
    return Session(EngineArgs())


def workload(count: int) -> Synthetic:
    lengths = Lengths.parse("i", "24"), Lengths.parse("o", "3")
    return Synthetic(count, *lengths, Arrivals.parse("a", "burst"), seed=3, shared=16)


def test_a_warm_up_leaves_nothing_in_the_prefix_cache(session: Session) -> None:
    about: dict[str, Any] = {"mode": "m", "label": "l", "slo": Slo()}
    one, measured = session.measure(workload(1), None, warmup=3, **about)
    assert one["results"]["cached_tokens"] == 0 and one["results"]["requests"] == len(measured) == 1
    assert session.engine.stats.finished == 3 + 1 and one["warmup"]["requests"] == 3
    repeated, _ = session.measure(workload(1), None, **about)
    assert repeated["results"]["cached_tokens"] == 0, "nor does the run before"
    closed = Arrivals.parse("a", "closed:1")
    again, _ = session.measure(workload(3), closed, **about)
    assert again["results"]["cached_tokens"] > 0, "what requests of a run share among them counts"


def test_a_record_says_what_was_run(session: Session) -> None:
    one, _ = session.measure(workload(2), None, mode="latency", label="x", slo=Slo(ttft=9.0, tbt=1.0), warmup=1)
    assert one["system"]["prefix_caching"] and one["system"]["backend"] == "simulated"
    assert one["system"]["chip"] == "none" and one["system"]["deepinfer"] == __version__
    assert one["workload"]["shared_prefix"] == 16 and one["workload"]["arrivals"] == "as recorded"
    text = table(one)
    assert "latency of x: 2 requests" in text and "warm-up of 1 requests, not counted" in text
    assert "goodput within TTFT 9 s and mean TBT 1 s: 2 of 2" in text
    point, _ = session.measure(workload(2), None, mode="m", label="x", slo=Slo(), point={"batch": 4})
    assert "max_num_seqs" not in point["system"] and "arrivals" not in point["workload"]
