"""Jobs in processes of their own, so that neither a slow nor a harmful one holds up or breaks an engine.

A thread looks after each worker: it hands it one job at a time, waits for the answer no longer than the time a job may
take, and delivers what came of it. A worker that dies, or is late, is killed and another one is started for the next
job; the job fails, with a reason, and nobody else notices. Whoever waits for jobs looks at `take`, which never blocks.

Workers are started when the first job comes.
"""

from __future__ import annotations

import logging
import os
import pickle
import queue
import socket
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from ..hal.errors import DeepInferError, InvalidArgumentError

log = logging.getLogger(__name__)

_PROGRAM = "import sys; sys.path[:] = {path!r}; from {module} import serve; serve(int(sys.argv[1]))"
MOST_WORDS = 1 << 16
"""Bytes of an answer that says something, beside what was asked for."""


class QueueFullError(DeepInferError):
    """So many jobs of one kind wait for a worker that no more are taken."""


@dataclass(frozen=True)
class WorkerSettings:
    """How workers work.

    Attributes:
        workers: processes.
        seconds: that a job may take, once a worker has begun with it.
        queued: jobs that may wait for a worker.
        memory: bytes of address space that a worker may have; None is no such limit.
        start_seconds: that a worker may take to start.
        unwanted: seconds that a worker goes on with a job that was given up. Often it is done by then, and need not be
            replaced, which takes longer.
    """

    workers: int = 1
    seconds: float = 60.0
    queued: int = 512
    memory: int | None = 4 << 30
    start_seconds: float = 60.0
    unwanted: float = 2.0

    def __post_init__(self) -> None:
        for name in ("workers", "seconds", "queued", "start_seconds", "unwanted"):
            if getattr(self, name) <= 0:
                raise InvalidArgumentError(name, getattr(self, name), "a number above 0")


class Job(Protocol):
    """What a worker is asked for.

    Attributes:
        error: why it failed.
        cancelled: nobody waits for it any more; a worker that has not begun with it does not.
    """

    error: Exception | None
    cancelled: bool


J = TypeVar("J", bound=Job)


@dataclass(frozen=True)
class Words:
    """How errors call what workers do: "`jobs` took too long to `do`", "the worker that `did` `jobs` died"."""

    worker: str
    jobs: str
    do: str
    did: str

    @property
    def a_worker(self) -> str:
        return f"{'an' if self.worker[0] in 'aeio' else 'a'} {self.worker}"


