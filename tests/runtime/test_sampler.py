"""Sampler glue: parameters reach the right row, reports come back to the right request."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from deepinfer.hal.catalog import load_backend
from deepinfer.hal.errors import InvalidArgumentError
from deepinfer.runtime.execute import Drawn, Work
from deepinfer.runtime.params import SamplingParams
from deepinfer.runtime.request import Request
from deepinfer.runtime.sampler import Sampler, SamplerConfig

VOCAB = 70  # not a multiple of 32


@pytest.fixture(autouse=True, scope="module")
def _reference() -> None:
    load_backend("reference")


def request(prompt: list[int], output: list[int] | None = None, **params: Any) -> Request:
    output = output or []
    values = {"seq_seed": 11, "max_tokens": 50} | params
    made = Request(
        key=0, request_id=0, user_id=None, sample_index=0, params=SamplingParams(**values), seed=values["seq_seed"],
        eos_id=1, prompt_len=len(prompt), max_output_tokens=50, tokens=np.array(prompt, np.int32), arrival_time=0.0,
    )  # fmt: skip
    for token in output:
        made.append(token)
    return made


def draw(logits: np.ndarray, requests: list[Request], config: SamplerConfig | None = None) -> list[Drawn]:
    work = [Work(r, r.length - 1, r.length, True) for r in requests]
    results = Sampler(VOCAB, config).sample(torch.from_numpy(logits.astype(np.float32)), work)
    drawn = [result.drawn for result in results]
    assert all(d is not None for d in drawn)
    return drawn  # type: ignore[return-value]


def flat(rows: int = 1) -> np.ndarray:
    return np.zeros((rows, VOCAB), np.float32)


def noise(rows: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal((rows, VOCAB)) * 3).astype(np.float32)


def log_softmax(row: np.ndarray) -> np.ndarray:
    row = row.astype(np.float64)
    return row - row.max() - math.log(np.exp(row - row.max()).sum())


def logprob_limit(span: float, temperature: float = 1.0) -> float:
    """How far a log-probability may be off, `span` below the largest logit: docs/numerics.md, section 4.5."""
    return float(2.0**-24 * (4 * span / temperature + 8 * math.log(VOCAB) + 16 + 1))


def test_temperature_zero_is_the_lowest_id_among_the_largest() -> None:
    logits = flat()
    logits[0, [9, 40, 69]] = 5
    (drawn,) = draw(logits, [request([3], temperature=0)])
    assert drawn.token == 9 and drawn.logprob == 0.0 and drawn.valid


def test_every_row_uses_its_own_parameters_and_its_bits_do_not_depend_on_the_others() -> None:
    logits = noise(7)
    requests = [
        request([3], temperature=0.7, top_k=5),
        request([3, 4], temperature=0),
        request([3], [4, 4], frequency_penalty=1.5, repetition_penalty=1.3, top_logprobs=4),
        request([5], top_p=0.4, logprobs=3),
        request([6], min_p=0.2, logit_bias={7: 3.0, 60: -100.0}),
        request([7], first_n_token_no_eos=1, seq_seed=2**64 - 1),
        request([8], golden_token_ids=[33]),
    ]
    together = draw(logits, requests)
    for i, one in enumerate(requests):
        assert draw(logits[i : i + 1], [one]) == [together[i]]
    order = [3, 0, 6, 2, 5, 1, 4]
    assert draw(logits[order], [requests[i] for i in order]) == [together[i] for i in order]


def test_seed_and_position_decide_the_draw() -> None:
    logits = flat(1)

    def token(seed: int, length: int) -> int:
        return draw(logits, [request([3] * length, seq_seed=seed)])[0].token

    assert token(5, 4) == token(5, 4)
    assert len({token(seed, 4) for seed in range(20)}) > 10
    assert len({token(5, length) for length in range(1, 20)}) > 10
    # prompt or output makes no difference: only the place in the whole sequence counts
    assert draw(logits, [request([3] * 2, [3] * 2, seq_seed=5)])[0].token == token(5, 4)


@pytest.mark.parametrize("params", [{"top_p": 1e-8}, {"top_k": 1}, {"min_p": 1.0}])
def test_the_most_likely_token_survives_every_filter(params: dict[str, Any]) -> None:
    logits = noise(1)
    tokens = {draw(logits, [request([3], seq_seed=seed, **params)])[0].token for seed in range(10)}
    assert tokens == {int(logits[0].argmax())}


def test_filters_bound_what_is_drawn() -> None:
    logits = noise(1)
    best = set(np.argsort(-logits[0])[:5].tolist())
    drawn = [draw(logits, [request([3], top_k=5, temperature=100.0, seq_seed=s)])[0] for s in range(40)]
    assert {d.token for d in drawn} == best
    assert all(d.logprob > -9999.0 for d in drawn)


def test_penalties_count_prompt_and_output_as_they_should() -> None:
    logits = flat()
    logits[0, [10, 11, 12]] = [4.0, 4.0, -4.0]
    params: dict[str, Any] = {"temperature": 1.0, "golden_token_ids": None, "top_logprobs": VOCAB}

    def processed(**penalties: Any) -> dict[int, float]:
        (d,) = draw(logits, [request([10, 12], [11, 11, 13], **params, **penalties)])
        values = dict(zip(d.top_ids, d.top_logprobs, strict=True))
        return {token: values[token] - values[20] for token in (10, 11, 12, 13)}

    # Penalties of these sizes are exact; what is compared is a difference of two values, at most 12 below the largest.
    limit = 2 * logprob_limit(12)
    assert processed(repetition_penalty=2.0) == pytest.approx({10: 2, 11: 2, 12: -8, 13: 0}, abs=limit)
    assert processed(frequency_penalty=0.5) == pytest.approx({10: 4, 11: 3, 12: -4, 13: -0.5}, abs=limit)
    assert processed(presence_penalty=0.5) == pytest.approx({10: 4, 11: 3.5, 12: -4, 13: -0.5}, abs=limit)


def test_logit_bias_and_the_ban_of_the_end_token() -> None:
    logits = flat()
    logits[0, 1] = 50.0  # the end token
    for output, banned in (([], True), ([9], True), ([9, 9], False)):
        (d,) = draw(logits, [request([3], output, temperature=0, first_n_token_no_eos=2, logit_bias={40: 2.0})])
        assert d.token == (40 if banned else 1)
    (d,) = draw(logits, [request([3], temperature=0, first_n_token_no_eos=1, logit_bias={1: 100.0})])
    assert d.token == 0, "a bias cannot lift the ban"


def test_golden_tokens_replace_the_draw_and_carry_their_own_logprobs() -> None:
    logits = noise(1)
    expected = log_softmax(logits[0])
    (d,) = draw(logits, [request([3], [5], golden_token_ids=[5, 33], logprobs=2, top_logprobs=3)])
    assert d.token == 33
    assert d.logprob == d.raw_logprob == pytest.approx(expected[33], abs=logprob_limit(np.ptp(logits[0])))
    assert d.top_ids == np.argsort(-logits[0], kind="stable")[:3].tolist() and d.raw_top_ids == d.top_ids[:2]
    (d,) = draw(logits, [request([3], [5], golden_token_ids=[5])])
    assert d.token == draw(logits, [request([3], [5])])[0].token, "past the golden tokens it draws again"
    worst = int(logits[0].argmin())
    (d,) = draw(logits, [request([3], golden_token_ids=[worst], top_k=3)])
    assert (d.token, d.logprob, d.valid) == (worst, -9999.0, True)


def test_raw_and_processed_logprobs() -> None:
    logits = noise(1)
    params: dict[str, Any] = {"temperature": 0.5, "logit_bias": {4: 5.0}, "logprobs": 4, "top_logprobs": 4}
    (d,) = draw(logits, [request([3], **params)])
    changed = logits[0].copy()
    changed[4] += 5
    raw, processed = log_softmax(logits[0]), log_softmax(changed / 0.5)
    plain, tempered = logprob_limit(np.ptp(logits[0])), logprob_limit(np.ptp(changed), 0.5)
    assert d.raw_logprob == pytest.approx(raw[d.token], abs=plain)
    assert d.logprob == pytest.approx(processed[d.token], abs=tempered)
    assert d.raw_top_logprobs == pytest.approx(np.sort(raw)[::-1][:4].tolist(), abs=plain)
    assert d.top_logprobs == pytest.approx(np.sort(processed)[::-1][:4].tolist(), abs=tempered)
    (d,) = draw(logits, [request([3])])
    assert d.raw_logprob is None and not d.top_ids and not d.raw_top_ids


def test_top_lists_are_as_long_as_each_row_asks() -> None:
    logits = noise(3)
    drawn = draw(logits, [request([3], top_logprobs=k, logprobs=k) for k in (2, 0, 5)])
    assert [len(d.top_ids) for d in drawn] == [len(d.raw_top_ids) for d in drawn] == [2, 0, 5]


def test_the_blacklist_acts_on_every_draw() -> None:
    config = SamplerConfig(blacklist=(range(4), range(7, 8), range(33, VOCAB)))
    allowed = {4, 5, 6, *range(8, 33)}
    tokens = {draw(flat(), [request([3], seq_seed=s)], config)[0].token for s in range(200)}
    assert tokens <= allowed and len(tokens) > 20
    logits = flat()
    logits[0, 2] = np.nan  # a banned token's value does not matter
    assert draw(logits, [request([3])], config)[0].token in allowed


@pytest.mark.parametrize("blacklist", [(range(VOCAB),), (range(5, VOCAB + 1),)])
def test_a_blacklist_must_leave_a_token_and_stay_in_the_vocabulary(blacklist: tuple[range, ...]) -> None:
    with pytest.raises(InvalidArgumentError, match="DEEPINFER_DECODE_TOKEN_BLACKLIST"):
        Sampler(VOCAB, SamplerConfig(blacklist=blacklist))


def test_forced_candidates() -> None:
    logits = noise(1)
    best = set(np.argsort(-logits[0])[:4].tolist())
    config = SamplerConfig(force_top_k=4)
    drawn = [draw(logits, [request([3], temperature=100.0, seq_seed=s)], config)[0] for s in range(40)]
    assert {d.token for d in drawn} == best


def test_sum_of_smaller_probabilities() -> None:
    logits = noise(1)
    (d,) = draw(logits, [request([3])], SamplerConfig(sum_smaller=True))
    p = np.exp(log_softmax(logits[0]))
    # A weight: three roundings of its exponent and two of exp2, and cut off at 2^-31 of the largest; in both sums.
    limit = 2 * (2.0**-24 * (p * (3 * (logits[0].max() - logits[0]) + 2)).sum() + VOCAB * 2.0**-31)
    assert d.sum_smaller == pytest.approx(p[logits[0] < logits[0, d.token]].sum(), abs=limit)
    assert draw(logits, [request([3])])[0].sum_smaller == -1.0
    (d,) = draw(logits, [request([3], temperature=0)], SamplerConfig(sum_smaller=True))
    assert d.sum_smaller == 0.0


def test_rows_that_are_not_numbers_are_flagged_and_others_untouched() -> None:
    logits = noise(4)
    clean = draw(logits, [request([3]) for _ in range(4)])
    logits[1, 5] = np.nan
    logits[3] = -np.inf
    drawn = draw(logits, [request([3], golden_token_ids=[9] if i == 1 else None) for i in range(4)])
    assert [d.valid for d in drawn] == [True, False, True, False]
    assert drawn[0] == clean[0] and drawn[2] == clean[2]
    assert 0 <= drawn[3].token < VOCAB


def test_prompt_rows_and_drawn_rows_are_kept_apart() -> None:
    logits = noise(6)
    first = request([3, 8, 2, 9], prompt_logprobs=True)
    second = request([5])
    third = request([4, 6], prompt_logprobs=True)
    work = [
        Work(first, 0, 4, True, range(3)),
        Work(second, 0, 1, True),
        Work(third, 0, 1, False, range(1)),
    ]
    results = Sampler(VOCAB).sample(torch.from_numpy(logits), work)
    expected = [log_softmax(row) for row in logits]
    limit = logprob_limit(np.ptp(logits, axis=1).max())
    assert results[0].prompt_logprobs == pytest.approx([expected[0][8], expected[1][2], expected[2][9]], abs=limit)
    assert results[1].prompt_logprobs == [] and results[2].drawn is None
    assert results[2].prompt_logprobs == pytest.approx([expected[5][6]], abs=limit)
    assert results[0].drawn == draw(logits[3:4], [first])[0]
    assert results[1].drawn == draw(logits[4:5], [second])[0]


def test_a_wrong_number_of_logit_rows_is_our_own_fault() -> None:
    with pytest.raises(AssertionError, match="another number of logit rows"):
        Sampler(VOCAB).sample(torch.zeros(2, VOCAB), [Work(request([3]), 0, 1, True)])


def test_the_configuration_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    from deepinfer.hal import env

    values = {"DECODE_TOKEN_BLACKLIST": "0..3,7", "SAMPLER_FORCE_TOPK": "12", "COMPUTE_SUM_SMALLER_PROBS": "1"}
    for name, text in values.items():
        monkeypatch.setenv(f"DEEPINFER_{name}", text)
        env.rearm(f"DEEPINFER_{name}")
    try:
        assert SamplerConfig.from_environment() == SamplerConfig((range(4), range(7, 8)), 12, True)
    finally:
        monkeypatch.undo()
        env.rearm()
