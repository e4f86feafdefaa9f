"""What must not change what a request says, feature by feature: the table of docs/determinism.md is made here.

`python tests/support/determinism.py > docs/determinism.md` writes the page; its test runs every row and holds the page
against it. Every run is compared with the request alone: tokens, and every bit of its log-probabilities.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from deepinfer.runtime.offload import HostMemory, HostSettings
from deepinfer.runtime.params import SamplingParams
from deepinfer.runtime.prefix import PrefixSettings
from engines import drain
from model_engines import model_engine

DRAFTS = 2
SLACK = 128 + DRAFTS + 1
Bits = list[tuple[int, str, list[str]]]


def text(seed: int, count: int) -> list[int]:
    return [0, *np.random.default_rng(seed).integers(3, 400, size=count - 1).tolist()]


PROMPTS = [text(0, 21), text(1, 9), text(2, 34), text(3, 14)]
LONG = [text(4, 126), text(5, 127)]


def params(index: int, **more: Any) -> SamplingParams:
    return SamplingParams(
        max_tokens=6, ignore_eos=True, temperature=0.8 if index % 2 else 0.0, top_p=0.95, seq_seed=10 + index,
        top_logprobs=2, **more,
    )  # fmt: skip


def bits(outputs: list[Any]) -> Bits:
    """Tokens, and log-probabilities by their bits."""
    return [(o.token_id, o.token_logprobs.hex(), [one.hex() for one in o.top_logprobs]) for o in outputs]


def engine(model: Any, **options: Any) -> Any:
    values: dict[str, Any] = {"requests": 4, "pages": 12, "rows": 300, "longest": 300, "slack": DRAFTS + 1} | options
    return model_engine(model, DRAFTS, **values)


def ask(made: Any, *keys: int, steps: int = 0, prompts: list[list[int]] = PROMPTS, **more: Any) -> dict[int, Bits]:
    """Requests by number, with so many steps between them."""
    found: dict[Any, list[Any]] = {}
    for key in keys:
        made.add_request(None, key, params(key, **more), prompts[key])
        for _ in range(steps):
            for output in made.step():
                found.setdefault((output.request_id, output.sample_index), []).append(output)
    for name, outputs in drain(made).items():
        found.setdefault(name, []).extend(outputs)
    return {key: bits(found[key, 0]) for key in keys}


def load(model: Any) -> tuple[dict[int, Bits], bool]:
    made = engine(model)
    return ask(made, 0, 1, 2, 3), made.stats.steps < 20


def order(model: Any) -> tuple[dict[int, Bits], bool]:
    return ask(engine(model), 3, 1, 0, 2), True


def arrivals(model: Any) -> tuple[dict[int, Bits], bool]:
    return ask(engine(model), 2, 0, 1, 3, steps=2), True


def chunks(model: Any) -> tuple[dict[int, Bits], bool]:
    made = engine(model, rows=16)
    return ask(made, 2, 0, 3), made.stats.steps > 5


def priorities(model: Any) -> tuple[dict[int, Bits], bool]:
    made = engine(model, requests=2)
    for key in range(4):
        made.add_request(None, key, params(key, priority=key, tenant=str(key % 2)), PROMPTS[key])
    return {key: bits(outputs) for (key, _), outputs in drain(made).items()}, True


def asynchronous(model: Any) -> tuple[dict[int, Bits], bool]:
    made = engine(model, async_scheduling=True)
    return ask(made, 0, 1, 2, 3, steps=1), made._launch is not None


def forks(model: Any) -> tuple[dict[int, Bits], bool]:
    """Samples 0 and 2 of one request are requests 0 and 2: with the seeds and the prompt of these."""
    made = engine(model)
    one = params(0)
    one.n = 3
    made.add_request(None, 0, one, PROMPTS[0])
    found = drain(made)
    return {key: bits(found[0, key]) for key in (0, 2)}, made.stats.forked_tokens > 0


def prefix_hits(model: Any) -> tuple[dict[int, Bits], bool]:
    made = engine(model, prefix=PrefixSettings(SLACK))
    longer = [LONG[0] + PROMPTS[0], LONG[1] + PROMPTS[1]]
    ask(made, 0, prompts=longer)
    found = ask(made, 0, prompts=longer)
    return found, made.stats.cached_tokens > 0


def recompute(model: Any) -> tuple[dict[int, Bits], bool]:
    made = engine(model, pages=3)
    found = ask(made, 0, 1, prompts=LONG)
    return found, made.stats.preemptions > 0


def offload(model: Any) -> tuple[dict[int, Bits], bool]:
    made = engine(model, pages=3, host=HostSettings(4, 2))
    from deepinfer.hal.device import Device
    from deepinfer.hal.stream import InlineStreams

    pool = made.executor.drafter.pool
    by_slot = [made.executor.caches.state, pool.tokens, pool.confidence, pool.log2q]
    streams = InlineStreams(Device.parse("cpu"))
    made.executor.host = HostMemory(streams, [made.executor.caches.pages], by_slot, 4, 2)
    found = ask(made, 0, 1, prompts=LONG)
    return found, made.stats.offloads == made.stats.preemptions > 0


Run = Callable[[Any], tuple[dict[int, Bits], bool]]


@dataclass(frozen=True)
class Feature:
    """A row. `run`: what requests said with it, and whether it took place; None where it is shown by another test."""

    name: str
    what: str
    run: Run | None = None
    test: str = ""
    long: bool = False


FEATURES = (
    Feature("load", "four requests at a time", load),
    Feature("order", "the same, submitted in another order", order),
    Feature("batch", "requests that come while others decode", arrivals),
    Feature("chunks", "prompts cut at 16 rows per step, decoding rows among them", chunks),
    Feature("priorities", "turns by priority and tenant, two requests at a time", priorities),
    Feature("asynchronous scheduling", "a step is launched before the one before is looked at", asynchronous),
    Feature("forks", "three samples share the prompt of one", forks),
    Feature("prefix hits", "a prompt whose beginning the prefix cache has", prefix_hits, long=True),
    Feature("preemption, recomputed", "two requests, pages for one and a half", recompute, long=True),
    Feature("preemption, offloaded", "the same, by way of host memory", offload, long=True),
    Feature("graphs", "decode steps captured and replayed, padded to their shape", test="runtime/test_graphs.py"),
    Feature("all of them at once", "on the simulated executor", test="runtime/test_state_machine.py"),
)

_HEAD = """\
# Determinism

