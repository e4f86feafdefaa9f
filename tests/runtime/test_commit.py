"""What a token does: the end of a request, its text, log-probabilities."""

from __future__ import annotations

from deepinfer.runtime.params import SamplingParams
from engines import FREE, Faulty, alone, bits, build_engine, drain, tokens


def test_eos_ends_a_request_unless_ignored() -> None:
    golden = [9, 1, 8]
    params = SamplingParams(max_tokens=3, golden_token_ids=golden)
    outputs = alone([5], params)
    assert tokens(outputs) == [9, 1] and outputs[-1].finish_reason == "stop" and outputs[-1].stop_reason is None
    assert "".join(o.text for o in outputs) == "\t"  # the end token has no text
    params.ignore_eos = True
    assert tokens(alone([5], params)) == golden
    params.ignore_eos, params.eos_id = False, 9
    assert tokens(alone([5], params)) == [9]


def test_stop_token_ids() -> None:
    params = SamplingParams(max_tokens=5, golden_token_ids=[70, 71, 72], stop_token_ids=[71])
    outputs = alone([5], params)
    assert tokens(outputs) == [70, 71] and outputs[-1].stop_reason == 71
    assert "".join(o.text for o in outputs) == "F"


def test_stop_strings_over_token_borders() -> None:
    params = SamplingParams(max_tokens=6, golden_token_ids=list(b"xABCyz"), stop=["BC", "q"])
    outputs = alone([5], params, vocab_size=256)
    assert tokens(outputs) == list(b"xABC")
    assert [o.text for o in outputs] == ["x", "A", "", ""]
    assert (outputs[-1].finish_reason, outputs[-1].stop_reason) == ("stop", "BC")


def test_held_back_text_comes_with_the_last_token() -> None:
    params = SamplingParams(max_tokens=3, golden_token_ids=list(b"xAB"), stop=["ABC"])
    outputs = alone([5], params, vocab_size=256)
    assert [o.text for o in outputs] == ["x", "", "AB"] and outputs[-1].finish_reason == "length"


def test_text_never_holds_half_a_character() -> None:
    text = "a\u00e9\u4e2d"
    golden = list(text.encode())
    whole = SamplingParams(max_tokens=len(golden), golden_token_ids=golden)
    outputs = alone([5], whole, vocab_size=256)
    assert [o.text for o in outputs] == ["a", "", "\u00e9", "", "", "\u4e2d"]
    cut = SamplingParams(max_tokens=2, golden_token_ids=golden[:2])
    assert [o.text for o in alone([5], cut, vocab_size=256)] == ["a", "\ufffd"]


def test_the_length_limit_in_force_is_announced() -> None:
    params = SamplingParams(max_tokens=1000, **FREE)
    outputs = alone(list(range(60)), params)
    assert len(outputs) == 4 and {o.max_output_tokens for o in outputs} == {4}
    assert outputs[-1].finish_reason == "length"
    assert len(alone(list(range(63)), params)) == 1


def test_prompt_logprobs_come_once_whatever_the_chunks() -> None:
    prompt = [int(i * 7 % 97) for i in range(30)]
    params = SamplingParams(max_tokens=3, prompt_logprobs=True, **FREE)
    whole = alone(prompt, params, max_tokens=64)
    assert [len(o.prompt_logprobs) for o in whole] == [29, 0, 0]
    for size in (8, 11, 29, 30):
        assert bits(alone(prompt, params, max_tokens=size)) == bits(whole)
    assert alone([4], params)[0].prompt_logprobs == []


def test_logits_that_are_not_numbers_end_their_own_request_only() -> None:
    executor = Faulty(97, 64, 8, 4)
    executor.bad_first_token = 50
    engine = build_engine(executor=executor)
    params = SamplingParams(max_tokens=4, **FREE)
    engine.add_request(None, "bad", params, [50, 3])
    engine.add_request(None, "good", params, [4, 5])
    outputs = drain(engine)
    (bad,) = outputs[("bad", 0)]
    assert (bad.token_id, bad.finish_reason, bad.num_output_tokens) == (-1, "error", 0) and "not numbers" in bad.error
    assert tokens(outputs[("good", 0)]) == tokens(alone([4, 5], params))
