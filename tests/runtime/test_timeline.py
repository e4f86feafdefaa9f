"""Timelines of requests: their events, their bounds, and the trace made of them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from deepinfer.hal.errors import InvalidArgumentError
from deepinfer.runtime.params import SamplingParams
from deepinfer.runtime.timeline import Timeline
from engines import FREE, build_engine, drain


def params(length: int = 5, **more: Any) -> SamplingParams:
    return SamplingParams(max_tokens=length, **{**FREE, **more})


def test_the_events_of_a_request_in_order() -> None:
    engine = build_engine(max_tokens=8)
    timeline = Timeline(engine)
    engine.add_request(None, "a", params(3), [4] * 13)  # in chunks of 8 and 5 rows
    drain(engine)
    (record,) = timeline.records()
    assert record["request_id"] == "a" and record["finish_reason"] == "length" and record["output_tokens"] == 3
    names = [event["name"] for event in record["events"]]
    assert names[0] == "arrived" and names[-1] == "finished" and names.count("tokens") == 3
    assert [event["rows"] for event in record["events"] if event["name"] == "chunk"] == [[0, 8], [8, 13]]
    times = [event["at"] for event in record["events"]]
    assert times == sorted(times) and times[0] > 0


def test_preemptions_are_told_with_their_ends() -> None:
    engine = build_engine(num_pages=7, max_model_len=28)
    timeline = Timeline(engine)
    for key in range(3):
        engine.add_request(None, key, params(12), [5 + key] * 4)
    drain(engine)
    waits = [e for record in timeline.records() for e in record["events"] if e["name"] == "preempted"]
    assert len(waits) == engine.stats.preemptions > 0
    assert all(event["until"] is not None and event["until"] >= event["at"] for event in waits)


def test_memory_is_bounded_and_what_is_left_out_is_told() -> None:
    engine = build_engine()
    timeline = Timeline(engine, requests=2, steps=3, events=4)
    for key in range(4):
        engine.add_request(None, key, params(9, seq_seed=key), [5])
        drain(engine)
    records = timeline.records()
    assert [record["request_id"] for record in records] == [2, 3] and timeline.forgotten == 2
    assert all(record["dropped_events"] == 1 + 9 - 4 and record["output_tokens"] == 9 for record in records)
    trace = timeline.trace()
    assert (
        sum(event.get("pid") == 1 and event.get("tid") == 1 and event["ph"] == "X" for event in trace["traceEvents"])
        == 3
    )
    assert trace["otherData"]["forgotten_requests"] == 2
    with pytest.raises(InvalidArgumentError, match="events: got 0"):
        Timeline(engine, events=0)


def test_the_trace_is_what_chrome_reads(tmp_path: Path) -> None:
    engine = build_engine()
    timeline = Timeline(engine)
    for key in range(3):
        engine.add_request(None, f"r{key}", params(4, n=2), [5 + key] * 3)
    drain(engine)
    engine.add_request(None, "open", params(9), [5])
    engine.step()
    timeline.write(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())
    spans = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert all(event["ts"] >= 0 and event["dur"] >= 0 for event in spans)
    tracks: dict[int, list[tuple[float, float]]] = {}
    for event in spans:
        if event["pid"] == 2 and event["name"] in ("r0", "r0 [1]", "r1", "r1 [1]", "r2", "r2 [1]", "open"):
            tracks.setdefault(event["tid"], []).append((event["ts"], event["ts"] + event["dur"]))
    assert sum(map(len, tracks.values())) == 7 and len(tracks) == 6, "a lane is used again"
    for track in tracks.values():
        track.sort()
        assert all(one[1] <= other[0] for one, other in zip(track, track[1:])), "no two at a time on one lane"
    parts = [event["name"] for event in spans if event["tid"] == 1 and event["pid"] == 2]
    assert {"queue", "prefill", "decode"} <= set(parts)
    with pytest.raises(InvalidArgumentError, match="timeline"):
        timeline.write(tmp_path / "none" / "x.json")


def test_a_jump_of_the_wall_clock_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = build_engine()
    timeline = Timeline(engine)
    engine.add_request(None, "a", params(4), [5])
    engine.step()
    monkeypatch.setattr(time, "time", lambda: -1e9)
    drain(engine)
    times = [event["at"] for event in timeline.records()[0]["events"]]
    assert times == sorted(times) and times[-1] - times[0] < 60
