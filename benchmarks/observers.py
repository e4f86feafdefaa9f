"""Host time that watching an engine takes: per decoding sample and step, as a ratio to one torch.add.

    python benchmarks/observers.py [--samples 512] [--steps 40] [--drafts 0] [--json]

An engine over the simulated executor decodes `--samples` requests at a time. Each observer (metrics, step log,
timeline) is told of every step, and the time spent in its calls is taken; between steps torch.add of eight numbers is
timed on the same core, so that a busy machine slows both. `put` is what an output takes of the engine's thread on its
way to a stream (`AsyncLLM`), `take` what reading it takes of the event loop's, both per output. Medians over steps.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from deepinfer.runtime.config import EngineConfig
from deepinfer.runtime.engine import LLMEngine
from deepinfer.runtime.engine_thread import Stream
from deepinfer.runtime.metrics import EngineMetrics
from deepinfer.runtime.observe import Observer
from deepinfer.runtime.params import SamplingParams
from deepinfer.runtime.plan import Limits
from deepinfer.runtime.simulate import SimulatedExecutor
from deepinfer.runtime.step_log import StepLog
from deepinfer.runtime.timeline import Timeline

CALLS = ("before_step", "planned", "ran", "timed", "returned")
VOCAB, PAGE, WARM_UP = 97, 16, 5
ADDS = 2000


def build(samples: int, drafts: int) -> LLMEngine:
    """An engine with room for so many."""
    limits = Limits(
        max_tokens=samples * (1 + drafts) + 4 * samples, max_requests=samples, page_tokens=PAGE, max_drafts=drafts
    )
    pages = 16 * samples
    config = EngineConfig(
        vocab_size=VOCAB, eos_id=1, max_model_len=16 * PAGE, limits=limits, num_pages=pages, num_slots=samples
    )
    return LLMEngine(config, SimulatedExecutor(VOCAB, pages, samples, PAGE))


def add_seconds() -> float:
    """Of one torch.add."""
    one = torch.ones(8)
    began = time.perf_counter()
    for _ in range(ADDS):
        torch.add(one, one)
    return (time.perf_counter() - began) / ADDS


def observed(engine: LLMEngine, name: str) -> Observer:
    """An observer of the engine."""
    if name == "metrics":
        return EngineMetrics(engine)
    if name == "timeline":
        return Timeline(engine)
    log = StepLog(replace(engine.config, log_interval=1 << 30))
    engine.observers.add(log)
    return log


class Watch:
    """Adds up the time of an observer's calls."""

    def __init__(self, observer: Observer) -> None:
        self.seconds = 0.0
        for name in CALLS:
            setattr(observer, name, self._timed(getattr(observer, name)))

    def _timed(self, call: Callable[..., None]) -> Callable[..., None]:
        def timed(*values: Any) -> None:
            began = time.perf_counter()
            call(*values)
            self.seconds += time.perf_counter() - began

        return timed


def measure(name: str, samples: int, steps: int, drafts: int) -> dict[str, Any]:
    """Median seconds per step and sample, and the ratio to torch.add."""
    engine = build(samples, drafts)
    take = watch_streams(samples, name) if name in ("put", "take") else None
    watch = None if take is not None else Watch(observed(engine, name))
    params = SamplingParams(max_tokens=200, ignore_eos=True, seq_seed=1)
    for key in range(samples):
        engine.add_request(None, key, params, [5] * 4)
    times, ratios = [], []
    for step in range(WARM_UP + steps):
        add = add_seconds()
        if watch is not None:
            watch.seconds = 0.0
        outputs = engine.step()
        spent = take(outputs) if take is not None else watch.seconds if watch is not None else 0.0
        add = (add + add_seconds()) / 2
        if step >= WARM_UP:
            count = len(outputs) if take is not None else samples
            times.append(spent / max(1, count))
            ratios.append(times[-1] / add)
    return {
        "observer": name,
        "samples": samples,
        "drafts": drafts,
        "us_per_sample": statistics.median(times) * 1e6,
        "ratio_to_add": statistics.median(ratios),
    }


def watch_streams(samples: int, name: str) -> Callable[[Any], float]:
    """Puts outputs into their streams and takes them out; returns the seconds of the part named."""
    loop = asyncio.new_event_loop()
    streams = {key: Stream(str(key), key, 1, loop) for key in range(samples)}
    loop.close()

    def take(outputs: Any) -> float:
        began = time.perf_counter()
        for output in outputs:
            streams[output.request_id].put(output)
        between = time.perf_counter()
        for stream in streams.values():
            stream.take()
        return between - began if name == "put" else time.perf_counter() - between

    return take


def run(samples: int, steps: int, drafts: int) -> Iterator[dict[str, Any]]:
    """A record per observer."""
    for name in ("metrics", "log", "timeline", "put", "take"):
        yield measure(name, samples, steps, drafts)


def main() -> int:
    parser = argparse.ArgumentParser(description="Host time of observers per sample and step.")
    parser.add_argument("--samples", type=int, default=512)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--drafts", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if min(options.samples, options.steps, options.drafts + 1) < 1 or options.steps > 150:
        parser.error("allowed: --samples from 1, --steps from 1 to 150, --drafts from 0")
    for record in run(options.samples, options.steps, options.drafts):
        if options.json:
            print(json.dumps(record))
        else:
            print(
                f"{record['observer']:9} {record['us_per_sample']:8.3f} us per sample and step, "
                f"{record['ratio_to_add']:.2f} of a torch.add ({record['samples']} samples)"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
