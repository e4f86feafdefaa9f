"""Forks and preemption by way of the host over the embedded model: the bytes that the caches really hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from deepinfer import LLM, SamplingParams
from deepinfer.hal.errors import InvalidArgumentError
from deepinfer.runtime.args import EngineArgs

PARAMS = SamplingParams(max_tokens=10, ignore_eos=True, temperature=0.8, seq_seed=3)


def text(seed: int, count: int) -> list[int]:
    return [0, *np.random.default_rng(seed).integers(3, 400, size=count - 1).tolist()]


def bits(outputs: list[Any]) -> list[Any]:
    return [(o.token_id, o.token_logprobs, o.confidence_score, o.accepted) for o in outputs]


def test_host_memory_is_taken_and_used() -> None:
    prompts = [text(0, 124), text(1, 123)]
    options: dict[str, Any] = {"max_model_len": 250, "max_num_seqs": 2, "decode_sequence": False}
    options |= {"stop_preempted_request": False, "num_pages": 3}
    with LLM("tiny", host_memory_gib=0.02, **options) as llm:
        caches = llm.engine.executor.caches
        caches.pages.fill_(0x7F)
        caches.state.fill_(0x7F)
        found = llm.generate(prompt_token_ids=prompts, sampling_params=PARAMS, use_tqdm=False)
        assert llm.engine.stats.offloads == llm.engine.stats.preemptions > 0
        assert llm.engine.stats.prompt_tokens == 124 + 123, "nothing was computed again"
        alone = [llm.generate(prompt_token_ids=[one], sampling_params=PARAMS, use_tqdm=False)[0] for one in prompts]
        assert [bits(one) for one in found] == [bits(one) for one in alone]
        executor = llm.engine.executor
        assert executor.host is not None
    assert executor.host is None, "given back with the engine"


def test_samples_share_the_prompt() -> None:
    with LLM("tiny", max_model_len=250, max_num_seqs=4, decode_sequence=False) as llm:
        llm.engine.executor.caches.state.fill_(0x7F)
        params = PARAMS.copy()
        params.n = 3
        (found,) = llm.generate(prompt_token_ids=[text(2, 131)], sampling_params=params, use_tqdm=False)
        assert llm.engine.stats.prompt_tokens == 131 + 2 and llm.engine.stats.forked_tokens == 2 * 130
        for index, outputs in enumerate(found):
            one = PARAMS.copy()
            one.seq_seed = 3 + index
            (alone,) = llm.generate(prompt_token_ids=[text(2, 131)], sampling_params=one, use_tqdm=False)
            assert bits(outputs) == bits(alone)


def test_too_little_host_memory_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="host_memory_gib: got 1e-06; allowed: 0, or at least"):
        LLM("tiny", host_memory_gib=1e-6, max_model_len=250)
    with pytest.raises(InvalidArgumentError, match="host_memory_gib"):
        EngineArgs(host_memory_gib=-1)


def test_host_memory_that_nothing_would_use_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="host_memory_gib: got 0.5; allowed: 0, or stop_preempted_request=F"):
        EngineArgs(host_memory_gib=0.5, stop_preempted_request=True)
    assert EngineArgs(host_memory_gib=0.5, stop_preempted_request=False).host_memory_gib == 0.5
