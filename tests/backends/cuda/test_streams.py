"""On a GPU: streams, events, pinned memory, graphs, the guard against host waits, warm start, the self-test at load."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import cuda_children

pytest.importorskip("triton")

import triton.language as tl

from deepinfer.backends.cuda import backend, binaries, jit
from deepinfer.hal.device import Device
from deepinfer.hal.errors import KernelError
from deepinfer.hal.graph import GraphError, Graphs
from deepinfer.hal.registry import REGISTRY
from deepinfer.hal.stream import HostSyncError, Streams

pytestmark = pytest.mark.gpu
GPU = Device("cuda")


@jit.jit
def scale(x_ptr, out_ptr, n, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n) * factor, mask=at < n)


def scaled(x: torch.Tensor, out: torch.Tensor, factor: float = 3.0) -> torch.Tensor:
    scale[(-(-x.numel() // 128),)](x, out, x.numel(), factor, BLOCK=128)
    return out


@pytest.fixture
def streams() -> Streams:
    return backend.streams(GPU)


@pytest.fixture
def graphs() -> Iterator[Graphs]:
    found = backend.graphs(GPU)
    assert isinstance(found, Graphs)
    yield found


def test_the_device_gives_the_known_answers() -> None:
    backend.self_test(GPU)
    assert backend.capability(GPU).graphs


def test_a_replay_reads_inputs_anew_and_keeps_its_results(graphs: Graphs) -> None:
    x, out = torch.arange(300.0, device="cuda"), torch.zeros(300, device="cuda")
    first = graphs.capture(lambda: scaled(x, out) + 1)
    second = graphs.capture(lambda: scaled(x, torch.empty_like(x), 5.0))
    kept = first.result
    x.fill_(2.0)
    first.replay()
    second.replay()  # from the same pool: must not take what the first one's result lies in
    torch.cuda.synchronize()
    assert torch.equal(kept, torch.full((300,), 7.0, device="cuda"))
    assert torch.equal(second.result, torch.full((300,), 10.0, device="cuda"))
    first.release()
    with pytest.raises(GraphError, match="released"):
        first.replay()


def test_eager_and_replayed_bits_are_equal(graphs: Graphs) -> None:
    x = torch.randn(5000, device="cuda")
    captured = graphs.capture(lambda: scaled(x, torch.empty_like(x), 0.1))
    assert torch.equal(captured.replay(), scaled(x, torch.empty_like(x), 0.1))


def test_a_body_that_waits_for_the_device_is_refused_and_the_next_capture_works(graphs: Graphs) -> None:
    x = torch.ones(10, device="cuda")
    with pytest.raises(GraphError, match="refused to record"):
        graphs.capture(lambda: x.sum().item())
    assert graphs.capture(lambda: x * 2).replay().tolist() == [2.0] * 10


def test_a_copy_on_another_stream_is_waited_for_on_the_device(streams: Streams) -> None:
    host = streams.pinned((1 << 22,), torch.float32)
    assert host.is_pinned()
    host.fill_(4.0)
    there = torch.zeros(1 << 22, device="cuda")
    out = torch.empty_like(there)
    streams.synchronize()
    with streams.no_host_sync():
        with streams.new(urgent=True):
            there.copy_(host, non_blocking=True)
            copied = streams.record()
        streams.wait(copied)
        scaled(there, out)
        done = streams.record()
    done.synchronize()
    assert done.done() and copied.done()
    assert bool((out == 12.0).all())


def test_a_wait_of_the_host_is_an_error_in_the_guard(streams: Streams) -> None:
    x = torch.ones(4, device="cuda")
    with pytest.raises(HostSyncError, match="cuda:0"), streams.no_host_sync():
        x.sum().item()
    assert x.sum().item() == 4.0


def test_launches_go_to_the_current_stream(streams: Streams) -> None:
    x, out = torch.ones(1 << 20, device="cuda"), torch.zeros(1 << 20, device="cuda")
    streams.synchronize()
    side = streams.new()
    with side:
        torch.cuda._sleep(50_000_000)
        scaled(x, out)
        last = streams.record()
    assert not last.done(), "the launch must come after the sleep on the same stream"
    side.synchronize()
    assert bool((out == 3.0).all())


def test_nothing_compiles_once_that_is_forbidden() -> None:
    x = torch.ones(64, device="cuda")
    scaled(x, torch.empty_like(x))
    with binaries.no_compile("the engine serves"):
        scaled(x[:1], torch.empty_like(x[:1]), 2.0)
        with pytest.raises(KernelError, match="is not compiled, and the engine serves"):
            scale[(1,)](x, torch.empty_like(x), 64, 2.0, BLOCK=32)


def test_a_second_process_launches_without_compiling(tmp_path: Path) -> None:
    script = cuda_children.SUPPORT / "cuda_warm_start.py"
    cold = cuda_children.run(script, "self-test", cache=tmp_path)
    warm = cuda_children.run(script, "self-test", cache=tmp_path)
    assert (cold["compilations"], warm["compilations"]) == (1, 0) and cold["right"] and warm["right"]


@pytest.mark.slow
def test_a_process_serves_small_samples_of_every_op_with_what_another_compiled(tmp_path: Path) -> None:
    script = cuda_children.SUPPORT / "cuda_warm_start.py"
    cold = cuda_children.run(script, "samples", cache=tmp_path)
    warm = cuda_children.run(script, "again", cache=tmp_path)
    assert cold["compilations"] > 0 and not cold["failed"]
    assert warm == {**cold, "compilations": 0}
    assert warm["served"] and not warm["without"]


@pytest.mark.slow
def test_the_released_shapes_are_served_with_what_is_built_ahead(tmp_path: Path) -> None:
    """`deepinfer build`, then a process that may compile nothing: every op that takes samples of released widths."""
    backend.load()
    ours = (kernel for kernel in REGISTRY.kernels() if kernel.backend == "cuda")
    families = list({kernel.fn.__module__: kernel.op for kernel in ours}.values())  # an op of each
    build = [sys.executable, "-m", "deepinfer", "build", "--arch", "sm_90"]
    commands = [[*build, *(word for op in families[i::8] for word in ("--op", op))] for i in range(8)]
    cuda_children.finish(commands, cuda_children.environment(tmp_path), 600)
    script = cuda_children.SUPPORT / "cuda_warm_start.py"
    found = cuda_children.run(script, "released", cache=tmp_path)
    assert found["compilations"] == 0 and not found["failed"] and found["served"]
