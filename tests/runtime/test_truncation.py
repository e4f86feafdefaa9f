"""Bounded replay in the engine: settings, refusals, and results that no schedule changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from deepinfer.hal import env
from deepinfer.hal.catalog import load_backend
from deepinfer.hal.device import Device
from deepinfer.hal.errors import InvalidArgumentError, NotSupportedError
from deepinfer.model.hub import resolve_model
from deepinfer.model.transformer import Model
from deepinfer.model.truncation import Truncation
from deepinfer.ops.counting import OpCounts, counting
from deepinfer.runtime import loader
from deepinfer.runtime.args import EngineArgs
from deepinfer.runtime.engine import LLMEngine
from deepinfer.runtime.params import SamplingParams
from deepinfer.runtime.truncation import resolve_truncation

MODE, KEEP = "YOCO_PREFILL_TRUNCATION_MODE", "YOCO_PREFILL_KEEP_TOKENS"
PROMPT = 75


@pytest.fixture
def setting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Sets DEEPINFER variables for one test."""

    def put(**values: str) -> None:
        for name, text in values.items():
            monkeypatch.setenv(f"DEEPINFER_{name}", text)
        env.rearm()

    put(USE_NEXTN_DECODE="0")
    yield put
    monkeypatch.undo()
    env.rearm()


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    load_backend("reference")
    loaded = Model.load(resolve_model("tiny"), max_model_len=256)
    yield loaded
    loaded.close()


def build(model: Model, **arguments: Any) -> LLMEngine:
    """An engine over the model; what nobody wrote is poison."""
    args = EngineArgs(**({"max_num_seqs": 4, "num_pages": 8, "disable_log_stats": True} | arguments))
    assert model.path is not None
    made = loader._build(args, model.path, model, load_backend("reference"), Device("cpu")).engine
    made._on_close = None  # the model outlives it
    made.executor.caches.state.fill_(0x7F)  # type: ignore[attr-defined]
    made.executor.caches.pages.fill_(0x7F)  # type: ignore[attr-defined]
    return made


def prompt(seed: int, length: int = PROMPT) -> list[int]:
    return np.random.default_rng(seed).integers(3, 400, length).tolist()


def run(made: LLMEngine, *prompts: list[int], tokens: int = 4) -> list[list[tuple[int, float]]]:
    """Tokens and log-probabilities of every prompt."""
    for j, ids in enumerate(prompts):
        made.add_request(None, j, SamplingParams(max_tokens=tokens, ignore_eos=True, seq_seed=j), ids)
    seen: list[list[tuple[int, float]]] = [[] for _ in prompts]
    while made.has_unfinished_requests():
        for output in made.step():
            seen[output.request_id].append((output.token_id, output.token_logprobs))
    made.check_conservation()
    return seen


def first_step(made: LLMEngine) -> OpCounts:
    made.add_request(None, 0, SamplingParams(max_tokens=1), prompt(1))
    with counting() as counts:
        made.step()
        made.flush_inflight_reqs()
    assert not made.has_unfinished_requests()
    return counts


# ---- settings


def test_off_is_the_default(setting: Any, model: Model) -> None:
    made = build(model)
    assert made.config.truncation == Truncation("off", 0)
    assert first_step(made).rows["sparse_attention"] == [PROMPT] * 10


def test_the_variables_choose_what_is_computed(setting: Any, model: Model) -> None:
    setting(**{MODE: "compact", KEEP: "30"})
    compact = first_step(build(model))
    # Six producer layers compute the prompt, four consumer layers what is kept of it.
    assert compact.rows["sparse_attention"] == [PROMPT] * 6 + [30] * 4
    # All rows owe entries to every source: two of ratio 2, and the first consumer layer.
    assert compact.rows["compressed_store"] == [PROMPT] * 3 == compact.rows["index_key_store"]
    setting(**{MODE: "mask"})
    mask = first_step(build(model))
    assert mask.rows["sparse_attention"] == [PROMPT] * 10
    setting(**{MODE: "off"})
    off = first_step(build(model))
    assert all(off.rows[op] == rows for op, rows in mask.rows.items()) and compact.total_flops < 0.85 * off.total_flops


def test_arguments_beat_the_environment(setting: Any, model: Model) -> None:
    setting(**{MODE: "mask", KEEP: "3"})
    made = build(model, yoco_prefill_truncation_mode="compact", yoco_prefill_keep_tokens=24)
    assert made.config.truncation == Truncation("compact", 24)
    assert first_step(made).rows["sparse_attention"] == [PROMPT] * 6 + [24] * 4
    assert build(model, yoco_prefill_truncation_mode="off").config.truncation.mode == "off"


