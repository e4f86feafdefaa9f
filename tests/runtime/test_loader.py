"""From arguments and environment to an engine: what acts, what is refused before anything is loaded."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from deepinfer.hal import env, world
from deepinfer.hal.catalog import load_backend
from deepinfer.hal.comm import Group
from deepinfer.hal.device import Device, pci_address
from deepinfer.hal.env_table import VARIABLES
from deepinfer.hal.errors import BackendError, DeepInferError, InvalidArgumentError, NotSupportedError
from deepinfer.hal.stream import Streams
from deepinfer.model.hub import resolve_model
from deepinfer.model.transformer import Memory, Model
from deepinfer.runtime import loader
from deepinfer.runtime.args import EngineArgs
from deepinfer.runtime.drafting import Speculation
from deepinfer.runtime.engine import LLMEngine
from deepinfer.runtime.llm import LLM
from deepinfer.runtime.params import SamplingParams
from deepinfer.runtime.plan import Limits


@pytest.fixture
def setting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Sets DEEPINFER variables for one test."""

    def put(**values: str) -> None:
        for name, text in values.items():
            monkeypatch.setenv(f"DEEPINFER_{name}", text)
        env.rearm()

    yield put
    monkeypatch.undo()
    env.rearm()


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    load_backend("reference")
    loaded = Model.load(resolve_model("tiny"), max_model_len=256)
    yield loaded
    loaded.close()


def build(model: Model, **arguments: Any) -> loader.LoadedEngine:
    """What `load_engine` does after the weights are there."""
    args = EngineArgs(**({"max_num_seqs": 4, "num_pages": 8} | arguments))
    assert model.path is not None
    return loader._build(args, model.path, model, load_backend("reference"), Device("cpu"))


class Loaded(Exception):
    """Stops a load once the options of the model are known."""


