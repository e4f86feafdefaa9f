"""Steps that are launched on a model before the host knows what they begin with, against synchronous steps: all that is
told of every token, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bigram_model import BigramModel
from deepinfer.hal.catalog import load_backend
from deepinfer.hal.device import Device
from deepinfer.hal.stream import Event, InlineStreams
from deepinfer.model.hub import resolve_model
from deepinfer.model.transformer import Model
from deepinfer.runtime.ahead import needs_host
from deepinfer.runtime.engine import LLMEngine
from deepinfer.runtime.execute import Work
from deepinfer.runtime.params import SamplingParams
from deepinfer.runtime.pool import PoolError
from deepinfer.runtime.sampler import SamplerConfig
from deepinfer.runtime.slots import ENDED, LAST, LENGTH, OWNER
from engines import drain
from model_engines import model_engine

VOCAB = 24


@pytest.fixture(autouse=True, scope="module")
def _reference() -> None:
    load_backend("reference")


def told(outputs: Sequence[Any]) -> list[Any]:
    """Everything that a caller sees but the time."""
    return [output.to_dict() | {"elapsed": 0} for output in outputs]


def engine_of(model: Any, n: int, overlap: bool, **options: Any) -> LLMEngine:
    return model_engine(model, n, async_scheduling=overlap, **options)


def say(made: LLMEngine, requests: Sequence[tuple[list[int], dict[str, Any]]], gaps: Sequence[int] = ()) -> Any:
    """Outputs by request, which come so many steps after one another."""
    found: dict[Any, list[Any]] = {}

    def take(outputs: Sequence[Any]) -> None:
        for output in outputs:
            found.setdefault((output.request_id, output.sample_index), []).append(output)

    for key, (prompt, params) in enumerate(requests):
        made.add_request(None, key, SamplingParams(**params), prompt)
        for _ in range(gaps[key] if key < len(gaps) else 0):
            take(made.step())
    for key, outputs in drain(made).items():
        found.setdefault(key, []).extend(outputs)
    return {key: told(outputs) for key, outputs in found.items()}


params_of = st.fixed_dictionaries(
    {"max_tokens": st.integers(1, 9), "seq_seed": st.integers(0, 5)},
    optional={
        "temperature": st.sampled_from([0, 0.5, 1.0]),
        "top_k": st.sampled_from([1, 3, 10]),
        "top_p": st.sampled_from([0.5, 0.9]),
        "min_p": st.sampled_from([0.05, 0.3]),
        "n": st.just(2),
        "top_logprobs": st.integers(1, 4),
        "logprobs": st.integers(0, 4),
        "prompt_logprobs": st.just(True),
        "ignore_eos": st.booleans(),
        "stop_token_ids": st.lists(st.integers(0, VOCAB - 1), max_size=6),
        "logit_bias": st.dictionaries(st.integers(0, VOCAB - 1), st.sampled_from([-100.0, 2.0]), max_size=3),
        "repetition_penalty": st.just(1.4),
        "first_n_token_no_eos": st.integers(1, 4),
        "golden_token_ids": st.just([3]),
    },
)


@settings(max_examples=30, deadline=None)
@given(
    n=st.sampled_from([0, 1, 3, 5]),
    shared=st.booleans(),
    requests=st.lists(st.tuples(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=12), params_of), max_size=4),
    gaps=st.lists(st.integers(0, 4), max_size=6),
    running=st.integers(1, 6),
    sampling=st.sampled_from(
        [SamplerConfig(), SamplerConfig(blacklist=(range(5, 8),), sum_smaller=True), SamplerConfig(force_top_k=6)]
    ),
)
def test_any_requests_are_told_the_same(
    n: int, shared: bool, requests: Any, gaps: list[int], running: int, sampling: SamplerConfig
) -> None:
    if sampling.force_top_k:
        requests = [(prompt, params | {"top_logprobs": 0}) for prompt, params in requests]
    model = BigramModel.random(VOCAB, 3, 0.9)
    options = {"requests": running, "shared": shared, "sampling": sampling, "longest": 40}
    plain, ahead = (engine_of(model, n, overlap, **options) for overlap in (False, True))
    assert say(ahead, requests, gaps) == say(plain, requests, gaps)


@pytest.mark.parametrize("n", [1, 5])
def test_every_number_of_drafts_is_accepted_somewhere(n: int) -> None:
    model = BigramModel.random(VOCAB, 3, 0.9)
    requests = [([j], {"max_tokens": 30, "temperature": 0.7, "seq_seed": j, "ignore_eos": True}) for j in range(8)]
    found = say(engine_of(model, n, True, longest=60), requests)
    assert found == say(engine_of(model, n, False, longest=60), requests)
    seen = {(o["verified"], o["accepted"]) for outputs in found.values() for o in outputs if o["draft_tok"]}
    assert {accepted for verified, accepted in seen if verified == n} == set(range(n + 1))
    assert len({verified for verified, _ in seen}) >= min(n, 4), "the last steps verify fewer"


def test_what_only_the_host_can_list_is_found() -> None:
    made = model_engine(BigramModel.random(VOCAB, 1), 0, async_scheduling=True)

    def asks(**params: Any) -> bool:
        made.add_request(None, str(params), SamplingParams(**params), [4])
        request = list(made._queues.waiting)[-1]
        return needs_host(Work(request, 0, 1, True))

    assert not asks(temperature=0.3, top_k=3, logprobs=3, top_logprobs=2, logit_bias={3: 1.0}, stop_token_ids=[4])
    for one in (
        {"repetition_penalty": 1.1}, {"frequency_penalty": 0.1}, {"presence_penalty": 0.1},
        {"golden_token_ids": [3]}, {"first_n_token_no_eos": 1},
    ):  # fmt: skip
        assert asks(**one)


def test_a_row_that_is_no_number_is_masked_behind_and_reported_alone() -> None:
    model = BigramModel.random(VOCAB, 3, 0.9)
    bad = 7
    model.target[bad] = float("nan")
    requests = [([j], {"max_tokens": 12, "seq_seed": j, "ignore_eos": True}) for j in (1, 2, bad, 3)]
    for n in (0, 3):
        found = say(engine_of(model, n, True), requests)
        assert found == say(engine_of(model, n, False), requests)
        assert found[2, 0][-1]["finish_reason"] == "error"
        assert sum(outputs[-1]["finish_reason"] == "length" for outputs in found.values()) >= 1


@pytest.mark.parametrize("n", [0, 3])
def test_the_device_sees_an_end_and_computes_no_row_behind_it(n: int) -> None:
    model = BigramModel.random(VOCAB, 3, 0.9)
    live: list[int] = []
    forward = model.forward
    model.forward = lambda batch, caches: live.append(int((batch.row_seq >= 0).sum())) or forward(batch, caches)  # type: ignore[method-assign, func-returns-value]
    ends = {"max_tokens": 9, "seq_seed": 1, "stop_token_ids": list(range(VOCAB))}
    made = engine_of(model, n, True)
    found = say(made, [([4, 5, 6], ends)])
    assert len(found[0, 0]) == 1 and live == [3, 0]
    state = made.executor._launcher.state  # type: ignore[attr-defined]
    assert state.moving[1, ENDED] == 1 and state.moving[1, LENGTH] == 4


def test_a_line_of_another_owner_is_an_error_and_gives_no_row() -> None:
    made = engine_of(BigramModel.random(VOCAB, 3), 0, True)
    made.add_request(None, 0, SamplingParams(max_tokens=5, seq_seed=1, ignore_eos=True), [4])
    made.add_request(None, 1, SamplingParams(max_tokens=5, seq_seed=1, ignore_eos=True), [4])
    made.step()
    state = made.executor._launcher.state  # type: ignore[attr-defined]
    state.moving[1, OWNER] += 1
    made.step()
    flight = made._flights[-1]
    assert flight.ticket is not None
    with pytest.raises(PoolError, match="belongs to another request"):
        flight.ticket.results()


def test_a_step_uploads_only_what_is_new() -> None:
    made = engine_of(BigramModel.random(VOCAB, 3), 0, True)
    for key in range(3):
        made.add_request(None, key, SamplingParams(max_tokens=9, seq_seed=key, ignore_eos=True), [4 + key, 5])
    made.step()
    launcher = made.executor._launcher  # type: ignore[attr-defined]
    begun: list[int] = []
    begin = launcher.state.begin
    launcher.state.begin = lambda requests: begun.append(len(requests)) or begin(requests)
    made.step()
    made.step()
    made.add_request(None, 3, SamplingParams(max_tokens=2, seq_seed=3, ignore_eos=True), [9])
    made.step()
    assert begun == [0, 0, 1]
    found = made._queues.running[0]
    line = launcher.state.moving[found.slot.ids[0]].tolist()
    assert line[LENGTH] == found.length + 1 and line[LAST] >= 0, "the device is a step ahead of the host"


class Late(InlineStreams):
    """Streams whose copies to the host arrive when their event is waited for."""

    def __init__(self) -> None:
        super().__init__(Device("cpu"))
        self.pending: list[tuple[torch.Tensor, torch.Tensor]] = []

    def pinned(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        streams = self

        class Memory(torch.Tensor):
            def copy_(self, source: torch.Tensor, non_blocking: bool = False) -> Any:
                assert non_blocking, "a copy that the host waits for"
                streams.pending.append((self.as_subclass(torch.Tensor), source.clone()))
                return self.fill_(77)

        return torch.empty(tuple(shape), dtype=dtype).as_subclass(Memory)

    def record(self) -> Event:
        taken, self.pending = self.pending, []

        class Arrival(Event):
            def done(self) -> bool:
                return not taken

            def synchronize(self) -> None:
                while taken:
                    target, source = taken.pop()
                    target.copy_(source)

        return Arrival()


@pytest.mark.parametrize("n", [0, 3])
def test_nothing_is_read_before_its_event(n: int) -> None:
    model = BigramModel.random(VOCAB, 3, 0.9)
    requests = [
        ([j], {"max_tokens": 12, "seq_seed": j, "top_logprobs": j % 3, "prompt_logprobs": True}) for j in range(5)
    ]
    made = engine_of(model, n, True)
    made.executor._streams = Late()  # type: ignore[attr-defined]
    assert say(made, requests, [2, 1, 3]) == say(engine_of(model, n, False), requests, [2, 1, 3])


# ---- a model with caches


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    loaded = Model.load(resolve_model("tiny"), max_model_len=512)
    yield loaded
    loaded.close()


def prompt(length: int, seed: int) -> list[int]:
    return [0, *np.random.default_rng(seed).integers(3, 400, size=length - 1).tolist()]


@pytest.mark.parametrize("n", [pytest.param(0, marks=pytest.mark.whole), 3])
def test_the_model_says_the_same_over_chunks_and_preemption(model: Model, n: int) -> None:
    """Caches are poisoned, prompts cut, pages short; stops come at several places."""
    plain = {"temperature": 0.8, "prompt_logprobs": False}
    requests = [
        (prompt(124, 1), plain | {"max_tokens": 8, "seq_seed": 1, "top_logprobs": 2, "ignore_eos": True}),
        (prompt(126, 2), plain | {"max_tokens": 6, "seq_seed": 2, "ignore_eos": True}),
        (prompt(3, 4), plain | {"max_tokens": 12, "seq_seed": 4, "n": 2, "logprobs": 1, "ignore_eos": True}),
        (prompt(5, 3), plain | {"max_tokens": 6, "seq_seed": 3, "stop_token_ids": list(range(0, 400, 3))}),
    ]
    found = []
    for overlap in (False, True):
        made = engine_of(model, n, overlap, requests=4, rows=100, pages=4, longest=260)
        found.append(say(made, requests, [1, 0, 1, 0]))
        assert made.stats.preemptions
    assert found[0] == found[1]