def test_too_few_kept_tokens_are_refused_by_the_name_that_was_used(setting: Any, model: Model) -> None:
    def resolve(**arguments: Any) -> Truncation:
        return resolve_truncation(EngineArgs(**arguments), model.topology, model.cache_layout.ring_slots)

    setting(**{MODE: "mask", KEEP: "21"})
    with pytest.raises(
        InvalidArgumentError, match=f"DEEPINFER_{KEEP}: got 21; allowed: at least 22, .*DEEPINFER_{MODE} is mask"
    ):
        build(model)
    with pytest.raises(InvalidArgumentError, match="yoco_prefill_keep_tokens: got 0; .*at least 22"):
        resolve(yoco_prefill_keep_tokens=0)
    assert resolve(yoco_prefill_keep_tokens=22) == Truncation("mask", 22)
    setting(**{MODE: "off"})
    assert not resolve().on, "while off, the number has no meaning"
    setting(**{MODE: "yes"})
    with pytest.raises(InvalidArgumentError, match=f"DEEPINFER_{MODE}.*off, mask, compact"):
        resolve()


def test_settings_are_refused_before_the_weights_are_read(setting: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Model, "load", classmethod(lambda *a, **k: pytest.fail("the weights were read")))
    setting(**{MODE: "compact"})
    with pytest.raises(InvalidArgumentError, match=f"DEEPINFER_{KEEP}: got 0"):
        LLMEngine.from_engine_args(EngineArgs(model="tiny"))


@pytest.mark.parametrize("mode", ["mask", "compact"])
def test_batch_invariance_asked_for_by_name_excludes_truncation(setting: Any, model: Model, mode: str) -> None:
    setting(**{MODE: mode, KEEP: "22", "BATCH_INVARIANT": "1"})
    with pytest.raises(NotSupportedError, match=f"DEEPINFER_{MODE}={mode} with DEEPINFER_BATCH_INVARIANT=1"):
        build(model)
    setting(**{MODE: "off"})
    assert not build(model).config.truncation.on
    setting(**{MODE: mode, "BATCH_INVARIANT": "0"})
    assert build(model).config.truncation.on


def test_prompt_logprobs_of_truncated_prompts_are_refused_before_they_are_queued(setting: Any, model: Model) -> None:
    wanted = SamplingParams(max_tokens=1, prompt_logprobs=True)
    for mode in ("mask", "compact"):
        made = build(model, yoco_prefill_truncation_mode=mode, yoco_prefill_keep_tokens=22)
        with pytest.raises(NotSupportedError, match=f"prompt_logprobs=True.*truncated.*={mode}"):
            made.add_request(None, 0, wanted, prompt(1))
        assert not made.has_unfinished_requests()
    build(model).add_request(None, 0, wanted, prompt(1))


# ---- results


@pytest.fixture(scope="module")
def truncated(model: Model) -> list[list[tuple[int, float]]]:
    """Each prompt alone, in one step, mode mask."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DEEPINFER_USE_NEXTN_DECODE", "0")
        env.rearm()
        options = {"yoco_prefill_truncation_mode": "mask", "yoco_prefill_keep_tokens": 22}
        found = [run(build(model, **options), ids)[0] for ids in (prompt(1), prompt(2, 126))]
    env.rearm()
    return found


def test_modes_chunks_and_neighbours_give_the_same_bits(setting: Any, model: Model, truncated: Any) -> None:
    options = {"yoco_prefill_truncation_mode": "compact", "yoco_prefill_keep_tokens": 22}
    made = build(model, chunked_prefill=True, max_num_batched_tokens=37, **options)
    # Other seeds for other places: the second prompt alone had seed 0.
    got = run(made, prompt(1))
    assert got[0] == truncated[0] and made.stats.steps == 3 + 3
    assert run(build(model), prompt(1)) != [truncated[0]], "the exact model draws from other logits"


def test_preemption_changes_no_bit(setting: Any, model: Model, truncated: Any) -> None:
    """The text that is computed again is cut where the prompt was, not where the text ends."""
    options = {"yoco_prefill_truncation_mode": "compact", "yoco_prefill_keep_tokens": 22}
    made = build(model, num_pages=2, stop_preempted_request=False, max_num_seqs=2, **options)
    ids = [prompt(2, 126), prompt(3, 126)]
    alone = [run(build(model, **options), one, tokens=6)[0] for one in (ids[0],)]
    got = run(made, ids[0], ids[1], tokens=6)
    assert made.stats.preemptions > 0
    assert got[0] == alone[0] and got[0][:4] == truncated[1]
    again = run(build(model, **options), prompt(9, 3), ids[1], tokens=6)
    assert got[1] == again[1]


def test_drafts_over_truncated_prompts_change_no_token(setting: Any, model: Model, truncated: Any) -> None:
    setting(USE_NEXTN_DECODE="5")
    options = {"yoco_prefill_truncation_mode": "compact", "yoco_prefill_keep_tokens": 22, "drafter_invariant": True}
    made = build(model, chunked_prefill=True, max_num_batched_tokens=40, max_num_seqs=2, **options)
    assert [token for token, _ in run(made, prompt(1))[0]] == [token for token, _ in truncated[0]]
    assert made.stats.steps >= 2 and made.executor.drafter is not None  # type: ignore[attr-defined]


def test_windows_of_truncated_prompts_are_not_begun_anew(setting: Any, model: Model) -> None:
    setting(**{MODE: "mask", KEEP: "24"})
    with pytest.raises(NotSupportedError, match=r"prefix_replay_tokens=128 with truncated prompts \(mask\)"):
        build(model, enable_prefix_caching=True, prefix_replay_tokens=128)