Made by `python tests/support/determinism.py`, from the rows that tests/runtime/test_determinism.py runs.

A request with the same prompt, parameters, seed and number of drafts says the same, whatever else goes on: the same
tokens, and the same bits of every log-probability. Each row below changes one thing about how requests are run and
compares every request with the one that has the engine to itself, over the embedded model with two drafts per step, at
temperature 0 and above, on the reference kernels. Kernels of other backends are held to the same rule by the
[conformance suite](conformance_suites.md) (`invariance`).

Three settings compute another function than the exact model, each when it is asked for by name only:

- **Truncated prompts** repeat like everything else: what is kept depends on the prompt alone, whatever the cache holds.
- **Bounded replay of windows** (`prefix_replay_tokens`) does not: whether windows begin anew hangs on what the prefix
  cache holds at that moment. It is refused beside `DEEPINFER_BATCH_INVARIANT=1`. Nothing that was computed by replay is
  kept for others.
- **`DEEPINFER_BATCH_INVARIANT=0`** lets kernels run whose rows depend on their batch.

Image workers change nothing: what a worker decodes is what the engine's own process would.

| what changes | how | tokens | bits of log-probabilities | test |
|---|---|---|---|---|
"""


def page() -> str:
    """docs/determinism.md."""
    rows = []
    for one in FEATURES:
        test = one.test or "runtime/test_determinism.py"
        rows.append(f"| {one.name} | {one.what} | equal | equal | {test} |\n")
    return _HEAD + "".join(rows)


if __name__ == "__main__":
    print(page(), end="")
