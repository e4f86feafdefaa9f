"""Every environment variable the package knows, by subject.

A variable without `brought_by` acts today. One with `brought_by` is known, documented and refused when it is set:
nothing is accepted and ignored. The part that makes a variable act removes its `brought_by`.
"""

from __future__ import annotations

from typing import Any

from .env_types import PREFIX, Kind, Variable, boolean, choice, floats, integer, number, path, string, token_ranges

_DRAFT = "verification scheduled by confidence"
_EPLB = "expert load balancing"
_CUDA = "the cuda backend"
_PARALLEL = "expert and data parallelism"
_GRAPHS = "draft passes captured apart from the steps that they belong to"
_GRAMMAR = "structured output"
_VISION = "image workers of their own processes"
_ASYNC = "asynchronous scheduling"
_PROFILE = "allocator profiles"


def _used(name: str, kind: Kind, default: Any, doc: str, *, upstream: bool = True, text: str | None = None) -> Variable:
    return Variable(PREFIX + name, kind, default, doc, upstream=upstream, default_text=text)


def _planned(
    name: str,
    kind: Kind,
    default: Any,
    brought_by: str,
    doc: str,
    *,
    accepts: tuple[Any, ...] | None = None,
    text: str | None = None,
) -> Variable:
    accepted = (default,) if accepts is None else accepts
    return Variable(PREFIX + name, kind, default, doc, brought_by, accepted, default_text=text)


_SELECTION = [
    _used(
        "ACCELERATOR",
        string(),
        None,
        "Accelerator to run on: cpu (reference), nvidia (cuda), ascend, or the name of an installed backend. Unset: "
        "what is found, the CPU where nothing is. Upstream's default is nvidia.",
        text="detected",
    ),
    _used(
        "STRICT_KERNELS",
        boolean(),
        False,
        "An op for which the active backend has no kernel is an error instead of a fallback to the reference.",
        upstream=False,
    ),
    _used(
        "PIN",
        string(),
        None,
        "Pins ops to kernels: comma-separated OP=BACKEND or OP=BACKEND:KERNEL; OP may be a glob.",
        upstream=False,
    ),
    _used(
        "BATCH_INVARIANT",
        boolean(),
        True,
        "0 also allows kernels whose result for a row depends on the rest of the batch. Upstream's default is 0.",
    ),
    _used(
        "CACHE_DIR",
        path(),
        None,
        "Directory of embedded checkpoints and other files made once per user.",
        upstream=False,
        text="the user cache directory",
    ),
    _used("HF_MODEL_DIR", path(), None, "Model directory used where none is named."),
    _used(
        "JIT_CACHE_DIR",
        path(),
        None,
        "Root of the caches of compiled kernels.",
        text="deepinfer/jit in the user cache directory",
    ),
]

_GROUPS = [
    _used("GLOO_TIMEOUT", integer(1), 14400, "Seconds a collective waits before it names the missing ranks."),
    _planned("NCCL_NUM_SMS", integer(1), 32, _CUDA, "Minimum and maximum CTAs per NCCL communicator."),
    _planned("USERBUFFER_COMM_SMS", integer(0), 0, _CUDA, "SMs for expert dispatch and combine; 0 chooses."),
    _planned(
        "NCCL_MEMORY_SAMPLE_INTERVAL_STEPS",
        integer(1),
        1000,
        _PARALLEL,
        "Steps between samples of communicator memory.",
    ),
    _planned(
        "RINGBUFFER_WARNING_INTERVAL",
        number(above=0),
        60.0,
        _PARALLEL,
        "Seconds a worker waits for its queue before it warns.",
    ),
]

_EXPERTS = [
    _planned("REARRANGE_P2P_GROUPS", integer(1), 1, _EPLB, "Buckets of point-to-point copies when experts move."),
    _planned(
        "OVERRIDE_NUM_EXTRA_EXPERTS",
        integer(0),
        0,
        _EPLB,
        "Minimum of redundant experts; rounded up so that all experts divide by the group size.",
    ),
    _planned("EXPERT_COUNT_WINDOW_SIZE", integer(0), 100, _EPLB, "Steps of expert statistics kept."),
    _planned("EXPERT_REARRANGEMENT_STEP_INTERVAL", integer(0), 0, _EPLB, "Steps between rearrangements; 0 is off."),
    _planned(
        "REARRANGE_AFTER_PREFILL_IN_NORMAL_ENGINE",
        boolean(),
        False,
        _EPLB,
        "Count prefill steps too, and rearrange at the next other step.",
    ),
    _planned("MOE_LB_STAT_INTERVAL", integer(1), 128, _EPLB, "Steps between reports of the balance ratio."),
    _planned(
        "FORCE_IMBALANCE_RATIO",
        number(0),
        0.0,
        _EPLB,
        "From 1 on: biases random routing to the first rank (profiling).",
    ),
    _planned("FORCE_LOAD_BALANCE", boolean(), False, _EPLB, "Random routing scores for all tokens (profiling)."),
    _planned("SHOW_EPLB_DETAIL", boolean(), False, _EPLB, "Per-layer table in the log."),
]

