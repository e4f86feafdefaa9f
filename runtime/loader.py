"""From engine arguments to a running engine: backend, checkpoint, tokenizer, pools."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from tqdm import tqdm

from ..hal import env
from ..hal.backend import Backend
from ..hal.catalog import load_backend
from ..hal.comm import Group
from ..hal.device import Device, pci_address
from ..hal.errors import InvalidArgumentError, NotSupportedError
from ..hal.graph import GraphsUnavailable
from ..hal.stream import Streams
from ..model.hub import resolve_model
from ..model.tokenizer import Tokenizer
from ..model.transformer import Model
from ..model.truncation import EXACT, Truncation
from ..ops.sampling import fixed31, sample_filter
from . import host
from .args import PAGE_TOKENS, EngineArgs
from .drafting import ModelDrafter, Speculation
from .engine import EngineConfig, LLMEngine
from .execute import ModelExecutor
from .flops import FlopModel
from .graphs import DecodeGraphs, GraphSettings, Where
from .image_workers import WorkerSettings
from .images import ImageReader
from .offload import HostMemory, HostSettings, divide
from .plan import Limits, pages_for
from .prefix import PrefixSettings
from .sampler import Sampler, SamplerConfig
from .structured.service import GrammarService
from .structured.vocabulary import Vocabulary
from .truncation import INVARIANT, resolve_truncation
from .watch import check_watch, peak_of, watch

if TYPE_CHECKING:
    from .request import TextDecoder

log = logging.getLogger(__name__)

_binding = threading.Lock()
"""Held while the process is bound for an engine."""


@dataclass(frozen=True)
class LoadedEngine:
    """An engine and what it was made of."""

    engine: LLMEngine
    model: Model
    tokenizer: Tokenizer
    path: Path
    backend: str
    chip: str


def load_engine(args: EngineArgs) -> LoadedEngine:
    """Load the model that the arguments name and build an engine over it.

    Raises:
        InvalidArgumentError, NotSupportedError: an argument or an environment variable.
        BackendError: the backend cannot run here.
        CheckpointError, ConfigError, TokenizerError: the model directory.
    """
    args.validate()
    env.check()
    check_watch(args)
    if args.tokenizer_revision is not None and args.tokenizer is None:
        raise InvalidArgumentError("tokenizer_revision", args.tokenizer_revision, "None unless tokenizer is a hub id")
    device = None if args.device is None else Device.parse(args.device)
    backend = load_backend(args.backend, device)
    if device is None:
        device = backend.devices()[0]
    path = resolve_model(args.model, revision=args.revision)
    unbind = _bind(
        args, device
    )  # before the weights, so that what of them stays in host memory lies next to the device
    try:
        model = _load_model(args, path, device)
    except BaseException:
        unbind()
        raise
    try:
        loaded = _build(args, path, model, backend, device, unbind)
    except BaseException:
        model.close()
        unbind()
        raise
    try:
        watch(loaded.engine, args, device)
    except BaseException:
        loaded.engine.close()
        raise
    return loaded


def _bind(args: EngineArgs, device: Device) -> Callable[[], None]:
    """Binds the process as the arguments say, unless another engine of it is bound. Returns what undoes it."""
    if args.cpu_binding == "off":
        return lambda: None
    # A second one would take a share of the first one's share, bind the first one's threads, and undo half of both.
    if not _binding.acquire(blocking=False):
        log.warning("no CPUs are bound: the process is, for another engine in it, and this one shares what that has")
        return lambda: None
    unbind = None
    try:
        unbind = _bind_to_share(device)
    finally:
        if unbind is None:
            _binding.release()
    return unbind or (lambda: None)


def _bind_to_share(device: Device) -> Callable[[], None] | None:
    """Binds the process to the share of a device. None where there is nothing to undo."""
    found = host.binding_for(device.type, device.index, pci_address(device))
    if isinstance(found, str):
        log.info("no CPUs are bound: %s", found)
        return None
    undo = host.apply_binding(found)
    if undo is None:
        log.warning("CPUs cannot be bound: the system refuses %s", found.cpus)
        return None
    log.info("bound to CPUs %s: %s", ", ".join(map(str, found.cpus)), found.reason)
    threads = torch.get_num_threads()
    torch.set_num_threads(max(1, min(threads, len(found.cpus))))

    def unbind() -> None:
        undo()
        torch.set_num_threads(threads)
        _binding.release()

    return unbind


def _build(
    args: EngineArgs,
    path: Path,
    model: Model,
    backend: Backend,
    device: Device,
    unbind: Callable[[], None] = lambda: None,
    group: Group | None = None,
) -> LoadedEngine:
    """`group`: ranks whose engines plan the same steps; None is this one alone."""
    text = model.config.text
    tokenizer = _load_tokenizer(args, path, model)
    drafting = Speculation.from_environment(text, args.drafter_invariant)
    limits = args.limits(model.max_model_len, env.get("DEEPINFER_PREFILL_MAX_SUM_SEQLEN_K"), drafting.drafts)
    slots = int(args.max_num_seqs * env.get("DEEPINFER_NUM_STATE_SLOTS_RATIO"))
    pool_bytes = drafting.pool_bytes(slots + 1, text.vocab_size)
    if args.num_pages is None and device.type != "cpu":
        largest_step(model, limits, backend.streams(device))
    pages = least_of_ranks(_count_pages(args, model, backend, device, slots, pool_bytes), group)
    pages = args.check_pages(pages, model.max_model_len)
    sampling = SamplerConfig.from_environment()
    looked_at = model.cache_layout.ring_slots - _kept_for_prefixes(args)
    truncation = resolve_truncation(args, model.topology, looked_at)
    graphs, streams = _graphs(backend, device), backend.streams(device)
    executor = build_executor(model, pages + 1, slots + 1, sampling, drafting, truncation, graphs, streams)
    config = EngineConfig(
        vocab_size=text.vocab_size,
        eos_id=tokenizer.eos_id,
        max_model_len=model.max_model_len,
        limits=limits,
        num_pages=pages,
        num_slots=slots,
        stop_preempted_request=args.stop_preempted_request,
        seed=args.seed,
        force_top_k=sampling.force_top_k,
        log_interval=0 if args.disable_log_stats else env.get("DEEPINFER_LOGGING_INTERVAL_STEP"),
        truncation=truncation,
        prefix=_prefix(args, model, truncation),
        host=_host(args, model, executor, streams, pages),
        slack=_slack(model),
        near_keys=text.sliding_window + 2 * text.index_topk,
        trace=args.trace,
        flops=None if args.disable_log_stats else FlopModel.of(model.config),
        peak_flops=None if args.disable_log_stats else peak_of(backend, device),
        async_scheduling=_async_scheduling(args),
        images=_images(args, model, tokenizer),
        grammars=GrammarService.from_environment(Vocabulary.of(tokenizer, text.vocab_size)),
    )

    def decoder() -> TextDecoder:
        return tokenizer.detokenizer()

    def close() -> None:
        executor.host = None  # whoever keeps the engine keeps no pinned memory
        if executor.graphs is not None:
            executor.graphs.release()
        if config.images is not None:
            config.images.close()
        if config.grammars is not None:
            config.grammars.close()
        model.close()
        unbind()

    engine = LLMEngine(config, executor, decoder, close)
    found = backend.capability(device)
    return LoadedEngine(engine, model, tokenizer, path, backend.name, f"{found.name} ({found.arch})")


def build_executor(
    model: Model,
    pages: int,
    slots: int,
    sampling: SamplerConfig,
    drafting: Speculation,
    truncation: Truncation = EXACT,
    graphs: tuple[Where, GraphSettings] | None = None,
    streams: Streams | None = None,
) -> ModelExecutor:
    """Caches of so many pages and state slots (number 0 of each is reserved), sampler and drafter of a model.

    Args:
        graphs: of the device, where decode steps are to be captured.
        streams: of the device; None where that runs work as it is called.
    """
    caches = model.new_caches(pages, slots)
    if streams is not None:
        caches.streams = streams
    vocab = model.config.text.vocab_size
    pool = drafting.new_pool(slots, vocab, model.device)
    drafter = None if pool is None else ModelDrafter(model, caches, drafting, pool, sampling.force_top_k)
    sampler = Sampler(vocab, sampling, pool, drafting.shared)
    captured = None
    if graphs is not None:
        where, how = graphs
        most = pages_for(model.max_model_len, PAGE_TOKENS)
        captured = DecodeGraphs(where, model, caches, sampler, drafter, how, most)
    return ModelExecutor(model, caches, sampler, drafter, truncation, captured, streams, slots)


def _async_scheduling(args: EngineArgs) -> bool:
    """Whether steps overlap: the argument, else the environment, else yes."""
    if args.async_scheduling is not None:
        return args.async_scheduling
    asked: bool | None = env.get("DEEPINFER_ZERO_OVERHEAD_SCHEDULING")
    return asked is not False


def _graphs(backend: Backend, device: Device) -> tuple[Where, GraphSettings] | None:
    """Graphs of the device, unless it has none or the environment turns them off."""
    settings = GraphSettings.from_environment()
    if not settings.main:
        return None
    where = Where.of(backend, device)
    if isinstance(where, GraphsUnavailable):
        log.info("decode steps run without graphs: %s", where)
        return None
    return where, settings


def _load_model(args: EngineArgs, path: Path, device: Device) -> Model:
    from ..model.config import load_config

    found = load_config(path)
    text = found.text
    drafting = Speculation.from_environment(text, args.drafter_invariant)
    length = args.resolve_max_model_len(text.max_position_embeddings)
    args.limits(length, max_drafts=drafting.drafts)  # before the weights, which may take minutes
    resolve_truncation(args, found.topology, text.sliding_window + drafting.backtrack())
    options: dict[str, Any] = {
        "device": device.torch,
        "max_model_len": length,
        "max_draft": drafting.drafts,
        "backtrack": drafting.backtrack() + _kept_for_prefixes(args),
        "engram_storage": _engram_storage(args),
        "load_format": args.load_format,
    }
    # Shown on a terminal, and only where loading takes longer than a moment.
    with tqdm(unit="B", unit_scale=True, desc="weights", leave=False, disable=None, delay=1.0) as bar:

        def advance(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        return Model.load(path, progress=advance, **options)


def _kept_for_prefixes(args: EngineArgs) -> int:
    """Positions that rings keep so that they always hold the window before the last page border."""
    return PAGE_TOKENS if args.enable_prefix_caching else 0


def _prefix(args: EngineArgs, model: Model, truncation: Truncation) -> PrefixSettings | None:
    """Settings of the prefix cache.

    Raises:
        NotSupportedError: bounded replay where prompts are truncated, or where batch invariance is asked for by name.
    """
    if not args.enable_prefix_caching:
        return None
    replay = args.prefix_replay_tokens or 0
    if replay and truncation.on:
        raise NotSupportedError(
            f"prefix_replay_tokens={replay} with truncated prompts ({truncation.mode})",
            "a truncated prompt goes on from pages and producer windows alone; leave prefix_replay_tokens at None",
        )
    if replay and env.is_set(INVARIANT) and env.get(INVARIANT):
        raise NotSupportedError(
            f"prefix_replay_tokens={replay} with {INVARIANT}=1",
            f"results would depend on what the prefix cache holds; unset {INVARIANT} or leave it at None",
        )
    identity = repr((model.config, model.cache_layout, truncation)).encode()
    return PrefixSettings(_slack(model), identity, truncation, replay)


def _images(args: EngineArgs, model: Model, tokenizer: Tokenizer) -> ImageReader:
    """Reads images, with workers to decode them unless that is turned off. They start when the first image comes."""
    workers = None
    if args.image_workers:
        seconds, queued = env.get("DEEPINFER_MULTI_MODAL_WORKER_TIMEOUT"), env.get("DEEPINFER_MULTI_MODAL_BUFFER_SIZE")
        workers = WorkerSettings(args.image_workers, seconds, queued)
    spelling = tokenizer.token_bytes(model.config.image_token_id).decode()
    return ImageReader(model.config, spelling=spelling, workers=workers)


def _slack(model: Model) -> int:
    """Positions before the last one written at which a state slot still serves."""
    return model.cache_layout.ring_slots - model.config.text.sliding_window


def _host(args: EngineArgs, model: Model, executor: ModelExecutor, streams: Streams, pages: int) -> HostSettings | None:
    """Host memory for preempted requests, taken and measured; None where there is none."""
    budget = int(args.host_memory_gib * (1 << 30))
    if not budget:
        return None
    by_slot = [executor.caches.state]
    if executor.drafter is not None:
        pool = executor.drafter.pool  # type: ignore[attr-defined]
        by_slot += [tensor for tensor in (pool.tokens, pool.confidence, pool.log2q) if tensor is not None]
    layout = model.cache_layout
    slot_bytes = sum(tensor[0].nbytes for tensor in by_slot)
    host_pages, host_slots = divide(budget, layout.page_bytes, slot_bytes, args.max_num_seqs)
    host_pages = min(host_pages, pages * host_slots)
    if not host_slots:
        least = (layout.page_bytes + slot_bytes) / (1 << 30)
        raise InvalidArgumentError("host_memory_gib", args.host_memory_gib, f"0, or at least {least:.3g} for one page")
    executor.host = HostMemory(streams, [executor.caches.pages], by_slot, host_pages, host_slots)
    seconds = executor.host.measure()
    log.info(
        "host memory: %d pages of %.3g s, %d state slots of %.3g s", host_pages, seconds[0], host_slots, seconds[1]
    )
    return HostSettings(host_pages, host_slots, *seconds)


def _engram_storage(args: EngineArgs) -> str:
    """Where n-gram tables live: the argument, else the environment, else by size."""
    forced = env.get("DEEPINFER_ENGRAM_FORCE_GPU_STORAGE")
    if args.engram_storage != "auto" or forced is None:
        return args.engram_storage
    return "device" if forced else "host"


def _load_tokenizer(args: EngineArgs, path: Path, model: Model) -> Tokenizer:
    config = model.config
    source = path if args.tokenizer is None else resolve_model(args.tokenizer, revision=args.tokenizer_revision)
    return Tokenizer.load(
        source,
        vocab_size=config.text.vocab_size,
        image_token_id=config.image_token_id,
        compatibility=config.tokenizer_compatibility,
        special_ids={"bos": config.bos_token_id, "eos": config.eos_token_id, "pad": config.pad_token_id},
    )


def largest_step(model: Model, limits: Limits, streams: Streams) -> int:
    """Run a step of as many rows as one may have, so that what it takes beside weights and caches is in the device's
    account when the rest is divided: the allocator keeps it for later steps.

    Its rows are those of prompts, the longest first; as many give logits as requests may draw from in a step, and these
    are filtered as top_p is. The first prompt ends at the greatest length, since what index scores take is rows times
    the longest context among them: pages before its rows are a few that its block table repeats.

    Returns:
        Rows that were computed.

    Raises:
        InvalidArgumentError: there is no memory for it.
    """
    from ..model.batch import Batch, SequenceSlice

    rows, logits = limits.max_tokens, limits.max_requests * (1 + limits.max_drafts)
    lengths: list[int] = []
    while rows and len(lengths) < limits.max_requests:
        lengths.append(min(rows, model.max_model_len))
        rows -= lengths[-1]
    slices, page = [], 1
    for slot, length in enumerate(lengths, 1):
        end = model.max_model_len if slot == 1 else length
        held = min(pages_for(end, PAGE_TOKENS), pages_for(length, PAGE_TOKENS) + 1)  # no two rows write to one place
        pages = [page + number % held for number in range(pages_for(end, PAGE_TOKENS))]
        asked, page = min(length, logits), page + held
        tokens = np.zeros(end, np.int32)
        slices.append(SequenceSlice(tokens, end - length, end, slot, pages, range(end - asked, end)))
        logits -= asked
    try:
        caches = model.new_caches(page, len(lengths) + 1)
        found = model.forward(Batch.build(slices, model.config.text, model.device), caches)
        warm = torch.ones(found.shape[0], dtype=torch.float32, device=found.device)
        sample_filter(found, warm, top_p=torch.full_like(warm, fixed31(0.9), dtype=torch.int64))
        streams.synchronize()
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise InvalidArgumentError(
            "max_num_batched_tokens",
            limits.max_tokens,
            "fewer rows, or a smaller max_model_len: a step of so many does not fit beside the model",
        ) from error
    return sum(lengths)


def least_of_ranks(pages: int, group: Group | None) -> int:
    """Pages that every rank of a group has: all plan the same steps, so the one with the least memory decides.

    Raises:
        CommunicatorError: a rank did not come.
    """
    if group is None or group.world_size == 1:
        return pages
    found = group.all_reduce(torch.tensor([pages], dtype=torch.int64), "min")
    return int(found.item())


def _count_pages(
    args: EngineArgs, model: Model, backend: Backend, device: Device, slots: int, pool_bytes: int = 0
) -> int:
    """Pages that can be handed out: `num_pages`, or what the memory allows and the requests can use.

    The memory budget is gpu_memory_utilization * total - what is in use now, the model and what a step takes included;
    state slots and the pool of drafts come off it, pages share the rest. Never more than max_num_seqs requests of the
    greatest length can hold.
    """
    if args.num_pages is not None:
        return args.num_pages
    useful = args.max_num_seqs * pages_for(model.max_model_len, PAGE_TOKENS)
    found = backend.capability(device)
    if found.memory_total is None or found.memory_free is None:
        return useful
    layout = model.cache_layout
    # A system does not count host memory that nobody has touched yet; what the model holds is known.
    used = max(found.memory_total - found.memory_free, model.memory.device)
    budget = args.gpu_memory_utilization * found.memory_total - used
    budget -= (slots + 1) * layout.state_bytes + layout.page_bytes + pool_bytes
    pages = min(useful, max(0, int(budget // layout.page_bytes)))
    log.info("%d pages of %d bytes, %d state slots of %d bytes", pages, layout.page_bytes, slots, layout.state_bytes)
    return pages
