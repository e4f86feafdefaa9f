"""Work and time of one step by op, for `slice.py`: cost models, and events around every call."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median
from typing import Any

import torch

from deepinfer.hal.registry import REFERENCE, REGISTRY
from deepinfer.ops.spec import SPECS, OpSpec, WeightHandle

TIMING = "op timer"
AHEAD, PAUSE = 40, 20_000_000
"""Ops between two pauses of the device, and clocks of a pause: in it the host queues the launches of that many, so that
none of them waits for the host."""
CACHES = (
    "sparse_attention", "index_score", "index_score_blocks", "index_topk", "engram_gather", "embed_streams",
    "window_store", "compressed_store", "index_key_store", "compressor_ring_store", "sample_filter",
    "draft_distribution",
)  # fmt: skip
"""Ops that read or write what outlives the step, or read the logits for the first time: all of their bytes count as
stored. Of ops with weights only the weights do; what the others read, ops hand to each other."""


@dataclass
class OpTime:
    """Calls of one op: how many, microseconds, bytes and operations of the cost model, microseconds of the floor, and
    the bytes of weights and caches."""

    calls: int = 0
    us: float = 0.0
    bytes: float = 0.0
    flops: float = 0.0
    floor_us: float = 0.0
    stored_bytes: float = 0.0


@dataclass
class Step:
    """What one step did, by op."""

    ops: dict[str, OpTime] = field(default_factory=dict)
    copy: float = 1.0
    rate: float = 1.0
    live: float = 1.0
    """Part of the step's rows that are no padding."""

    def note(self, spec: OpSpec, args: tuple[Any, ...]) -> OpTime:
        """Count a call; its time is added later."""
        found, cost = self.ops.setdefault(spec.name, OpTime()), spec.work(*args)
        found.calls += 1
        found.bytes += cost.bytes
        found.flops += cost.flops
        found.floor_us += max(cost.bytes / self.copy, cost.flops / self.rate) * 1e6
        found.stored_bytes += stored_bytes(spec, args, cost.bytes, self.live)
        return found

    @property
    def floor_us(self) -> float:
        """Floor of the whole step: weights and cache entries read once, or all operations."""
        stored = sum(one.stored_bytes for one in self.ops.values())
        return max(stored / self.copy, sum(one.flops for one in self.ops.values()) / self.rate) * 1e6

    @property
    def bytes_us(self) -> float:
        """The part of it that is bytes."""
        return sum(one.stored_bytes for one in self.ops.values()) / self.copy * 1e6

    @property
    def ops_floor_us(self) -> float:
        """Sum of the floors of all calls, what ops hand to each other included."""
        return sum(one.floor_us for one in self.ops.values())


def stored_bytes(spec: OpSpec, args: tuple[Any, ...], bytes_: float, live: float = 1.0) -> float:
    """Bytes of a call that no fusion of ops can spare a step: weights that it touches, cache entries.

    Of E experts, rows that choose evenly touch E (1 - (1 - 1/E)^rows), `live` of the packed rows being of a token.
    """
    if spec.name in CACHES:
        return bytes_
    if spec.name == "hc_coefficients":
        return float(args[1].numel() * args[1].element_size())
    handle = next((arg for arg in args if isinstance(arg, WeightHandle)), None)
    if handle is None:
        return 0.0
    if spec.name != "grouped_linear":
        return float(handle.nbytes)
    found = spec.dims(*args)
    rows = live * found.get("M", found.get("X", 0))
    return handle.nbytes * (1 - (1 - 1 / handle.dims["E"]) ** rows)


@contextmanager
def timing(step: Step, device: torch.device, *, count: bool = True) -> Iterator[None]:
    """Count, or only time, the op calls of a with block; on a GPU by events, in the order of the stream.

    Counting takes the host longer than the device may pause, so times are those of a run without.
    """
    active, arch = REGISTRY.active, REGISTRY.arch
    gpu = device.type == "cuda"
    events: list[tuple[OpTime, Any, Any]] = []
    calls = 0

    def timed(spec: OpSpec, kernel: Any, *args: Any) -> Any:
        nonlocal calls
        found = step.note(spec, args[: len(spec.args)]) if count else step.ops.setdefault(spec.name, OpTime())
        if not gpu:
            began = time.perf_counter()
            result = kernel.fn(*args)
            found.us += (time.perf_counter() - began) * 1e6
            return result
        if calls % AHEAD == 0:
            torch.cuda._sleep(PAUSE)
        calls += 1
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        result = kernel.fn(*args)
        last.record()
        events.append((found, first, last))
        return result

    added = []
    try:
        for kernel in REGISTRY.kernels():
            spec = SPECS.get(kernel.op)
            if spec is None or kernel.backend not in (active, REFERENCE):
                continue
            first = 1 << 20 if kernel.backend == active else 0
            twin = replace(
                kernel,
                backend=TIMING,
                name=kernel.id,
                priority=kernel.priority + first,
                fn=partial(timed, spec, kernel),
            )
            added.append(REGISTRY.add(twin))
        with REGISTRY.using(TIMING, arch):
            yield
        if gpu:
            empty = _empty_us()
            torch.cuda.synchronize(device)
            for found, began, ended in events:
                found.us += max(0.0, began.elapsed_time(ended) * 1000 - empty)
    finally:
        for kernel in added:
            REGISTRY.remove(kernel)


def _empty_us() -> float:
    """What two events around nothing measure."""
    torch.cuda._sleep(1_000_000)
    pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(20)]
    for first, last in pairs:
        first.record()
        last.record()
    torch.cuda.synchronize()
    return median(first.elapsed_time(last) * 1000 for first, last in pairs)


def launches(body: Callable[[], Any], device: torch.device) -> int | None:
    """Kernels and copies that a body launches: nodes of its graph. None where that cannot be told."""
    if device.type != "cuda":
        return None
    try:
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            body()
        count = ctypes.c_size_t()
        handle = ctypes.c_void_p(graph.raw_cuda_graph())
        status = ctypes.CDLL("libcuda.so.1").cuGraphGetNodes(handle, None, ctypes.byref(count))
        return int(count.value) if status == 0 else None
    except (AttributeError, OSError, TypeError):
        return None
