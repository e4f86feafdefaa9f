"""`LLM` over a simulated engine: shapes of results, batch errors, streams."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from deepinfer.hal.errors import InvalidArgumentError, NotSupportedError
from deepinfer.runtime.llm import LLM
from deepinfer.runtime.outputs import InvalidRequestsError, RequestFailedError, RequestOutput
from deepinfer.runtime.params import SamplingParams

SEEDED = SamplingParams(max_tokens=4, ignore_eos=True, seq_seed=3)


class Bytes:
    """A tokenizer whose tokens are bytes, 2 in front."""

    def encode(self, text: str) -> list[int]:
        return [2, *text.encode()]


def build(make_engine: Any, **options: Any) -> LLM:
    decode = options.pop("decode_sequence", True)
    return LLM.from_engine(make_engine(vocab_size=128, **options), Bytes(), decode_sequence=decode)


def test_one_text_per_prompt_in_order(make_engine: Any) -> None:
    llm = build(make_engine)
    together = llm.generate(["abc", "x", "hello"], SEEDED, use_tqdm=False)
    assert together == [llm.generate(prompt, SEEDED, use_tqdm=False)[0] for prompt in ("abc", "x", "hello")]
    assert len(set(together)) == 3 and all(isinstance(text, str) for text in together)
    assert llm.generate([], SEEDED, use_tqdm=False) == []
    ids = [[2, *b"abc"], [2, *b"x"], [2, *b"hello"]]
    assert llm.generate(prompt_token_ids=ids, sampling_params=SEEDED, use_tqdm=False) == together
    for one in (ids[0], np.array(ids[0])):
        assert llm.generate(prompt_token_ids=one, sampling_params=SEEDED, use_tqdm=False) == together[:1]
    arrays = [np.array(one) for one in ids]
    assert llm.generate(prompt_token_ids=arrays, sampling_params=SEEDED, use_tqdm=False) == together


def test_without_decoding_a_list_of_outputs_per_prompt(make_engine: Any) -> None:
    llm = build(make_engine, decode_sequence=False)
    (outputs,) = llm.generate("abc", SEEDED, use_tqdm=False)
    assert [type(output) for output in outputs] == [RequestOutput] * 4
    assert [output.num_output_tokens for output in outputs] == [1, 2, 3, 4]
    assert {output.request_id for output in llm.generate("abc", SEEDED, use_tqdm=False)[0]} == {1}


def test_several_samples_make_a_list_of_entries(make_engine: Any) -> None:
    llm = build(make_engine)
    params = SEEDED.copy()
    params.n = 3
    samples, single = llm.generate(["abc", "abc"], [params, SEEDED], use_tqdm=False)
    assert len(samples) == 3 and samples[0] == single and len(set(samples)) == 3


def test_one_invalid_prompt_and_nothing_runs(make_engine: Any) -> None:
    llm = build(make_engine)
    bad = SEEDED.copy()
    bad.max_tokens = 0
    too_long = "x" * 63
    with pytest.raises(InvalidRequestsError) as caught:
        llm.generate(["fine", "", too_long, "bad", 5], [SEEDED, SEEDED, SEEDED, bad, SEEDED], use_tqdm=False)
    assert list(caught.value.errors) == [1, 2, 3, 4]
    assert [error.parameter for error in caught.value.errors.values()] == [
        "prompt", "prompt_token_ids", "max_tokens", "prompt"
    ]  # fmt: skip
    assert "prompt 2: prompt_token_ids: got '64 ids'; allowed: 1 to 63" in str(caught.value)
    assert llm.engine.stats.steps == 0 and not llm.engine.has_unfinished_requests()
    assert llm.generate("fine", SEEDED, use_tqdm=False)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({}, "prompts"),
        ({"prompts": ["a"], "prompt_token_ids": [[1], [2]]}, "prompt_token_ids"),
        ({"prompts": ["a", "b"], "sampling_params": [SEEDED]}, "sampling_params"),
        ({"prompts": ["a", "b"], "multi_modal_data": [None]}, "multi_modal_data"),
        ({"prompts": 5}, "prompts"),
        ({"prompts": b"ab"}, "prompts"),
        ({"prompts": {"a": "b"}}, "prompts"),
        ({"prompt_token_ids": 5}, "prompt_token_ids"),
        ({"prompt_token_ids": {1: 2}}, "prompt_token_ids"),
        ({"prompts": ["a"], "sampling_params": 5}, "sampling_params"),
        ({"prompts": ["a"], "multi_modal_data": 5}, "multi_modal_data"),
    ],
)
def test_mismatched_arguments_are_refused(make_engine: Any, arguments: dict[str, Any], name: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        build(make_engine).generate(**arguments, use_tqdm=False)
    assert caught.value.parameter == name


def test_images_are_refused_by_prompt_where_nothing_reads_them(make_engine: Any) -> None:
    images = [{"image_bytes": [], "image_sizes": []}, {"image_bytes": [b"x"], "image_sizes": [(1, 1)]}]
    with pytest.raises(InvalidRequestsError, match="prompt 1: .*image_bytes.*without an image reader"):
        build(make_engine).generate(["a", "b"], SEEDED, use_tqdm=False, multi_modal_data=images)


def test_a_request_that_fails_leaves_the_results_of_the_others(make_engine: Any) -> None:
    llm = build(make_engine)
    run = llm.engine.executor.run

    def fail(work: Any) -> Any:
        results = run(work)
        for item, result in zip(work, results, strict=True):
            if result.drawn is not None and item.request.tokens[1] == ord("b") and item.request.num_output_tokens == 2:
                result.drawn.valid = False
        return results

    expected = llm.generate(["abc", "bcd"], SEEDED, use_tqdm=False)
    llm.engine.executor.run = fail  # type: ignore[method-assign]
    with pytest.raises(RequestFailedError, match="1 of 2 requests failed\nprompt 1: .*not numbers") as caught:
        llm.generate(["abc", "bcd"], SEEDED, use_tqdm=False)
    assert caught.value.results[0] == expected[0]
    assert caught.value.results[1] == expected[1][:2]


def test_a_step_that_raises_aborts_the_batch_and_not_the_engine(make_engine: Any) -> None:
    llm = build(make_engine)
    expected = llm.generate("abc", SEEDED, use_tqdm=False)
    run = llm.engine.executor.run

    def interrupt(work: Any) -> Any:
        raise KeyboardInterrupt

    llm.engine.executor.run = interrupt  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        llm.generate(["abc", "x"], SEEDED, use_tqdm=False)
    assert llm.engine.get_num_unfinished_requests() == 0 and llm.engine.pages_in_use == 0
    llm.engine.executor.run = run  # type: ignore[method-assign]
    assert llm.generate("abc", SEEDED, use_tqdm=False) == expected


def test_a_stream_gives_outputs_one_by_one(make_engine: Any) -> None:
    llm = build(make_engine)
    stream = llm.stream("abc", SEEDED)
    steps = []
    texts = []
    for output in stream:
        steps.append(llm.engine.stats.steps)
        texts.append(output.text)
    assert steps == [1, 2, 3, 4]
    assert "".join(texts) == llm.generate("abc", SEEDED, use_tqdm=False)[0]


def test_leaving_a_stream_aborts_its_request(make_engine: Any) -> None:
    llm = build(make_engine)
    stream = llm.stream("abc", SEEDED)
    next(stream)
    assert llm.engine.pages_in_use == 1
    stream.close()  # type: ignore[attr-defined]
    assert llm.engine.get_num_unfinished_requests() == 0 and llm.engine.pages_in_use == 0
    llm.stream("abc", SEEDED)  # never started: nothing queued
    assert llm.engine.get_num_unfinished_requests() == 0


def test_interleaved_streams_do_not_steal_from_each_other(make_engine: Any) -> None:
    llm = build(make_engine)
    expected = [[o.token_id for o in llm.stream(prompt, SEEDED)] for prompt in ("abc", "xyz")]
    first, second = llm.stream("abc", SEEDED), llm.stream("xyz", SEEDED)
    tokens: list[list[int]] = [[], []]
    for _ in range(4):
        tokens[0].append(next(first).token_id)
        tokens[1].append(next(second).token_id)
    assert tokens == expected


def test_a_bad_stream_raises_at_once(make_engine: Any) -> None:
    llm = build(make_engine)
    with pytest.raises(InvalidArgumentError, match="prompt"):
        llm.stream("")
    with pytest.raises(InvalidArgumentError, match="prompts"):
        llm.stream()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"decode_sequence": 1}, InvalidArgumentError),
        ({"offline_inference": False}, InvalidArgumentError),
        ({"expert_parallel_size": 8}, NotSupportedError),
        ({"trust_remote_code": True}, NotSupportedError),
        ({"tensor_parallel_size": 1}, InvalidArgumentError),
    ],
)
def test_bad_constructor_arguments_fail_before_anything_is_loaded(
    arguments: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error, match=next(iter(arguments))):
        LLM("/nowhere", **arguments)


def test_an_llm_is_offline_whether_that_is_said_or_not() -> None:
    for arguments in ({}, {"offline_inference": True}):
        with pytest.raises(InvalidArgumentError, match="model: got '/nowhere'"):
            LLM("/nowhere", **arguments)


def test_progress_bar_counts_samples(make_engine: Any, capsys: pytest.CaptureFixture[str]) -> None:
    params = SEEDED.copy()
    params.n = 2
    build(make_engine).generate(["abc", "x"], params, use_tqdm=True)
    shown = capsys.readouterr()
    assert "4/4" in shown.err and "tokens/s" in shown.err and shown.out == ""
