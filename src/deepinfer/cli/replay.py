"""`deepinfer replay`: plan the steps of a recorded run again, without a model or a device."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ..runtime.plan import StepPlan
    from ..runtime.trace import Replay, Trace


@click.command("replay")
@click.argument("trace", type=click.Path(dir_okay=False))
@click.option("--max-num-batched-tokens", "max_tokens", type=click.IntRange(1), help="Rows of one step.")
@click.option("--max-num-seqs", "max_requests", type=click.IntRange(1), help="Requests that run at a time.")
@click.option("--chunked-prefill/--no-chunked-prefill", default=None, help="Whether prompts may be cut.")
@click.option("--show", type=click.IntRange(0), default=3, show_default=True, help="Differing steps to print.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    trace: str,
    max_tokens: int | None,
    max_requests: int | None,
    chunked_prefill: bool | None,
    show: int,
    as_json: bool,
) -> None:
    """Plan every step of TRACE again, as recorded by an engine with EngineArgs(trace=FILE).

    Each step is planned from the state that was recorded for it, so a change to the planner, or other limits, shows in
    the steps that it decides otherwise; what would follow from them is not played out.

    Exit status: 0 all steps as recorded, 1 some differ, 2 the file is no trace or the limits contradict each other.
    """
    from ..hal.errors import InvalidArgumentError
    from ..runtime.trace import read_trace, replay

    asked = {"max_tokens": max_tokens, "max_requests": max_requests, "chunked_prefill": chunked_prefill}
    limits = {name: value for name, value in asked.items() if value is not None}
    recorded = read_trace(trace)
    try:
        done = replay(recorded, **limits)
    except ValueError as error:
        raise InvalidArgumentError("limits", limits, f"limits that agree: {error}") from None
    click.echo(_json(done) if as_json else _text(recorded, done, show))
    if done.differences:
        raise SystemExit(1)


def _json(done: Replay) -> str:
    record = asdict(done)
    record["differences"] = [{"line": d.step.line, "plan": asdict(d.plan)} for d in done.differences]
    return json.dumps(record)


def _text(trace: Trace, done: Replay, show: int) -> str:
    seconds = trace.steps[-1].at if trace.steps else 0.0
    lines = [
        f"{done.steps} steps over {seconds:.3f} s; planned again: {done.rows} rows, {done.prefill} of them of prompts,",
        f"{done.admitted} requests admitted, {done.preempted} preempted, somebody waited in {done.held} steps",
    ]
    for difference in done.differences[:show]:
        step = difference.step
        lines += [f"line {step.line}, at {step.at:.3f} s:"]
        lines += [f"  recorded {_plan(step.plan)}", f"  now      {_plan(difference.plan)}"]
    left = len(done.differences) - show
    if done.differences and left > 0:
        lines.append(f"and {left} more")
    count = len(done.differences)
    lines.append(f"{count} of {done.steps} steps are planned otherwise" if count else "every step as recorded")
    return "\n".join(lines)


def _plan(plan: StepPlan) -> str:
    rows = ", ".join(f"{item.key}:{item.start}-{item.end}{'+' if item.admitted else ''}" for item in plan.items)
    gone = f"; preempted {', '.join(map(str, plan.preempted))}" if plan.preempted else ""
    waits = f"; {plan.held.key} waits for {plan.held.reason}" if plan.held is not None else ""
    return (rows or "nothing") + gone + waits
