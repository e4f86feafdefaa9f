"""The process that compiles: whatever it does, one request hears of it and the next one has a worker again."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from deepinfer.hal import env
from deepinfer.runtime.arrivals import Arrivals
from deepinfer.runtime.params import SamplingParams
from deepinfer.runtime.request import Request
from deepinfer.runtime.structured.args import Structure
from deepinfer.runtime.structured.service import Compile, GrammarError, GrammarService, GrammarWorkerError
from deepinfer.runtime.workers import QueueFullError, WorkerSettings
from grammars import EOS, Compiler, allowed, small_vocabulary

NESTED = "a"
for _ in range(6):
    NESTED = f"(?:{NESTED}){{1,300}}"
"""An expression of some forty letters that unrolls to more than any memory, for minutes."""


@pytest.fixture(scope="module")
def service(compiler: Compiler) -> Iterator[GrammarService]:
    made = GrammarService(small_vocabulary(), WorkerSettings(seconds=60.0, memory=400 << 20, start_seconds=240.0), 1)
    yield made
    made.close()
    assert not made.pids


def ended(service: GrammarService, job: Compile) -> Compile:
    deadline = time.monotonic() + 300
    while not job.ended:
        assert time.monotonic() < deadline
        service.wait(1.0)
    while service.take():
        pass
    return job


def regex(text: str) -> Structure:
    return Structure("regex", text)


def test_faults_of_a_grammar_are_its_own(service: GrammarService) -> None:
    """Refusal, more memory than there is, a hang and a crash, one after the other."""
    good = ended(service, service.ask(regex("a+")))
    assert good.compiled is not None and service.ask(regex("a+")) is good, "kept by what it says"
    bad = ended(service, service.ask(regex("(a")))
    assert isinstance(bad.error, GrammarError) and "not closed" in str(bad.error)
    assert service.ask(regex("(a")) is bad and service.deaths == service.late == 0

    (pid,) = service.pids
    big = ended(service, service.ask(regex(NESTED)))
    assert big.compiled is None and isinstance(big.error, GrammarWorkerError) and service.late == 0
    assert service._kept.find(big.structure.key) is None, "with another worker it may do"
    assert ended(service, service.ask(regex("b+"))).compiled is not None, "the next one has a worker"
    assert service.pids != [pid], "and one that has not run out of memory"

    (pid,) = service.pids
    os.kill(pid, signal.SIGSTOP)  # it hangs
    before, service.settings = service.settings, WorkerSettings(seconds=0.3, start_seconds=240.0)
    late = ended(service, service.ask(regex("c+")))
    service.settings = before
    assert isinstance(late.error, GrammarWorkerError) and "0.3 s to compile" in str(late.error) and service.late == 1
    again = service.ask(regex("c+"))
    assert again is not late, "who was late may be asked for again"
    assert ended(service, again).compiled is not None and service.pids != [pid]


def test_what_nobody_waits_for_is_given_up(service: GrammarService) -> None:
    """In the queue at once, and in a worker soon: who comes behind it waits for neither."""
    ended(service, service.ask(regex("f+")))
    (pid,) = service.pids
    os.kill(pid, signal.SIGSTOP)
    before, service.settings = service.settings, WorkerSettings(seconds=200.0, unwanted=0.2, start_seconds=240.0)
    late, replaced = service.late, service.pids
    running, queued, other = (service.ask(regex(text)) for text in ("g+", "h+", "i+"))
    while service._jobs.qsize() != 2:  # until the first has been begun with
        time.sleep(0.01)
    service.give_up(queued)
    assert queued.ended and "nobody waits" in str(queued.error) and service._jobs.qsize() == 1
    time.sleep(0.5)
    assert not running.ended, "somebody waits for it"
    began = time.monotonic()
    service.give_up(running)
    assert ended(service, other).compiled is not None and time.monotonic() - began < 100
    service.settings = before
    assert "nobody waits" in str(running.error) and service.pids != replaced and service.late == late
    again = service.ask(regex("g+"))
    assert again is not running and ended(service, again).compiled is not None


@pytest.mark.whole
def test_a_worker_that_crashes_is_replaced(service: GrammarService) -> None:
    ended(service, service.ask(regex("d+")))
    (pid,) = service.pids
    os.kill(pid, signal.SIGSTOP)
    job = service.ask(regex("e+"))
    twin = service.ask(regex("e+"))
    time.sleep(0.2)
    os.kill(pid, signal.SIGKILL)
    assert twin is job and isinstance(ended(service, job).error, GrammarWorkerError) and "died" in str(job.error)
    assert ended(service, service.ask(regex("e+"))).compiled is not None


class Held(GrammarService):
    """Jobs stay in the queue until a test ends them."""

    def put(self, job: Compile) -> Compile:
        if len(self.queued) == self.settings.queued:
            raise QueueFullError("full")
        self.queued.append(job)
        return job

    @property
    def queued(self) -> list[Compile]:
        return self.__dict__.setdefault("_queued", [])  # type: ignore[no-any-return]

    def end(self, compiler: Compiler, job: Compile) -> None:
        made = compiler.ask(job.structure)
        job.compiled, job.error = made.compiled, made.error
        if made.compiled is not None:
            self._kept.add(job, 100)
        self._deliver(job, succeeded=made.error is None)


def request(key: int, pattern: str, **more: Any) -> Request:
    params = SamplingParams(so_args={"schema_type": "regex", "schema": pattern}, **more)
    values: dict[str, Any] = {"user_id": None, "sample_index": 0, "seed": 0, "arrival_time": 0.0}
    return Request(
        key=key, request_id=key, params=params, eos_id=EOS, prompt_len=1, max_output_tokens=9, tokens=None, **values
    )


def test_equal_grammars_are_compiled_once_and_nobody_waits_for_those_of_others(compiler: Compiler) -> None:
    service = Held(small_vocabulary(), WorkerSettings(queued=2))
    arrivals = Arrivals(None, service)
    one, other, bad = request(1, "a"), request(2, "a"), request(3, "(a")
    for each in (one, other, bad):
        arrivals.expect([each], ())
    assert len(service.queued) == 2 and arrivals.take() == [] and list(arrivals) == [one, other, bad]
    with pytest.raises(QueueFullError):
        arrivals.expect([request(4, "b")], ())
    assert arrivals.drop(one) and not service.queued[0].cancelled, "the other one wants it"
    service.end(compiler, service.queued[0])
    assert arrivals.take() == [([other], None)] and other.constraint is not None and one.constraint is None
    service.end(compiler, service.queued[1])
    ((samples, error),) = arrivals.take()
    assert samples == [bad] and isinstance(error, GrammarError) and list(arrivals) == [bad] and arrivals.drop(bad)
    late = request(5, "a", ignore_eos=True)
    arrivals.expect([late], ())  # kept: it begins at once
    assert arrivals.take() == [([late], None)] and not arrivals and late.constraint is not None
    assert allowed(late.constraint.masks([])[0]) == [3 + ord("a")]
    gone = request(6, "zz")
    service.queued.clear()
    arrivals.expect([gone], ())
    assert arrivals.drop(gone) and service.queued[0].cancelled
    assert service.ask(regex("zz")) is not service.queued[0], "a job that is given up is nobody else's"


def test_what_is_kept_stays_below_its_bound(compiler: Compiler) -> None:
    service = Held(small_vocabulary(), cache_bytes=250)
    for text in "abc":
        service.end(compiler, service.ask(regex(text)))
    assert len(service._kept.grammars) == 2 and service._kept.size == 200
    assert service._kept.find(regex("a").key) is None and service._kept.find(regex("b").key) is not None
    none = Held(small_vocabulary(), cache_bytes=0)
    none.end(compiler, none.ask(regex("a")))
    assert not none._kept.grammars


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"XGRAMMAR_TIMEOUT": "3.5", "XGRAMMAR_CACHE_LIMIT_BYTES": "1000", "SO_BUILDER_CPUS": "1"}
    for disabled, kept in (("0", 1000), ("1", 0)):
        for name, value in (values | {"XGRAMMAR_DISABLE_CACHE": disabled}).items():
            monkeypatch.setenv(f"DEEPINFER_{name}", value)
            env.rearm(f"DEEPINFER_{name}")
        made = GrammarService.from_environment(small_vocabulary())
        assert (made.settings.seconds, made._kept.limit, made._threads) == (3.5, kept, 1)
        made.close()
    for name in (*values, "XGRAMMAR_DISABLE_CACHE"):
        monkeypatch.delenv(f"DEEPINFER_{name}")
        env.rearm(f"DEEPINFER_{name}")
    made = GrammarService.from_environment(small_vocabulary())
    assert (made.settings.seconds, made._kept.limit) == (20.0, 10 << 30)
    made.close()
