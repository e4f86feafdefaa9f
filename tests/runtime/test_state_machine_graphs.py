"""An engine on captured graphs under everything at once: requests come, fork, are aborted and end; graphs
are captured while others run, cannot be captured, break when they are replayed, and are thrown away.

After every step pages and slots are conserved. At the end everybody has ended, and every request has said what it says
without graphs, bit for bit.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from deepinfer.hal.catalog import load_backend
from deepinfer.hal.device import Device
from deepinfer.hal.graph import Graph, GraphError
from deepinfer.hal.stream import InlineStreams
from deepinfer.model.hub import resolve_model
from deepinfer.model.transformer import Model
from deepinfer.runtime.graphs import Captured, DecodeGraphs, GraphSettings, Where
from deepinfer.runtime.loader import _slack
from deepinfer.runtime.params import SamplingParams
from fake_graphs import Strict, as_on_a_device
from model_engines import model_engine, say

DRAFTS = 2
PATIENCE = 60
"""Steps without the end of any request, after which somebody starves."""

KINDS: list[tuple[int, dict[str, Any]]] = [
    (9, {"temperature": 0}),
    (3, {"temperature": 0, "max_tokens": 9}),
    (1, {"temperature": 0.7, "top_p": 0.9}),
    (20, {"temperature": 1.0, "top_k": 20, "min_p": 0.01}),
    (126, {"temperature": 0, "max_tokens": 8}),
    (125, {"temperature": 0.8, "max_tokens": 8}),
    (7, {"temperature": 0, "stop_token_ids": list(range(100, 300))}),
    (5, {"temperature": 0.8, "logprobs": 2, "logit_bias": {5: 30.0}}),
    (4, {"temperature": 0, "repetition_penalty": 1.2}),
]
"""Lengths of prompts and parameters: on the border of a page, on graphs, beside them and without them."""


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    load_backend("reference")
    loaded = Model.load(resolve_model("tiny"), max_model_len=512)
    yield loaded
    loaded.close()


class Breaking(Strict):
    """Graphs that can be made to fail. `error`: of the next replay. `refuse`: whether the next capture fails."""

    error: Callable[[], Exception | None] = staticmethod(lambda: None)
    refuse = False

    def _capture(self, body: Any) -> Graph:
        if self.refuse:
            self.refuse = False
            raise GraphError("refused")
        graph = super()._capture(body)
        replay = graph._replay

        def broken() -> None:
            replay()
            error = self.error()
            if error is not None:
                raise error

        graph._replay = broken  # type: ignore[method-assign]
        return graph


class OneShape(GraphSettings):
    """All steps share a shape, so that its lines change hands, and parts of it are captured while it is in use."""

    def sequences(self, count: int) -> int:
        return 4


class Planted(RuntimeError):
    """Of a replay that was made to fail."""


class Traffic:
    """See the module."""

    def __init__(self, model: Model, plain: Plain, seed: int) -> None:
        self.rng, self.model, self.plain = random.Random(seed), model, plain
        self.graphs = Breaking()
        self.graphs.error = self.fault  # type: ignore[method-assign]
        rng = self.rng
        where = Where(self.graphs, InlineStreams(Device("cpu")))
        self.engine = model_engine(
            model, DRAFTS, requests=4, pages=rng.choice([5, 9]), slack=_slack(model),
            graphs=(where, rng.choice([OneShape(), GraphSettings(interval=4)])),
            async_scheduling=rng.random() < 0.8,
        )  # fmt: skip
        self.search, self.engine._start_search = self.engine._start_search, self.fail  # type: ignore[method-assign]
        self.armed = False
        self.asked: list[tuple[list[int], SamplingParams]] = []
        self.aborted: set[int] = set()
        self.found: dict[tuple[int, int], list[Any]] = {}
        self.kinds: dict[int, int] = {}
        self.forks = self.failures = 0

    def fault(self) -> Exception | None:
        """Once, and not while the last one is looked for: nobody is to blame, and nobody is blamed."""
        if not self.armed or self.engine._search is not None:
            return None
        self.armed = False
        return Planted("planted")

    def fail(self, work: Any, error: Exception) -> None:
        if not isinstance(error, Planted):
            raise error
        self.failures += 1
        self.search(work, error)

    # ---- rules

    def add(self) -> None:
        kind = self.rng.randrange(len(KINDS))
        prompt, params = request(kind)
        self.engine.add_request(None, len(self.asked), params, prompt)
        self.asked.append((prompt, params))
        self.kinds[len(self.asked) - 1] = kind

    def fork(self) -> None:
        running = [one for one in self.engine._queues.running if not (one.finished or one.aborted)]
        if running and self.forks < 2:
            self.forks += 1
            source = self.rng.choice(running)
            params = SamplingParams(max_tokens=3, ignore_eos=True, temperature=self.rng.choice([0.0, 0.9]), seq_seed=5)
            prompt = source.tokens[: source.length].tolist()
            self.engine.fork_request(source.request_id, len(self.asked), params, None, source.sample_index)
            self.asked.append((prompt, params))

    def abort(self) -> None:
        if self.asked:
            self.aborted.update(self.engine.abort_request(self.rng.randrange(len(self.asked))))

    def break_a_replay(self) -> None:
        self.armed = True

    def refuse_a_capture(self) -> None:
        self.graphs.refuse = True

    def forget_graphs(self) -> None:
        self.engine.executor.graphs.release()

    def step(self) -> None:
        for output in self.engine.step():
            self.found.setdefault((output.request_id, output.sample_index), []).append(output)
        self.engine.check_conservation()

    # ---- the end

    def finish(self) -> None:
        patience, left = PATIENCE, self.engine.get_num_unfinished_requests()
        while self.engine.has_unfinished_requests() and patience:
            self.step()
            before, left = left, self.engine.get_num_unfinished_requests()
            patience = PATIENCE if left < before else patience - 1
        assert not self.engine.has_unfinished_requests(), "somebody starves"
        new = sorted(set(self.kinds.values()) - set(self.plain))
        self.plain.update(zip(new, without_graphs(self.model, [request(kind) for kind in new]), strict=True))
        for key, (prompt, params) in enumerate(self.asked):
            got = bits(self.found[key, 0])
            kind = self.kinds.get(key)
            want = without_graphs(self.model, [(prompt, params)])[0] if kind is None else self.plain[kind]
            if key in self.aborted and self.found[key, 0][-1].finish_reason == "abort":
                got = [one for one in got if one[0] >= 0]
                want = want[: len(got)]
            assert got == want, key
        self.engine.close()


def request(kind: int) -> tuple[list[int], SamplingParams]:
    length, how = KINDS[kind]
    prompt = [0, *np.random.default_rng(kind).integers(3, 400, size=length - 1).tolist()]
    return prompt, SamplingParams(seq_seed=kind, **{"max_tokens": 5, "ignore_eos": True} | how)


def without_graphs(model: Model, requests: list[tuple[list[int], SamplingParams]]) -> list[list[Any]]:
    return [bits(outputs) for outputs in say(model_engine(model, DRAFTS), requests)]


Plain = dict[int, list[Any]]
"""What every kind says, as far as it has been asked for."""


@pytest.fixture(scope="module")
def plain() -> Plain:
    return {}


def bits(outputs: list[Any]) -> list[Any]:
    keys = ("token_id", "token_logprobs", "top_token_ids", "top_logprobs", "accepted", "confidence_score")
    return [[getattr(output, key) for key in keys] for output in outputs]


RULES = ("add",) * 6 + ("fork", "abort", "break_a_replay", "refuse_a_capture", "forget_graphs") + ("step",) * 24


def drive(model: Model, plain: Plain, seed: int, rules: int = 40) -> Traffic:
    """The same run for a seed."""
    machine, rng = Traffic(model, plain, seed), random.Random(seed)
    machine.add()
    for _ in range(rules):
        getattr(machine, rng.choice(RULES))()
    machine.finish()
    return machine


def test_requests_on_graphs_say_what_they_say_without(
    model: Model, plain: Plain, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_on_a_device(monkeypatch)
    machine = drive(model, plain, 23, 20)
    assert machine.engine.executor.graphs.stats.steps > 2


@pytest.mark.whole
def test_many_requests_on_graphs(model: Model, plain: Plain, monkeypatch: pytest.MonkeyPatch) -> None:
    as_on_a_device(monkeypatch)
    runs = [drive(model, plain, seed) for seed in range(1, 20)]
    assert sum(one.engine.executor.graphs.stats.steps for one in runs) > 100
    assert sum(one.failures for one in runs) > 5


@pytest.mark.whole
def test_a_line_that_changes_hands_unseen_shows(model: Model, plain: Plain, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault that the machine must see: who takes the line of another one in a block table reads the other's pages."""
    fill = DecodeGraphs._fill_tables

    def kept(self: DecodeGraphs, captured: Captured, table: Any, requests: Any) -> None:
        lines = captured.tables[captured.step.inputs.stage]
        lines[: len(requests)] = [(request.pages, count) for request, (_, count) in zip(requests, lines, strict=False)]
        fill(self, captured, table, requests)

    as_on_a_device(monkeypatch)
    monkeypatch.setattr(DecodeGraphs, "_fill_tables", kept)
    with pytest.raises(AssertionError):
        drive(model, plain, 1)
