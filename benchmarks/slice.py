"""A slice of the released model on one GPU: decode steps and prompt chunks, by size of batch and length of context.

    python benchmarks/slice.py [--quick] [--only "ops; decode, 128"] [--json] [--model slice|tiny|kernel|DIRECTORY]

`slice/config.json` has the released model's dimensions and all of its layers, 48 of 384 experts (16 of 128 in draft
layers), as many as one of 8 ranks holds, of which every token takes 6, and small Engram tables. Weights are made up on
the device.

Caches are not filled by prompts of full length: one prompt of 8,192 tokens is computed, and its pages and state are
copied to all others. Every sequence has pages of its own, in shuffled places.

Cases:
  decode    a step of B sequences in C tokens of context, backbone and sampling (temperature 0.8, top-p 0.95), replayed
            from captured graphs; with drafts, of 6 rows per sequence and with the draft pass
  eager     the same without graphs; whether graphs and padding leave every bit as it is; the launches of a step
  fast      the same with kernels that may break batch invariance, where there are any
  ops       the same by op, on events, beside the ops' floors
  prefill   a chunk of 4,096 rows of one prompt that ends at C
  engine    steps of the whole engine: what of a step's time the device has nothing to do, asynchronous scheduling off
            and on
  turns     conversations of several turns, B at a time, with the prefix cache and without; by `--only turns` alone, for
            windows then keep a page more

The floor of a step is the time to read its weights and cache entries once at the copy rate, or to do its operations at
the bf16 rate, the larger. The bar: the decode step of 128 sequences in 32K of context, one row each, reaches 0.55 of
its byte floor, and takes at most 1.15 times the step with fast kernels; and with asynchronous scheduling the device is
idle for at most 5 % of a decode step of 64 requests. Exit status 1 where that is missed, 0 where it is met or was not
measured (other models, `--only`), 2 without the backend.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent))

from slice_ops import Step, launches, timing

from deepinfer.hal.catalog import load_backend
from deepinfer.hal.device import Device
from deepinfer.hal.graph import EagerGraphs, Graph, Graphs, GraphsUnavailable
from deepinfer.hal.registry import REGISTRY
from deepinfer.model.batch import Batch, SequenceSlice
from deepinfer.model.decode import DecodeSettings, DecodeShape, DecodeStep
from deepinfer.model.draft import DraftPool
from deepinfer.model.hub import resolve_model
from deepinfer.model.transformer import Model
from deepinfer.ops import sampling
from deepinfer.ops.layouts import PAGE_TOKENS

BAR, FAST_BAR, IDLE_BAR = 0.55, 1.15, 0.05
JUDGED = (128, 32 << 10)
IDLE_BATCH = 64
CHUNK, FILLED = 4096, 8192
TOP_P, TEMPERATURE = 0.95, 0.8


@dataclass(frozen=True)
class Case:
    """One line: a kind, sequences, tokens of context, drafts per sequence."""

    kind: str
    batch: int
    context: int
    drafts: int = 0

    def __str__(self) -> str:
        drafts = f", {self.drafts} drafts" if self.drafts else ""
        return f"{self.kind}, {self.batch} x {self.context:,}{drafts}"


def cases(quick: bool, most: int, drafts: int) -> list[Case]:
    """All cases whose context the model holds, those that tell most first."""
    contexts = [1 << 10, 8 << 10, 32 << 10, 128 << 10]
    if most < contexts[-1]:
        contexts = [most // 4, most]
    middle = contexts[-2] if len(contexts) > 2 else contexts[-1]
    found = [Case("decode", 128, middle, n) for n in (0, drafts)]
    found += [Case(kind, 128, middle, n) for n in (0, drafts) for kind in ("eager", "fast", "ops")]
    found += [Case("engine", batch, contexts[0], n) for batch in (IDLE_BATCH, 128) for n in (0, drafts)]
    found.append(Case("turns", 8, min(8 << 10, most)))
    ends = sorted({min(CHUNK, most), middle} if quick else {min(CHUNK, most), *contexts[1:]})
    found += [Case("prefill", 1, context) for context in ends]
    if quick:
        return list(dict.fromkeys([*found, Case("decode", 8, middle)]))
    wide = [Case("decode", batch, context) for context in contexts for batch in (1, 8, 32, 64, 128, 256)]
    wide += [Case("decode", batch, middle, drafts) for batch in (1, 8, 32)]
    return list(dict.fromkeys([*found, *wide]))


class Slice:
    """A model with filled caches, and the steps that are timed."""

    def __init__(self, model: Model, backend: Any, device: Device, tokens: int, slots: int, drafts: int) -> None:
        self.model, self.backend, self.device, self.drafts = model, backend, device, drafts
        self.streams = backend.streams(device)
        found = backend.graphs(device)
        self.graphs: Graphs = EagerGraphs(device) if isinstance(found, GraphsUnavailable) else found
        text = model.config.text
        self.rng = np.random.default_rng(7)
        filled = min(FILLED, model.max_model_len // PAGE_TOKENS * PAGE_TOKENS)
        self.caches = model.new_caches(1 + max(-(-tokens // PAGE_TOKENS), filled // PAGE_TOKENS), 1 + slots)
        self.order = self.rng.permutation(np.arange(1, self.caches.pages.shape[0], dtype=np.int32))
        self.pool = DraftPool.new(1 + slots, drafts, text.vocab_size, model.device, distributions=True)
        self.logits = torch.empty(((slots + 4) * (1 + drafts) + 8, text.vocab_size), device=model.device)
        self._fill(filled)

    def _fill(self, tokens: int) -> None:
        """Compute one prompt; copy its pages and state to all others."""
        pages, ids = tokens // PAGE_TOKENS, self.tokens(tokens)
        for start in range(0, tokens, CHUNK):
            end = min(start + CHUNK, tokens)
            self.chunk(ids, start, end, list(range(1, pages + 1)))
        pool, state = self.caches.pages, self.caches.state
        for first in range(1 + pages, pool.shape[0], pages):
            count = min(pages, pool.shape[0] - first)
            pool[first : first + count] = pool[1 : 1 + count]
        state[2:] = state[1]
        self.streams.synchronize()

    def tokens(self, shape: Any) -> Any:
        """Random ids of text."""
        vocab = self.model.config.text.vocab_size
        return self.rng.integers(3, vocab - 1024 if vocab > 4096 else 400, shape).astype(np.int32)

    def chunk(self, ids: Any, start: int, end: int, pages: Sequence[int]) -> torch.Tensor:
        """Rows of a prompt, logits of the last."""
        part = SequenceSlice(ids, start, end, 1, pages, [end - 1])
        return self.model.forward(Batch.build([part], self.model.config.text, self.model.device), self.caches)

    def step(self, batch: int, context: int, drafts: int, padding: int = 0) -> DecodeStep:
        """A decode step, its inputs filled: the same ones for the same arguments, whatever the padding."""
        width, pages = 1 + drafts, -(-context // PAGE_TOKENS)
        settings = DecodeSettings(drafts, self.pool if drafts else None)
        shape = DecodeShape(batch + padding, width, pages)
        step = DecodeStep(self.model, self.caches, shape, settings, self.streams, self.logits)
        host: dict[str, Any] = step.inputs.host
        slots = np.arange(1, batch + 1)
        self.rng = np.random.default_rng(7)
        for name, values in (
            ("query_len", width), ("key_len", context), ("state_slot", slots), ("seeds", slots),
            ("fresh_begin", (slots - 1) * width), ("history", self.tokens((batch, step.ngram - 1))),
            ("block_table", self.order[: batch * pages].reshape(batch, pages)),
            ("inv_temperature", sampling.inverse_temperature(TEMPERATURE)), ("top_p", sampling.fixed31(TOP_P)),
            ("draft_slot", slots if drafts else -1), ("drawn", drafts > 0),
        ):  # fmt: skip
            host[name][:batch] = values
        host["fresh"][: batch * width] = self.tokens(batch * width)
        if padding:  # what nobody may look at
            for name, poison in (("inv_temperature", np.nan), ("block_table", 1), ("seeds", 99), ("top_k", 1)):
                host[name][batch:] = poison
            host["fresh"][batch * width :] = 77
        if step.reads_host:
            step.gather(np.full((batch * width, step.ngram), 5, np.int32))
        step.inputs.upload()
        return step

    def parts(self, step: DecodeStep) -> dict[str, Callable[[], Any]]:
        """The parts of a step, in order."""

        def guarded(run: Callable[[], Any]) -> Callable[[], None]:
            def body() -> None:
                with self.streams.no_host_sync():
                    run()

            return body

        found = {"backbone": guarded(step.backbone), "sample": guarded(lambda: step.sample(plain=False))}
        if step.settings.drafts:
            found["draft"] = guarded(lambda: step.draft(plain=False))
        return found

    def captured(self, parts: dict[str, Callable[[], Any]]) -> dict[str, Graph]:
        """Graphs of the parts of a step. Each is replayed once, since the next part's warm-up reads what it leaves."""
        kept = {}
        for name, body in parts.items():
            kept[name] = self.graphs.capture(body)
            kept[name].replay()
        return kept

    def seconds(self, run: Callable[[], Any], repeats: int, rounds: int = 3) -> float:
        """Seconds per run, of runs that follow one another on the device: the median of rounds."""
        times = []
        for _ in range(rounds):
            self.streams.synchronize()
            began = time.perf_counter()
            for _ in range(repeats):
                run()
            self.streams.synchronize()
            times.append((time.perf_counter() - began) / repeats)
        return median(times)


