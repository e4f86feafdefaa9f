"""The whole engine over the slice, for `slice.py`: how long the device has nothing to do between two steps, and what
the prefix cache is worth."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from deepinfer.hal.graph import GraphsUnavailable
from deepinfer.ops.layouts import PAGE_TOKENS
from deepinfer.runtime.bench.turns import MultiTurn, compare
from deepinfer.runtime.bench.workload import Lengths
from deepinfer.runtime.drafting import Speculation
from deepinfer.runtime.engine import EngineConfig, LLMEngine
from deepinfer.runtime.graphs import GraphSettings, Where
from deepinfer.runtime.loader import build_executor
from deepinfer.runtime.params import SamplingParams
from deepinfer.runtime.plan import Limits
from deepinfer.runtime.prefix import PrefixSettings
from deepinfer.runtime.sampler import SamplerConfig

if TYPE_CHECKING:
    from slice import Slice

PROMPT, WARM, STEPS = 16, 4, 12
CHUNK, TURNS, ROUNDS = 4096, 4, 2


def idle(made: Slice, batch: int, drafts: int) -> Iterator[dict[str, Any]]:
    """Decode steps of `batch` requests, with and without asynchronous scheduling where the engine has it.

    The device is idle for what a step takes beyond its graphs, replayed one behind the other. Prompts are short: what
    the host does for a step depends on the requests and their pages, not on how much of these is read.
    """
    known = "async_scheduling" in {field.name for field in fields(EngineConfig)}
    for ahead in (False, True) if known else (False,):
        options = {"async_scheduling": ahead} if known else {}
        yield {"async": ahead, **_run(made, batch, drafts, options)}


def turns(made: Slice, batch: int, context: int) -> Iterator[dict[str, Any]]:
    """Conversations of `TURNS` turns that end at `context` tokens, `batch` at a time, with answers of a page each; half
    of a conversation is what all begin with. See `deepinfer.runtime.bench.turns`.
    """
    answer = min(PAGE_TOKENS, context // 16)
    said = max(1, (context - context // 2) // TURNS - answer)
    lengths = (Lengths.parse(name, str(length)) for name, length in (("inputs", said), ("outputs", answer)))
    workload = MultiTurn(batch, TURNS, context // 2, *lengths, concurrency=batch, seed=7)
    slack = made.model.cache_layout.ring_slots - made.model.config.text.sliding_window
    pages = batch * -(-context // PAGE_TOKENS) + batch
    engine = _engine(
        made, 3 * batch, 0, pages=pages, longest=context, rows=CHUNK, requests=batch,
        prefix=PrefixSettings(slack, b"slice"), async_scheduling=True, slack=slack,
    )  # fmt: skip
    found = compare(engine, workload, rounds=ROUNDS)
    yield {"ratios": found["ratios"], "same_tokens": found["same_tokens"]}
    for kind in ("with_cache", "without_cache"):
        yield {"run": kind, **{name: value for name, value in found[kind].items() if name != "outcomes"}}
    runner = engine.executor.graphs  # type: ignore[attr-defined]
    engine.close()
    if runner is not None:
        runner.release()


def _engine(
    made: Slice, slots: int, drafts: int, *, pages: int, longest: int, rows: int, requests: int, **options: Any
) -> LLMEngine:
    found = Where.of(made.backend, made.device)
    where = None if isinstance(found, GraphsUnavailable) else found
    executor = build_executor(
        made.model, pages + 1, slots + 1, SamplerConfig(), Speculation(drafts),
        graphs=None if where is None else (where, GraphSettings()), streams=made.streams,
    )  # fmt: skip
    config = EngineConfig(
        vocab_size=made.model.config.text.vocab_size,
        eos_id=1,
        max_model_len=longest,
        limits=Limits(max_tokens=rows, max_requests=requests, page_tokens=PAGE_TOKENS, max_drafts=drafts),
        num_pages=pages,
        num_slots=slots,
        **options,
    )
    return LLMEngine(config, executor)


def _run(made: Slice, batch: int, drafts: int, options: dict[str, Any]) -> dict[str, Any]:
    engine = _engine(
        made, batch, drafts, pages=batch * 4, longest=min(512, made.model.max_model_len),
        rows=max(batch * (1 + drafts), PROMPT * batch), requests=batch, **options,
    )  # fmt: skip
    params = {"temperature": 0.8, "top_p": 0.95, "ignore_eos": True, "max_tokens": (WARM + STEPS) * (1 + drafts) + 8}
    for number in range(batch):
        engine.add_request(None, number, SamplingParams(seq_seed=number, **params), made.tokens(PROMPT))
    for _ in range(WARM):
        engine.step()
    made.streams.synchronize()
    began, said = time.perf_counter(), 0
    for _ in range(STEPS):
        said += len(engine.step())
    made.streams.synchronize()
    seconds = (time.perf_counter() - began) / STEPS
    told: dict[str, Any] = {"step_ms": seconds * 1e3, "tokens_per_second": said / STEPS / seconds}
    runner = engine.executor.graphs  # type: ignore[attr-defined]
    if runner is not None and runner.stats.steps:
        busy = made.seconds(runner.replay_last, 3)
        told |= {
            "device_ms": busy * 1e3,
            "idle_ms": (seconds - busy) * 1e3,
            "idle_part": 1 - busy / seconds,
            "graph_steps": runner.stats.steps,
            "graph_mb": runner.stats.nbytes / 1e6,
        }
    engine.close()
    if runner is not None:
        runner.release()
    return told
