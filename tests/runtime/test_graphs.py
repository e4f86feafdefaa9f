"""Decode steps on captured graphs: the bits of steps without them, whatever fills the rest of the captured shape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from deepinfer.hal import env
from deepinfer.hal.catalog import load_backend
from deepinfer.hal.device import Device, capability
from deepinfer.hal.graph import Graph, GraphError, GraphsUnavailable, NoGraphReason
from deepinfer.hal.stream import InlineStreams
from deepinfer.model.engram import Engram
from deepinfer.model.hub import resolve_model
from deepinfer.model.transformer import Model
from deepinfer.runtime import loader
from deepinfer.runtime.graphs import DecodeGraphs, GraphSettings, Where
from deepinfer.runtime.params import SamplingParams
from deepinfer.runtime.sampler import SamplerConfig
from engines import drain
from fake_graphs import Strict, as_on_a_device
from model_engines import model_engine, say

LENGTH = 4


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    load_backend("reference")
    loaded = Model.load(resolve_model("tiny"), max_model_len=512)
    yield loaded
    loaded.close()


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    yield
    monkeypatch.undo()
    env.rearm()


def graphs(**settings: Any) -> tuple[Where, GraphSettings]:
    return Where(Strict(), InlineStreams(Device("cpu"))), GraphSettings(**settings)


def requests(count: int = 3, **how: Any) -> list[tuple[list[int], SamplingParams]]:
    rng = np.random.default_rng(5)
    lengths = [9, 1, 20, 7, 37, 2, 3][:count]
    prompts = [[0, *rng.integers(3, 400, size=n - 1).tolist()] for n in lengths]
    params = {"max_tokens": LENGTH, "ignore_eos": True} | how
    return [(prompt, SamplingParams(seq_seed=40 + j, **params)) for j, prompt in enumerate(prompts)]


def told(found: list[list[Any]]) -> list[Any]:
    keys = ("token_id", "token_logprobs", "nextn_logprobs", "top_token_ids", "top_logprobs", "sum_smaller_probs")
    keys += ("raw_token_logprobs", "raw_top_token_ids", "raw_top_logprobs")
    steps = ("verified", "accepted", "confidence_score", "draft_tok")
    return [[[getattr(o, k) for k in keys + steps] for o in outputs] for outputs in found]


MIXED = [
    {"temperature": 0},
    {"temperature": 0.7, "top_p": 0.9},
    {"temperature": 1.0, "top_k": 20, "min_p": 0.01, "golden_token_ids": [5, 6, 7, 8]},
]


def mixed(count: int = 3) -> list[tuple[list[int], SamplingParams]]:
    made = []
    for j, (prompt, _) in enumerate(requests(count)):
        params = SamplingParams(seq_seed=70 + j, max_tokens=LENGTH + j % 3, ignore_eos=True, **MIXED[j % 3])
        made.append((prompt, params))
    return made


@pytest.mark.parametrize(
    ("n", "how"),
    [
        (5, {"temperature": 0}),
        pytest.param(0, {"temperature": 0}, marks=pytest.mark.whole),
        pytest.param(2, {"temperature": 0.6}, marks=pytest.mark.slow),
    ],
)
def test_outputs_are_those_without_graphs(model: Model, n: int, how: dict[str, Any]) -> None:
    on = graphs()
    want = say(model_engine(model, n), requests(**how))
    made = model_engine(model, n, graphs=on)
    assert told(say(made, requests(**how))) == told(want)
    assert made.executor.graphs.stats.steps > 1
    assert len(on[0].graphs.captured) == made.executor.graphs.stats.graphs >= (3 if n else 2)


@pytest.mark.slow
@pytest.mark.parametrize("shared", [pytest.param(False, marks=pytest.mark.whole), True])
def test_requests_of_all_kinds_side_by_side(model: Model, shared: bool) -> None:
    """Greedy, filtered, forced; ending at different steps, so that shapes shrink and lines change hands."""
    want = told(say(model_engine(model, 3, shared=shared), mixed(5)))
    made = model_engine(model, 3, shared=shared, requests=4, graphs=graphs(interval=4))
    assert told(say(made, mixed(5))) == want


def ahead(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of every step launched on graphs from now on: whether it held requests that only the device knew."""
    seen: list[bool] = []
    launch = DecodeGraphs.launch

    def noted(self: DecodeGraphs, work: Any, state: Any) -> Any:
        seen.append(any(item.ahead for item in work))
        return launch(self, work, state)

    monkeypatch.setattr(DecodeGraphs, "launch", noted)
    return seen


