"""Drafts in the engine: they change when tokens come, never which; and nothing of them stays behind."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from bigram_model import BigramModel, text_probabilities
from deepinfer.hal.catalog import load_backend
from deepinfer.runtime.engine import LLMEngine
from deepinfer.runtime.params import SamplingParams
from deepinfer.runtime.request import Proposal
from deepinfer.runtime.sampler import SamplerConfig
from distributions import assert_distribution, probabilities
from engines import FREE, Faulty, alone, build_engine, drain, tokens
from model_engines import model_engine, say

PROMPTS = [[5], list(range(9)), [7, 7, 40], list(range(20, 41))]
DRAFTING = {"max_drafts": 5, "max_tokens": 48}


@pytest.fixture(autouse=True, scope="module")
def _reference() -> None:
    load_backend("reference")


def steps(outputs: Sequence[Any]) -> list[tuple[int, int, int]]:
    """(drafted, verified, accepted) of each step of a sample."""
    return [(o.drafted, o.verified, o.accepted) for o in outputs if o.draft_tok]


# ---- schedules, over the simulated executor -----------------------------------------------------------------------


@pytest.mark.parametrize("n", range(6))
def test_every_draft_length_gives_the_tokens_of_plain_decoding(n: int) -> None:
    seen: set[int] = set()
    for prompt, params in product(PROMPTS, ({"temperature": 0}, {})):
        how = SamplingParams(max_tokens=30, **params, **FREE)
        plain, drafted = alone(prompt, how), alone(prompt, how, **(DRAFTING | {"max_drafts": n}))
        assert tokens(drafted) == tokens(plain)
        assert [o.token_logprobs for o in drafted] == [o.token_logprobs for o in plain]
        assert "".join(o.text for o in drafted) == "".join(o.text for o in plain)
        assert len(steps(drafted)) < len(steps(plain)) or n == 0
        seen |= {accepted for _, verified, accepted in steps(drafted) if verified == n}
    assert seen == set(range(n + 1))


def test_the_last_token_of_a_step_tells_what_it_drafted_and_verified() -> None:
    outputs = alone([5], SamplingParams(max_tokens=30, **FREE), **DRAFTING)
    assert (outputs[0].drafted, outputs[0].draft_tok, outputs[0].accept_tok) == (0, 1, 1)  # of the prompt
    done = 1
    for o in outputs[1:]:
        if not o.draft_tok:
            assert (o.drafted, o.verified, o.accepted, o.accept_tok, o.confidence_score) == (0, 0, 0, 0, [])
            continue
        assert o.verified == min(5, 30 - done - 1)  # one token comes behind the drafts
        assert o.drafted == (5 if o.verified else 0)
        assert o.draft_tok == 1 + o.verified and o.accept_tok == 1 + o.accepted
        assert o.confidence_score == [1 / (2 + place) for place in range(o.drafted)]
        done += o.accept_tok
        assert o.num_output_tokens == done
    assert done == 30 and outputs[-1].draft_tok


def test_the_engine_counts_drafts() -> None:
    engine = build_engine(**DRAFTING)
    engine.add_request(None, 0, SamplingParams(max_tokens=30, **FREE), [5])
    outputs = drain(engine)[0, 0]
    assert engine.stats.verified == sum(o.verified for o in outputs) > 0
    assert engine.stats.accepted == sum(o.accepted for o in outputs) == 30 - len(steps(outputs))


class Fixed(Faulty):
    """Says 2, 3, 4, … whatever is proposed, and proposes just that: all drafts are accepted."""

    def _draw(self, request: Any, state: int, position: int) -> Any:
        drawn = super()._draw(request, state, position)
        drawn.token = 2 + position - request.prompt_len
        return drawn

    def _propose(self, item: Any, result: Any, state: int) -> Proposal:
        first = item.known_end + result.accepted + 1 - item.request.prompt_len
        return Proposal([2 + first + place for place in range(item.request.max_drafts)])


def fixed(**options: Any) -> Any:
    return DRAFTING | {"executor": Fixed(300, 64, 8, 4), "vocab_size": 300} | options


@pytest.mark.parametrize("end", range(2, 12))
def test_ends_inside_an_accepted_run(end: int) -> None:
    """Nothing behind an end is said, and its resources are back."""
    said = list(range(2, 2 + end))
    for how in ({"eos_id": said[-1]}, {"stop_token_ids": [said[-1]]}, {"stop": [chr(said[-1])]}, {"max_tokens": end}):
        outputs = alone([5], SamplingParams(**({"max_tokens": 30, "seq_seed": 3} | how)), **fixed())
        assert tokens(outputs) == said
        assert outputs[-1].finish_reason == ("length" if "max_tokens" in how else "stop")
        assert [o.finished for o in outputs] == [False] * (end - 1) + [True]
        last = outputs[-1]
        assert last.draft_tok and last.accepted == min(last.accept_tok, last.verified)
        assert sum(o.accept_tok for o in outputs) == end


def test_no_draft_is_verified_that_could_not_be_said() -> None:
    for length in range(1, 10):
        outputs = alone([5], SamplingParams(max_tokens=length, **FREE), **fixed())
        assert tokens(outputs) == list(range(2, 2 + length))
        assert len(steps(outputs)) == 1 + -(-(length - 1) // 6)
    outputs = alone(list(range(60)), SamplingParams(max_tokens=50, **FREE), **fixed(max_tokens=80))
    assert len(outputs) == 4 and steps(outputs) == [(0, 0, 0), (5, 2, 2)], "the model ends at 64 tokens"


def test_logits_that_are_no_numbers_behind_accepted_drafts() -> None:
    executor = Fixed(300, 64, 8, 4)
    run = executor.run

    def spoil(work: Any) -> Any:
        results = run(work)
        for result in results:
            for drawn in result.tokens:
                drawn.valid = drawn.token != 6
        return results

    executor.run = spoil  # type: ignore[method-assign]
    outputs = alone([5], SamplingParams(max_tokens=30, **FREE), **fixed(executor=executor))
    assert tokens(outputs) == [2, 3, 4, 5] and outputs[-1].finish_reason == "error"


def every_step(engine: LLMEngine) -> list[Any]:
    """Outputs of a step, with the accounting of both pools checked."""
    outputs = engine.step()
    engine.check_conservation()
    return outputs


@pytest.mark.parametrize("pages", [17, 20, 40])
def test_preemption_makes_the_same_drafts_again(pages: int) -> None:
    how = SamplingParams(max_tokens=30, **FREE)
    want = [steps(alone(prompt, how, **DRAFTING)) for prompt in PROMPTS]
    engine = build_engine(**(DRAFTING | {"num_pages": pages}))
    for key, prompt in enumerate(PROMPTS):
        engine.add_request(None, key, how, prompt)
    found: dict[Any, list[Any]] = {}
    while engine.has_unfinished_requests():
        for o in every_step(engine):
            found.setdefault(o.request_id, []).append(o)
    assert (engine.stats.preemptions > 0) == (pages < 40)
    for key, prompt in enumerate(PROMPTS):
        assert tokens(found[key]) == tokens(alone(prompt, how))
        assert steps(found[key]) == want[key], "what a step verifies depends on its request alone"
    assert engine.pages_in_use == 0


def test_aborts_with_drafts_in_flight_and_chunks_of_a_neighbour() -> None:
    how = SamplingParams(max_tokens=30, **FREE)
    engine = build_engine(**(DRAFTING | {"max_tokens": 12, "max_requests": 2}))
    engine.add_request(None, "stays", how, [5])
    engine.add_request(None, "goes", how, list(range(30)))
    found: list[Any] = []
    for step in range(60):
        found += [o for o in every_step(engine) if o.request_id == "stays"]
        if step == 7:
            assert engine.abort_request("goes") == ["goes"]
    assert tokens(found) == tokens(alone([5], how)) and steps(found) == steps(alone([5], how, **DRAFTING))
    assert engine.pages_in_use == 0


def test_a_failed_step_with_drafts_hurts_the_guilty_only() -> None:
    how = SamplingParams(max_tokens=30, **FREE)
    executor = Faulty(97, 64, 8, 4)
    executor.fault = lambda work: next(
        (ValueError("bad") for w in work if w.request.tokens[0] == 9 and w.request.num_output_tokens > 3), None
    )
    engine = build_engine(**(DRAFTING | {"executor": executor}))
    prompts = {**dict(enumerate(PROMPTS)), "bad": [9, 9]}
    for key, prompt in prompts.items():
        engine.add_request(None, key, how, prompt)
    found: dict[Any, list[Any]] = {}
    while engine.has_unfinished_requests():
        for o in every_step(engine):
            found.setdefault(o.request_id, []).append(o)
    assert found["bad"][-1].finish_reason == "error"
    for key, prompt in enumerate(PROMPTS):
        assert tokens(found[key]) == tokens(alone(prompt, how))
        assert steps(found[key]) == steps(alone(prompt, how, **DRAFTING))


# ---- what is drawn, over a model of one table ---------------------------------------------------------------------


FILTERS = tuple(product((0.7, 1.4), (0, 3), (1.0, 0.8), (0.0, 0.15)))
VOCAB, LENGTH, DRAWS = 5, 4, 1024


MODEL = BigramModel.random(VOCAB, 3, likeness=0.3)
STRANGER = BigramModel.random(VOCAB, 3, likeness=0.0)


def draws(
    filters: tuple[float, int, float, float], model: BigramModel = MODEL, seed: int = 77, **more: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Texts of LENGTH tokens as numbers to base VOCAB, and how many drafts of each were accepted when its second token
    was drawn: the first is drawn without drafts, and behind it two are verified.
    """
    temperature, top_k, top_p, min_p = filters
    how = SamplingParams(
        temperature=temperature, top_k=top_k or -1, top_p=top_p, min_p=min_p, max_tokens=LENGTH, n=DRAWS, seq_seed=seed,
        ignore_eos=True, **more,
    )  # fmt: skip
    found = say(model_engine(model, 5, requests=DRAWS), [([2, 3], how)])
    digits = torch.tensor([tokens(outputs) for outputs in found])
    accepted = torch.tensor([next(o.accepted for o in outputs if o.verified == 2) for outputs in found])
    return (digits * VOCAB ** torch.arange(LENGTH).flip(0)).sum(1), accepted


