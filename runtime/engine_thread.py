"""An engine in a thread of its own, and the streams that carry its outputs to event loops.

The thread is the only one that touches the engine. Requests and aborts reach it through an inbox, between two steps, so
that an event loop never waits for a step. Outputs go into mailboxes, one per sample, where what is not read yet is
merged: a slow reader gets larger deltas, later, and neither holds up the engine nor takes more memory than its own
request may say.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from ..hal.errors import DeepInferError, DeviceFaultError, InvalidArgumentError
from .delta import Mailbox, OutputDelta
from .engine import LLMEngine
from .image_workers import QueueFullError
from .outputs import FinishReason, RequestOutput
from .pool import PoolError

log = logging.getLogger(__name__)

STEP_RETRIES = 1
"""Steps in a row that may fail before the requests that are there end. The engine has already tried each by itself."""
IDLE_SECONDS = 0.001
"""Pause behind steps in which nobody could run."""


class EngineClosedError(DeepInferError):
    """The engine takes no requests any more: it is shutting down, or has."""


class EngineDeadError(DeepInferError):
    """The engine has died, and everybody who waited for it is told so. `__cause__` is what it died of."""


class EngineBusyError(DeepInferError):
    """So many requests are unfinished that no more are taken for now."""


class StepFailedError(DeepInferError):
    """Steps failed whatever request ran in them, and all requests of that moment ended. `__cause__` is the error.

    The engine is alive, and takes new requests.
    """


class Stream:
    """Outputs of one request on their way from the engine's thread to an event loop."""

    def __init__(
        self, key: str, request_id: Any, samples: int, loop: asyncio.AbstractEventLoop, patient: bool = False
    ) -> None:
        self.key, self.request_id, self.loop = key, request_id, loop
        self.patient = patient  # waits where no more images may wait to be decoded
        self.event = asyncio.Event()
        self.cancelled = False
        self._lock = threading.Lock()
        self._boxes: dict[int, Mailbox] = {}
        self._left = samples
        self._error: BaseException | None = None
        self._told = False

    def put(self, output: RequestOutput) -> bool:
        """From the engine's thread. Whether the reader is to be woken."""
        with self._lock:
            box = self._boxes.get(output.sample_index)
            if box is None:
                box = self._boxes[output.sample_index] = Mailbox(self.request_id)
            box.add(output)
            self._left -= output.finished
            told, self._told = self._told, True
            return not told

    def fail(self, error: BaseException) -> None:
        """The request ends with an error; what came before is still read. The first error counts."""
        with self._lock:
            self._error = self._error or error

    @property
    def done(self) -> bool:
        """Whether all samples have ended."""
        return self._left <= 0

    def take(self) -> tuple[list[OutputDelta], BaseException | None, bool]:
        """From the loop: what has come since the last call, an error behind it, and whether that was all."""
        with self._lock:
            self.event.clear()
            self._told = False
            boxes, self._boxes = self._boxes, {}
            return [box.take() for box in boxes.values()], self._error, self._left <= 0


