"""Engine arguments: upstream's names, checked, with a typed refusal for what does not exist yet."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from ..hal.errors import InvalidArgumentError, NotSupportedError, short
from ..model.truncation import MODES
from .checks import INT32_MAX, check_bool, check_choice, check_float, check_int
from .params import SEED_MAX
from .plan import Limits, pages_for

PAGE_TOKENS = 128
DEFAULT_MAX_MODEL_LEN = 4096
LOAD_FORMATS = ("auto", "dummy")
ENGINE_TYPES = ("NORMAL", "PROMPT", "COMPLETION")
ENGRAM_STORAGES = ("auto", "device", "host")
CPU_BINDINGS = ("off", "auto")

# argument -> (values that describe what happens today, what will bring the others)
REFUSED: dict[str, tuple[tuple[Any, ...], str]] = {
    "served_model_name": (("deepinfer-model",), "the name is for the HTTP server, which comes with the server"),
    "trust_remote_code": ((False,), "code of a checkpoint is never run; the model is built in"),
    "data_parallel_size": ((0, 1), "data parallelism comes with the parallel runtime"),
    "context_parallel_size": ((1,), "context parallelism comes with the parallel runtime"),
    "expert_parallel_size": ((1,), "expert parallelism comes with the parallel runtime"),
    "engram_parallel_size": ((0, 1), "sharded Engram tables come with the parallel runtime"),
    "engine_rank": ((0,), "several engines come with the parallel runtime"),
    "engine_group_rank": ((0,), "several engine groups come with the parallel runtime"),
    "offline_inference": ((False,), "an engine is the same either way; LLM is the offline entry point"),
    "ignore_len": ((128 << 20,), "upstream never reads it; use max_model_len"),
    "lookahead_tokens": (
        (0,),
        "chunks fill the step, or what step_seconds leaves of it, and then the least is 128 rows",
    ),
}


@dataclass(kw_only=True)
class EngineArgs:
    """Arguments of an engine.

    Attributes:
        model: "tiny", "kernel" (embedded checkpoints, made once per user), a Hugging Face directory, or a hub id.
            None is DEEPINFER_HF_MODEL_DIR where set, else "tiny".
        tokenizer: directory of another tokenizer; None takes the model's.
        load_format: "auto" reads the weights, "dummy" makes random ones of the right shapes.
        seed: the seed of a request that has none is a function of it and of the number of such requests before, so
            that a run repeats; None draws these seeds from the operating system.
        max_model_len: longest prompt plus output, in tokens; None is 4096, or less where the model ends before.
        gpu_memory_utilization: in (0, 1]: part of the device's memory that weights and caches may fill.
        max_num_batched_tokens: rows of one step; None is max(max_model_len, 4096, max_num_seqs * (1 + drafts)), drafts
            being DEEPINFER_USE_NEXTN_DECODE. At least max_num_seqs * (1 + drafts), and at least max_model_len unless
            `chunked_prefill`.
        max_num_seqs: requests that run at a time.
        chunked_prefill: cut long prompts over several steps.
        stop_preempted_request: a preempted request ends (insufficient_system_resource) instead of being recomputed.
        tokens_per_block: -1 or 128, the page size.
        disable_log_stats: no log line of throughput and pool use.
        revision, tokenizer_revision: revision of a hub id.
        num_pages: pages of the cache pool; None sizes it from the memory.
        device: torch device; None takes the one of the backend.
        backend: kernels to use: cuda, ascend, reference (or nvidia, ascend, cpu); None takes the detected one.
        engram_storage: where n-gram tables live: auto, device or host.
        yoco_prefill_truncation_mode, yoco_prefill_keep_tokens: bounded replay of prompts; None takes the variables
            DEEPINFER_YOCO_PREFILL_TRUNCATION_MODE (off, mask or compact) and DEEPINFER_YOCO_PREFILL_KEEP_TOKENS.
        enable_prefix_caching: requests that begin with the same tokens share what was computed of them, to the same
            bits; window rings then keep a page more.
        step_seconds: time that a step is to take, in seconds: prompts are cut to what the step has time for, by a model
            of steps that is fitted while the engine runs; a step always gives 128 rows to prompts. None is no such
            limit. Needs `chunked_prefill`.
        trace: file that every planned step is recorded in, for `deepinfer replay`; None is none.
        metrics_port: port of 127.0.0.1 at which metrics are served, 0 for a free one; None is none. Needs the extra
            `metrics`.
        timeline: file that the events of the latest requests are written to, as a trace for Perfetto, when the engine
            is closed; None is none.
        prefix_replay_tokens: of a beginning whose pages the prefix cache has and whose windows it has no more, compute
            so many tokens again, with nothing older in their windows, instead of everything from the last kept windows
            on; a multiple of 128. Results then depend on what the cache holds. None is exact. Needs
            `enable_prefix_caching`.
        host_memory_gib: host memory, pinned where the device makes use of that, in which the caches of preempted
            requests wait where that takes less time than computing them again; 0 has all of them computed again. Needs
            `stop_preempted_request=False`.
        image_workers: processes that decode the images of requests as they come, within limits of time and memory; 0
            decodes them in the thread that adds the request, without.
        cpu_binding: "auto" binds the threads of this process, image workers included, to the engine's share of CPUs:
            whole cores next to its device, of those that the affinity mask and the cgroup allow, divided evenly among
            the devices there. On a CPU device, and where the share is everything, nothing is bound, and the log says
            why. "off" leaves threads as they are. Undone when the engine is closed.
        async_scheduling: plan and launch a step while the device runs the one before; the same outputs, a call of
            `step` later. None takes the variable DEEPINFER_ZERO_OVERHEAD_SCHEDULING, on unless set.
        drafter_invariant: the drafter draws with the target's random numbers, and a draft is accepted only if the
            target draws it too: with a seed, the text is the same with and without drafts, also above temperature 0.

    The other fields are upstream's and may only have their defaults; `REFUSED` says what will bring them.
    """

    model: str | None = None
    served_model_name: str = "deepinfer-model"
    tokenizer: str | None = None
    trust_remote_code: bool = False
    load_format: str = "auto"
    seed: int | None = 0
    max_model_len: int | None = None
    data_parallel_size: int = 0
    context_parallel_size: int = 1
    expert_parallel_size: int = 1
    engram_parallel_size: int = 0
    engine_rank: int = 0
    engine_group_rank: int = 0
    gpu_memory_utilization: float = 0.90
    max_num_batched_tokens: int | None = None
    max_num_seqs: int = 256
    disable_log_stats: bool = False
    revision: str | None = None
    tokenizer_revision: str | None = None
    stop_preempted_request: bool = True
    engine_type: str | int = "NORMAL"
    chunked_prefill: bool = False
    ignore_len: int = 128 << 20
    tokens_per_block: int = -1
    lookahead_tokens: int = 0
    offline_inference: bool = False
    num_pages: int | None = None
    device: str | None = None
    backend: str | None = None
    engram_storage: str = "auto"
    yoco_prefill_truncation_mode: str | None = None
    yoco_prefill_keep_tokens: int | None = None
    drafter_invariant: bool = False
    enable_prefix_caching: bool = False
    prefix_replay_tokens: int | None = None
    host_memory_gib: float = 0.0
    image_workers: int = 1
    step_seconds: float | None = None
    trace: str | None = None
    metrics_port: int | None = None
    timeline: str | None = None
    async_scheduling: bool | None = None
    cpu_binding: str = "off"

    def __post_init__(self) -> None:
        self.validate()

    @classmethod
    def from_keywords(cls, values: dict[str, Any]) -> EngineArgs:
        """Raises InvalidArgumentError for a name that is no engine argument, naming all of them."""
        known = [f.name for f in fields(cls)]
        for name in values:
            if name not in known:
                raise InvalidArgumentError("engine argument", name, ", ".join(known))
        return cls(**values)

    def validate(self) -> None:
        """Check what can be checked without the model.

        Raises:
            InvalidArgumentError: a value outside its range.
            NotSupportedError: a value that only another part of the project will give a meaning.
        """
        for name, (accepted, brought_by) in REFUSED.items():
            value = getattr(self, name)
            if not any(type(value) is type(ok) and value == ok for ok in accepted):
                raise NotSupportedError(f"{name}={short(value)}", brought_by)
        self._check_engine_type()
        if self.metrics_port is not None:
            self.metrics_port = check_int("metrics_port", self.metrics_port, 0, 65535, also="None")
        for name in ("model", "tokenizer", "revision", "tokenizer_revision", "device", "backend", "trace", "timeline"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, str) and value):
                raise InvalidArgumentError(name, value, "a non-empty string or None")
        for name, choices in (
            ("load_format", LOAD_FORMATS),
            ("engram_storage", ENGRAM_STORAGES),
            ("cpu_binding", CPU_BINDINGS),
        ):
            check_choice(name, getattr(self, name), choices, f"one of {', '.join(choices)}")
        mode, known = self.yoco_prefill_truncation_mode, f"one of {', '.join(MODES)}, or None"
        check_choice("yoco_prefill_truncation_mode", mode, (*MODES, None), known)
        for name in (
            "disable_log_stats",
            "stop_preempted_request",
            "chunked_prefill",
            "drafter_invariant",
            "enable_prefix_caching",
        ):
            check_bool(name, getattr(self, name))
        if self.async_scheduling is not None:
            check_bool("async_scheduling", self.async_scheduling)
        if self.seed is not None:
            self.seed = check_int("seed", self.seed, 0, SEED_MAX, also="None")
        check_choice("tokens_per_block", self.tokens_per_block, (-1, PAGE_TOKENS), f"-1 or {PAGE_TOKENS}")
        self.gpu_memory_utilization = check_float(
            "gpu_memory_utilization", self.gpu_memory_utilization, 0.0, 1.0, open_low=True
        )
        if self.step_seconds is not None:
            self.step_seconds = check_float("step_seconds", self.step_seconds, 0.0, 3600.0, open_low=True, also="None")
            if not self.chunked_prefill:
                raise InvalidArgumentError("step_seconds", self.step_seconds, "None, or chunked_prefill=True beside it")
        self.host_memory_gib = check_float("host_memory_gib", self.host_memory_gib, 0.0, 1 << 20)
        if self.host_memory_gib and self.stop_preempted_request:  # it would hold memory that nothing uses
            allowed = "0, or stop_preempted_request=False beside it"
            raise InvalidArgumentError("host_memory_gib", self.host_memory_gib, allowed)
        self.image_workers = check_int("image_workers", self.image_workers, 0, 64)
        self._check_replay()
        self.max_num_seqs = check_int("max_num_seqs", self.max_num_seqs, 1, 1 << 20)
        for name, low in (
            ("max_model_len", 2),
            ("max_num_batched_tokens", self.max_num_seqs),
            ("num_pages", 1),
            ("yoco_prefill_keep_tokens", 0),
        ):
            value = getattr(self, name)
            if value is not None:
                setattr(self, name, check_int(name, value, low, INT32_MAX, also="None"))

    def _check_replay(self) -> None:
        tokens = self.prefix_replay_tokens
        if tokens is None:
            return
        name, allowed = "prefix_replay_tokens", f"None, or a multiple of {PAGE_TOKENS}, {PAGE_TOKENS} or more"
        self.prefix_replay_tokens = check_int(name, tokens, PAGE_TOKENS, INT32_MAX, also="None")
        if tokens % PAGE_TOKENS:
            raise InvalidArgumentError(name, tokens, allowed)
        if not self.enable_prefix_caching:
            raise InvalidArgumentError(name, tokens, "None, or enable_prefix_caching=True beside it")

    def _check_engine_type(self) -> None:
        kind = self.engine_type
        if isinstance(kind, int) and not isinstance(kind, bool) and 0 <= kind < len(ENGINE_TYPES):
            kind = ENGINE_TYPES[kind]
        check_choice("engine_type", kind, ENGINE_TYPES, f"one of {', '.join(ENGINE_TYPES)}")
        if kind != "NORMAL":
            raise NotSupportedError(
                f"engine_type={kind}", "separate prefill and decode engines come with disaggregation"
            )

    def resolve_max_model_len(self, model_limit: int) -> int:
        """`max_model_len` in force.

        Args:
            model_limit: max_position_embeddings of the model.

        Raises:
            InvalidArgumentError: longer than the model allows.
        """
        if self.max_model_len is None:
            return min(DEFAULT_MAX_MODEL_LEN, model_limit)
        return check_int("max_model_len", self.max_model_len, 2, model_limit)

    def limits(self, max_model_len: int, max_sum_context: int | None = None, max_drafts: int = 0) -> Limits:
        """Limits of a step in which a request verifies `max_drafts` drafts.

        Raises:
            InvalidArgumentError: steps too short for the drafts of all requests, or for a whole prompt while prompts
                may not be cut; or a cap on the summed lengths that some prompt exceeds alone.
        """
        rows, verified = self.max_num_batched_tokens, self.max_num_seqs * (1 + max_drafts)
        if rows is None:
            rows = max(max_model_len, DEFAULT_MAX_MODEL_LEN, verified)
        elif rows < verified:
            raise InvalidArgumentError(
                "max_num_batched_tokens",
                rows,
                f"at least max_num_seqs * (1 + DEEPINFER_USE_NEXTN_DECODE) = {verified}: a request verifies "
                f"{max_drafts} drafts per step",
            )
        elif rows < max_model_len and not self.chunked_prefill:
            raise InvalidArgumentError(
                "max_num_batched_tokens", rows, f"at least max_model_len = {max_model_len}, or chunked_prefill=True"
            )
        if max_sum_context is not None and max_sum_context < max_model_len:
            raise InvalidArgumentError(
                "DEEPINFER_PREFILL_MAX_SUM_SEQLEN_K", max_sum_context, f"at least max_model_len = {max_model_len}"
            )
        return Limits(
            max_tokens=rows,
            max_requests=self.max_num_seqs,
            page_tokens=PAGE_TOKENS,
            chunked_prefill=self.chunked_prefill,
            max_sum_context=max_sum_context,
            max_drafts=max_drafts,
            step_seconds=self.step_seconds,
        )

    def check_pages(self, pages: int, max_model_len: int) -> int:
        """`pages`, if one request of the greatest length fits.

        Raises:
            InvalidArgumentError: the pool is too small; says what would fit.
        """
        need = pages_for(max_model_len, PAGE_TOKENS)
        if pages < need:
            name = "num_pages" if self.num_pages is not None else "max_model_len"
            got, allowed = (
                (pages, f"at least {need}, so that one request of max_model_len = {max_model_len} fits")
                if self.num_pages is not None
                else (max_model_len, f"at most {pages * PAGE_TOKENS}: the memory holds {pages} pages of 128 tokens")
            )
            raise InvalidArgumentError(name, got, allowed)
        return pages