@pytest.fixture
def options(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Options with which a model would be loaded; nothing is read."""

    def load(cls: Any, path: Path, **given: Any) -> None:
        raise Loaded({"path": path, **given})

    monkeypatch.setattr(Model, "load", classmethod(load))

    def ask(**arguments: Any) -> dict[str, Any]:
        with pytest.raises(Loaded) as caught:
            LLMEngine.from_engine_args(EngineArgs(**arguments))
        found: dict[str, Any] = caught.value.args[0]
        return found

    return ask


# ---- environment


def a_refused_text(name: str) -> str:
    """A text that parses and that the variable does not accept."""
    variable = VARIABLES[name]
    for text in ("1", "2", "3", "0", "off", "mask", "error", "0.5", "/tmp/x"):
        try:
            value = variable.parse(text)
        except InvalidArgumentError:
            continue
        if value is not None and value not in variable.accepts:
            return text
    raise AssertionError(f"no text for {name}")


PLANNED = [name for name, v in VARIABLES.items() if v.brought_by is not None and len(v.accepts) < 2]


@pytest.mark.parametrize("name", PLANNED)
def test_planned_variables_are_refused_by_name(setting: Any, options: Any, name: str) -> None:
    setting(**{name.removeprefix("DEEPINFER_"): a_refused_text(name)})
    with pytest.raises(NotSupportedError, match=name) as caught:
        LLMEngine.from_engine_args(EngineArgs())
    assert VARIABLES[name].brought_by in caught.value.brought_by  # type: ignore[operator]


def test_every_planned_variable_has_a_refused_value() -> None:
    rest = {name for name, v in VARIABLES.items() if v.brought_by is not None} - set(PLANNED)
    assert not rest


def test_the_draft_length_comes_from_the_environment(setting: Any, options: Any, model: Model) -> None:
    assert (options()["max_draft"], options()["backtrack"]) == (5, 6)
    assert build(model).engine.config.limits.max_drafts == 5
    setting(USE_NEXTN_DECODE="2")
    assert (options()["max_draft"], options()["backtrack"]) == (2, 3)
    assert build(model).engine.config.limits.max_drafts == 2
    setting(USE_NEXTN_DECODE="0")
    assert (options()["max_draft"], options()["backtrack"]) == (0, 1)
    executor = build(model).engine.executor
    assert executor.drafter is None  # type: ignore[attr-defined]
    for text in ("-1", "33", "many"):
        setting(USE_NEXTN_DECODE=text)
        with pytest.raises(InvalidArgumentError, match="DEEPINFER_USE_NEXTN_DECODE.*0 to 32"):
            LLM("tiny")


def test_more_history_can_be_kept_than_drafts_need(setting: Any, options: Any) -> None:
    setting(MAX_BACKTRACKING_TOKENS="9")
    assert options()["backtrack"] == 9
    setting(MAX_BACKTRACKING_TOKENS="2")
    assert options()["backtrack"] == 6


def test_steps_hold_the_drafts_of_all_requests(setting: Any, options: Any) -> None:
    wanted = r"max_num_batched_tokens.* 1535.*max_num_seqs \* \(1 \+ DEEPINFER_USE_NEXTN_DECODE\) = 1536"
    with pytest.raises(InvalidArgumentError, match=wanted):
        LLMEngine.from_engine_args(EngineArgs(max_num_batched_tokens=1535, chunked_prefill=True))
    assert options(max_num_batched_tokens=1536, chunked_prefill=True)
    setting(USE_NEXTN_DECODE="0")
    assert options(max_num_batched_tokens=256, chunked_prefill=True)


def test_confidence_temperatures_are_one_or_one_per_draft(setting: Any, options: Any, model: Model) -> None:
    setting(DFLASH_CONFIDENCE_HEAD_TEMPERATURE="1,2", USE_NEXTN_DECODE="3")
    with pytest.raises(InvalidArgumentError, match="CONFIDENCE_HEAD_TEMPERATURE.*2 numbers.*one per draft"):
        LLM("tiny")

    def confidences(temperatures: str) -> list[float]:
        setting(DFLASH_CONFIDENCE_HEAD_TEMPERATURE=temperatures)
        made = build(model).engine
        made.add_request(None, 0, SamplingParams(temperature=0, max_tokens=9), [0, 50, 60])
        found: list[float] = (made.step() + made.step() + made.flush_inflight_reqs())[-1].confidence_score
        return found

    plain = confidences("1")
    assert confidences("1,1,1") == plain and len(plain) == 3
    hot = confidences("1,4,1")
    assert [hot[0], hot[2]] == [plain[0], plain[2]] and abs(hot[1] - 0.5) < abs(plain[1] - 0.5)


def test_a_model_without_draft_layers_decodes_plainly(setting: Any, model: Model) -> None:
    text = replace(model.config.text, num_nextn_predict_layers=0)
    assert Speculation.from_environment(text, False).drafts == 0
    setting(USE_NEXTN_DECODE="1")
    with pytest.raises(NotSupportedError, match="USE_NEXTN_DECODE=1.*no draft layers"):
        Speculation.from_environment(text, False)


def test_values_that_describe_today_are_accepted(setting: Any, options: Any) -> None:
    setting(YOCO_PREFILL_TRUNCATION_MODE="off", ENFORCE_EAGER="1", ENABLE_MTP_VARLEN="0")
    assert options()
    setting(ENABLE_MTP_VARLEN="1")
    with pytest.raises(NotSupportedError, match="ENABLE_MTP_VARLEN=1"):
        options()


@pytest.mark.parametrize(
    "argument, variable, overlap",
    [(None, None, True), (None, "0", False), (None, "1", True), (False, "1", False), (True, "0", True)],
)
def test_steps_overlap_unless_told_otherwise(
    setting: Any, model: Model, argument: bool | None, variable: str | None, overlap: bool
) -> None:
    if variable is not None:
        setting(ZERO_OVERHEAD_SCHEDULING=variable)
    engine = build(model, async_scheduling=argument).engine
    engine.add_request(None, 0, SamplingParams(max_tokens=3, temperature=0, ignore_eos=True), [5, 6, 7])
    first = engine.step()
    assert engine.config.async_scheduling is overlap and bool(first) is not overlap
    assert len(first) + sum(len(engine.step()) for _ in range(4)) == 3 and not engine.has_unfinished_requests()


def test_a_text_that_does_not_parse_is_refused_before_loading(setting: Any, options: Any) -> None:
    setting(SAMPLER_FORCE_TOPK="many")
    with pytest.raises(InvalidArgumentError, match="DEEPINFER_SAMPLER_FORCE_TOPK"):
        LLM("tiny")


def test_state_slots_follow_the_ratio(setting: Any, model: Model) -> None:
    assert build(model, max_num_seqs=10).engine.config.num_slots == 12
    setting(NUM_STATE_SLOTS_RATIO="2")
    loaded = build(model, max_num_seqs=10)
    assert loaded.engine.config.num_slots == 20
    assert loaded.engine.executor.caches.state.shape[0] == 21  # type: ignore[attr-defined]


def test_the_cap_on_summed_lengths_comes_from_the_environment(setting: Any, model: Model) -> None:
    assert build(model).engine.config.limits.max_sum_context is None
    setting(PREFILL_MAX_SUM_SEQLEN_K="300")
    assert build(model).engine.config.limits.max_sum_context == 300
    setting(PREFILL_MAX_SUM_SEQLEN_K="255")
    with pytest.raises(InvalidArgumentError, match="PREFILL_MAX_SUM_SEQLEN_K: got 255.*max_model_len = 256"):
        build(model)


def test_log_lines_follow_the_argument_and_the_interval(setting: Any, model: Model) -> None:
    assert build(model).engine.config.log_interval == 100
    assert build(model, disable_log_stats=True).engine.config.log_interval == 0
    setting(LOGGING_INTERVAL_STEP="7")
    assert build(model).engine.config.log_interval == 7


def test_the_deadline_of_collectives_comes_from_the_environment(setting: Any) -> None:
    from deepinfer.hal import comm

    setting(GLOO_TIMEOUT="7")
    assert comm.single_process().deadline == 7.0


def test_where_the_engram_tables_live(setting: Any, options: Any) -> None:
    assert options()["engram_storage"] == "auto"
    assert options(engram_storage="host")["engram_storage"] == "host"
    setting(ENGRAM_FORCE_GPU_STORAGE="1")
    assert options()["engram_storage"] == "device"
    assert options(engram_storage="host")["engram_storage"] == "host"
    setting(ENGRAM_FORCE_GPU_STORAGE="0")
    assert options()["engram_storage"] == "host"


def test_the_variables_of_sampling_act_on_what_is_drawn(setting: Any, model: Model) -> None:
    def drawn() -> list[Any]:
        engine = build(model).engine
        engine.add_request(None, 0, SamplingParams(max_tokens=12, temperature=9.0, seq_seed=1, top_logprobs=3), [0, 50])
        return [output for _ in range(12) for output in engine.step()]

    free = drawn()
    assert any(o.token_id < 256 for o in free) and {o.sum_smaller_probs for o in free} == {-1.0}
    assert any(o.token_id not in o.top_token_ids for o in free)
    setting(DECODE_TOKEN_BLACKLIST="0..255")
    assert all(o.token_id > 255 for o in drawn())
    setting(SAMPLER_FORCE_TOPK="3")
    assert all(o.token_id in o.top_token_ids for o in drawn())
    setting(COMPUTE_SUM_SMALLER_PROBS="1")
    assert all(0 <= o.sum_smaller_probs < 1 for o in drawn())


def test_the_blacklist_is_checked_against_the_vocabulary(setting: Any, model: Model) -> None:
    setting(DECODE_TOKEN_BLACKLIST="0..3,5000")
    with pytest.raises(InvalidArgumentError, match=r"DEEPINFER_DECODE_TOKEN_BLACKLIST: got '5000\.\.5000'"):
        build(model)


# ---- arguments


def test_the_model_directory_of_the_environment(setting: Any, options: Any, tmp_path: Path) -> None:
    tiny = resolve_model("tiny")
    shutil.copy(tiny / "config.json", tmp_path)
    setting(HF_MODEL_DIR=str(tmp_path))
    assert options()["path"] == tmp_path
    assert options(model="tiny")["path"] == tiny


def test_the_model_directory_and_the_tokenizer_of_another(options: Any, model: Model, tmp_path: Path) -> None:
    tiny = resolve_model("tiny")
    assert options(model=str(tiny))["path"] == tiny
    for name in ("tokenizer.json", "tokenizer_config.json"):
        if (tiny / name).exists():
            shutil.copy(tiny / name, tmp_path)
    assert build(model, tokenizer=str(tmp_path)).tokenizer.file == tmp_path / "tokenizer.json"
    assert build(model).tokenizer.file == tiny / "tokenizer.json"
    with pytest.raises(DeepInferError, match="nowhere"):
        build(model, tokenizer="/nowhere/at/all")
    with pytest.raises(InvalidArgumentError, match="model"):
        LLM("/nowhere/at/all")


def test_a_revision_of_a_local_model_is_refused(options: Any, model: Model) -> None:
    with pytest.raises(InvalidArgumentError, match="revision"):
        LLMEngine.from_engine_args(EngineArgs(model="tiny", revision="main"))
    with pytest.raises(InvalidArgumentError, match="revision"):
        build(model, tokenizer=str(model.path), tokenizer_revision="main")
    with pytest.raises(InvalidArgumentError, match="tokenizer_revision.*unless tokenizer"):
        LLMEngine.from_engine_args(EngineArgs(model="tiny", tokenizer_revision="main"))


def test_revisions_reach_the_hub(options: Any, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str | None, str | None]] = []

    def resolve(name: str | None, *, revision: str | None = None) -> Path:
        asked.append((name, revision))
        return resolve_model("tiny")

    monkeypatch.setattr(loader, "resolve_model", resolve)
    assert options(model="a/b", revision="v1")["path"] == resolve_model("tiny")
    build(model, tokenizer="c/d", tokenizer_revision="v2")
    assert asked == [("a/b", "v1"), ("c/d", "v2")]


def test_the_generation_config_of_a_checkpoint_is_not_read(model: Model, tmp_path: Path) -> None:
    assert model.path is not None
    for file in model.path.iterdir():
        (tmp_path / file.name).symlink_to(file)
    (tmp_path / "generation_config.json").unlink()

    def drawn(path: str) -> list[int]:
        with LLM(path, max_num_seqs=1, num_pages=2, max_model_len=64, decode_sequence=False) as llm:
            (outputs,) = llm.generate("Once", SamplingParams(max_tokens=4, seq_seed=5, ignore_eos=True), use_tqdm=False)
        return [output.token_id for output in outputs]

    expected = drawn(str(model.path))
    assert drawn(str(tmp_path)) == expected
    (tmp_path / "generation_config.json").write_text('{"temperature": 0, "top_k": 1, "eos_token_id": [')
    assert drawn(str(tmp_path)) == expected


def test_dummy_weights_need_no_shards(tmp_path: Path) -> None:
    tiny = resolve_model("tiny")
    for file in tiny.glob("*.json"):
        if "index" not in file.name:
            shutil.copy(file, tmp_path)
    with LLM(str(tmp_path), load_format="dummy", max_num_seqs=1, num_pages=2, max_model_len=64) as llm:
        assert llm.engine.config.max_model_len == 64
    with pytest.raises(DeepInferError):
        LLM(str(tmp_path), max_num_seqs=1, num_pages=2, max_model_len=64)


def test_the_device_and_the_backend_are_checked(options: Any) -> None:
    assert str(options(device="cpu", backend="reference")["device"]) == "cpu"
    assert str(options(backend="cpu")["device"]) == "cpu"
    with pytest.raises(InvalidArgumentError, match="device"):
        LLMEngine.from_engine_args(EngineArgs(device="toaster"))
    with pytest.raises(BackendError, match="toaster"):
        LLMEngine.from_engine_args(EngineArgs(backend="toaster"))


@pytest.mark.parametrize(("utilization", "pages"), [(0.5, 10), (0.75, 35), (1.0, 60)])
def test_the_pool_fills_the_memory_it_may_use(
    model: Model, monkeypatch: pytest.MonkeyPatch, utilization: float, pages: int
) -> None:
    monkeypatch.setattr(model, "memory", Memory(device=0, mapped=0))
    layout = model.cache_layout
    slots = 4
    total = 100 * layout.page_bytes
    fixed = (slots + 1) * layout.state_bytes + layout.page_bytes
    # 40 pages' worth is in use; state slots and the reserved page come off the rest
    found = SimpleNamespace(memory_total=total, memory_free=total - 40 * layout.page_bytes + fixed)
    backend: Any = SimpleNamespace(capability=lambda device: found)
    args = EngineArgs(gpu_memory_utilization=utilization, max_num_seqs=100)
    assert loader._count_pages(args, model, backend, Device("cpu"), slots) == pages
    few = EngineArgs(gpu_memory_utilization=utilization, max_num_seqs=3)
    assert loader._count_pages(few, model, backend, Device("cpu"), slots) == 6  # more could never be used
    assert loader._count_pages(EngineArgs(num_pages=7), model, backend, Device("cpu"), slots) == 7


def test_what_the_model_holds_is_taken_off_whether_the_system_sees_it_or_not(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = model.cache_layout
    total = 100 * layout.page_bytes + 5 * layout.state_bytes
    args = EngineArgs(gpu_memory_utilization=1.0, max_num_seqs=100)
    for seen, held, pages in ((0, 30, 69), (40, 30, 59), (30, 40, 59)):
        found = SimpleNamespace(memory_total=total, memory_free=total - seen * layout.page_bytes)
        backend: Any = SimpleNamespace(capability=lambda device, found=found: found)
        monkeypatch.setattr(model, "memory", Memory(device=held * layout.page_bytes, mapped=10**12))
        assert loader._count_pages(args, model, backend, Device("cpu"), 4) == pages


def test_a_pool_too_small_for_one_request_says_what_fits(model: Model) -> None:
    with pytest.raises(InvalidArgumentError, match="num_pages: got 1; allowed: at least 2.*max_model_len = 256"):
        build(model, num_pages=1)


def test_a_loaded_engine_generates(model: Model) -> None:
    loaded = build(model)
    llm = LLM.from_engine(loaded.engine, loaded.tokenizer)
    params = SamplingParams(max_tokens=3, temperature=0, ignore_eos=True)
    texts = llm.generate(["Once upon", "The"], params, use_tqdm=False)
    assert texts == [llm.generate(text, params, use_tqdm=False)[0] for text in ("Once upon", "The")]


def test_copies_of_pages_and_states_have_the_streams_of_the_device(model: Model) -> None:
    """Without them the numbers of what is copied go there by a copy that waits for the steps in flight."""
    caches: Any = build(model).engine.executor.caches
    assert isinstance(caches.streams, Streams)


def test_images_are_decoded_as_the_arguments_say(setting: Any, model: Model) -> None:
    assert build(model, image_workers=0).engine.config.images.workers is None
    setting(MULTI_MODAL_WORKER_TIMEOUT="2.5", MULTI_MODAL_BUFFER_SIZE="3")
    engine = build(model, image_workers=2).engine
    workers = engine.config.images.workers
    assert (workers.settings.workers, workers.settings.seconds, workers.settings.queued) == (2, 2.5, 3)
    assert not workers.pids, "they start with the first image"
    workers.close()
    with pytest.raises(InvalidArgumentError, match="image_workers"):
        build(model, image_workers=65)


def test_the_process_is_bound_while_the_engine_is_there(
    model: Model, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert loader._bind(EngineArgs(), Device("cpu"))() is None and not caplog.text
    with caplog.at_level("INFO"):
        loader._bind(EngineArgs(cpu_binding="auto"), Device("cpu"))()
    assert "no CPUs are bound: the model computes on CPUs" in caplog.text
    applied: list[tuple[int, ...]] = []
    undone: list[str] = []
    monkeypatch.setattr(
        loader.host, "apply_binding", lambda one: applied.append(one.cpus) or (lambda: undone.append("first"))
    )
    monkeypatch.setattr(loader.host, "binding_for", lambda *device: loader.host.Binding((0,), None, "test"))
    threads = torch.get_num_threads()
    assert pci_address(Device("cpu")) is None
    unbind = loader._bind(EngineArgs(cpu_binding="auto"), Device("cuda", 0))
    assert applied == [(0,)] and torch.get_num_threads() == 1 and not undone
    args = EngineArgs(model="tiny", num_pages=64, max_num_seqs=4, max_model_len=256)
    monkeypatch.setattr(model, "close", lambda: None)
    made = loader._build(args, resolve_model("tiny"), model, load_backend("reference"), Device("cpu"), unbind)
    made.engine.close()
    assert undone == ["first"] and torch.get_num_threads() == threads
    with pytest.raises(InvalidArgumentError, match="cpu_binding: got 'numa'; allowed: one of off, auto"):
        EngineArgs(cpu_binding="numa")


def test_one_engine_of_a_process_is_bound(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A second one would take a share of the first one's share, and leave the process there when it is closed."""
    before = os.sched_getaffinity(0)
    one = loader.host.Binding((min(before),), None, "test")
    found: list[Any] = [one, InvalidArgumentError("CUDA_VISIBLE_DEVICES", "x", "numbers"), "nothing to bind", one]
    asked: list[Any] = []

    def binding(*device: Any) -> Any:
        asked.append(found[len(asked)])
        if isinstance(asked[-1], Exception):
            raise asked[-1]
        return asked[-1]

    monkeypatch.setattr(loader.host, "binding_for", binding)
    args, device = EngineArgs(cpu_binding="auto"), Device("cuda", 0)
    try:
        first, second = loader._bind(args, device), loader._bind(args, device)
        assert len(asked) == 1 and "another engine" in caplog.text
        first()
        assert os.sched_getaffinity(0) == before
        second()
        assert os.sched_getaffinity(0) == before
        with pytest.raises(InvalidArgumentError, match="CUDA_VISIBLE_DEVICES"):
            loader._bind(args, device)
        loader._bind(args, device)()
        last = loader._bind(args, device)
        assert len(asked) == 4 and os.sched_getaffinity(0) == {min(before)}, "what bound nothing is in nobody's way"
        last()
        assert os.sched_getaffinity(0) == before
    finally:
        loader.host.apply_binding(loader.host.Binding(tuple(before), None, "test"))


def test_the_largest_step_runs_before_the_pool_takes_the_rest(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    filtered: list[Any] = []

    def forward(batch: Any, caches: Any) -> torch.Tensor:
        seen.append((batch, caches))
        return torch.zeros(batch.logit_rows.shape[0], 8)

    monkeypatch.setattr(model, "forward", forward)
    monkeypatch.setattr(loader, "sample_filter", lambda logits, warm, top_p: filtered.append((logits, warm, top_p)))
    streams = load_backend("reference").streams(Device("cpu"))
    limits = Limits(max_tokens=600, max_requests=100, page_tokens=128, max_drafts=4)
    assert loader.largest_step(model, limits, streams) == 600
    ((batch, caches),) = seen
    assert batch.tokens.shape[0] == 600 and batch.seq_start.tolist() == [0, 0, 0], "256, 256 and 88 tokens"
    assert batch.logit_rows.shape[0] == 500 and caches.pages.shape[0] == 1 + 2 + 2 + 1
    few = Limits(max_tokens=600, max_requests=2, page_tokens=128)
    assert loader.largest_step(model, few, streams) == 512 and seen[-1][0].logit_rows.shape[0] == 2
    assert [logits.shape[0] for logits, _, _ in filtered] == [500, 2]
    assert filtered[-1][1].tolist() == [1.0] * 2 and 0 < int(filtered[-1][2][0]) < 1 << 31

    def short(batch: Any, caches: Any) -> Any:
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(model, "forward", short)
    with pytest.raises(InvalidArgumentError, match="max_num_batched_tokens: got 600; allowed: fewer rows"):
        loader.largest_step(model, limits, streams)


def test_the_largest_step_ends_where_prompts_are_longest(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Index scores take rows times the longest context; pages that only have to be named are few."""
    length = model.max_model_len
    seen: list[Any] = []
    forward = model.forward
    monkeypatch.setattr(model, "forward", lambda batch, caches: seen.append((batch, caches)) or forward(batch, caches))
    streams = load_backend("reference").streams(Device("cpu"))
    assert loader.largest_step(model, Limits(max_tokens=3, max_requests=2, page_tokens=128), streams) == 3
    ((batch, caches),) = seen
    assert batch.positions.tolist() == [length - 3, length - 2, length - 1]
    assert batch.entries == {ratio: length // ratio for ratio in batch.entries} and batch.entries
    pages = batch.block_table.tolist()[0]
    assert len(pages) == -(-length // 128) and set(pages) == set(range(1, caches.pages.shape[0]))
    assert caches.pages.shape[0] == 1 + min(len(pages), 2)


def test_the_largest_step_counts_where_memory_does(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def pages(*what: Any) -> int:
        order.append("pages")
        raise Loaded

    monkeypatch.setattr(loader, "largest_step", lambda *what: order.append("step"))
    monkeypatch.setattr(loader, "_count_pages", pages)
    backend: Any = SimpleNamespace(streams=lambda device: None)
    assert model.path is not None
    for device, num_pages in (("cuda", None), ("cuda", 8), ("cpu", None)):
        with pytest.raises(Loaded):
            loader._build(EngineArgs(num_pages=num_pages), model.path, model, backend, Device(device))
    assert order == ["step", "pages", "pages", "pages"]


def test_the_rank_with_the_least_memory_decides() -> None:
    class Two(Group):
        def all_reduce(self, tensor: torch.Tensor, op: Any = "sum") -> torch.Tensor:
            assert op == "min"
            return torch.minimum(tensor, torch.tensor([40]))

    pair = Two("engine", 0, (0, 1), 10.0)
    assert [loader.least_of_ranks(pages, pair) for pages in (30, 50)] == [30, 40]
    assert loader.least_of_ranks(50, None) == 50 == loader.least_of_ranks(50, Two("engine", 0, (0,), 10.0))


def test_two_processes_agree_on_the_pages_of_the_one_with_less() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    code = (
        "from deepinfer.hal import world; from deepinfer.runtime.loader import least_of_ranks; "
        f"group = world.connect(1, 2, {address!r}); print(least_of_ranks(30, group)); group.barrier(); group.close()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
        try:
            group = world.connect(0, 2, address)
            assert loader.least_of_ranks(50, group) == 30
            group.barrier()
            group.close()
            assert child.communicate(timeout=60)[0] == "30\n"
        finally:
            child.kill()
