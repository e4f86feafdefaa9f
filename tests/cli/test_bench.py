"""`deepinfer bench`: runs, files of records, and what ends it with exit status 2."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from deepinfer.cli.main import main
from deepinfer.runtime import loader
from deepinfer.runtime.args import EngineArgs
from deepinfer.runtime.prefix import PrefixSettings
from engines import build_engine

SMALL = ["--requests", "5", "--input-len", "uniform:3:8", "--output-len", "4", "--quiet"]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Replaces the model; the list holds the engines that were made."""
    engines: list[Any] = []

    def load(args: EngineArgs) -> Any:
        drafts = 2 if args.model == "drafting" else 0
        rows = max(16, args.max_num_seqs * (1 + drafts))
        engine = build_engine(max_requests=args.max_num_seqs, num_slots=16, max_tokens=rows, max_drafts=drafts)
        engines.append(engine)
        return SimpleNamespace(engine=engine, backend="simulated", chip="none", model=SimpleNamespace(device="cpu"))

    monkeypatch.setattr(loader, "load_engine", load)
    return engines


def bench(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["bench", *map(str, arguments)])


def good(*arguments: str) -> Result:
    result = bench(*arguments)
    assert result.exit_code == 0, result.output
    return result


def test_throughput_prints_a_table_and_leaves_a_record(made: list[Any], tmp_path: Path) -> None:
    out, each = tmp_path / "x.jsonl", tmp_path / "each.jsonl"
    result = good("throughput", *SMALL, "--out", str(out), "--per-request", str(each), "--slo-ttft", "9")
    assert "20 output tokens" in result.stdout and "warm-up of 2 requests, not counted" in result.stdout
    assert "goodput within TTFT 9 s: 5 of 5 requests" in result.stdout
    (one,) = map(json.loads, out.read_text().splitlines())
    assert one["mode"] == "throughput" and one["results"]["output_tokens"] == 20 and one["label"] == "tiny"
    assert one["workload"]["arrivals"] == "burst" and one["accounting"]["output_tokens"] == "committed"
    assert made[0].stats.output_tokens == 28, "the warm-up ran, and is in no number"
    assert [json.loads(line)["output_tokens"] for line in each.read_text().splitlines()] == [4] * 5
    with pytest.raises(Exception, match="closed"):
        made[0].step()


def test_latency_runs_one_at_a_time(made: list[Any]) -> None:
    one = json.loads(good("latency", *SMALL, "--json", "--warmup", "0").stdout)
    assert one["mode"] == "latency" and one["workload"]["arrivals"] == "closed:1"
    assert made[0].stats.steps == 20 and one["results"]["ttft"]["p50"] > 0


def test_drafts_are_told_and_are_no_output(made: list[Any]) -> None:
    one = json.loads(good("throughput", "--model", "drafting", *SMALL, "--json").stdout)
    assert one["verification"] == {"verification": "fixed", "drafts": 2} and one["results"]["output_tokens"] == 20
    assert one["results"]["drafts"]["verified"] > one["results"]["drafts"]["accepted"] > 0


def test_a_sweep_skips_what_its_file_has(made: list[Any], tmp_path: Path) -> None:
    out = str(tmp_path / "s.jsonl")
    good("sweep", *SMALL, "--values", "1,2", "--out", out)
    assert len(made) == 1
    with open(out, "a") as file:
        file.write('{"kind":"deepinfer-bench","version":1,"mo')  # as a killed run leaves it
    result = good("sweep", *SMALL, "--values", "1,2,4", "--out", out)
    assert "concurrency 1: in" in result.stderr and "concurrency 2: in" in result.stderr
    assert result.stdout.count("sweep of tiny") == 1
    points = [json.loads(line)["point"] for line in Path(out).read_text().splitlines()]
    assert points == [{"concurrency": 1}, {"concurrency": 2}, {"concurrency": 4}]
    good("sweep", *SMALL, "--seed", "1", "--values", "1", "--out", out)
    assert len(Path(out).read_text().splitlines()) == 4, "another workload is another run"


