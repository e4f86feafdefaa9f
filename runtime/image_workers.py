"""Decoding images in processes of their own, so that neither a slow nor a harmful file holds up or breaks an engine.

A thread looks after each worker: it hands it one job at a time, waits for the answer no longer than the time a job may
take, and delivers what came of it. A worker that dies, or is late, is killed and another one is started for the next
job; the job fails, with a reason, and nobody else notices. Whoever waits for images looks at `take`, which never
blocks.

Workers are started when the first image comes. They load no torch.
"""

from __future__ import annotations

import json
import logging
import os
import pickle
import queue
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from ..hal.errors import DeepInferError, ImageError, InvalidArgumentError, short
from ..model.vision.decode import FittedImage, ImageLimits, decode_image, fit_image
from ..model.vision.resize import ResizePlan

log = logging.getLogger(__name__)

_PROGRAM = "import sys; sys.path[:] = {path!r}; from {module} import serve; serve(int(sys.argv[1]))"
_MOST_WORDS = 1 << 16
"""Bytes of an answer that are no pixels."""


class ImageWorkerError(DeepInferError):
    """Images could not be decoded: their worker died or took too long."""


class QueueFullError(DeepInferError):
    """So many images wait to be decoded that no more are taken."""


@dataclass(frozen=True)
class WorkerSettings:
    """How images are decoded.

    Attributes:
        workers: processes.
        seconds: that the images of one request may take to decode, once a worker has begun with them.
        queued: requests whose images may wait for a worker.
        memory: bytes of address space that a worker may have; None is no such limit.
        start_seconds: that a worker may take to start.
    """

    workers: int = 1
    seconds: float = 60.0
    queued: int = 512
    memory: int | None = 4 << 30
    start_seconds: float = 60.0

    def __post_init__(self) -> None:
        for name in ("workers", "seconds", "queued", "start_seconds"):
            if getattr(self, name) <= 0:
                raise InvalidArgumentError(name, getattr(self, name), "a number above 0")


@dataclass(frozen=True)
class EncodedImage:
    """One image as it came. `name`: what errors call it. `plan`: what it is brought to, by its header."""

    name: str
    data: bytes
    plan: ResizePlan


@dataclass(eq=False)
class ImageJob:
    """The images of one request.

    Attributes:
        images: decoded; None until it is done, and where it failed.
        error: why it failed.
        cancelled: nobody waits for it any more; a worker that has not begun with it does not.
    """

    encoded: Sequence[EncodedImage]
    images: tuple[FittedImage, ...] | None = None
    error: Exception | None = None
    cancelled: bool = False
    payload: bytes = field(default=b"", repr=False)


