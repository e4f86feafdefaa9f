"""Recorded plans: every step's snapshot and plan as a line of JSON, and planning them again without a device.

A trace begins with a line {"format": FORMAT, "version": VERSION, "limits": {...}}. Each line behind it is a step:
`at` (seconds since the first), `running` and `waiting` (lists of request views, fields in the order of `RequestView`,
trailing defaults left out), `free_pages`, `free_slots`, `items` ([key, start, end, new_pages, admitted]), `preempted`
(keys), `held` ([key, reason] or null), `cost` (of `Cost`, in the order of its fields, or null); and, where the engine
has host memory for preempted requests, `host` (of `HostRoom`, in the order of its fields) and `offloaded` (keys).
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path
from typing import Any, TextIO

from ..hal.errors import DeepInferError, InvalidArgumentError
from .cost import Cost
from .offload import HostRoom
from .plan import Held, Limits, PlanItem, RequestView, Snapshot, StepPlan, is_decoding
from .planner import plan_step

log = logging.getLogger(__name__)

FORMAT = "deepinfer-trace"
VERSION = 1
_DEFAULTS = astuple(RequestView(0, 0))


class TraceError(DeepInferError):
    """A file that is no trace, or a damaged one. Names the file and the line."""

    def __init__(self, path: Path, line: int, what: str) -> None:
        self.path, self.line = path, line
        super().__init__(f"{path}, line {line}: {what}")


class TraceWriter:
    """Writes the steps of one engine, a line each, as they are planned; each line is handed over at once.

    A file that can no longer be written (a full disk) ends the trace, not the engine: that is logged, once.

    Args:
        path: of the file; one that exists is written anew.
        limits: of the engine.

    Raises:
        InvalidArgumentError: the file cannot be written.
    """

    def __init__(self, path: str | Path, limits: Limits) -> None:
        try:
            self._file: TextIO | None = open(path, "w", encoding="utf-8", buffering=1)
        except OSError as error:
            raise InvalidArgumentError("trace", str(path), f"a file that can be written ({error.strerror})") from None
        self._begin: float | None = None
        self._write({"format": FORMAT, "version": VERSION, "limits": asdict(limits)})

    def step(self, state: Snapshot, plan: StepPlan) -> None:
        """One planned step."""
        now = time.monotonic()
        self._begin = now if self._begin is None else self._begin
        self._write(
            {
                "at": round(now - self._begin, 6),
                "running": [_packed(view) for view in state.running],
                "waiting": [_packed(view) for view in state.waiting],
                "free_pages": state.free_pages,
                "free_slots": state.free_slots,
                "items": [list(astuple(item)) for item in plan.items],
                "preempted": plan.preempted,
                "held": None if plan.held is None else [plan.held.key, plan.held.reason],
                "cost": None if state.cost is None else list(astuple(state.cost)),
            }
            | ({} if state.host is None else {"host": list(astuple(state.host)), "offloaded": plan.offloaded})
        )

    def close(self) -> None:
        """Calling it again does nothing."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                file.close()

    def _write(self, record: Mapping[str, Any]) -> None:
        if self._file is None:
            return
        try:
            self._file.write(json.dumps(record, separators=(",", ":")) + "\n")
        except OSError:
            log.exception("the trace ends here, for it cannot be written")
            self.close()


@dataclass(frozen=True)
class TracedStep:
    """A step of a trace: line of the file, seconds since the first step, what was known, what was decided."""

    line: int
    at: float
    state: Snapshot
    plan: StepPlan


@dataclass(frozen=True)
class Trace:
    """A recorded run."""

    path: Path
    limits: Limits
    steps: tuple[TracedStep, ...]


def read_trace(path: str | Path) -> Trace:
    """A trace file.

    Raises:
        TraceError: it cannot be read, is none, is of a later version, or a line is damaged or cut off.
    """
    path = Path(path)
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(path, 1, f"cannot be read: {error}") from None
    head = _json(path, 1, lines[0])
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise TraceError(path, 1, "this is no trace of an engine")
    if head.get("version") != VERSION:
        raise TraceError(path, 1, f"version {head.get('version')!r}; this release reads version {VERSION}")
    try:
        limits = Limits(**head["limits"])
    except (KeyError, TypeError, ValueError) as error:
        raise TraceError(path, 1, f"no limits of a step: {error}") from None
    if lines[-1]:
        raise TraceError(path, len(lines), "the last line is cut off")
    return Trace(path, limits, tuple(_steps(path, lines[1:-1])))


def _steps(path: Path, lines: list[str]) -> Iterator[TracedStep]:
    for number, line in enumerate(lines, 2):
        record = _json(path, number, line)
        try:
            free_pages, free_slots = _counts(record["free_pages"], record["free_slots"])
            state = Snapshot(
                [_view(packed) for packed in record["running"]],
                [_view(packed) for packed in record["waiting"]],
                free_pages,
                free_slots,
                None if record["cost"] is None else Cost(*record["cost"]),
                HostRoom(*record["host"]) if record.get("host") is not None else None,
            )
            items = [PlanItem(*item) for item in record["items"]]
            held = None if record["held"] is None else Held(*record["held"])
            plan = StepPlan(items, list(record["preempted"]), list(record.get("offloaded", [])), held)
            yield TracedStep(number, float(record["at"]), state, plan)
        except (KeyError, TypeError, ValueError) as error:
            raise TraceError(path, number, f"not a step: {type(error).__name__}: {error}") from None


def _json(path: Path, number: int, line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise TraceError(path, number, f"not JSON: {error}") from None


def _packed(view: RequestView) -> list[Any]:
    values = list(astuple(view))
    while len(values) > 2 and values[-1] == _DEFAULTS[len(values) - 1]:
        values.pop()
    return values


def _view(packed: list[Any]) -> RequestView:
    return RequestView(*_counts(*packed))


def _counts(*values: Any) -> tuple[Any, ...]:
    if not all(isinstance(value, int) for value in values):
        raise TypeError(f"not all of {values!r} are whole numbers")
    return values


@dataclass(frozen=True)
class Difference:
    """A step that is planned otherwise than it was."""

    step: TracedStep
    plan: StepPlan


@dataclass(frozen=True)
class Replay:
    """What planning a trace again gave.

    Attributes:
        limits: that it was planned with.
        rows: of all steps as planned now. prefill: of these, rows of prompts.
        preempted, admitted, held: requests, and steps in which one had to wait, as planned now.
        differences: steps that came out otherwise than recorded.
    """

    limits: Limits
    steps: int
    rows: int
    prefill: int
    preempted: int
    admitted: int
    held: int
    differences: tuple[Difference, ...]


def replay(trace: Trace, **limits: Any) -> Replay:
    """Plan every snapshot of a trace again, each as it was recorded.

    Args:
        trace: a recorded run. limits: fields of `Limits` to replace.

    Raises:
        ValueError: the limits contradict each other.
    """
    chosen = replace(trace.limits, **limits)
    rows = prefill = preempted = admitted = held = 0
    differences = []
    for step in trace.steps:
        plan = plan_step(step.state, chosen)
        decoding = {view.key for view in step.state.running if is_decoding(view)}
        rows += plan.tokens
        prefill += sum(item.end - item.start for item in plan.items if item.key not in decoding)
        preempted += len(plan.preempted)
        admitted += sum(item.admitted for item in plan.items)
        held += plan.held is not None
        if plan != step.plan:
            differences.append(Difference(step, plan))
    return Replay(chosen, len(trace.steps), rows, prefill, preempted, admitted, held, tuple(differences))
