"""Engines over a model, with drafts or without."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deepinfer.runtime.drafting import Speculation
from deepinfer.runtime.engine import EngineConfig, LLMEngine
from deepinfer.runtime.loader import build_executor
from deepinfer.runtime.params import SamplingParams
from deepinfer.runtime.plan import Limits
from deepinfer.runtime.sampler import SamplerConfig
from engines import drain


def model_engine(
    model: Any,
    n: int,
    *,
    requests: int = 64,
    rows: int | None = None,
    pages: int | None = None,
    longest: int = 200,
    shared: bool = False,
    sampling: SamplerConfig | None = None,
    poison: int = 0x7F,
    graphs: Any = None,
    **options: Any,
) -> LLMEngine:
    """An engine with n drafts per step; its caches are poisoned, so that a byte nobody wrote shows."""
    rows = requests * 6 + 64 if rows is None else rows
    pages = 2 * requests if pages is None else pages
    executor = build_executor(
        model, pages + 1, requests + 1, sampling or SamplerConfig(), Speculation(n, shared), graphs=graphs
    )
    if executor.caches is not None:
        executor.caches.pages.fill_(poison)
        executor.caches.state.fill_(poison)
    config = EngineConfig(
        vocab_size=model.config.text.vocab_size, eos_id=1, max_model_len=longest, num_pages=pages, num_slots=requests,
        limits=Limits(max_tokens=rows, max_requests=requests, page_tokens=128, max_drafts=n), **options,
    )  # fmt: skip
    return LLMEngine(config, executor)


def say(made: LLMEngine, requests: Sequence[tuple[list[int], SamplingParams]]) -> list[list[Any]]:
    """Outputs of every sample, in order of request and sample."""
    for key, (prompt, params) in enumerate(requests):
        made.add_request(None, key, params, prompt)
    found = drain(made)
    return [found[key] for key in sorted(found)]
