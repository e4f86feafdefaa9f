"""Faults that hit one request, or one worker: it suffers, and all others say what they say alone."""

from __future__ import annotations

import io
import os
import random
import signal
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from deepinfer.model.config import load_config
from deepinfer.model.hub import resolve_model
from deepinfer.runtime import engine as engine_module
from deepinfer.runtime.image_workers import WorkerSettings
from deepinfer.runtime.images import ImageReader
from deepinfer.runtime.offload import HostSettings
from deepinfer.runtime.params import SamplingParams
from delayed import Delayed, poison_freed
from engines import FREE, alone, bits, build_engine, drain

PAGE = 4
OTHERS = 5


def text(seed: int, count: int = 9) -> list[int]:
    return [random.Random(seed).randrange(2, 90) for _ in range(count)]


def params(key: int, **more: Any) -> SamplingParams:
    return SamplingParams(**(FREE | {"seq_seed": key, "max_tokens": 10} | more))


@pytest.fixture(params=["steps in turn", "steps that overlap"])
def make(request: pytest.FixtureRequest) -> Callable[..., Any]:
    def build(**options: Any) -> Any:
        values: dict[str, Any] = {"num_pages": 64, "num_slots": 8, "max_tokens": 32} | options
        executor = Delayed(97, values["num_pages"], values["num_slots"], PAGE, slack=1)
        engine = build_engine(executor=executor, async_scheduling=request.param == "steps that overlap", **values)
        poison_freed(engine)
        return engine

    return build


def add_others(engine: Any, **more: Any) -> None:
    for key in range(OTHERS):
        engine.add_request(None, key, params(key, **more), text(key))


def check_others(found: dict[Any, list[Any]], **more: Any) -> None:
    for key in range(OTHERS):
        assert bits(found[key, 0]) == bits(alone(text(key), params(key, **more))), key


def test_logits_that_are_no_numbers_end_one_request(make: Callable[..., Any]) -> None:
    engine = make()
    engine.executor.bad_first_token = 95
    add_others(engine)
    engine.add_request(None, "bad", params(50, n=2), [95, 3, 4])
    found = drain(engine)
    for index in range(2):
        assert found["bad", index][-1].finish_reason == "error" and "not numbers" in found["bad", index][-1].error
    check_others(found)


@pytest.mark.parametrize("host", [None, HostSettings(6, 1), HostSettings(64, 8)])
def test_out_of_pages(make: Callable[..., Any], host: HostSettings | None) -> None:
    engine = make(num_pages=16, num_slots=6, host=host)
    add_others(engine, max_tokens=20)
    found = drain(engine)
    assert engine.stats.preemptions > 0
    check_others(found, max_tokens=20)


def test_a_storm_of_cancellations(make: Callable[..., Any]) -> None:
    """Hundreds come and are cancelled at any moment, three of four; nothing leaks and the rest is told whole."""
    engine, rng = make(num_pages=24), random.Random(0)
    add_others(engine)
    found: dict[Any, list[Any]] = {}
    cancelled = 0
    for number in range(300):
        engine.add_request(None, f"storm {number}", params(number, n=1 + number % 3), text(number % 7, 5 + number % 9))
        if rng.random() < 0.5:
            for output in engine.step():
                found.setdefault((output.request_id, output.sample_index), []).append(output)
        if rng.random() < 0.75:
            cancelled += len(engine.abort_request(f"storm {number - rng.randrange(4)}"))
        engine.check_conservation()
    for name, outputs in drain(engine).items():
        found.setdefault(name, []).extend(outputs)
    assert cancelled > 150 and engine._queues.pages.used == engine._queues.slots.used == 0
    check_others(found)
    for (name, index), outputs in found.items():
        if outputs[-1].finish_reason != "abort" and isinstance(name, str):
            number = int(name.split()[1])
            want = alone(text(number % 7, 5 + number % 9), params(number + index))
            assert bits(outputs) == bits(want), name


@pytest.mark.parametrize("jump", [1e9, -1e6])
def test_a_clock_that_jumps(make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, jump: float) -> None:
    """A suspended machine: ages and step times make no sense for a while; turns and texts stay."""
    offset = 0.0
    original = time.monotonic

    class Clock:
        monotonic = staticmethod(lambda: original() + offset)

    monkeypatch.setattr(engine_module, "time", Clock)
    engine = make(max_requests=2, step_seconds=0.5)
    for key in range(OTHERS):
        engine.add_request(None, key, params(key, priority=key % 2, tenant=str(key)), text(key))
    found: dict[Any, list[Any]] = {}
    for step in range(6):
        offset = jump * (step % 3)
        for output in engine.step():
            found.setdefault((output.request_id, output.sample_index), []).append(output)
    for name, outputs in drain(engine).items():
        found.setdefault(name, []).extend(outputs)
    check_others(found)


def test_a_worker_that_is_killed(make: Callable[..., Any]) -> None:
    """A real process, killed with the image of one request in its hands."""
    image = pytest.importorskip("PIL.Image", reason="needs the images extra")
    buffer = io.BytesIO()
    image.fromarray(np.zeros((40, 60, 3), np.uint8)).save(buffer, "PNG")
    data = {"image_bytes": [buffer.getvalue()]}
    config = load_config(resolve_model("tiny"))
    reader = ImageReader(config, workers=WorkerSettings(seconds=30.0))
    slot = config.image_token_id
    assert reader.workers is not None
    engine = make(images=reader, vocab_size=config.text.vocab_size)
    engine.executor.vocab_size = 97
    try:
        engine.add_request(None, "first", params(60), [5, slot, 6], data)
        assert drain(engine)["first", 0][-1].finish_reason == "length"
        (pid,) = reader.workers.pids
        os.kill(pid, signal.SIGSTOP)
        add_others(engine)
        engine.add_request(None, "image", params(61), [5, slot, 6], data)
        deadline = time.monotonic() + 20
        while not reader.workers._jobs.empty():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(0.1)
        os.kill(pid, signal.SIGKILL)
        found = drain(engine, limit=100_000)
        assert found["image", 0][-1].finish_reason == "error" and "died" in found["image", 0][-1].error
        check_others(found)
        engine.add_request(None, "next", params(62), [5, slot, 6], data)
        assert drain(engine)["next", 0][-1].finish_reason == "length", "another worker took its place"
    finally:
        reader.close()
