"""Engines over the simulated executor, shared by the tests of the runtime."""

from __future__ import annotations

from typing import Any

import pytest

from deepinfer.runtime.engine import EngineConfig, LLMEngine
from deepinfer.runtime.planner import Limits
from deepinfer.runtime.simulate import SimulatedExecutor

VOCAB = 97


class Letters:
    """A detokenizer whose token t is one byte; tokens above 0x7f spread characters over several tokens."""

    def __init__(self) -> None:
        import codecs

        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token: int) -> str:
        return self._decoder.decode(bytes([token]))

    def finish(self) -> str:
        return self._decoder.decode(b"", final=True)


def build_engine(**options: Any) -> LLMEngine:
    """A small engine; options override the defaults below."""
    values: dict[str, Any] = {
        "vocab_size": VOCAB,
        "eos_id": 1,
        "max_model_len": 64,
        "num_pages": 64,
        "num_slots": 8,
        "max_tokens": 16,
        "max_requests": 8,
        "page_tokens": 4,
        "chunked_prefill": True,
        "max_sum_context": None,
    } | options
    limits = Limits(
        **{
            name: values.pop(name)
            for name in ("max_tokens", "max_requests", "page_tokens", "chunked_prefill", "max_sum_context")
        }
    )
    executor = values.pop("executor", None) or SimulatedExecutor(
        values["vocab_size"], values["num_pages"], values["num_slots"], limits.page_tokens
    )
    decoder = values.pop("decoder", Letters)
    return LLMEngine(EngineConfig(limits=limits, **values), executor, decoder)


def drain(engine: LLMEngine, limit: int = 10_000) -> dict[Any, list[Any]]:
    """Step until nothing is left; outputs by (request id, sample)."""
    outputs: dict[Any, list[Any]] = {}
    while engine.has_unfinished_requests():
        limit -= 1
        assert limit > 0, "the engine makes no progress"
        for output in engine.step():
            outputs.setdefault((output.request_id, output.sample_index), []).append(output)
    engine.check_conservation()
    assert engine.pages_in_use == 0
    return outputs


@pytest.fixture
def make_engine() -> Any:
    return build_engine


@pytest.fixture
def run_dry() -> Any:
    return drain
