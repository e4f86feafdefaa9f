"""SamplingParams: every field is checked, nothing is clipped."""

from __future__ import annotations

import dataclasses
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from deepinfer.hal.errors import InvalidArgumentError
from deepinfer.runtime.params import SamplingParams, fresh_seed, sample_seed

GOOD: dict[str, list[Any]] = {
    "temperature": [0, 0.0, -0.0, 1e-5, 1, 2.5, np.float32(0.5), np.int8(0), 1e5],
    "top_p": [1, 1.0, 1e-8, 0.5],
    "top_k": [-1, 1, 2**31 - 1, np.int64(7)],
    "min_p": [0, 0.0, 1.0, 0.05],
    "max_tokens": [1, 2**31 - 1],
    "n": [1, 1024],
    "seq_seed": [None, 0, 2**64 - 1],
    "repetition_penalty": [1, 0.01, 100],
    "frequency_penalty": [-2, 0, 2.0],
    "presence_penalty": [-2, 0, 2.0],
    "logit_bias": [None, {}, {0: -100, 5: 100.0}],
    "stop": [None, [], "x", ["a", "bc"], ("a",)],
    "stop_token_ids": [None, [], [0, 5], (7,), np.array([3])],
    "ignore_eos": [True, False],
    "eos_id": [None, 0, 9],
    "first_n_token_no_eos": [0, 1, 5],
    "logprobs": [None, 0, 1000],
    "top_logprobs": [0, 1000],
    "prompt_logprobs": [True, False],
    "golden_token_ids": [None, [], [1, 2]],
    "so_args": [None, {"schema_type": "json", "schema": "{}"}],
    "priority": [-100, 0, 100, np.int8(3)],
    "tenant": [None, "", "a", "x" * 1024],
    "cache_salt": [None, "", "tenant", "x" * 1024, "\ud800"],
}
BAD: dict[str, list[Any]] = {
    "temperature": [-1, -0.0001, 1e-6, 1e6, math.nan, math.inf, "1", None, True, np.False_, 0j, np.zeros(2)],
    "top_p": [0, -0.1, 1.0001, math.nan, None, "0.5", True, np.True_, bytearray(b"1"), np.ones(1), Decimal("sNaN")],
    "top_k": [0, -2, 2**31, 1.5, None, True, "3", -1.0, np.array([1, 2])],
    "min_p": [-0.1, 1.1, math.nan, None],
    "max_tokens": [0, -1, 2**31, 1.0, None, True, "16"],
    "n": [0, -1, 1025, 1.0, None],
    "seq_seed": [-1, 2**64, 1.5, "7", True],
    "repetition_penalty": [0, -1, 101, math.nan, None],
    "frequency_penalty": [-2.1, 2.1, math.inf, None],
    "presence_penalty": [-2.1, 2.1, math.nan, None],
    "logit_bias": [[1], {"a": 1}, {-1: 1.0}, {1: 101}, {1: math.nan}, {1: None}, {True: 1.0}],
    "stop": ["", [""], [1], 5, ["a", None], ["x"] * 65, b"x", "\ud800"],
    "stop_token_ids": [5, [-1], ["a"], "12", [1.0], [True], np.array(1)],
    "ignore_eos": [0, 1, None, "yes"],
    "eos_id": [-1, 1.5, True],
    "first_n_token_no_eos": [-1, None, True, 1.5],
    "logprobs": [-1, 1001, True, 1.0],
    "top_logprobs": [-1, 1001, None, True],
    "prompt_logprobs": [1, None, 5],
    "golden_token_ids": [[-1], 5, ["a"], [1.5], "12"],
    "priority": [-101, 101, 1.0, None, True, "1"],
    "tenant": [5, b"tenant", "x" * 1025, ["a"]],
    "cache_salt": [5, b"tenant", "x" * 1025, ["a"]],
    "so_args": [{}, "json", {"schema_type": "json"}, {"schema_type": "xml", "schema": "a"}],
}


def test_every_field_has_cases() -> None:
    names = {field.name for field in dataclasses.fields(SamplingParams)}
    assert names == set(GOOD) and names == set(BAD)


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in GOOD.items() for value in values])
def test_allowed_values(name: str, value: Any) -> None:
    SamplingParams(**{name: value})


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_refused_values_name_the_parameter_and_what_is_allowed(name: str, value: Any) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        SamplingParams(**{name: value})
    assert caught.value.parameter.startswith(name)
    assert caught.value.allowed and repr(caught.value.got)[:20] in str(caught.value)


class _Hostile:
    """Raises whatever it is asked."""

    def __index__(self) -> int:
        raise RuntimeError("no index")

    def __float__(self) -> float:
        raise RuntimeError("no float")

    def __repr__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize("name", sorted(GOOD))
@pytest.mark.parametrize("value", [10**5000, _Hostile()], ids=["5000 digits", "hostile"])
def test_values_without_a_text_are_refused_like_others(name: str, value: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=f"{name}: got <(int|_Hostile) whose repr"):
        SamplingParams(**{name: value})


@pytest.mark.parametrize(
    ("name", "value", "canonical"),
    [
        ("temperature", -0.0, 0.0),
        ("top_k", np.int64(-1), -1),
        ("top_k", np.int8(3), 3),
        ("min_p", np.float16(0.5), 0.5),
    ],
)
def test_numbers_are_brought_to_their_canonical_type(name: str, value: Any, canonical: Any) -> None:
    found = getattr(SamplingParams(**{name: value}), name)
    assert repr(found) == repr(canonical)


def test_positional_and_unknown_arguments_are_refused() -> None:
    with pytest.raises(TypeError):
        SamplingParams(0.5)  # type: ignore[misc]
    with pytest.raises(TypeError, match="best_of"):
        SamplingParams(best_of=2)  # type: ignore[call-arg]


def test_a_copy_is_independent_and_checked_again() -> None:
    params = SamplingParams(stop=["a"], logit_bias={1: 2.0}, stop_token_ids=[1])
    copy = params.copy()
    params.stop.append("b")  # type: ignore[union-attr]
    params.logit_bias[2] = 3.0  # type: ignore[index]
    assert copy.stop == ["a"] and copy.logit_bias == {1: 2.0}
    params.max_tokens = 0
    with pytest.raises(InvalidArgumentError, match="max_tokens: got 0; allowed: an integer from 1"):
        params.copy()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("logit_bias", {10: 1.0}),
        ("golden_token_ids", [3, 10]),
        ("stop_token_ids", [10]),
        ("eos_id", 10),
        ("top_logprobs", 11),
        ("logprobs", 11),
    ],
)
def test_ids_are_checked_against_the_vocabulary(name: str, value: Any) -> None:
    params = SamplingParams(**{name: value})
    params.validate_for_model(11)
    with pytest.raises(InvalidArgumentError, match=name):
        params.validate_for_model(10)


def test_more_golden_tokens_than_max_tokens_are_refused() -> None:
    SamplingParams(golden_token_ids=[1, 2], max_tokens=2)
    with pytest.raises(InvalidArgumentError, match="golden_token_ids.*at most max_tokens = 1"):
        SamplingParams(golden_token_ids=[1, 2], max_tokens=1)


def test_seeds() -> None:
    assert sample_seed(5, 3) == 8 and sample_seed(2**64 - 1, 1) == 0
    seeds = {fresh_seed() for _ in range(50)}
    assert len(seeds) == 50 and all(0 <= seed < 2**64 for seed in seeds)
