"""Running a workload on an engine."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from ...hal.errors import InvalidArgumentError
from ..engine import LLMEngine
from ..params import SamplingParams
from .measure import AccountingError, Measured
from .workload import Arrivals, Job, Vocabulary

LONGEST_SLEEP = 0.05
Progress = Callable[[int, int], None]
"""Told of requests that ended and tokens that came."""


def vocabulary_of(engine: LLMEngine) -> Vocabulary:
    """Ids that mean nothing of their own to an engine: neither the end nor an image."""
    config = engine.config
    reserved = {config.eos_id}
    if config.images is not None:
        reserved.add(config.images.config.image_token_id)
    return Vocabulary(config.vocab_size, reserved=frozenset(reserved))


def check_jobs(engine: LLMEngine, jobs: Sequence[Job]) -> None:
    """Whether every request fits, before any runs.

    Raises:
        InvalidArgumentError: names the first that is too long; nothing is cut.
    """
    most = engine.config.max_model_len
    for index, job in enumerate(jobs):
        if len(job.prompt) + job.output > most:
            raise InvalidArgumentError(
                f"request {index}",
                f"{len(job.prompt)} prompt tokens and {job.output} output tokens",
                f"{most} together: max_model_len of the engine",
            )


def run(
    engine: LLMEngine,
    jobs: Sequence[Job],
    arrivals: Arrivals | None = None,
    *,
    temperature: float = 0.0,
    seed: int = 0,
    progress: Progress = lambda ended, tokens: None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> list[Measured]:
    """Run requests to their ends; every one says exactly as many tokens as it is to (ends of sequences are ignored).

    In an open loop a request counts from the moment at which it was to come, also where a long step kept the driver
    from adding it then: a slow engine does not slow its clients down.

    Args:
        arrivals: None and the open kinds keep the arrivals of the jobs; a burst brings all at once; a closed loop keeps
            so many requests in the engine.
        seed: request i samples with seed + i.
        clock, sleep: seconds; time.monotonic is what the engine itself counts by.

    Returns:
        A measurement per job, in order.

    Raises:
        InvalidArgumentError: a request does not fit the engine; then nothing runs.
        AccountingError: the engine's count of a request's tokens is another one, or the engine has lost a request.
    """
    check_jobs(engine, jobs)
    kind = "open" if arrivals is None else arrivals.kind
    most = arrivals.concurrency if arrivals is not None and kind == "closed" else len(jobs)
    begin = clock()
    found: list[Measured] = []
    running: dict[str, Measured] = {}
    while len(found) < len(jobs) or running:
        while len(found) < len(jobs) and len(running) < most:
            job, now = jobs[len(found)], clock()
            due = begin + job.arrival if kind not in ("closed", "burst") else (begin if kind == "burst" else now)
            if due > now:
                break
            one = Measured(len(found), due, len(job.prompt), job.output)
            name = f"bench-{one.index}"
            engine.add_request(None, name, _params(job, temperature, seed + one.index), job.prompt, arrival_time=due)
            found.append(one)
            running[name] = one
        if not engine.has_unfinished_requests():
            if running:
                lost = ", ".join(sorted(running)[:8])
                raise AccountingError(f"the engine has nothing left to do, and has not ended {len(running)}: {lost}")
            if len(found) < len(jobs):
                sleep(min(max(begin + jobs[len(found)].arrival - clock(), 0.0), LONGEST_SLEEP))
            continue
        outputs = engine.step()
        now = clock()
        ended = tokens = 0
        for output in outputs:
            measured = running.get(output.request_id)
            if measured is None:
                continue  # of a request that is not ours
            measured.add(output, now)
            tokens += output.token_id >= 0
            if output.finished:
                del running[output.request_id]
                ended += 1
        progress(ended, tokens)
    return found


def _params(job: Job, temperature: float, seed: int) -> SamplingParams:
    return SamplingParams(
        temperature=temperature,
        max_tokens=job.output,
        ignore_eos=True,
        seq_seed=seed,
        priority=job.priority,
        tenant=job.tenant,
    )
