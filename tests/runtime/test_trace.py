"""Recorded plans: what a run decided comes out the same without it, and damage is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from deepinfer.cli.main import main
from deepinfer.hal.errors import InvalidArgumentError
from deepinfer.runtime.params import SamplingParams
from deepinfer.runtime.prefix import PrefixSettings
from deepinfer.runtime.trace import TraceError, read_trace, replay
from engines import FREE, alone, bits, build_engine, drain


def record(path: Path) -> Any:
    """A run with chunks, drafts, preemptions, prefixes, and requests that wait."""
    engine = build_engine(
        trace=str(path), num_pages=12, num_slots=4, max_requests=3, max_tokens=16, max_drafts=2,
        prefix=PrefixSettings(slack=7),
    )  # fmt: skip
    for key in ("first", "second"):
        engine.add_request(None, key, SamplingParams(**FREE, max_tokens=2), [5] * 9)
        drain(engine)
    for key in range(8):
        prompt = [5 + key % 3] * (6 + 5 * (key % 3))
        engine.add_request(None, key, SamplingParams(**FREE, max_tokens=14, priority=key % 2), prompt)
    drain(engine)
    assert engine.stats.preemptions > 0 and engine.stats.cached_tokens > 0
    engine.close()
    return engine


def run(*args: str) -> Result:
    return CliRunner().invoke(main, ["replay", *args])


def test_a_recorded_run_is_planned_the_same_again(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    engine = record(path)
    trace = read_trace(path)
    done = replay(trace)
    assert trace.limits == engine.config.limits and done.differences == ()
    assert done.rows == engine.executor.rows and done.preempted == engine.stats.preemptions
    assert done.admitted == 10 + done.preempted and done.held > 0 and 0 < done.prefill < done.rows
    result = run(str(path))
    assert result.exit_code == 0 and result.output.splitlines()[-1] == "every step as recorded"
    assert json.loads(run(str(path), "--json").output)["rows"] == done.rows


def test_other_limits_show_in_the_steps_they_decide(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    record(path)
    result = run(str(path), "--max-num-seqs", "1", "--show", "1")
    assert result.exit_code == 1 and "  recorded " in result.output and "  now " in result.output
    assert " more\n" in result.output and result.output.endswith("are planned otherwise\n")
    told = run(str(path), "--max-num-batched-tokens", "3")
    assert told.exit_code == 2 and "limits that agree" in told.output and "Traceback" not in told.output


def test_a_planner_that_decides_otherwise_is_found(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    record(path)
    lines = path.read_text().splitlines()
    changed = json.loads(lines[3])
    changed["items"][0][2] -= 1
    lines[3] = json.dumps(changed)
    path.write_text("\n".join(lines) + "\n")
    assert [d.step.line for d in replay(read_trace(path)).differences] == [4]


@pytest.mark.parametrize(
    ("damage", "line", "what"),
    [
        (lambda t: "", 1, "not JSON"),
        (lambda t: "[1]\n", 1, "no trace"),
        (lambda t: '{"format":"other"}\n', 1, "no trace"),
        (lambda t: t.replace('"version":1', '"version":2', 1), 1, "this release reads version 1"),
        (lambda t: t.replace('"max_tokens":16', '"max_tokens":1', 1), 1, "no limits of a step"),
        (lambda t: t[:-9], 0, "the last line is cut off"),
        (lambda t: t.replace('"free_pages"', '"free"', 1), 2, "not a step: KeyError"),
        (lambda t: t.replace('"waiting":[[', '"waiting":[["x",', 1), 2, "not a step: TypeError"),
        (lambda t: t.replace('"free_pages":', '"free_pages":"x","free":', 1), 2, "not a step: TypeError"),
        (lambda t: t.replace('"page_tokens":4', '"page_tokens":0', 1), 1, "no limits of a step"),
    ],
)
def test_damage_is_named_by_its_line(tmp_path: Path, damage: Any, line: int, what: str) -> None:
    path = tmp_path / "trace.jsonl"
    record(path)
    text = damage(path.read_text())
    path.write_text(text)
    with pytest.raises(TraceError, match=what) as caught:
        read_trace(path)
    assert caught.value.line == (line or len(text.split("\n")))
    assert run(str(path)).exit_code == 2


def test_what_was_planned_is_in_the_file_before_the_step_runs(tmp_path: Path) -> None:
    """A trace is wanted most of a run that did not end."""
    engine = build_engine(trace=str(tmp_path / "trace"))
    engine.add_request(None, 0, SamplingParams(**FREE, max_tokens=4), [5, 6])
    for steps in range(1, 4):
        engine.step()
        assert len(read_trace(tmp_path / "trace").steps) == steps


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a file that is always full")
def test_a_full_disk_ends_the_trace_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    engine = build_engine(trace="/dev/full")
    params = SamplingParams(**FREE, max_tokens=4)
    engine.add_request(None, 0, params, [5, 6])
    assert bits(drain(engine)[(0, 0)]) == bits(alone([5, 6], params))
    engine.close()
    assert [record.getMessage() for record in caplog.records] == ["the trace ends here, for it cannot be written"]


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be read"):
        read_trace(tmp_path / "none")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TraceError, match="cannot be read"):
        read_trace(tmp_path / "bytes")
    with pytest.raises(InvalidArgumentError, match="trace: got .*a file that can be written"):
        build_engine(trace=str(tmp_path / "no" / "such" / "folder"))