class ImageWorkers:
    """The processes, and the jobs that they have.

    Args:
        limits: of one image. settings: see there.

    Attributes:
        deaths, late, done, failed: workers that died, jobs that took too long, jobs that succeeded, and those that did
            not, whatever the reason.
    """

    def __init__(self, limits: ImageLimits, settings: WorkerSettings | None = None) -> None:
        self.settings = WorkerSettings() if settings is None else settings
        self._limits = limits
        self._jobs: queue.Queue[ImageJob | None] = queue.Queue(self.settings.queued)
        self._ready: deque[ImageJob] = deque()
        self._something = threading.Condition()
        self._keepers: list[threading.Thread] = []
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._closed = self._woken = False
        self.deaths = self.late = self.done = self.failed = 0

    def submit(self, encoded: Sequence[EncodedImage]) -> ImageJob:
        """Queues the images of a request.

        Raises:
            QueueFullError: too many wait already.
        """
        job = ImageJob(tuple(encoded))
        with self._something:
            if self._closed:
                raise ImageWorkerError("the image workers are closed")
            if not self._keepers:
                self._keepers = [
                    threading.Thread(target=self._keep, args=(number,), name=f"images {number}", daemon=True)
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
        """Raises QueueFullError if `submit` would."""
        if self._jobs.full():
            self._drop_cancelled()
            if self._jobs.full():
                raise self._no_room()

    def _no_room(self) -> QueueFullError:
        return QueueFullError(f"{self.settings.queued} requests wait for their images already")

    def _drop_cancelled(self) -> None:
        """Takes jobs that nobody waits for from the queue, so that they take no place of others."""
        with self._jobs.mutex:
            dropped = [job for job in self._jobs.queue if job is not None and job.cancelled]
            for job in dropped:
                self._jobs.queue.remove(job)
        for job in dropped:
            self._fail(job, ImageWorkerError("nobody waits for these images"))

    def take(self) -> list[ImageJob]:
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
                    self._fail(self._jobs.get_nowait(), ImageWorkerError("the image workers are closed"))
        for number in list(self._processes):
            self._kill(number)
        for keeper in self._keepers:
            keeper.join(10.0)

    # ---- one worker, in the thread that looks after it

    def _keep(self, number: int) -> None:
        pipe: Connection | None = None
        while (job := self._jobs.get()) is not None:
            if job.cancelled or self._closed:
                self._fail(job, ImageWorkerError("nobody waits for these images"))
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
                job.images = self._ask(number, pipe, job)
                with self._something:
                    self.done += 1
                    self._ready.append(job)
                    self._something.notify_all()
            except ImageError as error:
                self._fail(job, error)
            except Exception as error:
                # First of all, so that whoever waits for the images hears of it whatever happens to the worker.
                self._fail(job, error if isinstance(error, DeepInferError) else ImageWorkerError(str(error)))
                self._kill(number)
                if pipe is not None:
                    pipe.close()
                pipe = None
                if not self._closed:
                    log.warning("an image worker is replaced: %s", error)
        if pipe is not None:
            pipe.close()

    def _start(self, number: int) -> Connection:
        """A new worker, once it answers. A program of its own, so that no script of the user's is run again."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            program = _PROGRAM.format(path=sys.path, module=__name__)
            self._processes[number] = subprocess.Popen(
                [sys.executable, "-c", program, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # an interrupt from the keyboard is for the engine
            )
            pipe = Connection(os.dup(ours.fileno()))
        seconds = self.settings.start_seconds
        with _deadline(self._processes[number], seconds) as late:
            try:
                pipe.send_bytes(pickle.dumps((self._limits, self.settings.memory)))
                pipe.recv_bytes(_MOST_WORDS)
                failed = False
            except (EOFError, OSError):
                failed = True
        if failed or late.is_set():
            pipe.close()
            if late.is_set():
                raise ImageWorkerError(f"an image worker did not start in {seconds:g} s")
            self.deaths += 1
            raise ImageWorkerError("an image worker died while it started")
        return pipe

    def _ask(self, number: int, pipe: Connection, job: ImageJob) -> tuple[FittedImage, ...]:
        seconds = self.settings.seconds
        found: tuple[FittedImage, ...] = ()
        failure: Exception | None = None
        with _deadline(self._processes[number], seconds) as late:
            try:
                pipe.send_bytes(pickle.dumps(tuple(job.encoded)))
                found = _receive(pipe, job.encoded)
            except (EOFError, OSError, ImageError) as error:
                failure = error
        if late.is_set():
            self.late += 1
            raise ImageWorkerError(f"images took more than {seconds:g} s to decode") from failure
        if isinstance(failure, ImageError):
            raise failure
        if failure is not None:
            self.deaths += 1
            raise ImageWorkerError(f"the worker that decoded images died ({type(failure).__name__})") from failure
        return found

    def _fail(self, job: ImageJob | None, error: Exception) -> None:
        if job is None:
            return
        job.error = error
        with self._something:
            self.failed += 1
            self._ready.append(job)
            self._something.notify_all()

    def _kill(self, number: int) -> None:
        process = self._processes.pop(number, None)
        if process is not None:
            process.kill()
            try:
                process.wait(5.0)
            except subprocess.TimeoutExpired:
                log.warning("image worker %d is slow to die", process.pid)


@contextmanager
def _deadline(process: subprocess.Popen[bytes], seconds: float) -> Iterator[threading.Event]:
    """Kills a worker that is not done in time, whatever it keeps waiting: what is sent to it, or what it sends.

    Yields an event that says, behind the block, whether that has happened.
    """
    late = threading.Event()

    def kill() -> None:
        late.set()
        process.kill()

    timer = threading.Timer(seconds, kill)
    timer.daemon = True
    timer.start()
    try:
        yield late
    finally:
        timer.cancel()
        timer.join()  # from here on it kills nobody


def _receive(pipe: Connection, encoded: Sequence[EncodedImage]) -> tuple[FittedImage, ...]:
    """What a worker answers. It has read files that may have taken it over, so nothing of it is believed: the answer
    is numbers and pixels, and they have to fit what was asked.

    Raises:
        ImageError: of the worker.
        ImageWorkerError: it answered something else.
        EOFError, OSError: it died.
    """
    unusable = ImageWorkerError("a worker that decodes images answered with something else")
    try:
        header = json.loads(pipe.recv_bytes(_MOST_WORDS + 64 * len(encoded)))
    except (ValueError, RecursionError):
        raise unusable from None
    if not isinstance(header, list) or not header:
        raise unusable
    kind, *rest = header
    if kind == "error" and len(rest) == 3 and all(isinstance(one, str) for one in rest):
        raise ImageError(*rest)
    if kind != "images" or len(rest) != len(encoded):
        raise unusable
    for place, one in zip(rest, encoded, strict=True):
        if not isinstance(place, list) or len(place) != 4 or not all(type(number) is int for number in place):
            raise unusable
        left, top, width, height = place
        if min(left, top) < 0 or min(width, height) < 1:
            raise unusable
        if left + width > one.plan.width or top + height > one.plan.height:
            raise unusable
    found = []
    for (left, top, width, height), one in zip(rest, encoded, strict=True):
        data = pipe.recv_bytes(3 * width * height)
        if len(data) != 3 * width * height:
            raise unusable
        pixels = np.frombuffer(data, np.uint8).reshape(height, width, 3).copy()  # a copy can be written to
        found.append(FittedImage(pixels, left, top, one.plan))
    return tuple(found)


def serve(descriptor: int) -> None:
    """A worker: decodes what comes until nobody is there any more.

    It answers with JSON, ["images", [left, top, width, height], ...] and then the pixels of each, or
    ["error", parameter, got, allowed].
    """
    pipe = Connection(descriptor)
    limits, memory = pickle.loads(pipe.recv_bytes())
    _bound_memory(memory)
    pipe.send_bytes(b"ready")
    while True:
        try:
            encoded = pickle.loads(pipe.recv_bytes())
        except (EOFError, OSError):
            return
        images: list[FittedImage] = []
        header: list[Any]
        try:
            images = [fit_image(decode_image(one.data, limits, name=one.name), one.plan) for one in encoded]
            header = ["images", *([one.left, one.top, *one.pixels.shape[1::-1]] for one in images)]
        except ImageError as error:
            got = error.got if isinstance(error.got, str) else short(error.got)
            header = ["error", error.parameter, got[:2000], error.allowed]
        except MemoryError:
            header = ["error", "images", "more than the memory of a worker", f"at most {memory} bytes in all"]
        pipe.send_bytes(json.dumps(header).encode())
        for one in images:
            pipe.send_bytes(np.ascontiguousarray(one.pixels).reshape(-1).data)


def _bound_memory(memory: int | None) -> None:
    if memory is None or os.name != "posix":
        return
    import resource

    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    most = memory if hard == resource.RLIM_INFINITY else min(memory, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
