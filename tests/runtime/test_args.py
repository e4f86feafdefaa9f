"""Engine arguments: checked, refused by name, never ignored."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from deepinfer.hal.errors import InvalidArgumentError, NotSupportedError
from deepinfer.runtime.args import REFUSED, EngineArgs

BAD: dict[str, list[Any]] = {
    "model": ["", 5],
    "tokenizer": ["", 5],
    "revision": ["", 5],
    "tokenizer_revision": ["", 5],
    "device": ["", 0],
    "backend": ["", 0],
    "trace": ["", 0],
    "step_seconds": [0, -1.0, "1", 3601, 0.5],
    "load_format": ["gguf", None],
    "engram_storage": ["disk", None],
    "yoco_prefill_truncation_mode": ["on", "", 1, True],
    "yoco_prefill_keep_tokens": [-1, 140.0, "140", True],
    "seed": [-1, 2**64, 1.5, True],
    "max_model_len": [0, 1, -5, 4096.0, True],
    "gpu_memory_utilization": [0, -0.1, 1.01, float("nan"), None, True],
    "max_num_batched_tokens": [0, 255, 1.5],
    "max_num_seqs": [0, -1, 1.5, None, True],
    "disable_log_stats": [1, None],
    "stop_preempted_request": [0, None],
    "chunked_prefill": [1, None],
    "drafter_invariant": [1, None],
    "enable_prefix_caching": [1, None],
    "async_scheduling": [1, 0, "on"],
    "cpu_binding": [None, True, "numa", ""],
    "engine_type": ["DECODE", 3, -1, None, True, np.array([0, 1])],
    "tokens_per_block": [0, 64, 256, None, 128.0, np.array([1, 2])],
    "num_pages": [0, -1, 1.5],
    "prefix_replay_tokens": [0, 64, 130, -128, 128.0, True, 128],
    "host_memory_gib": [-1, float("nan"), "1", None, True, 1 << 21, 1],
    "image_workers": [-1, 65, 1.0, None, True],
    "metrics_port": [-1, 65536, 80.0, "80", True],
    "timeline": ["", 0],
}
UNSUPPORTED: dict[str, list[Any]] = {
    "served_model_name": ["mine", None, np.array(["a", "b"])],
    "trust_remote_code": [True, None, 0],
    "data_parallel_size": [2, -1],
    "context_parallel_size": [2, 0],
    "expert_parallel_size": [8, 0, True],
    "engram_parallel_size": [2],
    "engine_rank": [1],
    "engine_group_rank": [1],
    "ignore_len": [0, 1024],
    "lookahead_tokens": [16],
    "engine_type": ["PROMPT", "COMPLETION", 1, 2],
    "offline_inference": [True, 0, None],
}


def test_every_argument_has_cases() -> None:
    names = {field.name for field in dataclasses.fields(EngineArgs)}
    assert set(BAD) | set(UNSUPPORTED) == names
    assert set(REFUSED) | {"engine_type"} == set(UNSUPPORTED)


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_bad_values_name_the_argument(name: str, value: Any) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        EngineArgs(**{name: value})
    assert caught.value.parameter == name and caught.value.allowed


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in UNSUPPORTED.items() for value in values])
def test_unsupported_values_say_what_brings_them(name: str, value: Any) -> None:
    with pytest.raises(NotSupportedError, match=name) as caught:
        EngineArgs(**{name: value})
    assert caught.value.brought_by


def test_a_value_without_a_text_is_refused_like_others() -> None:
    with pytest.raises(NotSupportedError, match="served_model_name=<int whose repr"):
        EngineArgs(served_model_name=10**5000)  # type: ignore[arg-type]


def test_upstream_defaults_are_accepted_when_spelled_out() -> None:
    EngineArgs(
        served_model_name="deepinfer-model", trust_remote_code=False, load_format="auto", seed=0, max_model_len=None,
        data_parallel_size=0, context_parallel_size=1, expert_parallel_size=1, engram_parallel_size=0, engine_rank=0,
        engine_group_rank=0, gpu_memory_utilization=0.9, max_num_batched_tokens=None, max_num_seqs=256,
        ignore_len=128 << 20, disable_log_stats=False, stop_preempted_request=True, engine_type=0,
        chunked_prefill=False, tokens_per_block=128, lookahead_tokens=0, offline_inference=False,
    )  # fmt: skip


def test_an_unknown_argument_lists_the_known_ones() -> None:
    with pytest.raises(InvalidArgumentError, match="tensor_parallel_size.*max_num_seqs"):
        EngineArgs.from_keywords({"tensor_parallel_size": 2})


def test_max_model_len() -> None:
    assert EngineArgs().resolve_max_model_len(1 << 20) == 4096
    assert EngineArgs().resolve_max_model_len(1000) == 1000
    assert EngineArgs(max_model_len=1000).resolve_max_model_len(1000) == 1000
    with pytest.raises(InvalidArgumentError, match="max_model_len: got 1001.*to 1000"):
        EngineArgs(max_model_len=1001).resolve_max_model_len(1000)


def test_rows_of_a_step() -> None:
    assert EngineArgs().limits(4096).max_tokens == 4096
    assert EngineArgs().limits(10_000).max_tokens == 10_000
    assert EngineArgs(max_num_seqs=5000).limits(64).max_tokens == 5000
    assert EngineArgs(max_num_batched_tokens=300).limits(300).max_tokens == 300
    with pytest.raises(InvalidArgumentError, match="max_num_batched_tokens: got 300.*max_model_len = 301"):
        EngineArgs(max_num_batched_tokens=300).limits(301)
    limits = EngineArgs(max_num_batched_tokens=300, chunked_prefill=True, max_num_seqs=2).limits(301)
    assert (limits.max_tokens, limits.max_requests, limits.page_tokens) == (300, 2, 128) and limits.chunked_prefill


def test_the_cap_on_summed_lengths_holds_the_longest_prompt() -> None:
    assert EngineArgs().limits(64, 64).max_sum_context == 64
    with pytest.raises(InvalidArgumentError, match="DEEPINFER_PREFILL_MAX_SUM_SEQLEN_K: got 63.*max_model_len = 64"):
        EngineArgs().limits(64, 63)


def test_the_pool_must_hold_one_longest_request() -> None:
    assert EngineArgs(num_pages=3).check_pages(3, 384) == 3
    with pytest.raises(InvalidArgumentError, match="num_pages: got 3; allowed: at least 4.*max_model_len = 385"):
        EngineArgs(num_pages=3).check_pages(3, 385)
    with pytest.raises(InvalidArgumentError, match="max_model_len: got 385; allowed: at most 384"):
        EngineArgs().check_pages(3, 385)
