"""Deadlines of collectives that a device has queued: the host does not wait for them, so a thread looks after them."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from . import heartbeat
from .stream import Event

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Pending:
    """A queued collective.

    Attributes:
        event: done once the device is past it.
        error: what the library has noticed by itself; "" for nothing.
        fail: called in the watch's thread once, with what went wrong, where the collective fails.
        end: moment (`time.monotonic`) at which it must be done.
    """

    event: Event
    error: Callable[[], str]
    fail: Callable[[str], None]
    end: float


class Watch:
    """Looks after queued collectives, those of a group in their order. Holds no tensor of theirs.

    Whatever its callbacks raise, it goes on: with the thread all deadlines would be gone.

    Args:
        begin: called first in the watch's thread, such as to select the device.
    """

    def __init__(self, begin: Callable[[], None]) -> None:
        self._begin = begin
        self._queues: dict[str, deque[Pending]] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, group: str, pending: Pending) -> None:
        """Look after one more collective of a group. Its first one starts the thread."""
        with self._lock:
            self._queues.setdefault(group, deque()).append(pending)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="deepinfer-collectives", daemon=True)
                self._thread.start()

    def look(self, now: float) -> None:
        """Forget what is done, and fail what is late or broken; later ones of that group are then forgotten too.
        Nothing fails any more once the watch is being stopped."""
        with self._lock:
            queues = list(self._queues.items())
        for group, queue in queues:
            while queue:
                problem = self._problem(queue[0], now)
                if problem is None:
                    break
                pending = queue.popleft()
                if problem:
                    with self._lock:
                        self._queues.pop(group, None)
                    self._fail(pending, problem)
                    break

    def stop(self, patience: float | None = None) -> None:
        """End the thread.

        Args:
            patience: seconds to wait for it, and so for a failure that it is busy with; two looks by default.
        """
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(2 * heartbeat.INTERVAL_SECONDS if patience is None else patience)

    def _fail(self, pending: Pending, problem: str) -> None:
        if self._stop.is_set():
            return
        try:
            pending.fail(problem)
        except Exception:
            log.exception("a collective failed (%s), and so did what was to be done about it", problem)

    @staticmethod
    def _problem(pending: Pending, now: float) -> str | None:
        """What is wrong with a collective: "" where it is done and well, None while it may still become so."""
        try:
            done = pending.event.done()
            problem = pending.error()
        except Exception as error:  # a fault of the device or its library; the thread must live to say so
            return str(error) or type(error).__name__
        if problem:
            return problem
        if done:
            return ""
        return "it is still in the device's queue" if now >= pending.end else None

    def _run(self) -> None:
        try:
            self._begin()
        except Exception:  # deadlines need no device
            log.exception("the thread that watches collectives goes on without its device")
        while not self._stop.wait(heartbeat.INTERVAL_SECONDS):
            self.look(time.monotonic())