class Bench:
    """Runs cases, and keeps what later ones compare with."""

    def __init__(self, made: Slice, copy: float, rate: float, repeats: int) -> None:
        self.made, self.copy, self.rate, self.repeats = made, copy, rate, repeats
        self.times: dict[tuple[int, int, int], float] = {}
        self.floors: dict[tuple[int, int, int], Step] = {}

    def run(self, case: Case) -> Iterator[dict[str, Any]]:
        """Records of a case."""
        yield from getattr(self, f"_{case.kind}")(case)

    def _key(self, case: Case) -> tuple[int, int, int]:
        return case.batch, case.context, case.drafts

    def _time(self, case: Case) -> tuple[float, dict[str, float]]:
        """Seconds of a captured step, and of its parts."""
        made = self.made
        step = made.step(case.batch, case.context, case.drafts)
        kept = made.captured(made.parts(step))
        try:

            def replay() -> None:
                for graph in kept.values():
                    graph.replay()

            replay()
            whole = made.seconds(replay, self.repeats)
            each = {name: made.seconds(graph.replay, self.repeats, 1) for name, graph in kept.items()}
        finally:
            for graph in kept.values():
                graph.release()
        return whole, each

    def _decode(self, case: Case) -> Iterator[dict[str, Any]]:
        whole, each = self._time(case)
        self.times[self._key(case)] = whole
        floor = self._work(case)
        yield {
            "ms": whole * 1e3,
            "tokens_per_second": case.batch / whole,
            "rows_per_second": case.batch * (1 + case.drafts) / whole,
            "parts_ms": {name: seconds * 1e3 for name, seconds in each.items()},
            "floor_ms": floor.floor_us / 1e3,
            "byte_floor_ms": floor.bytes_us / 1e3,
            "share": floor.floor_us / 1e6 / whole,
            "byte_share": floor.bytes_us / 1e6 / whole,
        }

    def _work(self, case: Case) -> Step:
        """Work of a step, by counting one that runs eagerly."""
        key = self._key(case)
        if key not in self.floors:
            self.floors[key] = self._one(case)
        return self.floors[key]

    def _one(self, case: Case) -> Step:
        made = self.made
        step = made.step(case.batch, case.context, case.drafts)
        live = case.batch * step.shape.width / step.shape.rows
        found, parts = Step(copy=self.copy, rate=self.rate, live=live), made.parts(step)

        def run() -> None:
            for body in parts.values():
                body()

        return self._timed(found, run)

    def _timed(self, found: Step, run: Callable[[], None]) -> Step:
        """Count a run, then time another one."""
        with timing(found, self.made.model.device):
            run()
        for one in found.ops.values():
            one.us = 0.0
        with timing(found, self.made.model.device, count=False):
            run()
        return found

    def _ops(self, case: Case) -> Iterator[dict[str, Any]]:
        step = self._one(case)
        total = sum(one.us for one in step.ops.values())
        yield {"ms": total / 1e3, "ops_floor_ms": step.ops_floor_us / 1e3, "floor_ms": step.floor_us / 1e3}
        for name, one in sorted(step.ops.items(), key=lambda item: -item[1].us):
            yield {
                "op": name, "calls": one.calls, "ms": one.us / 1e3, "part": one.us / total,
                "floor_ms": one.floor_us / 1e3, "share": one.floor_us / one.us if one.us else 0.0,
            }  # fmt: skip

    def _eager(self, case: Case) -> Iterator[dict[str, Any]]:
        made = self.made
        parts = made.parts(made.step(case.batch, case.context, case.drafts))

        def run() -> None:
            for body in parts.values():
                body()

        run()
        found: dict[str, Any] = {"ms": made.seconds(run, 1) * 1e3, "same_bits": self._agree(case)}
        counts = {name: launches(body, made.model.device) for name, body in parts.items()}
        if all(count is not None for count in counts.values()):
            found["launches"] = counts
        if self._key(case) in self.times:
            found["graphs_ms"] = self.times[self._key(case)] * 1e3
        yield found

    def _agree(self, case: Case) -> bool:
        """Whether a step gives the same bits eagerly, captured, and captured with poisoned padding behind it."""
        found = []
        for padding, capture in ((0, False), (0, True), (3, True)):
            step = self.made.step(case.batch, case.context, case.drafts, padding)
            bodies = self.made.parts(step)
            kept = self.made.captured(bodies) if capture else {}
            if self.made.pool.log2q is not None:  # a step verifies with what the one before drew from
                self.made.pool.log2q.fill_(-10.0)
            for run in [graph.replay for graph in kept.values()] if capture else bodies.values():
                run()
            step.outputs.download()
            self.made.streams.synchronize()
            host: dict[str, Any] = step.outputs.host
            rows = {"logprob", "valid", "draft_log2q"}
            live = {k: case.batch * step.shape.width if k in rows else case.batch for k in host}
            found.append({k: value[: live[k]].tobytes() for k, value in host.items()})
            found[-1]["logits"] = step.logits[: case.batch * step.shape.width].cpu().numpy().tobytes()
            for graph in kept.values():
                graph.release()
        return found[0] == found[1] == found[2]

    def _fast(self, case: Case) -> Iterator[dict[str, Any]]:
        kinds = sorted(
            {kernel.op for kernel in REGISTRY.kernels() if kernel.fast and kernel.backend == REGISTRY.active}
        )
        if not kinds:
            yield {"note": "the backend has no fast kernels"}
            return
        REGISTRY.configure(allow_fast=True)
        try:
            whole, _ = self._time(case)
        finally:
            REGISTRY.configure()
        found: dict[str, Any] = {"ms": whole * 1e3, "fast_kernels_of": kinds}
        if self._key(case) in self.times:
            found["invariant_ms"] = self.times[self._key(case)] * 1e3
            found["ratio"] = self.times[self._key(case)] / whole
        yield found

    def _prefill(self, case: Case) -> Iterator[dict[str, Any]]:
        made = self.made
        end, rows = case.context, min(CHUNK, case.context)
        ids = made.tokens(end)
        pages = made.order[: -(-end // PAGE_TOKENS)].tolist()

        def run() -> None:
            made.chunk(ids, end - rows, end, pages)

        run()
        seconds = made.seconds(run, 1, 1)
        step = self._timed(Step(copy=self.copy, rate=self.rate), run)
        top = sorted(step.ops.items(), key=lambda item: -item[1].us)[:8]
        yield {
            "ms": seconds * 1e3, "rows": rows, "tokens_per_second": rows / seconds, "floor_ms": step.floor_us / 1e3,
            "share": step.floor_us / 1e6 / seconds, "top_ms": {name: one.us / 1e3 for name, one in top},
        }  # fmt: skip

    def _engine(self, case: Case) -> Iterator[dict[str, Any]]:
        from slice_engine import idle

        yield from idle(self.made, case.batch, case.drafts)

    def _turns(self, case: Case) -> Iterator[dict[str, Any]]:
        from slice_engine import turns

        yield from turns(self.made, case.batch, case.context)


def measure(given: argparse.Namespace) -> int:
    backend = load_backend(given.backend, None)
    device = backend.devices()[0]
    gpu = device.type == "cuda"
    if gpu:
        from cuda_rates import measure_rates

        rates = measure_rates()
        copy, rate = rates.copy, rates.bf16
        _print(given, rates.record() if given.json else {"rates": str(rates)})
    else:
        copy, rate = 1e10, 1e10
        _print(given, {"note": "no GPU: times mean nothing, shares are of made-up rates"})
    torch.cuda.empty_cache() if gpu else None
    began = time.perf_counter()
    path = Path(__file__).parent / "slice" if given.model == "slice" else resolve_model(given.model)
    dummy: dict[str, Any] = (
        {"load_format": "device_dummy", "identity_vocabulary": True} if given.model == "slice" else {}
    )
    most = given.max_context or ((128 << 10) if given.model == "slice" else 512)
    wanted = given.only.split(";")
    chosen = [c for c in cases(given.quick, most, given.drafts) if any(part.strip() in str(c) for part in wanted)]
    if "turns" in given.only:
        # Rings that still hold the window before the last page border, as the engine keeps them for its prefix cache.
        dummy["backtrack"] = given.drafts + 1 + PAGE_TOKENS
    else:
        chosen = [case for case in chosen if case.kind != "turns"]
    model = Model.load(
        path, device=device.torch, max_model_len=most, max_draft=given.drafts, engram_storage="device", **dummy
    )
    if given.batch:
        chosen = [Case(c.kind, min(c.batch, given.batch), c.context, c.drafts) for c in chosen]
    steps = [case for case in chosen if case.kind not in ("prefill", "engine", "turns")]
    tokens = max([case.batch * -(-case.context // PAGE_TOKENS) * PAGE_TOKENS for case in steps], default=0)
    tokens = max([tokens, *(case.context for case in chosen if case.kind == "prefill")])
    slots = max([case.batch for case in chosen], default=1)
    made = Slice(model, backend, device, tokens, slots, given.drafts)
    _print(given, {
        "note": f"{len(model.layers)} layers, {model.memory.device / 1e9:.1f} GB of weights, "
                f"{made.caches.nbytes / 1e9:.1f} GB of caches, ready after {time.perf_counter() - began:.0f} s"
    })  # fmt: skip
    bench = Bench(made, copy, rate, given.repeats)
    failed = False
    for case in chosen:
        began = time.perf_counter()
        for number, record in enumerate(bench.run(case)):
            first = number == 0 or case.kind == "engine"
            if first and (verdict := _verdict(case, record, given.model == "slice" and gpu)):
                record["bar"] = verdict
                failed |= verdict == "fail"
            _print(given, {"case": str(case), **record})
        if not given.json:
            print(f"    ({time.perf_counter() - began:.1f} s)", file=sys.stderr, flush=True)
    model.close()
    return int(failed)


def _verdict(case: Case, record: dict[str, Any], judged: bool) -> str:
    if judged and case.kind == "engine" and case.batch == IDLE_BATCH and record["async"] and "idle_part" in record:
        return "pass" if record["idle_part"] <= IDLE_BAR else "fail"
    if not judged or (case.batch, case.context) != JUDGED or case.drafts:
        return ""
    if case.kind == "decode":
        return "pass" if record["byte_share"] >= BAR else "fail"
    if case.kind == "fast" and "ratio" in record:
        return "pass" if record["ratio"] <= FAST_BAR else "fail"
    return ""


def _print(given: argparse.Namespace, record: dict[str, Any]) -> None:
    if given.json:
        print(json.dumps(record), flush=True)
        return
    head = record.pop("case", "")
    op = f"  {record.pop('op')}" if "op" in record else ""
    print(f"{op or head:42}", "  ".join(f"{key} {_text(value)}" for key, value in record.items()), flush=True)


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} {_text(one)}" for key, one in value.items()) + "}"
    return f"{value:,.3f}" if isinstance(value, float) else str(value)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="slice", help="slice, tiny, kernel, or a checkpoint directory")
    parser.add_argument("--backend", help="the one that is detected by default")
    parser.add_argument("--quick", action="store_true", help="a few cases of each kind")
    parser.add_argument("--only", default="", help="cases whose name holds one of these: 'ops; decode, 128'")
    parser.add_argument("--json", action="store_true", help="print JSON lines")
    parser.add_argument("--drafts", type=int, default=5, help="drafts per sequence in the cases with drafts")
    parser.add_argument("--batch", type=int, default=0, help="no more sequences than this")
    parser.add_argument("--max-context", type=int, default=0, help="longest context; 128K, other models 512")
    parser.add_argument("--repeats", type=int, default=5, help="replays per time")
    given = parser.parse_args()
    from deepinfer.hal.errors import DeepInferError

    try:
        return measure(given)
    except DeepInferError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