@pytest.mark.parametrize("n", [3, pytest.param(0, marks=pytest.mark.whole)])
def test_steps_follow_one_another_unseen(model: Model, monkeypatch: pytest.MonkeyPatch, n: int) -> None:
    """Requests begin and end while steps are under way; ids that end some of them make the table of ids grow."""

    def asked() -> list[tuple[list[int], SamplingParams]]:
        made = mixed(5)
        made[2][1].golden_token_ids = None
        made[0][1].stop_token_ids = list(range(100, 160))
        made[3][1].stop_token_ids = [7, 8, 9, 10, 11, 12]
        return made

    want = told(say(model_engine(model, n), asked()))
    seen = ahead(monkeypatch)
    made = model_engine(model, n, requests=3, graphs=graphs(interval=4), async_scheduling=True)
    assert told(say(made, asked())) == want
    assert seen.count(True) >= 3


@pytest.mark.parametrize("n", [3, pytest.param(0, marks=pytest.mark.whole)])
def test_a_part_captured_late_leaves_those_who_run_as_they_are(
    model: Model, monkeypatch: pytest.MonkeyPatch, n: int
) -> None:
    """Greedy requests run when one that samples joins them: sampling and draft pass of their shape are captured once
    more, while the device alone knows where the requests stand."""

    def asked() -> list[tuple[list[int], SamplingParams]]:
        made = requests(4, temperature=0, max_tokens=11)
        made[3] = made[3][0], SamplingParams(seq_seed=9, max_tokens=4, ignore_eos=True, temperature=0.7)
        return made

    def joined(**options: Any) -> list[Any]:
        made, (*first, last) = model_engine(model, n, **options), asked()
        for key, (prompt, params) in enumerate(first):
            made.add_request(None, key, params, prompt)
        early = [output for _ in range(3) for output in made.step()]
        made.add_request(None, 3, last[1], last[0])
        found = drain(made)
        return told([[o for o in early if o.request_id == key] + found[key, 0] for key in range(4)])

    want = joined()
    as_on_a_device(monkeypatch)
    seen = ahead(monkeypatch)
    assert joined(graphs=graphs(interval=4), async_scheduling=True) == want
    assert seen.count(True) >= 3


@pytest.mark.slow
@pytest.mark.parametrize("overlap", [pytest.param(False, marks=pytest.mark.whole), True])
def test_a_draft_pass_that_is_not_captured_follows_the_sampling_that_was_replayed(
    model: Model, monkeypatch: pytest.MonkeyPatch, overlap: bool
) -> None:
    """Not that of the other kind, which was captured later."""

    def asked() -> list[tuple[list[int], SamplingParams]]:
        made = requests(2, temperature=0, max_tokens=8)
        made[1] = made[1][0], SamplingParams(seq_seed=9, max_tokens=2, ignore_eos=True, temperature=0.7)
        return made

    def told_twice(**options: Any) -> list[Any]:
        made = model_engine(model, 3, **options)
        return [told(say(made, some)) for some in (asked()[:1], asked()[1:], asked()[:1])]

    want = told_twice()
    as_on_a_device(monkeypatch)
    assert told_twice(graphs=graphs(draft=False), async_scheduling=overlap) == want


@pytest.mark.parametrize(
    ("failing", "error", "overlap"),
    [
        (1, GraphError("refused"), True),
        pytest.param(0, torch.OutOfMemoryError("out of memory"), False, marks=pytest.mark.slow),
        pytest.param(2, MemoryError(), True, marks=pytest.mark.whole),
    ],
)
def test_a_shape_that_cannot_be_captured_runs_all_the_same(
    model: Model, caplog: pytest.LogCaptureFixture, failing: int, error: Exception, overlap: bool
) -> None:
    """No request begins anew, and nobody tries again."""
    asked = requests(2, temperature=0)
    want = told(say(model_engine(model, 2), asked))
    where, settings = graphs()
    capture, tries = where.graphs.capture, 0

    def refuse(body: Any, **how: Any) -> Graph:
        nonlocal tries
        tries += 1
        if tries > failing:
            body()
            raise error
        return capture(body, **how)

    where.graphs.capture = refuse  # type: ignore[method-assign]
    made = model_engine(model, 2, graphs=(where, settings), async_scheduling=overlap)
    assert told(say(made, asked)) == want
    shapes = list(made.executor.graphs._captured.values())
    assert tries - failing == len(shapes) and all(one.eager and not one.graphs for one in shapes)
    assert caplog.text.count("runs without graphs") == len(shapes)
    assert made.executor.graphs.stats.steps > 1 and "is tried again" not in caplog.text


