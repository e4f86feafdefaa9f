"""The periodic log of an engine: what its last steps did, how long they took, and how busy the device was.

The engine's thread only adds numbers up. A thread of the log's own makes text of them, so that neither formatting nor
a slow log handler takes time from a step. Several ranks are staggered, so that they do not write at once.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from .flops import FlopModel, Ints
from .lives import Life, Lives
from .metrics import rows_of
from .occupancy import Occupancy, occupancy_of
from .outputs import FinishReason, RequestOutput

if TYPE_CHECKING:
    from .config import EngineConfig
    from .execute import Work
    from .plan import StepPlan
    from .queues import Queues

log = logging.getLogger(__name__)

MOST_RECORDS = 64
"""Records that wait to be written; any more are dropped."""
ABORTED, FAILED = str(FinishReason.ABORT), str(FinishReason.ERROR)


@dataclass(slots=True)
class Times:
    """How often something was timed, how long it took in all, and at most."""

    calls: int = 0
    total: float = 0.0
    most: float = 0.0

    def add(self, seconds: float) -> None:
        self.calls += 1
        self.total += seconds
        self.most = max(self.most, seconds)

    @property
    def mean(self) -> float:
        return self.total / self.calls if self.calls else 0.0


@dataclass(slots=True)
class Window:
    """What happened between two lines. Times in seconds.

    Attributes:
        samples: of all steps: rows of requests. logits: rows whose logits were used.
        rows: of all steps: of known text, of decoding samples, of drafts.
        busy: time of steps by what they computed: known text, decoding; a mixed step counts to both by its rows.
        spans: rows (starts, ends) of every step.
        verified_at, accepted_at: drafts verified and accepted, by their place behind the known token.
        confidence: sum of (confidence - 1 if the draft held, else 0) and count, over drafts whose turn came.
        prompt, cached: prompt tokens of samples that began, and those of them that the prefix cache had.
        prompt_length, output_length: sums over samples that ended.
        dropped: records before this one that were not written.
    """

    began: float
    steps: int = 0
    samples: int = 0
    logits: int = 0
    rows: list[int] = field(default_factory=lambda: [0, 0, 0])
    busy: list[float] = field(default_factory=lambda: [0.0, 0.0])
    spans: list[tuple[Ints, Ints]] = field(default_factory=list)
    tokens: int = 0
    verified_at: list[int] = field(default_factory=list)
    accepted_at: list[int] = field(default_factory=list)
    checked: int = 0
    confidence: list[float] = field(default_factory=lambda: [0.0, 0.0])
    prompt: int = 0
    cached: int = 0
    ttft: Times = field(default_factory=Times)
    ended: dict[str, int] = field(default_factory=dict)
    prompt_length: int = 0
    output_length: int = 0
    preempted: int = 0
    failed: int = 0
    timers: dict[str, Times] = field(default_factory=dict)
    dropped: int = 0


class StepLog(Lives):
    """Logs a record every so many steps.

    Args:
        config: of the engine; `log_interval` of it is at least 1.
        rank, ranks: place among the processes that log, and their number.
    """

    def __init__(self, config: EngineConfig, rank: int = 0, ranks: int = 1) -> None:
        super().__init__()
        self._config = config
        self._interval = config.log_interval
        self._stagger = self._interval * rank // ranks
        self._steps = 0
        self._due: Queues | None = None
        self._window = Window(time.monotonic())
        self._lines: queue.SimpleQueue[str | tuple[int, Window, float, Occupancy] | threading.Event] = (
            queue.SimpleQueue()
        )
        self._dropped = 0
        self._writer: threading.Thread | None = None

    # ---- samples

    def began(self, life: Life) -> None:
        self._window.prompt += life.prompt_len
        self._window.cached += life.cached_tokens

    def spoke(self, life: Life, output: RequestOutput, count: int, gap: float | None, now: float) -> None:
        self._window.tokens += count
        if gap is None:
            self._window.ttft.add(now - life.arrival)
        if output.verified:
            self._count_drafts(output)

    def ended(self, life: Life, output: RequestOutput, now: float) -> None:
        window = self._window
        reason = output.finish_reason or ""
        window.ended[reason] = window.ended.get(reason, 0) + 1
        window.prompt_length += life.prompt_len
        window.output_length += life.tokens

    def gave_way(self, life: Life, now: float) -> None:
        self._window.preempted += 1

    # ---- steps

    def before_step(self, queues: Queues) -> None:
        self._write_if_due()

    def planned(self, plan: StepPlan, seconds: float) -> None:
        if plan.items:
            self.timed("plan", seconds)

    def timed(self, name: str, seconds: float) -> None:
        self._window.timers.setdefault(name, Times()).add(seconds)

    def ran(self, work: Sequence[Work], began: float, ended: float, queues: Queues, launched: float) -> None:
        window = self._window
        super().ran(work, began, ended, queues, launched)
        rows = rows_of(work)
        window.steps += 1
        window.samples += len(work)
        window.logits += rows[2] + sum([item.sample + len(item.prompt_rows) for item in work])
        for place, count in enumerate(rows):
            window.rows[place] += count
        share = rows[0] / max(1, sum(rows))
        window.busy[0] += (ended - began) * share
        window.busy[1] += (ended - began) * (1 - share)
        window.spans.append(
            (np.array([item.start for item in work], np.int64), np.array([item.end for item in work], np.int64))
        )
        self.timed("step", ended - began)
        self._steps += 1
        if (self._steps + self._stagger) % self._interval == 0:
            self._due = queues

    def failed(self, work: Sequence[Work], error: Exception) -> None:
        super().failed(work, error)
        self._window.failed += 1

    def returned(self, outputs: Sequence[RequestOutput]) -> None:
        super().returned(outputs)
        self._write_if_due()

    def _count_drafts(self, output: RequestOutput) -> None:
        window, accepted = self._window, output.accepted
        window.checked += 1
        while len(window.verified_at) < output.verified:
            window.verified_at.append(0)
            window.accepted_at.append(0)
        for place in range(output.verified):
            window.verified_at[place] += 1
            window.accepted_at[place] += place < accepted
        # A draft's turn comes when those before it held.
        for place, sure in enumerate(output.confidence_score[: min(accepted + 1, output.verified)]):
            window.confidence[0] += sure - (place < accepted)
            window.confidence[1] += 1

    # ---- writing

    def _write_if_due(self) -> None:
        queues, self._due = self._due, None
        if queues is None:
            return
        now = time.monotonic()
        window, self._window = self._window, Window(now)
        if self._writer is None:
            self._writer = threading.Thread(target=self._write, name="deepinfer log", daemon=True)
            self._writer.start()
        if self._lines.qsize() >= MOST_RECORDS:  # the writer is behind: a log that is stuck fills no memory
            self._dropped += 1
            return
        window.dropped, self._dropped = self._dropped, 0
        self._lines.put((self._steps, window, now, occupancy_of(queues, self._config.limits.page_tokens)))

    def _write(self) -> None:
        while True:
            line = self._lines.get()
            if isinstance(line, threading.Event):
                line.set()
            elif isinstance(line, str):
                return
            else:
                try:
                    log.info("%s", "\n  ".join(describe(self._config, *line)))
                except Exception:
                    log.exception("a line of the log could not be made")

    def flush(self) -> None:
        """Wait until what is due has been written."""
        if self._writer is not None:
            written = threading.Event()
            self._lines.put(written)
            written.wait(10)

    def closed(self) -> None:
        self._write_if_due()
        if self._writer is not None:
            self._lines.put("end")
            self._writer = None


def describe(config: EngineConfig, steps: int, window: Window, now: float, full: Occupancy) -> Iterator[str]:
    """The lines of a record: `window` ended at `now`, after so many steps of the engine."""
    wall = max(now - window.began, 1e-9)
    limits = config.limits
    count = max(1, window.steps)
    yield (
        f"step {steps}: {window.steps / wall:.1f} steps/s, {window.rows[0] / wall:.1f} prompt tokens/s, "
        f"{window.tokens / wall:.1f} output tokens/s; {full.running} running, {full.waiting} waiting, "
        f"{full.chunked} in prefill; batch {_part(window.samples / count, limits.max_requests)} of requests, "
        f"{_part(sum(window.rows) / count, limits.max_tokens)} of rows; {full.pages_in_use} of {full.pages} pages "
        f"({_part(full.pages_in_use, full.pages)}), {full.slots_in_use} of {full.slots} slots"
    )
    if window.dropped:
        yield f"{window.dropped} records before this one were dropped: the log was too slow for them"
    if window.checked:
        yield _drafts(window)
    yield (
        f"time: prefill {_part(window.busy[0], sum(window.busy))}, decode {_part(window.busy[1], sum(window.busy))}; "
        f"cached {_part(window.cached, window.prompt)} of prompts; TTFT "
        + (f"max {window.ttft.most:.3f} s, mean {window.ttft.mean:.3f} s" if window.ttft.calls else "-")
    )
    all_ended, aborted, errors = sum(window.ended.values()), window.ended.get(ABORTED, 0), window.ended.get(FAILED, 0)
    lengths = [
        f"{total / all_ended:.1f}" if all_ended else "-" for total in (window.prompt_length, window.output_length)
    ]
    yield (
        f"requests: {all_ended - aborted - errors} finished, {window.preempted} preempted, {aborted} aborted, "
        f"{errors} failed; mean lengths {lengths[0]} prompt, {lengths[1]} output; {window.failed} steps failed"
    )
    yield _attention(config, window, wall)
    for name, times in sorted(window.timers.items()):
        yield (
            f"timer {name}: mean {times.mean * 1e3:.3f} ms, max {times.most * 1e3:.3f} ms, {times.calls} calls, "
            f"{_part(times.total, wall)} of the time"
        )


def _drafts(window: Window) -> str:
    verified, accepted = sum(window.verified_at), sum(window.accepted_at)
    places = " ".join(f"{a / v:.2f}" for a, v in zip(window.accepted_at, window.verified_at))
    error = f"{window.confidence[0] / window.confidence[1]:+.3f}" if window.confidence[1] else "-"
    return (
        f"drafts: {accepted} of {verified} verified were accepted ({_part(accepted, verified)}; by place {places}), "
        f"mean verified length {verified / window.checked:.2f}, mean confidence error {error}"
    )


def _attention(config: EngineConfig, window: Window, wall: float) -> str:
    starts = np.concatenate([start for start, _ in window.spans]) if window.spans else np.zeros(0, np.int64)
    ends = np.concatenate([end for _, end in window.spans]) if window.spans else np.zeros(0, np.int64)
    if not len(ends):
        return "attention: none"
    text = f"attention: sum q*k {int(((ends - starts) * ends).sum())}, k {ends.min()} to {ends.max()}"
    model: FlopModel | None = config.flops
    if model is None:
        return text
    total, attention = model.step(starts, ends, window.logits)
    text += f", {attention / wall / 1e12:.3f} TFLOPS"
    mfu = (
        "unknown, as the peak of this device is"
        if config.peak_flops is None
        else f"{total / wall / config.peak_flops:.2%}"
    )
    return text + f"; {total / wall / 1e12:.3f} FP8-equivalent TFLOPS in all, MFU {mfu}"


def _part(value: float, whole: float) -> str:
    return f"{value / whole:.0%}" if whole else "-"


__all__ = ["StepLog", "Window", "describe"]