def test_sweeps_over_rates_and_batches(made: list[Any], tmp_path: Path) -> None:
    out = str(tmp_path / "s.jsonl")
    good("sweep", *SMALL, "--over", "rate", "--values", "500,1000.5", "--out", out)
    made.clear()
    good("sweep", *SMALL, "--over", "batch", "--values", "1,4", "--out", out)
    assert [engine.config.limits.max_requests for engine in made] == [1, 4]
    records = [json.loads(line) for line in Path(out).read_text().splitlines()]
    assert [one["point"] for one in records] == [{"rate": 500.0}, {"rate": 1000.5}, {"batch": 1}, {"batch": 4}]
    assert records[2]["curve"] == records[3]["curve"], "points of one curve"
    seconds = [one["results"]["seconds"] for one in records[:2]]
    assert all(value > 0 for value in seconds)


def test_plots(made: list[Any], tmp_path: Path) -> None:
    out = str(tmp_path / "s.jsonl")
    good("sweep", *SMALL, "--values", "1,2", "--out", out)
    for name in ("p.svg", "p.html"):
        assert "2 runs" in good("plot", out, "--out", str(tmp_path / name)).stdout
        assert "<polyline" in (tmp_path / name).read_text()
    # The same label with drafts, and then with a variable number of them.
    good("sweep", *SMALL, "--model", "drafting", "--label", "d", "--values", "1", "--out", out)
    text = Path(out).read_text()
    mixed = text + text.splitlines()[-1].replace('"verification":"fixed"', '"verification":"variable"') + "\n"
    Path(out).write_text(mixed)
    result = bench("plot", out, "--out", str(tmp_path / "q.svg"))
    assert result.exit_code == 2 and "'d' would mix verification fixed and variable" in result.stderr
    assert not (tmp_path / "q.svg").exists()
    Path(out).write_text(text.replace('"output_tokens":"committed"', '"output_tokens":"drafted"'))
    result = bench("plot", out, "--out", str(tmp_path / "q.svg"))
    assert result.exit_code == 2 and "counts 'drafted' tokens as output" in result.stderr


def test_a_sweep_refuses_to_mix_before_it_runs(made: list[Any], tmp_path: Path) -> None:
    out = str(tmp_path / "s.jsonl")
    good("sweep", *SMALL, "--label", "x", "--values", "1", "--out", out)
    result = bench("sweep", *SMALL, "--label", "x", "--model", "drafting", "--values", "2", "--out", out)
    assert result.exit_code == 2 and "would mix verification fixed and off" in result.stderr
    assert made[-1].stats.steps == 0