def check_texts(texts: torch.Tensor, p: np.ndarray) -> None:
    """The whole texts, and each pair of neighbours within them."""
    assert_distribution(texts, p)
    joint = p.reshape([VOCAB] * LENGTH)
    for place in range(LENGTH - 1):
        pair = texts // VOCAB ** (LENGTH - 2 - place) % VOCAB**2
        axes = tuple(axis for axis in range(LENGTH) if axis not in (place, place + 1))
        assert_distribution(pair, joint.sum(axes).ravel())


@pytest.mark.parametrize("filters", FILTERS, ids=str)
def test_texts_have_the_targets_distribution(filters: tuple[float, int, float, float]) -> None:
    texts, accepted = draws(filters)
    check_texts(texts, text_probabilities(MODEL, [2, 3], LENGTH, filters))
    target, drafter = (
        np.stack([probabilities(table[token].numpy(), *filters) for token in range(VOCAB)])
        for table in (MODEL.target, MODEL.drafter)
    )
    rate = float((target[3] * np.minimum(target, drafter).sum(1)).sum())  # of the first draft
    assert abs((accepted > 0).double().mean() - rate) < 5 * np.sqrt(rate * (1 - rate) / DRAWS) + 1e-3


def test_rows_of_a_step_draw_independently() -> None:
    """A drafter that knows nothing, and more draws: numbers that rows share would show."""
    filters = (1.4, 0, 1.0, 0.0)
    texts = torch.cat([draws(filters, STRANGER, seed=DRAWS * part)[0] for part in range(3)])
    check_texts(texts, text_probabilities(STRANGER, [2, 3], LENGTH, filters))


