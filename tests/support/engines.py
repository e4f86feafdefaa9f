"""Small engines over the simulated executor, shared by the tests of the runtime."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence
from typing import Any

from deepinfer.runtime.engine import EngineConfig, LLMEngine
from deepinfer.runtime.execute import Result, Work
from deepinfer.runtime.params import SamplingParams
from deepinfer.runtime.plan import Limits
from deepinfer.runtime.simulate import SimulatedExecutor

VOCAB = 97
FREE = {"ignore_eos": True, "seq_seed": 3}


class Letters:
    """A detokenizer whose token t is one byte; tokens above 0x7f spread characters over several tokens."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token: int) -> str:
        return self._decoder.decode(bytes([token]))

    def finish(self) -> str:
        return self._decoder.decode(b"", final=True)


class Faulty(SimulatedExecutor):
    """Raises in the calls listed and wherever `fault` returns an error; marks rows of one prompt as invalid."""

    bad_first_token = -1
    raise_at: Sequence[int] = ()
    fault: Callable[[Sequence[Work]], BaseException | None] | None = None

    def run(self, work: Sequence[Work]) -> list[Result]:
        results = super().run(work)
        error = None if self.fault is None else self.fault(work)
        if error is not None:
            raise error
        if self.steps in self.raise_at:
            raise RuntimeError(f"fault in step {self.steps}")
        for item, result in zip(work, results, strict=True):
            if result.drawn is not None and item.request.tokens[0] == self.bad_first_token:
                result.drawn.valid = False
        return results


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
        "max_drafts": 0,
        "step_seconds": None,
        "least_chunk": 128,
        "slack": options.get("max_drafts", 0) + 1,
    } | options
    limits = Limits(
        **{
            name: values.pop(name)
            for name in (
                "max_tokens",
                "max_requests",
                "page_tokens",
                "chunked_prefill",
                "max_sum_context",
                "max_drafts",
                "step_seconds",
                "least_chunk",
            )
        }
    )
    executor = values.pop("executor", None) or SimulatedExecutor(
        values["vocab_size"],
        values["num_pages"],
        values["num_slots"],
        limits.page_tokens,
        slack=max(values["prefix"].slack if values.get("prefix") else 0, values["slack"]),
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


def alone(prompt: list[int], params: SamplingParams, **options: Any) -> list[Any]:
    """Outputs of a request that has an engine to itself."""
    engine = build_engine(**options)
    engine.add_request(None, 0, params, prompt)
    outputs: list[Any] = drain(engine)[(0, 0)]
    return outputs


def tokens(outputs: Sequence[Any]) -> list[int]:
    return [output.token_id for output in outputs if output.token_id >= 0]


def bits(outputs: Sequence[Any]) -> list[Any]:
    return [(o.token_id, o.token_logprobs, o.finish_reason, o.prompt_logprobs, o.text) for o in outputs]