def test_recorded_workloads(made: list[Any], tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    file.write_text(
        '{"prompt_tokens": 3, "output_tokens": 2}\n{"prompt_tokens": 5, "output_tokens": 3, "arrival": 0.01}\n'
    )
    one = json.loads(good("throughput", "--requests-file", str(file), "--json", "--quiet").stdout)
    assert one["results"]["output_tokens"] == 5 and one["workload"]["arrivals"] == "as recorded"
    engine = build_engine(trace=str(tmp_path / "t"))
    from deepinfer.runtime.params import SamplingParams

    engine.add_request(None, 0, SamplingParams(max_tokens=3, ignore_eos=True), [5, 6])
    while engine.has_unfinished_requests():
        engine.step()
    engine.close()
    one = json.loads(good("latency", "--trace", str(tmp_path / "t"), "--json", "--quiet").stdout)
    assert (one["results"]["requests"], one["results"]["output_tokens"], one["results"]["prompt_tokens"]) == (1, 3, 2)


def test_metrics_and_the_timeline_of_a_run(made: list[Any], tmp_path: Path) -> None:
    pytest.importorskip("prometheus_client")
    result = good("throughput", *SMALL, "--metrics-port", "0", "--timeline", str(tmp_path / "t.json"))
    assert "metrics: http://127.0.0.1:" in result.stderr
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"] and not list(made[0].observers)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["throughput", "--input-len", "zipf:3"], "--input-len: got 'zipf:3'"),
        (["throughput", "--output-len", "0"], "--output-len: got '0'"),
        (["throughput", "--arrival", "poisson:-1"], "--arrival: got 'poisson:-1'"),
        (["throughput", "--slo-ttft", "0"], "--slo-ttft: got 0.0"),
        (["throughput", "--slo-of", "p1"], "--slo-of: got 'p1'"),
        (["throughput", "--input-len", "99"], "request 0: got '99 prompt tokens"),
        (["throughput", "--trace", "/nonexistent"], "/nonexistent, line 1"),
        (["throughput", "--requests-file", "/nonexistent"], "/nonexistent, line 1"),
        (["throughput", "--trace", "a", "--requests-file", "b"], "--requests-file: got 'b'"),
        (["throughput", "--requests-file", "{file}", "--arrival", "poisson:3"], "--arrival: got 'poisson:3'"),
        (["throughput", "--out", "/nonexistent/x"], "--out: got '/nonexistent/x'"),
        (["throughput", "--temperature", "-1", "--input-len", "3"], "temperature: got -1.0"),
        (["throughput", "--step-seconds", "1"], "step_seconds"),
        (["sweep", "--values", "1,x", "--out", "o"], "--values: got '1,x'"),
        (["sweep", "--values", "1,1", "--out", "o"], "--values: got '1,1'"),
        (["sweep", "--values", "0", "--out", "o"], "--values: got '0'"),
        (["sweep", "--values", "1.5", "--out", "o"], "--values: got '1.5'"),
        (["sweep", "--over", "rate", "--requests-file", "{file}", "--values", "1", "--out", "o"], "--over: got 'rate'"),
        (["sweep", "--values", "1", "--out", "{file}"], "this is no record of a benchmark"),
        (["plot", "{file}", "--out", "x.svg"], "this is no record of a benchmark"),
        (["plot", "{file}", "--out", "x.png"], "--out: got 'x.png'"),
        (["plot", "/nonexistent", "--out", "x.svg"], "cannot be read"),
        (["sweep", "--out", "o"], "--values"),
    ],
)
def test_faults_of_users_are_one_message_and_exit_status_2(
    made: list[Any], tmp_path: Path, arguments: list[str], words: str
) -> None:
    file = tmp_path / "r.jsonl"
    file.write_text('{"prompt_tokens": 3, "output_tokens": 2}\n')
    quiet = [] if arguments[0] == "plot" else ["--quiet"]
    result = bench(*(str(file) if one == "{file}" else one for one in arguments), *quiet)
    assert result.exit_code == 2, result.output
    assert words in result.stderr and "Traceback" not in result.stderr
    assert file.read_text() == '{"prompt_tokens": 3, "output_tokens": 2}\n'


def test_turns_tell_what_the_prefix_cache_is_worth(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    engine = build_engine(prefix=PrefixSettings(slack=8), num_pages=200)

    def load(args: EngineArgs) -> Any:
        assert args.enable_prefix_caching
        return SimpleNamespace(engine=engine, backend="simulated", chip="none", model=SimpleNamespace(device="cpu"))

    monkeypatch.setattr(loader, "load_engine", load)
    out = tmp_path / "turns.jsonl"
    sizes = ["--conversations", "3", "--turns", "2", "--shared-prefix", "12", "--input-len", "4", "--output-len", "3"]
    result = good("turns", *sizes, "--rounds", "1", "--quiet", "--out", str(out))
    assert "the same tokens in all" in result.stdout
    (one,) = map(json.loads, out.read_text().splitlines())
    assert one["mode"] == "turns" and one["workload"]["turns"] == 2
    assert one["results"]["with_cache"]["cached_tokens"] > 0 == one["results"]["without_cache"]["cached_tokens"]
    assert set(one["results"]["ratios"]) == {"ttft", "ttft_later_turns", "output_tokens_per_s"}
