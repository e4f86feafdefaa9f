"""The engine over the embedded model: batches, chunks, preemption and neighbours change no bit of any result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from deepinfer.hal.catalog import load_backend
from deepinfer.model.hub import resolve_model
from deepinfer.model.tokenizer import Tokenizer
from deepinfer.model.transformer import Model
from deepinfer.runtime.engine import EngineConfig, LLMEngine
from deepinfer.runtime.execute import ModelExecutor
from deepinfer.runtime.llm import LLM
from deepinfer.runtime.params import SamplingParams
from deepinfer.runtime.plan import Limits
from deepinfer.runtime.sampler import Sampler, SamplerConfig

LONGEST = 512


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    load_backend("reference")
    loaded = Model.load(resolve_model("tiny"), max_model_len=LONGEST)
    yield loaded
    loaded.close()


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.load(resolve_model("tiny"))


def engine(model: Model, tokenizer: Tokenizer | None = None, **options: Any) -> LLMEngine:
    """A small engine over the model; caches are poisoned so that a byte nobody wrote shows."""
    rows, requests = options.pop("rows", 512), options.pop("requests", 8)
    pages = options.pop("pages", 24)
    sampling = options.pop("sampling", SamplerConfig())
    caches = model.new_caches(pages + 1, requests + 1)
    caches.pages.fill_(0x7F)
    caches.state.fill_(0x7F)
    config = EngineConfig(
        vocab_size=model.config.text.vocab_size, eos_id=1, max_model_len=LONGEST, num_pages=pages, num_slots=requests,
        limits=Limits(max_tokens=rows, max_requests=requests, page_tokens=128), **options,
    )  # fmt: skip
    executor = ModelExecutor(model, caches, Sampler(config.vocab_size, sampling))
    return LLMEngine(config, executor, None if tokenizer is None else tokenizer.detokenizer)


def prompts() -> list[list[int]]:
    """Lengths around the window, the page and odd ones."""
    rng = np.random.default_rng(5)
    return [[0, *rng.integers(3, 400, size=n - 1).tolist()] for n in (127, 1, 160, 7)]


def params(j: int) -> SamplingParams:
    kinds: list[dict[str, Any]] = [
        {"temperature": 0},
        {"top_p": 0.9, "prompt_logprobs": True},
        {"temperature": 1.3, "repetition_penalty": 1.2, "frequency_penalty": 0.3, "prompt_logprobs": True},
        {"top_k": 20, "top_logprobs": 3, "logprobs": 2},
    ]
    return SamplingParams(max_tokens=5, ignore_eos=True, seq_seed=70 + j, **kinds[j])


def run(made: LLMEngine, order: Sequence[int]) -> dict[int, list[Any]]:
    texts = prompts()
    for j in order:
        made.add_request(None, j, params(j), texts[j])
    seen: dict[int, list[Any]] = {j: [] for j in order}
    while made.has_unfinished_requests():
        for o in made.step():
            row = (
                o.token_id, o.token_logprobs, o.raw_token_logprobs, o.top_token_ids, o.top_logprobs,
                o.raw_top_token_ids, o.raw_top_logprobs, o.prompt_logprobs, o.finish_reason,
            )  # fmt: skip
            seen[o.request_id].append(row)
    made.check_conservation()
    assert made.pages_in_use == 0
    return seen


@pytest.fixture(scope="module")
def alone(model: Model) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    for j in range(4):
        found |= run(engine(model), [j])
    assert [len(found[j]) for j in range(4)] == [5] * 4
    assert [len(found[j][0][7]) for j in range(4)] == [0, 0, 159, 0]
    return found


def test_batched_equals_alone_in_every_bit(model: Model, alone: dict[int, list[Any]]) -> None:
    assert run(engine(model), [0, 1, 2, 3]) == alone
    assert run(engine(model), [3, 2, 0, 1]) == alone


def test_chunk_sizes_change_no_bit(model: Model, alone: dict[int, list[Any]]) -> None:
    for rows in (47, 128):
        made = engine(model, rows=rows, requests=4)
        assert run(made, [2, 0, 3, 1]) == alone
        assert made.stats.steps > 5


def test_preemption_changes_no_bit(model: Model, alone: dict[int, list[Any]]) -> None:
    # 127 + 5 tokens outgrow their page while the others hold the rest
    made = engine(model, pages=4)
    assert run(made, [0, 1, 2, 3]) == alone
    assert made.stats.preemptions == 1


def test_a_neighbour_that_prefills_or_is_aborted_changes_no_bit(model: Model, alone: dict[int, list[Any]]) -> None:
    made = engine(model, rows=64)
    texts = prompts()
    made.add_request(None, 3, params(3), texts[3])
    outputs = list(made.step())
    long = SamplingParams(max_tokens=50, ignore_eos=True)
    made.add_request(None, "neighbour", long, [0, *range(3, 300)])
    outputs += made.step() + made.step()
    made.abort_request("neighbour")
    while made.has_unfinished_requests():
        outputs += made.step()
    own = [o for o in outputs if o.request_id == 3]
    assert [(o.token_id, o.token_logprobs) for o in own] == [row[:2] for row in alone[3]]
    assert made.pages_in_use == 0


def test_a_neighbour_that_fails_changes_no_bit(model: Model, alone: dict[int, list[Any]]) -> None:
    """The step is thrown away after the forward has written its cache entries."""
    made = engine(model, rows=64)
    run_rows = made.executor.run

    def fail(work: Any) -> Any:
        results = run_rows(work)
        if any(w.request.request_id == "bad" and w.request.num_output_tokens == 2 for w in work):
            raise ValueError("the third token")
        return results

    made.executor.run = fail  # type: ignore[method-assign]
    for j in (3, 1):
        made.add_request(None, j, params(j), prompts()[j])
    made.add_request(None, "bad", SamplingParams(max_tokens=50, ignore_eos=True), [0, *range(3, 90)])
    seen: dict[Any, list[Any]] = {}
    while made.has_unfinished_requests():
        for o in made.step():
            seen.setdefault(o.request_id, []).append(o)
    assert [o.finish_reason for o in seen["bad"]] == [None, None, "error"]
    for j in (3, 1):
        assert [(o.token_id, o.token_logprobs) for o in seen[j]] == [row[:2] for row in alone[j]]
    assert made.pages_in_use == 0


def test_many_identical_rows_have_identical_bits(model: Model, alone: dict[int, list[Any]]) -> None:
    # row counts at which a tile choice by batch size would change
    for count in (44, 45):
        made = engine(model, pages=count, requests=count)
        for j in range(count):
            made.add_request(None, j, params(1), prompts()[1])
        for step in range(2):
            (row,) = {(o.token_id, o.token_logprobs) for o in made.step()}
            assert row == alone[1][step][:2]
        made.close()


def test_samples_of_one_request_are_requests_with_following_seeds(model: Model) -> None:
    made = engine(model)
    base = SamplingParams(max_tokens=6, ignore_eos=True, seq_seed=2**64 - 1, temperature=2.0)
    many = base.copy()
    many.n = 3
    made.add_request(None, "many", many, [0, 50, 60])
    for j, seed in enumerate((2**64 - 1, 0, 1)):
        base.seq_seed = seed
        made.add_request(None, j, base, [0, 50, 60])
    tokens: dict[Any, list[int]] = {}
    while made.has_unfinished_requests():
        for o in made.step():
            key = o.sample_index if o.request_id == "many" else ("alone", o.request_id)
            tokens.setdefault(key, []).append(o.token_id)
    assert all(tokens[j] == tokens["alone", j] for j in range(3))
    assert len({tuple(tokens[j]) for j in range(3)}) == 3


def test_engine_wide_settings_reach_the_rows(model: Model) -> None:
    sampling = SamplerConfig(blacklist=(range(100),), force_top_k=3, sum_smaller=True)
    made = engine(model, sampling=sampling)
    made.add_request(None, 0, SamplingParams(max_tokens=8, temperature=5.0, seq_seed=1, top_logprobs=3), [0, 50])
    outputs = [o for _ in range(8) for o in made.step()]
    assert len(outputs) == 8
    assert all(o.token_id >= 100 and o.token_id in o.top_token_ids for o in outputs)
    assert all(0 <= o.sum_smaller_probs < 1 for o in outputs)


def test_text_and_stop_strings_of_the_real_tokenizer(model: Model, tokenizer: Tokenizer) -> None:
    text = "a caf\u00e9 \u4e2d \U0001f600!"
    golden = tokenizer.encode(text, bos=False)
    llm = LLM.from_engine(engine(model, tokenizer), tokenizer)
    whole = SamplingParams(max_tokens=len(golden), golden_token_ids=golden, ignore_eos=True)
    pieces = [o.text for o in llm.stream("x", whole)]
    assert "".join(pieces) == text and not any("\ufffd" in piece for piece in pieces)
    whole.stop = ["\u4e2d "]
    pieces = [o.text for o in llm.stream("x", whole)]
    assert "".join(pieces) == text.split("\u4e2d")[0]