def test_penalties_count_the_drafts_before_a_row() -> None:
    filters, penalties = (1.0, 0, 1.0, 0.0), (1.6, 0.7, 0.9)
    repetition, frequency, presence = penalties
    texts, _ = draws(filters, repetition_penalty=repetition, frequency_penalty=frequency, presence_penalty=presence)
    check_texts(texts, text_probabilities(MODEL, [2, 3], LENGTH, filters, penalties))


def test_the_drafter_shares_the_targets_noise() -> None:
    """Otherwise about one draft in thirty were the target's own draw."""
    model = BigramModel.random(29, 4, likeness=0.85)
    made = model_engine(model, 5, shared=True)
    say(
        made,
        [([2, 3 + j], SamplingParams(temperature=0.9, max_tokens=40, ignore_eos=True, seq_seed=j)) for j in (0, 1)],
    )
    assert made.stats.accepted > 0.4 * made.stats.verified


KINDS: list[dict[str, Any]] = [
    {},
    {"top_k": 8, "top_p": 0.9, "min_p": 0.01},
    {"repetition_penalty": 1.5, "frequency_penalty": 0.5, "presence_penalty": 0.25},
    {"logit_bias": {3: 4.0, 9: -100.0}, "first_n_token_no_eos": 4, "ignore_eos": False},
    {"golden_token_ids": [4, 8, 15, 16, 23, 2]},
    {"logprobs": 2, "top_logprobs": 3},
    {"prompt_logprobs": True, "stop_token_ids": [11]},
]