_SCHEDULING = [
    _used("NUM_STATE_SLOTS_RATIO", number(1), 1.2, "State slots = int(max_num_seqs * ratio) + 1."),
    _used(
        "PREFILL_MAX_SUM_SEQLEN_K",
        integer(1),
        None,
        "Cap on the sum of full sequence lengths that prefill in one step, in tokens; at least max_model_len. "
        "Upstream's default is 2^30.",
    ),
    _planned(
        "PREFILL_ATTEMPT_INTERVAL", integer(1), 70, _PARALLEL, "Decode steps between votes of all ranks to prefill."
    ),
    _planned(
        "PREFILL_ANY_ATTEMPT_INTERVAL", integer(1), 100, _PARALLEL, "Decode steps between votes of any rank to prefill."
    ),
    _planned(
        "PREFILL_STORE_EXTRA_STATE",
        boolean(),
        False,
        "transfers between engines",
        "Longer window ring on prefill, so that the last 128-aligned window stays available.",
    ),
    _planned("PREFILL_STORE_EXTRA_SIZE", integer(1), 128, "transfers between engines", "Extra ring rows for it."),
    _used(
        "ZERO_OVERHEAD_SCHEDULING",
        boolean(),
        None,
        "Plan and launch the next step while the device runs this one, for engines made without `async_scheduling`.",
        text="1",
    ),
    _planned("GC_INTERVAL_STEP", integer(1), 1000, "the server", "Steps between collections of Python's garbage."),
    _used(
        "LOGGING_INTERVAL_STEP",
        integer(),
        100,
        "Steps between log lines of an engine with log statistics on; 0 or less is off.",
    ),
    _planned("DISABLE_SYNC_GUARD", boolean(), False, _ASYNC, "Turns the detection of host synchronisation off."),
    _planned(
        "CPP_LOG_LEVEL",
        choice("off", "error", "warn", "info"),
        "info",
        "the native planner",
        "Log level of native code.",
    ),
]

_MODEL = [
    _planned(
        "ENGRAM_PAD_TOKEN",
        integer(0),
        2,
        "a model option (until then the checkpoint's engram_pad_token_id decides)",
        "Token id that stands before the first token of an n-gram.",
        accepts=(),
    ),
    _used(
        "ENGRAM_FORCE_GPU_STORAGE",
        boolean(),
        None,
        "n-gram tables in device memory instead of host memory.",
        text="0, 1 on Ascend",
    ),
    _planned(
        "INDEX_ATTN_MEMORY_LIMIT",
        integer(1),
        10 << 30,
        "chunked index scoring",
        "Bytes of scratch for index scores.",
        text="10737418240 (10 GiB)",
    ),
    _used(
        "YOCO_PREFILL_TRUNCATION_MODE",
        choice("off", "mask", "compact"),
        "off",
        "Bounded replay: consumer layers see window keys of a prompt's last tokens only (mask), and compute no other "
        "rows (compact). Both give the same results, which are not those of off, the exact model.",
    ),
    _used(
        "YOCO_PREFILL_KEEP_TOKENS",
        integer(0),
        0,
        "Last tokens of a prompt that are kept then; at least the sliding window and the backtracking tokens. Upstream "
        "recommends 140.",
    ),
]

