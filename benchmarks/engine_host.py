"""Host work of a decode step: what the engine does per running request, against one `torch.add`.

    python benchmarks/engine_host.py [--json] [--requests 512] [--drafts 0]

Steady decoding over an executor that computes nothing, with asynchronous scheduling: requests end, others come, texts
grow over page borders, and one request in ten asks for log-probabilities. What is timed is what a real step does on the
host: planning and its execution on the pools ("plan"), laying out the rows and writing the arrays for the device
("metadata"), reading results ("results") and committing them ("commit"). Launches of kernels are not in it, and neither
is detokenization, which is a matter of the caller's tokenizer. Times are the process's own: who else runs on
the machine costs caches and no time. The unit is a `torch.add` of two small tensors, timed in turns with the steps, so
that a machine that changes speed changes both.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from statistics import median
from types import SimpleNamespace
from typing import Any

import torch

from deepinfer.hal.device import Device
from deepinfer.hal.stream import InlineStreams
from deepinfer.runtime.ahead import Behind, Fetch, LaunchesSteps, Layout, Reports, _Step
from deepinfer.runtime.engine import EngineConfig, LLMEngine
from deepinfer.runtime.execute import Work
from deepinfer.runtime.params import SamplingParams
from deepinfer.runtime.plan import Limits
from deepinfer.runtime.sampler import Sampler

BAR = 30.0
VOCAB = 1024
PHASES = ("plan", "metadata", "results", "commit")


class Nothing:
    """An executor that lays a step out, computes nothing and makes results up."""

    def __init__(self, slots: int, drafts: int) -> None:
        text = SimpleNamespace(
            vocab_size=VOCAB, engram_layer_ids=(1,), engram_max_ngram_size=3, compress_ratios=(1, 4), sliding_window=128
        )
        self.streams = InlineStreams(Device("cpu"))
        model = SimpleNamespace(config=SimpleNamespace(text=text), device=torch.device("cpu"))
        self.launcher = LaunchesSteps(model, None, Sampler(VOCAB), None, slots, self.streams)
        rows = 4096
        self._tokens = torch.randint(0, VOCAB, (rows,), dtype=torch.int32)
        self._values = torch.rand(rows, 8)
        self._ids = torch.randint(0, VOCAB, (rows, 8), dtype=torch.int32)
        self._ones = torch.ones(rows, dtype=torch.int32)

    def launch(self, work: Sequence[Work], land: Callable[[], None]) -> Behind:
        """As `LaunchesSteps.launch` without the model."""
        layout, fetch = Layout.of(work), Fetch(self.streams)
        fresh = [item.request for item in layout.items if not item.ahead and (item.sample or item.redraft)]
        fetch.kept += self.launcher.state.begin(fresh)
        _Step(self.launcher, layout, fetch)
        reports = Reports(layout)
        requests = [layout.items[number].request for number in layout.draws]
        count = len(requests)
        wanted = [row for row, request in enumerate(requests) if request.params.top_logprobs]
        reports.top = {row: place for place, row in enumerate(wanted)}
        values = {
            "stale": torch.zeros(len(work), dtype=torch.bool), "tokens": self._tokens[:count],
            "logprobs": self._values[:count, 0], "count": self._ones[:count], "gained": self._ones[:count],
            "top_ids": self._ids[: len(wanted)], "top_values": self._values[: len(wanted)],
        }  # fmt: skip
        for name, value in values.items():
            fetch.add(name, value)
        fetch.seal()
        return Behind(work, layout, fetch, reports)

    def copy_states(self, pairs: Any) -> None:
        """Nothing to copy."""


def timed(spent: dict[str, float], phase: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """The call, whose time is added to a phase."""

    def wrapped(*args: Any, **options: Any) -> Any:
        began = time.process_time()
        try:
            return call(*args, **options)
        finally:
            spent[phase] += time.process_time() - began

    return wrapped


def build(requests: int, drafts: int, spent: dict[str, float]) -> LLMEngine:
    """An engine whose phases are timed."""
    executor: Any = Nothing(requests + 1, drafts)
    limits = Limits(max_tokens=requests * 4 + 1024, max_requests=requests, page_tokens=128)
    config = EngineConfig(
        vocab_size=VOCAB, eos_id=1, max_model_len=4096, limits=limits, num_pages=requests * 10, num_slots=requests,
        async_scheduling=True,
    )  # fmt: skip
    launch = executor.launch

    def launching(work: Sequence[Work], land: Callable[[], None]) -> Behind:
        ticket: Behind = timed(spent, "metadata", launch)(work, land)
        ticket.results = timed(spent, "results", ticket.results)  # type: ignore[method-assign]
        return ticket

    executor.launch = launching
    engine = LLMEngine(config, executor)
    engine._plan = timed(spent, "plan", engine._plan)  # type: ignore[method-assign]
    engine._commit = timed(spent, "commit", engine._commit)  # type: ignore[method-assign]
    return engine


def torch_add() -> float:
    """Seconds of an addition of two small tensors."""
    a, b = torch.ones(8), torch.ones(8)
    began = time.process_time()
    for _ in range(2000):
        torch.add(a, b)
    return (time.process_time() - began) / 2000


def run(requests: int, drafts: int, steps: int, turns: int) -> dict[str, Any]:
    """Microseconds per running request and step, by phase, and their ratio to a `torch.add`."""
    torch.set_num_threads(1)
    rng = random.Random(0)
    spent = dict.fromkeys(PHASES, 0.0)
    engine = build(requests, drafts, spent)
    arrived = 0

    def arrive() -> None:
        nonlocal arrived
        params = SamplingParams(
            max_tokens=rng.randint(60, 200), ignore_eos=True, seq_seed=arrived, top_logprobs=5 * (arrived % 10 == 0)
        )
        engine.add_request(None, arrived, params, [rng.randrange(2, VOCAB) for _ in range(rng.randint(30, 400))])
        arrived += 1

    def fill() -> None:
        while engine.get_num_unfinished_requests() < requests + 8:
            arrive()

    fill()
    while len(engine._queues.running) < requests:
        engine.step()
    for _ in range(20):
        engine.step()
        fill()
    totals, adds = [], []
    phases: dict[str, list[float]] = {phase: [] for phase in PHASES}
    finished = engine.stats.finished
    for _ in range(turns):
        adds.append(torch_add())
        spent.update(dict.fromkeys(PHASES, 0.0))
        whole = 0.0
        for _ in range(steps):
            fill()
            began = time.process_time()
            engine.step()
            whole += time.process_time() - began
        each = 1e6 / (steps * requests)
        totals.append(whole * each)
        for phase in PHASES:
            phases[phase].append(spent[phase] * each)
    add = median(adds) * 1e6
    total = median(totals)
    found = {phase: median(values) for phase, values in phases.items()}
    found["other"] = max(0.0, total - sum(found.values()))
    return {
        "benchmark": "engine_host",
        "requests": requests,
        "torch_add_us": add,
        "us_per_request": total,
        "us_per_step": total * requests,
        "ratio": median(t / (a * 1e6) for t, a in zip(totals, adds, strict=True)),
        "share": {phase: value / total for phase, value in found.items()},
        "finished_per_step": (engine.stats.finished - finished) / (turns * steps),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print a JSON line")
    parser.add_argument("--requests", type=int, default=512)
    parser.add_argument("--drafts", type=int, default=0)
    parser.add_argument("--steps", type=int, default=20, help="steps per turn")
    parser.add_argument("--turns", type=int, default=7)
    arguments = parser.parse_args()
    record = run(arguments.requests, arguments.drafts, arguments.steps, arguments.turns)
    if arguments.json:
        print(json.dumps(record))
    else:
        shares = ", ".join(f"{phase} {share:.0%}" for phase, share in record["share"].items())
        print(
            f"{record['requests']} requests: {record['us_per_step'] / 1e3:.2f} ms a step, "
            f"{record['us_per_request']:.2f} us per request, {record['ratio']:.1f} torch.add "
            f"({record['torch_add_us']:.2f} us); {shares}; {record['finished_per_step']:.1f} ends a step"
        )
    print(f"bar: {BAR:.0f} torch.add per request", "met" if record["ratio"] <= BAR else "missed", file=sys.stderr)
    return 0 if record["ratio"] <= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
