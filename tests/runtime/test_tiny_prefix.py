"""The prefix cache over the embedded model: later turns of a chat are spared most of their prompt, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from deepinfer import LLM, SamplingParams
from deepinfer.hal.catalog import load_backend
from deepinfer.model.hub import resolve_model
from deepinfer.model.transformer import Model
from deepinfer.runtime.prefix import PrefixSettings
from model_engines import model_engine, say

DRAFTS = 3


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    load_backend("reference")
    loaded = Model.load(resolve_model("tiny"), max_model_len=1024, max_draft=DRAFTS, backtrack=128 + DRAFTS + 1)
    yield loaded
    loaded.close()


def build(model: Model, cached: bool, drafts: int, **options: Any) -> Any:
    layout = model.cache_layout
    slack = layout.ring_slots - model.config.text.sliding_window
    assert slack == 128 + DRAFTS + 1
    prefix = PrefixSettings(slack, repr(layout).encode()) if cached else None
    return model_engine(model, drafts, requests=8, pages=40, rows=400, longest=700, prefix=prefix, **options)


def text(seed: int, count: int) -> list[int]:
    return [0, *np.random.default_rng(seed).integers(3, 400, size=count - 1).tolist()]


def told(outputs: list[Any]) -> list[Any]:
    return [(o.token_id, o.token_logprobs, o.confidence_score, o.accepted) for o in outputs]


@pytest.mark.parametrize(("temperature", "drafts"), [(0, 0), (0.8, DRAFTS)])
def test_turns_of_a_chat_give_the_bits_of_the_whole_prompt(model: Model, drafts: int, temperature: float) -> None:
    cached, plain = build(model, True, drafts), build(model, False, drafts)
    chat, spared = text(0, 121), []
    for turn in range(2):
        params = SamplingParams(max_tokens=8, ignore_eos=True, temperature=temperature, seq_seed=turn)
        (got,), (want,) = (say(made, [(chat, params)]) for made in (cached, plain))
        assert told(got) == told(want)
        spared.append(got[0].cached_tokens)
        chat = chat + [o.token_id for o in got] + text(10 + turn, 110)[1:]
    assert spared == [0, 128]
    assert cached.stats.prompt_tokens == plain.stats.prompt_tokens - sum(spared)


def test_a_shared_beginning_serves_requests_that_turn_off_behind_it(model: Model) -> None:
    system = text(1, 128)
    params = SamplingParams(max_tokens=4, ignore_eos=True, temperature=0)
    asked = [(system + text(20 + key, 130 + 9 * key), params) for key in range(4)]
    cached, plain = build(model, True, DRAFTS), build(model, False, DRAFTS)
    want = say(plain, asked)
    got = [say(cached, [one])[0] for one in asked[:2]] + say(cached, asked[2:])
    assert [told(one) for one in got] == [told(one) for one in want]
    assert [one[0].cached_tokens for one in got] == [0, 0, 128, 128]


def test_later_turns_are_spared_and_say_the_same() -> None:
    """Through the public interface: the argument lengthens the rings and turns the cache on."""
    chat = text(2, 140)
    params = SamplingParams(max_tokens=4, temperature=0, ignore_eos=True)
    said = {}
    for on in (False, True):
        with LLM("tiny", decode_sequence=False, max_model_len=300, enable_prefix_caching=on, max_num_seqs=4) as llm:
            first = llm.generate(prompt_token_ids=[chat], sampling_params=params, use_tqdm=False)[0]
            longer = chat + [output.token_id for output in first] + chat[1:20]
            second = llm.generate(prompt_token_ids=[longer], sampling_params=params, use_tqdm=False)[0]
            said[on] = [told(first), told(second)]
            assert second[0].cached_tokens == (128 if on else 0)
            assert llm.engine.executor.caches.layout.ring_slots == 16 + 6 + (128 if on else 0)
    assert said[True] == said[False]