class Room:
    """A place in the line of requests that wait to be queued. `event` is set when its turn may have come."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.event = asyncio.Event()


class EngineThread:
    """Steps an engine for as long as it has requests.

    Args:
        engine: nobody else may step it.
        step_timeout: seconds after which a step that has not come back counts as dead; None waits for ever.
        most: unfinished requests at a time; None is no limit.
    """

    def __init__(self, engine: LLMEngine, step_timeout: float | None = None, most: int | None = None) -> None:
        self.engine = engine
        self._most = most
        self._line: deque[Room] = deque()  # who waits for room, in order
        self.error: EngineDeadError | None = None
        self._changed = threading.Condition()
        self._inbox: deque[tuple[Any, ...]] = deque()
        self._later: deque[tuple[Stream, tuple[Any, ...]]] = deque()  # wait for room for their images; the thread's own
        self._streams: dict[str, Stream] = {}  # of unfinished requests
        self._by_id: dict[Any, Stream] = {}
        self._stopping: str | None = None  # None, "drain" or "abort"
        self._failures = self._idle = 0
        self._step_began: float | None = None
        self._finished = threading.Event()
        self._thread = threading.Thread(target=self._run, name="deepinfer engine", daemon=True)
        self._thread.start()
        if step_timeout is not None:
            threading.Thread(target=self._watch, args=(step_timeout,), name="deepinfer watchdog", daemon=True).start()

    # ---- from other threads

    def submit(self, stream: Stream, *request: Any, room: Room | None = None) -> None:
        """Queue a request: parameters, prompt, images, user_id, arrival time.

        Args:
            room: its place in the line, if it has waited; nobody else goes before those who wait.

        Raises:
            EngineClosedError, EngineDeadError: no requests are taken.
            EngineBusyError: there is no room, or its turn has not come.
            InvalidArgumentError: an unfinished request has this id.
        """
        with self._changed:
            self.check_open()
            if stream.request_id in self._by_id:
                raise InvalidArgumentError("request_id", stream.request_id, "an id that no unfinished request has")
            if self._most is not None:
                before = len(self._line) if room is None else self._line.index(room)
                if len(self._streams) + before >= self._most:
                    raise EngineBusyError(f"{len(self._streams)} requests are unfinished, {self._most} may be")
            self._streams[stream.key] = self._by_id[stream.request_id] = stream
            self._inbox.append(("add", stream, request))
            self._tell()

    def line_up(self, loop: asyncio.AbstractEventLoop) -> Room:
        """A place in the line, behind all others. It ends with `step_out`."""
        room = Room(loop)
        with self._changed:
            self._line.append(room)
            self._call()  # there may be room by now
        return room

    def step_out(self, room: Room) -> None:
        """Whoever had the place has been queued, or waits no longer."""
        with self._changed:
            self._line.remove(room)
            self._call()

    def _call(self, everybody: bool = False) -> None:
        """Wakes those in the line for whom there is room. Needs the lock."""
        if self._most is None:
            return
        most = None if everybody else max(0, self._most - len(self._streams))
        for room in itertools.islice(self._line, most):
            with suppress(RuntimeError):  # its loop is closed, and nobody waits there
                room.loop.call_soon_threadsafe(room.event.set)

    def check_open(self) -> None:
        """Raises EngineClosedError or EngineDeadError unless requests are taken."""
        if self.error is not None:
            raise self._death()
        if self._stopping is not None or self._finished.is_set():
            raise EngineClosedError("the engine is shutting down and takes no requests")

    def forget(self, stream: Stream) -> None:
        """Nobody reads the stream any more: its request, if unfinished, is aborted."""
        with self._changed:
            stream.cancelled = True
            if self._pop(stream):
                self._inbox.append(("abort", stream.key))
                self._tell()

    def abort(self, request_id: Any) -> bool:
        """End a request: its stream ends with the reason "abort". False for an unknown or finished one."""
        with self._changed:
            found = self._by_id.get(request_id)
            if found is None:
                return False
            self._inbox.append(("abort", found.key))
            self._tell()
            return True

    def _tell(self) -> None:
        """Wakes the thread, wherever it waits. Needs the lock."""
        self._changed.notify_all()
        self.engine.wake()

    def stop(self, drain: bool) -> None:
        """Take no more requests; finish those that are there, or abort them."""
        with self._changed:
            if self._stopping != "abort":
                self._stopping = "drain" if drain else "abort"
            self._call(everybody=True)
            self._tell()

    def join(self, timeout: float | None = None) -> bool:
        """Whether the thread has ended, after at most so many seconds. A dead engine has."""
        return self._finished.wait(timeout)

    def kill(self, reason: str) -> None:
        """Tell everybody that the engine is dead, whatever its thread does."""
        self._die(TimeoutError(reason))

    @property
    def unfinished(self) -> int:
        """Streams whose requests have not ended."""
        with self._changed:
            return len(self._streams)

    # ---- the engine's thread

    def _run(self) -> None:
        try:
            while self._wait():
                self._take_inbox()
                if self.engine.has_unfinished_requests():
                    self._step()
            self._end()
        except BaseException as error:
            self._die(error)
        finally:
            with suppress(Exception):
                self.engine.close()
            self._finished.set()

    def _wait(self) -> bool:
        """Until there is something to do. False when it is time to end."""
        with self._changed:
            while True:
                if self.error is not None or self._stopping == "abort":
                    return False
                if self._inbox or self._later or self.engine.has_unfinished_requests():
                    return True
                if self._stopping == "drain":
                    return False
                self._changed.wait()

    def _take_inbox(self) -> None:
        with self._changed:
            inbox = list(self._inbox)
            self._inbox.clear()
        while self._later and self._add(*self._later[0]):
            self._later.popleft()
        for kind, *rest in inbox:
            if kind == "abort":
                self._abort(rest)
                continue
            stream, (params, prompt, images, *more) = rest
            in_turn = not (stream.patient and images.encoded and self._later)
            if not (in_turn and self._add(stream, (params, prompt, images, *more))):
                ids = np.asarray(prompt)  # which is quick to check again
                self._later.append((stream, (params, ids, images, *more)))

    def _add(self, stream: Stream, request: tuple[Any, ...]) -> bool:
        """Queues a request, or fails its stream. False where it is to be tried again behind the next step."""
        if stream.cancelled:
            return True
        params, prompt, images, user_id, arrival = request
        try:
            self.engine.add_request(user_id, stream.key, params, prompt, images, arrival)
        except PoolError:
            raise
        except DeepInferError as error:
            # If nobody is there, nobody's images will make room.
            full = isinstance(error, QueueFullError) and stream.patient
            if full and self.engine.get_num_unfinished_requests():
                return False
            self._fail([stream], error)
        except Exception as error:  # memory that was short for it, say: nobody else's affair
            log.exception("request %r could not be queued", stream.request_id)
            self.engine.abort_request([stream.key])
            self._fail([stream], error)
        return True

    def _abort(self, keys: Sequence[str]) -> None:
        """Ends requests, also those that wait for room for their images, which the engine does not know."""
        waiting = [one for one in self._later if one[0].key in keys]
        for one in waiting:
            self._later.remove(one)
            stream, (params, prompt, _, user_id, arrival) = one
            elapsed = time.monotonic() - arrival
            self.deliver(
                RequestOutput(
                    request_id=stream.key,
                    user_id=user_id,
                    sample_index=index,
                    prompt_len=len(prompt),
                    finished=True,
                    finish_reason=str(FinishReason.ABORT),
                    elapsed=elapsed,
                )
                for index in range(params.n)
            )
        self.engine.abort_request(list(keys))

    def _step(self) -> None:
        steps, self._step_began = self.engine.stats.steps, time.monotonic()
        try:
            outputs = self.engine.step()
        except (PoolError, DeviceFaultError):
            raise
        except Exception as error:
            self._failures += 1
            log.exception("a step failed (%d in a row)", self._failures)
            if self._failures > STEP_RETRIES:
                self._fail_all(error)
            return
        finally:
            self._step_began = None
        self.deliver(outputs)
        if self.engine.stats.steps != steps:
            self._failures = self._idle = 0
            return
        self._idle = 0 if outputs else self._idle + 1
        if self._idle > 1:  # one may only have launched what the next one lands
            with self._changed:
                if not self._inbox and self._stopping is None:
                    self._changed.wait(IDLE_SECONDS)

    def _fail_all(self, error: Exception) -> None:
        self._failures = 0
        with self._changed:
            streams = list(self._streams.values())
        failure = StepFailedError(f"steps fail whatever runs in them: {type(error).__name__}: {error}")
        failure.__cause__ = error
        self._later.clear()
        self.engine.abort_request([stream.key for stream in streams])
        self._fail(streams, failure)

    def _end(self) -> None:
        """Everybody who is still there ends with the reason "abort". Of a dead engine nobody is there."""
        if self.error is not None:
            return
        self._take_inbox()
        with self._changed:
            keys = list(self._streams)
        self._abort(keys)
        while self.engine.has_unfinished_requests():
            self.deliver(self.engine.step())
            if self.error is not None:
                return
        with self._changed:
            left = list(self._streams.values())
        self._fail(left, EngineClosedError("the engine has shut down"))

    def deliver(self, outputs: Iterable[RequestOutput]) -> None:
        """Puts outputs into their mailboxes and wakes whoever waits."""
        wake: list[Stream] = []
        for output in outputs:
            stream = self._streams.get(output.request_id)
            if stream is None:
                continue  # its reader has left, and this is the last word
            if stream.put(output):
                wake.append(stream)
            if stream.done:
                with self._changed:
                    self._pop(stream)
        self._wake(wake)

    def _pop(self, stream: Stream) -> bool:
        """Whether the request was unfinished; from now on its id is free. Needs the lock."""
        if self._streams.pop(stream.key, None) is None:
            return False
        del self._by_id[stream.request_id]
        self._call()
        return True

    # ---- endings

    def _fail(self, streams: Sequence[Stream], error: BaseException) -> None:
        with self._changed:
            for stream in streams:
                self._pop(stream)
        for stream in streams:
            stream.fail(error)
        self._wake(streams)

    def _wake(self, streams: Sequence[Stream]) -> None:
        """One call per loop. Streams of a loop that is closed have no reader."""
        by_loop: dict[asyncio.AbstractEventLoop, list[Stream]] = {}
        for stream in streams:
            by_loop.setdefault(stream.loop, []).append(stream)
        for loop, some in by_loop.items():
            try:
                loop.call_soon_threadsafe(_set_all, some)
            except RuntimeError:
                for stream in some:
                    self.forget(stream)

    def _death(self) -> EngineDeadError:
        assert self.error is not None
        again = EngineDeadError(str(self.error))
        again.__cause__ = self.error.__cause__
        return again

    def _die(self, error: BaseException) -> None:
        with self._changed:
            if self.error is not None or self._finished.is_set():
                return
            self.error = EngineDeadError(f"the engine has died: {type(error).__name__}: {error}")
            self.error.__cause__ = error
            streams = list(self._streams.values())
            self._inbox.clear()
            self._call(everybody=True)
            self._changed.notify_all()
        log.error("the engine has died", exc_info=error)
        for stream in streams:
            self._fail([stream], self._death())
        self._finished.set()

    def _watch(self, timeout: float) -> None:
        while not self._finished.wait(min(timeout / 4, 1.0)):
            began = self._step_began
            if began is not None and time.monotonic() - began > timeout:
                self.kill(f"a step has not come back for {timeout:g} s")


def _set_all(streams: Sequence[Stream]) -> None:
    for stream in streams:
        stream.event.set()
