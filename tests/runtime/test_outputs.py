"""Outputs and batch errors as values: JSON, pickling, messages."""

from __future__ import annotations

import json
import pickle

from deepinfer.hal.errors import DeepInferError, InvalidArgumentError
from deepinfer.runtime.outputs import FinishReason, InvalidRequestsError, RequestFailedError, RequestOutput

UPSTREAM_FIELDS = {
    "request_id", "prompt_len", "token_id", "finish_reason", "finished", "max_num_batched_tokens", "token_logprobs",
    "nextn_logprobs", "sum_smaller_probs", "top_logprobs", "top_token_ids", "num_output_tokens", "prompt_logprobs",
    "draft_tok", "accept_tok", "confidence_score",
}  # fmt: skip


def test_upstream_names_are_there_and_values_are_plain() -> None:
    output = RequestOutput(request_id=1, token_id=5, top_logprobs=[-0.5], top_token_ids=[5])
    values = json.loads(json.dumps(output.to_dict()))
    assert set(values) >= UPSTREAM_FIELDS and values["top_logprobs"] == [-0.5]


def test_finish_reasons_are_upstreams_words() -> None:
    assert [str(reason) for reason in FinishReason] == [
        "stop", "length", "abort", "insufficient_system_resource", "error"
    ]  # fmt: skip


def test_an_invalid_batch_lists_every_prompt_in_order() -> None:
    error = InvalidRequestsError({2: InvalidArgumentError("n", 0, "1"), 0: InvalidArgumentError("top_k", 0, "-1")}, 3)
    assert isinstance(error, DeepInferError)
    assert str(error).splitlines() == [
        "2 of 3 requests are invalid, nothing was run",
        "prompt 0: top_k: got 0; allowed: -1",
        "prompt 2: n: got 0; allowed: 1",
    ]
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) and again.errors[2].parameter == "n"


def test_a_failed_batch_carries_the_results_of_the_others() -> None:
    error = RequestFailedError({1: "broken"}, ["text", ""])
    assert str(error) == "1 of 2 requests failed\nprompt 1: broken" and error.results[0] == "text"
    assert pickle.loads(pickle.dumps(error)).results == ["text", ""]
