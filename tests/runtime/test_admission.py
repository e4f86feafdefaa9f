"""Requests before they run: seeds, samples, refusals."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from deepinfer.hal.errors import InvalidArgumentError, NotSupportedError
from deepinfer.runtime.params import SamplingParams
from engines import FREE, alone, build_engine, drain, tokens

# ---- n and seeds


def test_sample_j_is_the_request_with_seed_plus_j() -> None:
    engine = build_engine()
    seeds = engine.add_request(None, "many", SamplingParams(n=3, max_tokens=5, **FREE), [4, 5])
    assert seeds == [3, 4, 5] and engine.get_num_unfinished_requests() == 1
    outputs = drain(engine)
    assert len({tuple(tokens(o)) for o in outputs.values()}) == 3
    for j in range(3):
        single = SamplingParams(max_tokens=5, ignore_eos=True, seq_seed=3 + j)
        assert tokens(alone([4, 5], single)) == tokens(outputs[("many", j)])
        assert {o.seed for o in outputs[("many", j)]} == {3 + j}


def test_seeds_drawn_by_the_engine_are_echoed_and_repeat_the_run() -> None:
    params = SamplingParams(max_tokens=6, ignore_eos=True)
    first = alone([4, 5], params)
    other = alone([4, 5], params)
    assert first[0].seed != other[0].seed
    again = SamplingParams(max_tokens=6, ignore_eos=True, seq_seed=first[0].seed)
    assert tokens(alone([4, 5], again)) == tokens(first)


def test_an_engine_seed_makes_default_seeds_repeat() -> None:
    def drawn(seed: int | None) -> list[int]:
        engine = build_engine(seed=seed)
        return [engine.add_request(None, i, SamplingParams(), [1])[0] for i in range(3)]

    assert drawn(5) == drawn(5) and len(set(drawn(5))) == 3
    assert drawn(5) != drawn(6) and drawn(None) != drawn(None)


def test_elapsed_counts_from_the_arrival_time() -> None:
    engine = build_engine()
    earlier = time.monotonic() / 2  # the clock may have started a moment ago
    engine.add_request(None, 0, SamplingParams(max_tokens=1), [4], arrival_time=earlier)
    assert earlier <= drain(engine)[(0, 0)][0].elapsed < earlier + 100
    for bad in (-1.0, float("nan"), time.monotonic() + 100, "now"):
        with pytest.raises(InvalidArgumentError, match="arrival_time"):
            engine.add_request(None, 1, SamplingParams(), [4], arrival_time=bad)  # type: ignore[arg-type]


# ---- refused requests


class Unreadable:
    """An array that numpy cannot read, as those of a device or of autograd."""

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("not here")


@pytest.mark.parametrize(
    "prompt",
    [
        [],
        np.zeros(0, np.int32),
        [[1]],
        "text",
        [1.5],
        [True],
        [-1],
        [97],
        [1] * 64,
        [2**70],
        None,
        [None],
        [True, 5],
        [5, np.True_],
        Unreadable(),
    ],
)
def test_bad_prompts_are_refused_before_they_are_queued(prompt: Any) -> None:
    engine = build_engine()
    with pytest.raises(InvalidArgumentError, match="prompt_token_ids") as caught:
        engine.add_request(None, 0, SamplingParams(), prompt)
    assert caught.value.allowed
    assert not engine.has_unfinished_requests() and engine.pages_in_use == 0


def test_a_prompt_past_the_limit_names_the_limit() -> None:
    engine = build_engine()
    engine.add_request(None, 0, SamplingParams(), [1] * 63)
    with pytest.raises(
        InvalidArgumentError, match=r"prompt_token_ids: got '64 ids'; allowed: 1 to 63 .*max_model_len = 64"
    ):
        engine.add_request(None, 1, SamplingParams(), [1] * 64)


def test_bad_parameters_leave_the_engine_alive() -> None:
    engine = build_engine()
    engine.add_request(None, "good", SamplingParams(max_tokens=4, **FREE), [4, 5])
    params = SamplingParams()
    params.max_tokens = 0
    for bad in (params, SamplingParams(stop_token_ids=[97]), None, {"max_tokens": 3}):
        with pytest.raises(InvalidArgumentError):
            engine.add_request(None, "bad", bad, [4])
    with pytest.raises(InvalidArgumentError, match="request_id.*no unfinished request has"):
        engine.add_request(None, "good", SamplingParams(), [4])
    with pytest.raises(InvalidArgumentError, match="request_id"):
        engine.add_request(None, [], SamplingParams(), [4])
    expected = alone([4, 5], SamplingParams(max_tokens=4, **FREE))
    assert tokens(drain(engine)[("good", 0)]) == tokens(expected)


@pytest.mark.parametrize("option", [{"extra": {}}, {"enqueue": False}, {"chunk_checkpoints": [3]}])
def test_arguments_of_other_engines_are_refused(option: Any) -> None:
    with pytest.raises(NotSupportedError, match=next(iter(option))):
        build_engine().add_request(None, 0, SamplingParams(), [1], **option)


def test_stop_strings_need_a_tokenizer() -> None:
    with pytest.raises(InvalidArgumentError, match="stop.*no tokenizer"):
        build_engine(decoder=None).add_request(None, 0, SamplingParams(stop=["x"]), [1])


def test_top_lists_are_bounded_by_the_forced_candidates() -> None:
    engine = build_engine(force_top_k=4)
    engine.add_request(None, 0, SamplingParams(top_logprobs=4), [1])
    with pytest.raises(InvalidArgumentError, match="top_logprobs.*SAMPLER_FORCE_TOPK = 4"):
        engine.add_request(None, 1, SamplingParams(top_logprobs=5), [1])