_SPECULATION = [
    _used(
        "USE_NEXTN_DECODE",
        integer(0, 32),
        5,
        "Drafts that a request verifies per step; 0 turns speculation off. A model without draft layers takes 0 only, "
        "and unset means 0 for it.",
    ),
    _planned("ENABLE_MTP_VARLEN", boolean(), False, _DRAFT, "Verification length scheduled by confidence."),
    _used(
        "MAX_BACKTRACKING_TOKENS",
        integer(1),
        None,
        "Extra history in the window and compression rings, in tokens; draft length + 1 where that is more.",
        text="draft length + 1",
    ),
    _used(
        "DFLASH_CONFIDENCE_HEAD_TEMPERATURE",
        floats(1e-5),
        (1.0,),
        "Temperature of the confidence head: one, or one per draft position.",
        text="1.0",
    ),
    _planned("DECODE_PERF_CACHE_DIR", path(), None, _DRAFT, "Directory that keeps the decode time curve."),
    _planned("DECODE_PERF_CACHE_TTL_SEC", number(0), 3600.0, _DRAFT, "Seconds the kept curve stays valid."),
]

_GRAPH = [
    _used(
        "ENFORCE_EAGER",
        boolean(),
        False,
        "No graphs: every launch of a decode step comes from the host. Results are the same bits.",
    ),
    _used("DFLASH_ENFORCE_EAGER", boolean(), False, "No graphs for the draft head."),
    _used(
        "CUDAGRAPH_BATCH_SIZE_INTERVAL",
        integer(1),
        8,
        "Step between numbers of sequences whose decode steps are captured; below it these are powers of two.",
    ),
    _planned("DFLASH_CUDAGRAPH_BATCH_SIZE_INTERVAL", integer(1), 8, _GRAPHS, "The same for the draft head."),
]

_SAMPLING = [
    _used(
        "COMPUTE_SUM_SMALLER_PROBS",
        boolean(),
        False,
        "Also return the probability mass of the tokens less likely than the sampled one.",
    ),
    _used(
        "SAMPLER_FORCE_TOPK",
        integer(0, 16384),
        0,
        "Truncates logits to this many candidates before sampling; 0 is off. Backends may allow fewer.",
    ),
    _used("DECODE_TOKEN_BLACKLIST", token_ranges(), (), "Token ids that are never drawn, prefill included."),
]

_STRUCTURED = [
    _planned("XGRAMMAR_DEBUG", boolean(), False, _GRAMMAR, "Debug output of the grammar engine."),
    _used("XGRAMMAR_TIMEOUT", number(above=0), 20.0, "Seconds a grammar may take to compile."),
    _used("XGRAMMAR_DISABLE_CACHE", boolean(), False, "Compile every grammar anew."),
    _used(
        "XGRAMMAR_CACHE_LIMIT_BYTES",
        integer(0),
        10 << 30,
        "Bytes of compiled grammars kept.",
        text="10737418240 (10 GiB)",
    ),
    _used("SO_BUILDER_CPUS", integer(1), 4, "Threads that compile grammars."),
]

_DIAGNOSTICS = [
    _planned("PROFILE_TORCH_CUDA_MEMORY", path(), None, _PROFILE, "Where the allocator's history is written."),
    _planned("ENABLE_MEMORY_TRACING", boolean(), False, _PROFILE, "Records allocations."),
    _used("PROFILE_HTTP_ENABLE", boolean(), False, "Serves profiles on demand, to programs of this machine alone."),
    _used("PROFILE_HTTP_PORT_BASE", integer(1, 65535), 6070, "First port of it; the device index is added."),
    _used("TORCH_PROFILER_DIR", path(), None, "Directory of traces.", text="/tmp"),
]

_IMAGES = [
    _planned(
        "USE_MULTIMODAL_POOL",
        boolean(),
        None,
        _VISION,
        "Pinned shared pool for images.",
        accepts=(False,),
        text="set by the engine: 1, completion engines 0",
    ),
    _planned("MULTIMODAL_POOL_SIZE_GB", number(above=0), 8.0, _VISION, "Size of the pool, in GiB."),
    _used("MULTI_MODAL_BUFFER_SIZE", integer(1), 512, "Requests whose images may wait to be decoded."),
    _used(
        "MULTI_MODAL_WORKER_TIMEOUT",
        number(above=0),
        60.0,
        "Seconds that the images of a request may take to decode; then their worker is replaced. Upstream's default is "
        "1800, and 0 turns it off.",
    ),
]

VARIABLES: dict[str, Variable] = {
    variable.name: variable
    for subject in (
        _SELECTION,
        _MODEL,
        _SAMPLING,
        _SCHEDULING,
        _SPECULATION,
        _STRUCTURED,
        _GRAPH,
        _GROUPS,
        _EXPERTS,
        _IMAGES,
        _DIAGNOSTICS,
    )
    for variable in subject
}
