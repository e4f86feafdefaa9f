"""The engine over the embedded model with its own draft layers, and with drafts of which a known number is right."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from accepted_lengths import compare, prompts_of
from deepinfer.hal.catalog import load_backend
from deepinfer.model.hub import resolve_model
from deepinfer.model.transformer import Model
from deepinfer.runtime.params import SamplingParams
from model_engines import model_engine, say

LENGTH = 8


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    load_backend("reference")
    loaded = Model.load(resolve_model("tiny"), max_model_len=512)
    yield loaded
    loaded.close()


def prompts() -> list[list[int]]:
    rng = np.random.default_rng(5)
    return [[0, *rng.integers(3, 400, size=n - 1).tolist()] for n in (124, 1, 30)]


def requests(**how: Any) -> list[tuple[list[int], SamplingParams]]:
    params = {"max_tokens": LENGTH, "ignore_eos": True} | how
    return [(prompt, SamplingParams(seq_seed=40 + j, **params)) for j, prompt in enumerate(prompts())]


def told(found: list[list[Any]]) -> list[Any]:
    return [[(o.token_id, o.token_logprobs, o.prompt_logprobs) for o in outputs] for outputs in found]


def steps(found: list[list[Any]]) -> list[Any]:
    return [[(o.verified, o.accepted, o.confidence_score) for o in outputs if o.draft_tok] for outputs in found]


@pytest.fixture(scope="module")
def plain(model: Model) -> list[Any]:
    return told(say(model_engine(model, 0), requests(temperature=0)))


@pytest.mark.parametrize(
    "n", [1, pytest.param(2, marks=pytest.mark.whole), 3, pytest.param(4, marks=pytest.mark.whole), 5]
)
def test_greedy_text_is_that_of_plain_decoding(model: Model, plain: list[Any], n: int) -> None:
    made = model_engine(model, n, requests=1 + n % 3)
    assert told(say(made, requests(temperature=0))) == plain
    assert made.stats.verified >= n


def test_sampled_text_is_that_of_plain_decoding_with_shared_noise(model: Model) -> None:
    how = requests(temperature=0.4, prompt_logprobs=True)
    made = model_engine(model, 5, shared=True)
    assert told(say(made, how)) == told(say(model_engine(model, 0), how))


def test_sampled_text_depends_on_its_request_alone(model: Model) -> None:
    """Neighbours, order, chunks and preemption change neither tokens nor what is drafted, verified and accepted."""
    how = requests(temperature=0.6)
    want: list[Any] = []
    for one in how:
        want += say(model_engine(model, 3), [one])
    for options, order in (({"rows": 20, "requests": 5}, [2, 0, 1]), ({"pages": 3}, [0, 2, 1])):
        made = model_engine(model, 3, **options)
        found = say(made, [how[j] for j in order])
        assert told(found) == [told(want)[j] for j in order]
        assert steps(found) == [steps(want)[j] for j in order]
        assert made.stats.preemptions == ("pages" in options)


def test_injected_drafts_leave_the_caches_of_plain_decoding(model: Model) -> None:
    """After every step, whatever the number of accepted drafts; all of them occur."""
    counts = compare(model, prompts_of(5, 1), 18, 3)
    assert set(counts) == set(range(6)), counts


@pytest.mark.whole
def test_injected_drafts_in_a_small_pool(model: Model) -> None:
    counts = compare(model, [[0, *range(3, n)] for n in (125, 60, 123)], 14, 4, pages=4)
    assert sum(counts.values()) > 5