def told(outputs: Sequence[Any]) -> list[Any]:
    """All that outputs say of their tokens."""
    return [
        (
            o.token_id, o.token_logprobs, o.top_token_ids, o.top_logprobs, o.raw_token_logprobs, o.raw_top_token_ids,
            o.raw_top_logprobs, o.sum_smaller_probs, o.prompt_logprobs, o.finish_reason, o.stop_reason,
        )
        for o in outputs
    ]  # fmt: skip


@pytest.mark.parametrize(("temperature", "n"), [(0, 1), (0, 4), (0, 5), (0.9, 2), (0.9, 5)])
def test_invariant_text_is_that_of_plain_decoding(temperature: float, n: int) -> None:
    """At temperature 0 in either mode, above it in drafter-invariant mode; whatever else a request asks for."""
    model = BigramModel.random(29, 4, likeness=0.85)
    requests = [
        ([2, 3 + j], SamplingParams(**({"temperature": temperature, "max_tokens": 40, "ignore_eos": True} | kind)))
        for j, kind in enumerate(KINDS)
    ]
    for j, (_, params) in enumerate(requests):
        params.seq_seed, params.n = 5 + j, 2
    sampling = SamplerConfig(blacklist=(range(12, 14),), sum_smaller=True)
    plain = say(model_engine(model, 0, sampling=sampling), requests)
    made = model_engine(model, n, sampling=sampling, shared=temperature > 0)
    found = say(made, requests)
    assert [told(outputs) for outputs in found] == [told(outputs) for outputs in plain]
    assert made.stats.accepted > 50


def test_sampled_text_depends_on_its_request_alone() -> None:
    model = BigramModel.random(29, 4)
    requests = [([2, 3 + j], SamplingParams(max_tokens=30, ignore_eos=True, seq_seed=j)) for j in range(6)]
    want = [told(say(model_engine(model, 4), [one])[0]) for one in requests]
    assert [told(outputs) for outputs in say(model_engine(model, 4), requests)] == want
    assert [told(outputs) for outputs in say(model_engine(model, 4, requests=6), requests[::-1])] == want[::-1]
    plain = [told(outputs) for outputs in say(model_engine(model, 0), requests)]
    assert plain != want, "without shared noise, drafts change what is drawn, if not its distribution"


def test_accepted_drafts_carry_the_drafters_logprob() -> None:
    model = BigramModel.random(29, 4)
    (outputs,) = say(model_engine(model, 3), [([2, 3], SamplingParams(max_tokens=40, ignore_eos=True, seq_seed=1))])
    said, before = tokens(outputs), 3
    z = torch.log_softmax(model.drafter.double(), 1)
    left = accepted = 0
    for index, o in enumerate(outputs):
        if not left:
            step = next(later for later in outputs[index:] if later.draft_tok)
            left, accepted = step.accept_tok, step.accepted
        if accepted > 0:
            assert o.nextn_logprobs == pytest.approx(float(z[before, said[index]]), abs=1e-5)
        else:
            assert o.nextn_logprobs == 1.0
        left, accepted, before = left - 1, accepted - 1, said[index]
    (outputs,) = say(model_engine(model, 3), [([2, 3], SamplingParams(temperature=0, max_tokens=9, ignore_eos=True))])
    assert {o.nextn_logprobs for o in outputs} == {1.0}
