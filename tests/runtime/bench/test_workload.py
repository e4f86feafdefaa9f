"""Workloads: what is drawn, what a seed decides, and files of requests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepinfer.hal.errors import InvalidArgumentError
from deepinfer.runtime.bench.workload import (
    Arrivals,
    Lengths,
    Synthetic,
    Vocabulary,
    WorkloadError,
    from_trace,
    read_requests,
)
from deepinfer.runtime.params import SamplingParams
from deepinfer.runtime.trace import read_trace
from delayed import Delayed
from engines import FREE, VOCAB, build_engine, drain

BAD_LENGTHS = [
    "", "0", "-3", "2.5", "fixed", "uniform:9:3", "uniform:1", "normal:5", "zipf:2", "nan", "fixed:inf", "1e99",
    "normal:5:-1", "uniform:0:4", "5:6:7",
]  # fmt: skip
WORDS = Vocabulary(50, reserved=frozenset({7}))


def synthetic(
    count: int = 200, inputs: str = "8", outputs: str = "4", arrivals: str = "burst", **more: Any
) -> Synthetic:
    more = {"seed": 1, **more}
    return Synthetic(
        count, Lengths.parse("i", inputs), Lengths.parse("o", outputs), Arrivals.parse("a", arrivals), **more
    )


@pytest.mark.parametrize(
    ("spec", "low", "high", "mean"),
    [
        ("17", 17, 17, 17),
        ("fixed:17", 17, 17, 17),
        ("uniform:3:9", 3, 9, 6),
        ("normal:40:5", 15, 65, 40),
        ("lognormal:20:0.5", 1, 400, 20 * np.exp(0.125)),
        ("geometric:12", 1, 300, 12),
    ],
)
def test_lengths_are_those_of_the_distribution(spec: str, low: int, high: int, mean: float) -> None:
    found = Lengths.parse("x", spec).draw(np.random.default_rng(0), 20_000)
    assert found.min() >= low and found.max() <= high and found.mean() == pytest.approx(mean, rel=0.03)
    if spec == "uniform:3:9":
        assert (found.min(), found.max()) == (3, 9), "both ends occur"


def test_no_length_is_below_one_and_none_is_made_one() -> None:
    found = Lengths.parse("x", "normal:1:3").draw(np.random.default_rng(0), 20_000)
    assert found.min() == 1
    # Draws below are drawn again: raising them to 1 would make more than half of them 1.
    assert (found == 1).mean() < 0.3


@pytest.mark.parametrize("spec", BAD_LENGTHS)
def test_lengths_that_are_none(spec: str) -> None:
    with pytest.raises(InvalidArgumentError, match="--input-len"):
        Lengths.parse("--input-len", spec)


@pytest.mark.parametrize(
    "spec", ["", "burst:2", "poisson", "poisson:0", "poisson:inf", "closed:0", "closed:1.5", "x:1"]
)
def test_arrivals_that_are_none(spec: str) -> None:
    with pytest.raises(InvalidArgumentError, match="--arrival"):
        Arrivals.parse("--arrival", spec)


def test_arrivals() -> None:
    rng = np.random.default_rng
    assert not Arrivals.parse("a", "burst").draw(rng(0), 5).any()
    assert np.allclose(Arrivals.parse("a", "constant:4").draw(rng(0), 5), [0, 0.25, 0.5, 0.75, 1])
    gaps = np.diff(Arrivals.parse("a", "poisson:8").draw(rng(0), 20_000))
    assert gaps.min() >= 0 and gaps.mean() == pytest.approx(1 / 8, rel=0.03)
    assert gaps.std() == pytest.approx(1 / 8, rel=0.05), "exponential: as wide as its mean"


def test_a_seed_decides_everything_and_each_draw_is_its_own() -> None:
    one = synthetic(inputs="uniform:1:20", outputs="geometric:5", arrivals="poisson:2").jobs(WORDS)
    assert one == synthetic(inputs="uniform:1:20", outputs="geometric:5", arrivals="poisson:2").jobs(WORDS)
    assert one != synthetic(inputs="uniform:1:20", outputs="geometric:5", arrivals="poisson:2", seed=2).jobs(WORDS)
    faster = synthetic(inputs="uniform:1:20", outputs="geometric:5", arrivals="poisson:4").jobs(WORDS)
    assert [(a.prompt, a.output) for a in one] == [(b.prompt, b.output) for b in faster]
    assert [a.arrival for a in one] == pytest.approx([2 * b.arrival for b in faster]), "the same draws, scaled"
    longer = synthetic(inputs="uniform:1:20", outputs="9", arrivals="poisson:2").jobs(WORDS)
    assert [a.prompt for a in one] == [b.prompt for b in longer]
    warm = synthetic(inputs="uniform:1:20").jobs(WORDS, stream=1)
    assert [a.prompt for a in one] != [b.prompt for b in warm]


def test_prompts_hold_no_id_that_means_something_else() -> None:
    ids = {token for job in synthetic().jobs(WORDS) for token in job.prompt}
    assert ids == set(range(3, 50)) - {7}
    assert Vocabulary(2).draw(np.random.default_rng(0), 3) == [1, 1, 1], "a vocabulary without room"


def test_a_shared_prefix() -> None:
    jobs = synthetic(20, inputs="uniform:3:9", shared=5).jobs(WORDS)
    longest = max((job.prompt for job in jobs), key=len)
    assert all(job.prompt[:5] == longest[: min(5, len(job.prompt))] for job in jobs)
    assert len({tuple(job.prompt[5:]) for job in jobs if len(job.prompt) > 6}) > 1
    lengths = [len(job.prompt) for job in jobs]
    assert lengths == [len(job.prompt) for job in synthetic(20, inputs="uniform:3:9").jobs(WORDS)]


def test_the_requests_of_a_recorded_run(tmp_path: Path) -> None:
    engine = build_engine(trace=str(tmp_path / "t"), num_pages=9, max_model_len=32)
    lengths = {0: (4, 9), 1: (6, 3), 2: (5, 12)}
    for key, (prompt, output) in lengths.items():
        engine.add_request(None, key, SamplingParams(max_tokens=output, **FREE), [5] * prompt)
        engine.step()
    drain(engine)
    engine.close()
    workload = from_trace(read_trace(tmp_path / "t"), seed=0)
    jobs = workload.jobs(Vocabulary(97))
    assert [(len(job.prompt), job.output) for job in jobs] == list(lengths.values())
    assert [job.arrival for job in jobs] == sorted(job.arrival for job in jobs) and jobs[0].arrival == 0
    assert workload.describe()["requests"] == 3


@pytest.mark.parametrize("drafts", [0, 2])
def test_the_requests_of_a_run_whose_steps_overlap(tmp_path: Path, drafts: int) -> None:
    executor = Delayed(VOCAB, 64, 8, 4, slack=drafts + 1)
    options: dict[str, Any] = {"executor": executor, "async_scheduling": True, "max_drafts": drafts, "max_tokens": 32}
    engine = build_engine(trace=str(tmp_path / "t"), **options)
    lengths = {0: (4, 9), 1: (6, 3), 2: (5, 20)}
    for key, (prompt, output) in lengths.items():
        engine.add_request(None, key, SamplingParams(max_tokens=output, **FREE), [5] * prompt)
    drain(engine)
    engine.close()
    trace = read_trace(tmp_path / "t")
    assert any(view.most for step in trace.steps for view in step.state.running), "steps overlap"
    found = [(len(job.prompt), job.output) for job in from_trace(trace, seed=0).jobs(Vocabulary(97))]
    if drafts:  # of the last steps, where nobody is left to be seen again
        assert all(one[0] == want[0] and one[1] <= want[1] for one, want in zip(found, lengths.values(), strict=True))
        assert found[:2] == [lengths[0], lengths[1]]
    else:
        assert found == list(lengths.values())


def test_a_trace_without_requests_is_refused(tmp_path: Path) -> None:
    build_engine(trace=str(tmp_path / "t")).close()
    with pytest.raises(WorkloadError, match="no step"):
        from_trace(read_trace(tmp_path / "t"), 0)


def test_a_file_of_requests(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    file.write_text(
        '{"arrival": 2, "prompt_tokens": 3, "output_tokens": 4, "priority": 2, "tenant": "a"}\n\n'
        '{"prompt_token_ids": [9, 8], "output_tokens": 1}\n'
    )
    first, second = read_requests(file, 0).jobs(WORDS)
    assert (first.arrival, list(first.prompt), first.output) == (0.0, [9, 8], 1)
    assert (second.arrival, len(second.prompt), second.priority, second.tenant) == (2.0, 3, 2, "a")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "not JSON"),
        ("[]", "list"),
        ({"prompt_tokens": 3}, "output_tokens"),
        ({"output_tokens": 3}, "either prompt_tokens"),
        ({"output_tokens": 3, "prompt_tokens": 2, "prompt_token_ids": [1]}, "not both"),
        ({"output_tokens": 0, "prompt_tokens": 2}, "output_tokens"),
        ({"output_tokens": True, "prompt_tokens": 2}, "output_tokens"),
        ({"output_tokens": 3, "prompt_tokens": 2.0}, "prompt_tokens"),
        ({"output_tokens": 3, "prompt_token_ids": []}, "at least one"),
        ({"output_tokens": 3, "prompt_token_ids": 4}, "list"),
        ({"output_tokens": 3, "prompt_tokens": 2, "arrival": -1}, "arrival"),
        ({"output_tokens": 3, "prompt_tokens": 2, "output": 3}, "'output'"),
        ({"output_tokens": 3, "prompt_tokens": 2, "priority": "high"}, "priority"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: Any, words: str) -> None:
    file = tmp_path / "r.jsonl"
    good = '{"prompt_tokens": 3, "output_tokens": 4}\n'
    file.write_text(good + (line if isinstance(line, str) else json.dumps(line)) + "\n")
    with pytest.raises(WorkloadError, match=f"r.jsonl, line 2: .*{words}"):
        read_requests(file, 0)


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="cannot be read"):
        read_requests(tmp_path / "none", 0)
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(WorkloadError, match="no request"):
        read_requests(tmp_path / "empty", 0)