class WorkerPool(ABC, Generic[J]):
    """The processes, and the jobs that they have.

    A subclass says what is asked and what is answered (`_hello`, `_ask`), in a module whose `serve(descriptor)` is the
    worker; it answers the first message, which is `_hello`'s, when it is ready.

    Attributes:
        deaths, late, done, failed: workers that died, jobs that took too long, jobs that succeeded, and those that did
            not, whatever the reason.
        heard: called when a job has ended, by any thread.
    """

    words: ClassVar[Words]
    failure: ClassVar[type[DeepInferError]]
    """What is raised for a worker that died or took too long."""
    harmless: ClassVar[type[Exception]]
    """Errors of jobs that leave their worker as it was."""

    def __init__(self, settings: WorkerSettings) -> None:
        self.settings = settings
        self.heard: Callable[[], None] = lambda: None
        self._jobs: queue.Queue[J | None] = queue.Queue(settings.queued)
        self._ready: deque[J] = deque()
        self._something = threading.Condition()
        self._keepers: list[threading.Thread] = []
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._served: dict[int, tuple[J, Deadline]] = {}
        self._closed = self._woken = False
        self.deaths = self.late = self.done = self.failed = 0

    @abstractmethod
    def _hello(self) -> Any:
        """What a worker is told when it starts; pickled."""

    @abstractmethod
    def _ask(self, pipe: Connection, job: J) -> None:
        """Asks a worker, and leaves what it answers in the job.

        Raises:
            Exception: `harmless`; EOFError or OSError where the worker is gone; anything else, and it is replaced.
        """

    def put(self, job: J) -> J:
        """Queues a job.

        Raises:
            QueueFullError: too many wait already.
        """
        with self._something:
            if self._closed:
                raise self.failure(f"the {self.words.worker}s are closed")
            if not self._keepers:
                self._keepers = [
                    threading.Thread(target=self._keep, args=(number,), name=f"{self.words.jobs} {number}", daemon=True)
                    for number in range(self.settings.workers)
                ]
                for keeper in self._keepers:
                    keeper.start()
        self.check_room()
        try:
            self._jobs.put_nowait(job)
        except queue.Full:
            raise self._no_room() from None
        return job

    def check_room(self) -> None:
        """Raises QueueFullError if `put` would."""
        if self._jobs.full():
            self._drop_cancelled()
            if self._jobs.full():
                raise self._no_room()

    def _no_room(self) -> QueueFullError:
        return QueueFullError(f"{self.settings.queued} requests wait for their {self.words.jobs} already")

    def _unwanted(self) -> DeepInferError:
        return self.failure(f"nobody waits for these {self.words.jobs}")

    def _drop_cancelled(self) -> None:
        """Takes jobs that nobody waits for from the queue, so that they take no place of others."""
        with self._jobs.mutex:
            dropped = [job for job in self._jobs.queue if job is not None and job.cancelled]
            for job in dropped:
                self._jobs.queue.remove(job)
        for job in dropped:
            self._fail(job, self._unwanted())

    def give_up(self, job: J) -> None:
        """Nobody waits for a job any more: it leaves the queue, and a worker that has begun with it has little time,
        so that it holds up nobody else.
        """
        with self._something:
            job.cancelled = True
            for served, deadline in self._served.values():
                if served is job:
                    deadline.shorten(self.settings.unwanted)
        self._drop_cancelled()

    def take(self) -> list[J]:
        """Jobs that have ended since the last call."""
        with self._something:
            ended = list(self._ready)
            self._ready.clear()
        return ended

    def wait(self, seconds: float) -> bool:
        """Waits until a job has ended or `wake` is called, but no longer than that. Whether something was there."""
        with self._something:
            found = self._something.wait_for(lambda: bool(self._ready) or self._closed or self._woken, seconds)
            self._woken = False
            return found

    def wake(self) -> None:
        """Ends a `wait`, or the next one where there is none."""
        with self._something:
            self._woken = True
            self._something.notify_all()

    @property
    def pids(self) -> list[int]:
        """Of the workers that run."""
        return [one.pid for one in list(self._processes.values()) if one.poll() is None]

    def close(self) -> None:
        """Kills the workers; jobs that have not ended fail. Calling it again does nothing."""
        with self._something:
            if self._closed:
                return
            self._closed = True
            self._something.notify_all()
        for _ in self._keepers:
            with_room = False
            while not with_room:
                try:
                    self._jobs.put_nowait(None)
                    with_room = True
                except queue.Full:
                    self._fail(self._jobs.get_nowait(), self.failure(f"the {self.words.worker}s are closed"))
        for number in list(self._processes):
            self._kill(number)
        for keeper in self._keepers:
            keeper.join(10.0)

    # ---- one worker, in the thread that looks after it

    def _keep(self, number: int) -> None:
        pipe: Connection | None = None
        while (job := self._jobs.get()) is not None:
            if job.cancelled or self._closed:
                self._fail(job, self._unwanted())
                continue
            try:
                if (
                    pipe is not None and self._processes[number].poll() is not None
                ):  # it died while it had nothing to do
                    self.deaths += 1
                    pipe.close()
                    pipe = None
                if pipe is None:
                    pipe = self._start(number)
                if job.cancelled:  # while the worker started
                    self._fail(job, self._unwanted())
                    continue
                self._serve(number, pipe, job)
                self._deliver(job, succeeded=True)
            except self.harmless as error:
                self._fail(job, error)
            except Exception as error:
                # First of all, so that whoever waits for the job hears of it whatever happens to the worker.
                self._fail(job, error if isinstance(error, DeepInferError) else self.failure(str(error)))
                self._kill(number)
                if pipe is not None:
                    pipe.close()
                pipe = None
                if not self._closed:
                    log.warning("%s is replaced: %s", self.words.a_worker, error)
        if pipe is not None:
            pipe.close()

    def _start(self, number: int) -> Connection:
        """A new worker, once it answers. A program of its own, so that no script of the user's is run again."""
        hello = pickle.dumps((self._hello(), self.settings.memory))
        ours, theirs = socket.socketpair()
        with ours, theirs:
            program = _PROGRAM.format(path=sys.path, module=type(self).__module__)
            self._processes[number] = subprocess.Popen(
                [sys.executable, "-c", program, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # an interrupt from the keyboard is for the engine
            )
            pipe = Connection(os.dup(ours.fileno()))
        seconds, name = self.settings.start_seconds, self.words.a_worker
        with Deadline(self._processes[number], seconds) as deadline:
            try:
                pipe.send_bytes(hello)
                pipe.recv_bytes(MOST_WORDS)
                failed = False
            except (EOFError, OSError):
                failed = True
        if failed or deadline.passed:
            pipe.close()
            if deadline.passed:
                raise self.failure(f"{name} did not start in {seconds:g} s")
            self.deaths += 1
            raise self.failure(f"{name} died while it started")
        return pipe

    def _serve(self, number: int, pipe: Connection, job: J) -> None:
        seconds, words = self.settings.seconds, self.words
        failure: Exception | None = None
        with Deadline(self._processes[number], seconds) as deadline:
            with self._something:
                self._served[number] = job, deadline
                if job.cancelled:
                    deadline.shorten(self.settings.unwanted)
            try:
                self._ask(pipe, job)
            except (EOFError, OSError, self.harmless) as error:
                failure = error
            finally:
                with self._something:
                    del self._served[number]
        if deadline.passed and job.cancelled:
            raise self._unwanted() from failure
        if deadline.passed:
            self.late += 1
            raise self.failure(f"{words.jobs} took more than {seconds:g} s to {words.do}") from failure
        if isinstance(failure, self.harmless):
            raise failure
        if failure is not None:
            self.deaths += 1
            name = type(failure).__name__
            raise self.failure(f"the worker that {words.did} {words.jobs} died ({name})") from failure

    def _fail(self, job: J | None, error: Exception) -> None:
        if job is None:
            return
        job.error = error
        self._deliver(job, succeeded=False)

    def _deliver(self, job: J, succeeded: bool) -> None:
        with self._something:
            self.done += succeeded
            self.failed += not succeeded
            self._ready.append(job)
            self._something.notify_all()
        self.heard()

    def _kill(self, number: int) -> None:
        process = self._processes.pop(number, None)
        if process is not None:
            process.kill()
            try:
                process.wait(5.0)
            except subprocess.TimeoutExpired:
                log.warning("%s %d is slow to die", self.words.worker, process.pid)


class Deadline:
    """Kills a worker that is not done in time, whatever it keeps waiting: what is sent to it, or what it sends.

    A context; behind it, it kills nobody.

    Attributes:
        passed: whether that has happened.
    """

    def __init__(self, process: subprocess.Popen[bytes], seconds: float) -> None:
        self.passed = False
        self._process, self._seconds = process, seconds
        self._timers: list[threading.Timer] = []
        self._lock = threading.Lock()
        self._over = False

    def __enter__(self) -> Deadline:
        self.shorten(self._seconds)
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._over = True
        for timer in self._timers:
            timer.cancel()
            timer.join()

    def shorten(self, seconds: float) -> None:
        """No more than that is left from now on. From any thread."""
        with self._lock:
            if self._over:
                return
            timer = threading.Timer(seconds, self._kill)
            timer.daemon = True
            timer.start()
            self._timers.append(timer)

    def _kill(self) -> None:
        self.passed = True
        self._process.kill()


def greet(descriptor: int, bound: bool = True) -> tuple[Connection, Any, int | None]:
    """The beginning of a worker: its pipe, what `_hello` said, and the bound of its memory, which is in force unless
    `bound` says that the worker sees to that. The worker answers when it is ready.
    """
    pipe = Connection(descriptor)
    hello, memory = pickle.loads(pipe.recv_bytes())
    if bound:
        bound_memory(memory)
    return pipe, hello, memory


def bound_memory(memory: int | None) -> None:
    """Gives this process no more address space than that."""
    if memory is None or os.name != "posix":
        return
    import resource

    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    most = memory if hard == resource.RLIM_INFINITY else min(memory, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
