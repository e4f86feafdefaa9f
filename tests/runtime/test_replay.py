"""Bounded replay of windows that the prefix cache no longer has, and truncated prompts with the prefix cache."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from deepinfer.hal.catalog import load_backend
from deepinfer.hal.errors import InvalidArgumentError, NotSupportedError
from deepinfer.model.batch import Batch, SequenceSlice
from deepinfer.model.hub import resolve_model
from deepinfer.model.transformer import Model
from deepinfer.model.truncation import EXACT, Truncation
from deepinfer.runtime import loader
from deepinfer.runtime.args import EngineArgs
from deepinfer.runtime.params import SamplingParams
from deepinfer.runtime.prefix import PrefixSettings
from engines import FREE, alone, bits, build_engine, drain
from model_engines import model_engine, say
from schedules import Driver

DRAFTS = 2
KEEP = 40


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    load_backend("reference")
    loaded = Model.load(resolve_model("tiny"), max_model_len=1024, max_draft=DRAFTS, backtrack=128 + DRAFTS + 1)
    yield loaded
    loaded.close()


def text(seed: int, count: int) -> list[int]:
    return [0, *np.random.default_rng(seed).integers(3, 400, size=count - 1).tolist()]


def build(model: Model, prefix: PrefixSettings | None, truncation: Truncation = EXACT, **options: Any) -> Any:
    engine = model_engine(
        model, DRAFTS, requests=8, pages=40, rows=700, longest=700, prefix=prefix, truncation=truncation, **options
    )
    engine.executor.truncation = truncation
    return engine


def slack(model: Model) -> int:
    return model.cache_layout.ring_slots - model.config.text.sliding_window


def told(outputs: list[Any]) -> list[Any]:
    return [(o.token_id, o.token_logprobs, o.confidence_score, o.accepted) for o in outputs]


def test_replay_in_the_engine_spares_what_it_says() -> None:
    """Pages of four tokens: five are there, the state behind them is not."""
    prefix = PrefixSettings(slack=8, replay=4)
    engine = build_engine(prefix=prefix, num_slots=8)
    first = [5 + i for i in range(22)]
    engine.add_request(None, 0, SamplingParams(**FREE, max_tokens=1), first)
    drain(engine)
    cache = engine._queues.cache
    for name in list(cache._states):
        cache._take_state(name).release()
    engine.add_request(None, 1, SamplingParams(**FREE, max_tokens=4), first)
    (outputs,) = drain(engine).values()
    assert outputs[0].cached_tokens == 16 and engine.stats.prompt_tokens == 22 + 6
    assert bits(outputs) == bits(alone(first, SamplingParams(**FREE, max_tokens=4)))
    # Neither its pages nor its state are anybody else's: the next one is spared as much, and computes as much again.
    assert len(cache._blocks) == 5 and not cache._states
    engine.close()


@pytest.mark.parametrize("poison", [0x7F, pytest.param(0x00, marks=pytest.mark.whole)])
def test_windows_that_are_gone_are_begun_anew(model: Model, poison: int) -> None:
    """The rows behind the border are those of the model whose windows begin there, whatever lay in the rings."""
    prefix = PrefixSettings(slack(model), replay=128)
    engine = build(model, prefix, poison=poison)
    prompt = text(1, 300)
    params = SamplingParams(max_tokens=6, ignore_eos=True, temperature=0, logprobs=0)
    say(engine, [(prompt, SamplingParams(max_tokens=1, ignore_eos=True, temperature=0))])
    cache = engine._queues.cache
    for name in list(cache._states):
        cache._take_state(name).release()
    engine.executor.caches.state.fill_(poison)
    assert say(engine, [(prompt[:200], params)])[0][0].cached_tokens == 0, "the page there is would be computed again"
    long = text(2, 400)
    say(engine, [(long, SamplingParams(max_tokens=1, ignore_eos=True, temperature=0))])
    for name in list(cache._states):
        cache._take_state(name).release()
    engine.executor.caches.state.fill_(poison)
    (outputs,) = say(engine, [(long, params)])
    assert outputs[0].cached_tokens == 256
    driver = Driver(model, pages=12, poison=poison)
    track = driver.run(long[:256])
    driver.caches.state.fill_(poison)
    pages = [*track.pages, *driver._pages[:2]]
    slices = [SequenceSlice(np.array(long, np.int32), 256, 400, track.slot, pages, [399], valid_start=256)]
    logits = model.forward(Batch.build(slices, model.config.text, model.device), driver.caches)[0]
    first = outputs[0]
    assert first.token_id == int(logits.argmax())
    raw = float(logits.float().log_softmax(-1)[first.token_id])
    assert first.raw_token_logprobs == pytest.approx(raw, abs=1e-4)
    exact = say(build(model, None), [(long, params)])[0]
    assert first.raw_token_logprobs != exact[0].raw_token_logprobs, "it is another function"


@pytest.mark.parametrize("mode", [pytest.param("mask", marks=pytest.mark.whole), "compact"])
def test_truncated_prompts_share_what_they_look_at_exactly(model: Model, mode: str) -> None:
    truncation = Truncation(mode, max(KEEP, model.cache_layout.ring_slots))
    prefix = PrefixSettings(slack(model), truncation=truncation)
    cached, plain = build(model, prefix, truncation), build(model, None, truncation)
    params = SamplingParams(max_tokens=6, ignore_eos=True, temperature=0.8, seq_seed=4)
    chat, spared = text(3, 200), []
    for turn in range(2):
        (got,), (want,) = (say(made, [(chat, params)]) for made in (cached, plain))
        assert told(got) == told(want), turn
        spared.append(got[0].cached_tokens)
        chat = chat + [o.token_id for o in got] + text(10 + turn, 120)[1:]
    assert spared[0] == 0 and spared[1] >= 128
    # Behind the first position that is kept nobody begins: its windows are no other prompt's.
    assert all(cut <= 200 + 125 * turn - truncation.keep_tokens for turn, cut in enumerate(spared))


def test_replay_is_refused_where_results_must_not_depend_on_the_cache(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    args = EngineArgs(enable_prefix_caching=True, prefix_replay_tokens=128)
    settings = loader._prefix(args, model, EXACT)
    assert settings is not None and settings.replay == 128
    monkeypatch.setenv("DEEPINFER_BATCH_INVARIANT", "1")
    with pytest.raises(NotSupportedError, match="depend on what the prefix cache holds"):
        loader._prefix(args, model, EXACT)
    with pytest.raises(InvalidArgumentError, match="prefix_replay_tokens"):
        EngineArgs(prefix_replay_tokens=128)
    for bad in (0, 100, 129, True):
        with pytest.raises(InvalidArgumentError, match="prefix_replay_tokens"):
            EngineArgs(enable_prefix_caching=True, prefix_replay_tokens=bad)