def test_tables_in_host_memory_are_gathered_before_the_step(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    want = told(say(model_engine(model, 2), requests(2, temperature=0)))
    monkeypatch.setattr(Engram, "staged", property(lambda self: True))
    seen = ahead(monkeypatch)
    made = model_engine(model, 2, graphs=graphs(), async_scheduling=True)
    assert told(say(made, requests(2, temperature=0))) == want
    assert made.executor.graphs.stats.steps > 1 and not seen


def test_padding_changes_nothing_and_is_not_looked_at(model: Model) -> None:
    """Every padding sequence and row holds what would show if it were read, and the pools what nobody wrote."""
    want = told(say(model_engine(model, 5), mixed(2)))
    made = model_engine(model, 5, poison=0xFF, graphs=graphs(interval=4))
    runner = made.executor.graphs
    fill = runner._fill

    def poisoned(captured: Any, work: Any) -> None:
        fill(captured, work)
        count, host = len(work), captured.step.inputs.host
        rows = sum(item.end - item.start for item in work)
        for name in ("valid_start", "skip", "fresh_begin", "top_k", "seeds", "history"):
            host[name][count:] = 12345
        host["fresh"][rows:] = 77
        host["block_table"][count:] = 1
        host["inv_temperature"][count:] = np.nan
        captured.forget()
        captured.step.logits.fill_(float("nan"))

    runner._fill = poisoned
    assert told(say(made, mixed(2))) == want


@pytest.mark.parametrize(
    ("n", "sampling"),
    [
        (2, SamplerConfig(force_top_k=30)),
        pytest.param(0, SamplerConfig(blacklist=(range(3, 300),), sum_smaller=True), marks=pytest.mark.slow),
    ],
)
def test_lists_and_biases_hold_nobody_up(
    model: Model, monkeypatch: pytest.MonkeyPatch, n: int, sampling: SamplerConfig
) -> None:
    """Requests with and without them, of different lengths, on graphs whose steps follow one another unseen."""

    def asked() -> list[tuple[list[int], SamplingParams]]:
        made = requests(6, max_tokens=7, temperature=0.8)
        for place, more in enumerate(
            (
                {"top_logprobs": 3, "temperature": 0},
                {"logprobs": 2, "logit_bias": {5: 40.0, 9: 39.0}},
                {},
                {"logprobs": 0, "top_p": 0.8, "max_tokens": 3},
                {"top_logprobs": 1, "logit_bias": {7: 30.0, 6: -5.0}, "top_k": 4},
                {"logit_bias": {8: 50.0}, "temperature": 0, "max_tokens": 5},
            )
        ):
            old = made[place][1]
            new = {"max_tokens": 7, "temperature": 0.8} | more
            made[place] = made[place][0], SamplingParams(seq_seed=old.seq_seed, ignore_eos=True, **new)
        return made

    want = told(say(model_engine(model, n, sampling=sampling), asked()))
    as_on_a_device(monkeypatch)
    seen = ahead(monkeypatch)
    monkeypatch.setattr(DecodeGraphs, "_sample_on_host", None)
    made = model_engine(model, n, sampling=sampling, requests=4, graphs=graphs(interval=4), async_scheduling=True)
    assert told(say(made, asked())) == want
    assert seen.count(True) >= 3
    assert told(say(model_engine(model, n, sampling=sampling, graphs=graphs(interval=4)), asked())) == want


def test_what_needs_the_host_is_sampled_there(model: Model) -> None:
    def asked() -> list[tuple[list[int], SamplingParams]]:
        made = mixed(3)
        made[1][1].top_logprobs = 2
        made[2][1].repetition_penalty = 1.2
        made[0][1].logprobs = 1
        return made

    want = told(say(model_engine(model, 2), asked()))
    made = model_engine(model, 2, graphs=graphs())
    assert told(say(made, asked())) == want
    assert made.executor.graphs.stats.steps > 1


@pytest.mark.whole
def test_a_blacklist_is_kept(model: Model) -> None:
    sampling = SamplerConfig(blacklist=(range(3, 300),))
    want = told(say(model_engine(model, 2, sampling=sampling), mixed(3)))
    assert told(say(model_engine(model, 2, sampling=sampling, graphs=graphs()), mixed(3))) == want


@pytest.mark.slow
def test_a_shape_is_captured_once_and_room_for_logits_grows(model: Model) -> None:
    on = graphs(interval=2)
    made = model_engine(model, 1, graphs=on)
    for count in (1, 4):
        say(made, requests(count, temperature=0))
    kept = made.executor.graphs._captured
    assert {shape.sequences for shape, _ in kept} <= {1, 2, 4}
    before = len(on[0].graphs.captured)
    say(made, requests(4, temperature=0))
    assert len(on[0].graphs.captured) == before
    made.executor.graphs.release()
    assert not kept
    say(made, requests(1, temperature=0))
    assert len(on[0].graphs.captured) > before


def test_sizes_that_are_captured() -> None:
    how = GraphSettings(interval=8)
    assert [how.sequences(n) for n in (1, 2, 3, 4, 5, 8, 9, 16, 17, 255, 256)] == [
        1,
        2,
        4,
        4,
        8,
        8,
        16,
        16,
        24,
        256,
        256,
    ]
    assert [GraphSettings(interval=1).sequences(n) for n in (1, 3, 7)] == [1, 3, 7]
    assert [how.pages(n, 100) for n in (1, 32, 33, 65, 100)] == [32, 32, 64, 100, 100]
    assert how.pages(3, 4) == 4


def test_the_variables_turn_graphs_off(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    class Backend:
        def graphs(self, device: Device) -> Any:
            return Strict()

        def streams(self, device: Device) -> Any:
            return InlineStreams(device)

        def capability(self, device: Device) -> Any:
            return capability(device, "fake")

    backend: Any = Backend()
    found = loader._graphs(backend, Device("cpu"))
    assert found is not None and found[1] == GraphSettings(True, True, 8)
    monkeypatch.setenv("DEEPINFER_DFLASH_ENFORCE_EAGER", "1")
    env.rearm()
    found = loader._graphs(backend, Device("cpu"))
    assert found is not None and not found[1].draft
    made = model_engine(model, 2, graphs=(found[0], found[1]))
    assert told(say(made, requests(temperature=0))) == told(say(model_engine(model, 2), requests(temperature=0)))
    assert {part for c in made.executor.graphs._captured.values() for part, _ in c.graphs} == {"backbone", "sample"}
    monkeypatch.setenv("DEEPINFER_ENFORCE_EAGER", "1")
    env.rearm()
    assert loader._graphs(backend, Device("cpu")) is None


def test_a_device_without_graphs_runs_without(caplog: pytest.LogCaptureFixture) -> None:
    class Backend:
        def graphs(self, device: Device) -> Any:
            return GraphsUnavailable(device, NoGraphReason.NO_DEVICE_QUEUE)

    backend: Any = Backend()
    with caplog.at_level("INFO"):
        assert loader._graphs(backend, Device("cpu")) is None
    assert "no graphs on cpu" in caplog.text


def test_wrong_logits_end_their_request_alone(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    made = model_engine(model, 0, graphs=graphs())
    step = made.executor.graphs._launch
    seen = 0

    def launch(captured: Any, part: str, plain: bool) -> None:
        nonlocal seen
        step(captured, part, plain)
        if part == "backbone":
            seen += 1
            if seen == 2:
                captured.step.logits[1] = float("nan")

    monkeypatch.setattr(made.executor.graphs, "_launch", launch)
    found = say(made, requests(2, temperature=0))
    assert [outputs[-1].finish_reason for outputs in found] == ["length", "error"]
    assert torch.isfinite(torch.tensor([o.token_logprobs for o in found[0]])).all()
